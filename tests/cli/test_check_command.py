"""`antecede check` as a researcher runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import antecede

HASTY = """
from antecede.protocols.mbcp import Mbcp


class Hasty(Mbcp):
    name = "hasty"

    def _accept(self, packet, unmet):
        return super()._accept(packet, [])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A protocol that delivers too early, and what `check` writes of it."""
    made = tmp_path_factory.mktemp("check")
    (made / "mine.py").write_text(HASTY)
    done = antecede("check", "mine:Hasty", "--out", "found", cwd=made)
    assert done.returncode == 1, done.stderr
    (made / "output.txt").write_text(done.stdout)
    return made


def test_a_correct_protocol_holds_in_every_schedule() -> None:
    done = antecede("check", "mbcp")
    assert done.returncode == 0, done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines()][1] == ["mbcp", "holds", "459"]
    assert "Equivalent schedules were left out (order, symmetry)" in done.stdout


def test_what_is_not_explored_completely_is_not_called_complete() -> None:
    done = antecede("check", "mbcp", "--messages", "2", "--max-states", "1000", "--json")
    (report,) = json.loads(done.stdout)["protocols"]
    assert done.returncode == 0
    assert report["complete"] is False
    assert report["reductions"] == ["order", "symmetry"]
    assert "holds so far" in antecede("check", "mbcp", "--messages", "2", "--max-states", "1000").stdout


def test_members_are_arranged_as_asked_for() -> None:
    inside = antecede("check", "freescale", "--peers", "2", "--layout", '{"inside": [1]}', "--json")
    (report,) = json.loads(inside.stdout)["protocols"]
    assert (report["bounds"]["layout"], report["complete"]) == ({"inside": [1]}, True)
    groups = '{"a": [0, 1], "b": [1, 2]}'
    (report,) = json.loads(antecede("check", "multigroup", "--groups", groups, "--json").stdout)["protocols"]
    assert (report["bounds"]["groups"], report["complete"]) == ({"a": [0, 1], "b": [1, 2]}, True)


def test_a_broken_protocol_fails_in_its_smallest_schedule(folder: Path) -> None:
    shown = (folder / "output.txt").read_text()
    assert "mine:Hasty fails with 2 messages at 3 processes" in shown
    assert "p2: it delivers p1:1 before p0:1, which happened before p1:1" in shown
    assert "p1:1 arrived at p2 with causes {p0:1}." in shown
    assert "It depends immediately on p0:1." in shown
    steps = [line for line in shown.splitlines() if line.strip()[:1].isdigit()]
    assert len(steps) == 6
    diagram = (folder / "found" / "mine.Hasty.svg").read_text()
    assert diagram.startswith("<svg")
    assert 'class="fault"' in diagram


def test_a_schedule_is_played_again_step_by_step(folder: Path) -> None:
    schedule = str(folder / "found" / "mine.Hasty.json")
    done = antecede("check", "--replay", schedule, cwd=folder)
    assert done.returncode == 1
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()[:6]] == [
        "p0 broadcasts p0:1",
        "p1 receives p0:1",
        "p1 delivers p0:1",
        "p1 broadcasts p1:1",
        "p2 receives p1:1",
        "p2 delivers p1:1",
    ]
    assert "p2: it delivers p1:1 before p0:1" in done.stdout


def test_a_schedule_that_the_mended_protocol_does_not_allow_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HASTY.replace("[])", "unmet)"))
    done = antecede("check", "--replay", str(folder / "found" / "mine.Hasty.json"), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1].strip() == "p2 holds p1:1 for p0:1"
    assert "step 6 cannot happen now: delivers p1:1 at p2; the protocol has changed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no protocol 'nothing'"),
        (["mbcp", "--master", "local[2]"], "--master needs --out"),
        ([], "name a protocol, all, or a schedule with --replay"),
        (["mbcp", "--peers", "8", "--messages", "8"], "more than 24 messages"),
        (["mbcp", "--link-changes", "1"], "the links of mbcp neither open nor close"),
        (["exec:"], "cannot start '': exec: is followed by a command"),
        (["nowhere:Mine"], "cannot load protocol 'nowhere:Mine': no nowhere.py in"),
        (["json:Nothing"], "cannot load protocol 'json:Nothing': json has no Nothing"),
        (["../mine:Mine"], "it is written as module:Class"),
        (["hcg", "--layout", "[1]"], "not a JSON object"),
        (["hcg", "--layout", '{"subgroups": ["rt:9"]}'], "layout: subgroups has 9 members in all, not 3"),
        (["multigroup", "--groups", '{"a": "b"}'], "groups"),
        (["multigroup", "--groups", '{"a": [7]}'], "groups: a names 7"),
        (["--replay", "nowhere.json"], "nowhere.json: No such file"),
        (["--replay", __file__], "is not a schedule"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str) -> None:
    done = antecede("check", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
