"""`check` and `verify --membership` as a researcher runs them, on members of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import antecede

LATE = """
from antecede.membership.catalog import ChangingMbcp


class LateCounts(ChangingMbcp):
    name = "late"

    def sponsor(self, address, snapshot, now):
        # The snapshot has one message more than the counts that are sent with it say.
        counts = self.order.delivered
        last = max((each for each in counts if each != self.stream), key=counts.get)
        if not counts[last]:
            return super().sponsor(address, snapshot, now)
        counts[last] -= 1
        try:
            return super().sponsor(address, snapshot, now)
        finally:
            counts[last] += 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A member that takes its snapshots too late, and what `check` writes of it."""
    made = tmp_path_factory.mktemp("membership")
    (made / "mine.py").write_text(LATE)
    done = antecede("check", "mine:LateCounts", "--joins", "1", "--total", "1", "--out", "found", cwd=made)
    assert done.returncode == 1, done.stderr
    (made / "output.txt").write_text(done.stdout)
    return made


def test_check_finds_the_smallest_schedule_that_fails(folder: Path) -> None:
    output = (folder / "output.txt").read_text()
    assert "7  p3 delivers p0:1\np3: delivers p0:1 twice" in output
    assert (folder / "found" / "mine.LateCounts.svg").read_text().startswith("<svg")


def test_a_saved_schedule_is_replayed_on_the_current_protocol(folder: Path) -> None:
    file = folder / "found" / "mine.LateCounts.json"
    again = antecede("check", "--replay", str(file), cwd=folder)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (1, "p3: delivers p0:1 twice")
    saved = json.loads(file.read_text())
    mended = folder / "mended.json"
    mended.write_text(json.dumps(saved | {"protocol": "mbcp", "changes": saved["changes"][:-1]}))
    done = antecede("check", "--replay", str(mended), "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"] is True


def test_verify_shrinks_a_failing_schedule_and_check_replays_it(folder: Path) -> None:
    done = antecede("verify", "mine:LateCounts", "--membership", "--runs", "5", "--out", "small", cwd=folder)
    assert done.returncode == 1, done.stderr
    again = antecede("check", "--replay", "small/mine.LateCounts.json", cwd=folder)
    assert again.returncode == 1, again.stderr
    assert "twice" in again.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"changes": [["explode", 0, -1]]}, "no events 'explode'"),
        ({"changes": [["join", 3, -1]]}, "an event of process 3 about -1"),
        ({"changes": [["broadcast", -4, -1]]}, "an event of process -4"),
        ({"changes": [["broadcast", 0]]}, "Expected `array` of length 3"),
        ({"changes": [["broadcast", 9, -1]]}, "step 1 cannot happen now"),
        ({"founders": 10**9, "size": 10**9}, "1 to 64 addresses"),
        ({"founders": 0}, "1 to 64 addresses"),
        ({"protocol": "flooding"}, "groups of flooding do not change"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_malformed_schedule_file_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    saved = json.loads((folder / "found" / "mine.LateCounts.json").read_text())
    file = tmp_path / "schedule.json"
    file.write_text(json.dumps(saved | {"protocol": "mbcp"} | change))
    done = antecede("check", "--replay", str(file))
    assert done.returncode == 2, done.stdout
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_fixed_and_changing_groups_cannot_be_mixed() -> None:
    done = antecede("check", "mbcp", "--total", "2")
    assert (done.returncode, "--total is for groups that change" in done.stderr) == (2, True)
    done = antecede("check", "mbcp", "--joins", "1", "--losses", "1")
    assert (done.returncode, "--losses is for groups that do not change" in done.stderr) == (2, True)
