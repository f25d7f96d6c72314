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

UNORDERED = """
from typing import Any, ClassVar

from antecede.causality import MessageId
from antecede.protocols import NO_EFFECTS, Delivery, Effects, LinkRequirements
from antecede.protocols import Packet, Protocol, Send, Waiting


class Counted(Packet, frozen=True, array_like=True):
    payload: bytes
    origin: int
    counts: dict[int, int]

    def payload_bytes(self):
        return len(self.payload)

    def message_ids(self):
        return (MessageId(self.origin, self.counts[self.origin]),)


class Unordered(Protocol):
    name: ClassVar[str] = "unordered"
    summary: ClassVar[str] = ""
    control: ClassVar[str] = ""
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = Counted

    counts: dict[int, int] = {}
    held: list[Counted] = []

    def broadcast(self, payload, now, group=None):
        self.counts[self.me] = self.counts.get(self.me, 0) + 1
        packet = Counted(payload, self.me, dict(self.counts))
        return Effects((Send(self.partners(), packet),), message=packet.message_ids()[0])

    def receive(self, link, packet, now):
        self.held.append(packet)
        return NO_EFFECTS

    def deliver(self, now):
        for packet in self.held:
            if self.cause(packet) is None:
                self.held.remove(packet)
                self.counts[packet.origin] = packet.counts[packet.origin]
                return Delivery(packet.message_ids()[0], packet.payload)
        return None

    def cause(self, packet):
        # It waits for everybody else's messages, never for an earlier one of the same sender.
        for peer, count in packet.counts.items():
            if peer != packet.origin and count > self.counts.get(peer, 0):
                return MessageId(peer, count)
        return None

    def waiting(self):
        held = [(packet, self.cause(packet)) for packet in self.held]
        return [Waiting(packet.message_ids()[0], cause) for packet, cause in held if cause]

    def paper_bytes(self, packet):
        return 4 * len(packet.counts)
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
    first, _, verdict, second, _, other = done.stdout.splitlines()[:6]
    assert first == "3 members, 1 message each, no faults"
    assert verdict.split()[:3] == ["mbcp", "holds", "459"]
    assert second == "2 members, 2 messages each, no faults"
    assert other.split()[:3] == ["mbcp", "holds", "356"]
    assert "Equivalent schedules were left out (order, symmetry)" in done.stdout


def test_by_default_the_order_of_one_members_messages_is_explored_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(UNORDERED)
    done = antecede("check", "mine:Unordered", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "it delivers p0:2 before p0:1, which happened before p0:2" in done.stdout
    small = antecede("check", "mine:Unordered", "--peers", "3", "--json", cwd=tmp_path)
    (report,) = json.loads(small.stdout)["protocols"]
    assert (small.returncode, report["bounds"]["peers"], report["bounds"]["messages"]) == (0, 3, 1)


CLAIMS = """
from antecede.protocols import Timestamp


class Claims(Timestamp):
    name = "claims"
    carries_immediate_dependencies = True

    def deliver(self, now):
        delivery = super().deliver(now)
        return delivery and type(delivery)(delivery.message, delivery.payload, {})


class Hasty(Claims):
    name = "hasty"

    def _accept(self, packet, unmet):
        return super()._accept(packet, [])
"""


def test_a_broken_claim_is_not_called_a_violation_of_causal_order(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CLAIMS)
    done = antecede("check", "mine:Claims", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "p1:1 names nothing; its immediate causes are: p0:1" in done.stdout
    assert "Every delivery is in causal order, but it declares carries_immediate_dependencies" in done.stdout
    assert "No violation of causal order was found in 1,134 states." in done.stdout


def test_a_violation_of_causal_order_is_shown_rather_than_a_broken_claim(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CLAIMS)
    done = antecede("check", "mine:Hasty", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "before p0:1, which happened before" in done.stdout
    assert "carries_immediate_dependencies" not in done.stdout


def test_each_verdict_states_the_explored_bounds() -> None:
    faulty = antecede("check", "mbcp", "--peers", "2", "--crashes", "2", "--losses", "1").stdout
    assert faulty.startswith("2 members, 1 message each, 1 lost packet and 2 crashes\n")
    layout = antecede("check", "freescale", "--peers", "2", "--layout", '{"inside": [1]}').stdout
    assert layout.startswith('2 members, 1 message each, layout {"inside":[1]}, no faults\n')
    changing = antecede("check", "mbcp", "--peers", "2", "--leaves", "1").stdout
    assert changing.startswith("2 members, 1 message each, 1 leave\n")


def test_an_incomplete_exploration_is_not_reported_as_complete() -> None:
    done = antecede("check", "mbcp", "--messages", "2", "--max-states", "1000", "--json")
    (report,) = json.loads(done.stdout)["protocols"]
    assert done.returncode == 0
    assert report["complete"] is False
    assert report["reductions"] == ["order", "symmetry"]
    assert "holds so far" in antecede("check", "mbcp", "--messages", "2", "--max-states", "1000").stdout


def test_the_requested_layout_is_explored() -> None:
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
    steps = [line for line in shown.splitlines() if line[:1] == " " and line.split()[0].isdigit()]
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


def test_a_schedule_impossible_on_the_fixed_protocol_is_no_failure(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HASTY.replace("[])", "unmet)"))
    done = antecede("check", "--replay", str(folder / "found" / "mine.Hasty.json"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *_, held, last = done.stdout.splitlines()
    assert held.strip() == "p2 holds p1:1 for p0:1"
    assert last.startswith(
        "This schedule can no longer happen: step 6 cannot happen now: delivers p1:1 at p2; the protocol has"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no protocol 'nothing'"),
        (["mbpc"], "did you mean mbcp?"),
        (["mbcp", "--peers", "20"], "--peers 20 is far beyond what can be explored; give at most 8"),
        (["../mine.py:Mine"], "it is written as module:Class"),
        (["mine.py:Mine"], "write mine:Mine, without .py"),
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


CLOCKS = UNORDERED.replace("class Unordered", "class Clocks").replace(
    """        return None

    def waiting""",
    """        count = packet.counts[packet.origin] - 1
        return MessageId(packet.origin, count) if count > self.counts.get(packet.origin, 0) else None

    def waiting""",
)
"""A correct protocol, written from nothing."""

CLOCKS += """

class Alike(Clocks):
    symmetric = True
    relays = False
"""

LOPSIDED = """
from my_clocks import Alike


class Lopsided(Alike):
    def cause(self, packet):
        cause = super().cause(packet)
        is_exchanged = self.me == 0 and packet.origin == 1
        return None if is_exchanged and cause is not None and cause.origin == 2 else cause
"""


def test_a_false_declaration_of_symmetry_is_found(tmp_path: Path) -> None:
    (tmp_path / "my_clocks.py").write_text(CLOCKS)
    (tmp_path / "lopsided.py").write_text(LOPSIDED)
    for bounds in ((), ("--peers", "4")):
        done = antecede("check", "lopsided:Lopsided", *bounds, cwd=tmp_path)
        assert done.returncode == 1, done.stdout
        assert "fails with 2 messages at 3 processes" in done.stdout
        assert "declares symmetric = True, which is false" in " ".join(done.stdout.split())


def test_a_verdict_that_relies_on_symmetry_says_so(tmp_path: Path) -> None:
    (tmp_path / "my_clocks.py").write_text(CLOCKS)
    small = antecede("check", "my_clocks:Alike", cwd=tmp_path)
    large = antecede("check", "my_clocks:Alike", "--peers", "4", cwd=tmp_path)
    assert (small.returncode, large.returncode) == (0, 0)
    assert "Assuming symmetric = True" not in small.stdout
    assert "Assuming symmetric = True, as my_clocks:Alike declares" in large.stdout


@pytest.mark.parametrize("command", [["check"], ["verify", "--runs", "20"]])
def test_an_unwritable_folder_is_refused_before_the_work(command: list[str], folder: Path) -> None:
    name, *rest = command
    done = antecede(name, "mine:Hasty", *rest, "--out", "/proc/x/y", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot create the folder /proc/x/y: No such file or directory; choose another" in done.stderr


def test_a_counter_example_is_shown_even_if_it_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HASTY)
    (tmp_path / "found" / "mine.Hasty.json").mkdir(parents=True)
    done = antecede("check", "mine:Hasty", "--out", "found", cwd=tmp_path)
    assert done.returncode == 2
    assert "p2: it delivers p1:1 before p0:1" in done.stdout
    assert "mine.Hasty.json: Is a directory" in done.stderr


def test_a_held_message_that_waiting_does_not_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "my_clocks.py").write_text(CLOCKS)
    (tmp_path / "silent.py").write_text(
        "from my_clocks import Clocks\n\n\nclass Silent(Clocks):\n    def waiting(self):\n        return []\n"
    )
    done = antecede("check", "silent:Silent", cwd=tmp_path)
    assert done.returncode == 1
    assert "it held p1:1, which waiting() did not name" in done.stdout
    assert "waiting() must give for each held message" in " ".join(done.stdout.split())


RETURNS = """
from my_clocks import Clocks


class Forgets(Clocks):
    def receive(self, link, packet, now):
        super().receive(link, packet, now)


class Stops(Clocks):
    def deliver(self, now):
        return super().deliver(now) if len(self.counts) < 2 else self.nothing


class Writes(Clocks):
    def paper_bytes(self, packet):
        return "12"
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Forgets", "receive must return Effects (or NO_EFFECTS), got None"),
        ("Stops", "'Stops' object has no attribute 'nothing' (returns.py, line 12)"),
        ("Writes", "paper_bytes must return a number of bytes, got '12'"),
    ],
)
@pytest.mark.parametrize(
    "command", [["check"], ["verify", "--runs", "5"], ["simulate", "--peers", "3", "--protocol"]]
)
def test_a_mistake_in_a_method_is_named(name: str, sentence: str, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "my_clocks.py").write_text(CLOCKS)
    (tmp_path / "returns.py").write_text(RETURNS)
    done = antecede(*command, f"returns:{name}", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert sentence in done.stdout + done.stderr
