"""A protocol that is a program of its own, in any language."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from antecede.check.bounds import Bounds
from antecede.check.run import CheckReport, check
from antecede.errors import InputError
from antecede.protocols.base import LocalError, RemoteError
from antecede.protocols.catalog import as_file_name, find_protocol, fingerprint
from antecede.protocols.program import ProgramPacket
from antecede.sim.verify import VerifyReport, verify

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "protocols" / "vector_clocks.py"


def command(path: Path) -> str:
    return f"exec:{sys.executable} {path}"


def checked(name: str) -> CheckReport:
    report = CheckReport(name, Bounds())
    for report in check(find_protocol(name), name, Bounds(), 100_000):  # noqa: B007
        pass
    return report


def test_the_example_holds_in_every_schedule_and_in_random_executions() -> None:
    report = checked(command(EXAMPLE))
    assert (report.passed, report.complete) == (True, True), report.violation
    outcome = VerifyReport("")
    for outcome in verify(command(EXAMPLE), 5, seed=1):  # noqa: B007
        pass
    assert outcome.passed, outcome.failures


def test_a_wrong_program_is_reported_with_the_failing_schedule(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(EXAMPLE.read_text().replace("and all(n <= 0", "and any(n <= 0"))
    report = checked(command(wrong))
    assert report.counter_example is not None
    assert report.counter_example.violation == "it delivers p1:1 before p0:1, which happened before p1:1"
    assert len(report.counter_example.steps) == 6
    carried, _ = report.counter_example.why
    assert carried == 'p1:1 arrived at p2 with {"from": 1, "clock": [1, 1, 0], "payload": "AQ=="}.'


PROGRAMS = {
    "that is not there": (None, "cannot start"),
    "that ends": ("import sys; sys.exit(3)", "has ended with exit code 3"),
    "that does not speak JSON": ("input(); print('hello')", "does not describe a protocol"),
    "that says something else": ("input(); print('[1, 2]')", "does not describe a protocol"),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_does_not_implement_a_protocol_is_refused_in_one_sentence(
    kind: str, tmp_path: Path
) -> None:
    source, words = PROGRAMS[kind]
    program = tmp_path / "program.py"
    program.write_text(source or "")
    name = command(program) if source is not None else f"exec:{tmp_path / 'nothing'}"
    with pytest.raises(InputError, match=words):
        find_protocol(name)


ANSWERS = {
    "a reply that is not right": (
        '{"state": 1, "sends": 5}',
        LocalError,
        "a reply to broadcast that is not right",
    ),
    "a refusal": ('{"error": "I do not like it"}', RemoteError, "I do not like it"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_replies_of_a_program_are_validated(kind: str, tmp_path: Path) -> None:
    answer, error, words = ANSWERS[kind]
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        """for n, _ in enumerate(sys.stdin):\n"""
        f"""    print(['{{"name": "odd"}}', '{{"state": 0}}'][n] if n < 2 else {answer!r}, flush=True)\n"""
    )
    (member,) = find_protocol(command(program)).group(1)
    with pytest.raises(error, match=words):
        member.broadcast(b"", 0)


def test_a_member_takes_no_packets_of_other_protocols() -> None:
    one, _ = find_protocol(command(EXAMPLE)).group(2)
    with pytest.raises(RemoteError):
        one.receive(1, find_protocol("mbcp").group(2)[1].broadcast(b"", 0).sends[0].packet, 0)
    assert ProgramPacket(b"{}", [(0, 1)]).message_ids() == ((0, 1),)


def test_program_protocols_are_named_by_file_and_digest(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("1")
    before = fingerprint(command(program))
    program.write_text("2")
    assert fingerprint(command(program)) != before
    assert as_file_name("exec:./a program --x 3") == "exec.a.program.--x.3"
    assert as_file_name("mine:Own") == "mine.Own"
