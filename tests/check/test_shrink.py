"""`verify` shrinks every failing run to a small one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from antecede.check.failing_run import smallest_failure
from antecede.check.replay import read_schedule, replay
from antecede.check.shrink import smaller_layouts
from antecede.cli.main import app
from antecede.sim.verify import verify

BROKEN: list[tuple[str, tuple[int, int, int], str]] = [
    ("broken_protocols:TimestampWithoutDependencies", (2, 3, 6), "delivers p1:1 before p0:1"),
    ("broken_protocols:MbcpWithoutDependencies", (2, 3, 6), "delivers p1:1 before p0:1"),
    ("broken_protocols:TimestampWithoutFifo", (2, 2, 4), "delivers p0:2 before p0:1"),
    ("broken_protocols:MbcpWithoutFifo", (2, 2, 4), "delivers p0:2 before p0:1"),
    ("broken_protocols:MbcpThatForgets", (3, 3, 9), "delivers p2:1 before p0:1"),
    ("broken_protocols:MbcpThatNeverDelivers", (1, 2, 2), "never delivers p0:1"),
    ("broken_protocols:MbcpThatRepeats", (1, 2, 5), "a second time"),
    ("broken_protocols:MbcpThatRaises", (2, 2, 5), "it raises LocalError: this is too much"),
    ("printed_protocols.freescale:ForgetsItsOwnNumbers", (2, 3, 7), "happened before"),
    ("printed_protocols.multigroup:LeavesItsOwnOut", (2, 2, 4), "happened before"),
    ("printed_protocols.pc:UsesNewLinksAtOnce", (2, 3, 5), "happened before"),
    ("printed_protocols.hcg:NoWait", (2, 2, 4), "happened before"),
]


@pytest.mark.parametrize(("name", "size", "why"), BROKEN, ids=lambda value: str(value).rpartition(":")[2])
def test_a_failure_found_by_verify_is_shrunk(name: str, size: tuple[int, int, int], why: str) -> None:
    for report in verify(name, 300, seed=1):
        if report.failed:
            break
    (failure,) = report.failures
    found = smallest_failure(failure.scenario)
    assert found is not None
    assert why in found.violation.text
    assert found.size == size


def test_verify_prints_writes_and_replays_the_shrunk_run(tmp_path: Path) -> None:
    arguments = ["verify", "broken_protocols:MbcpThatForgets", "--runs", "5", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "fails with 3 messages at 3 processes:" in done.output
    assert "p2:1 arrived at p1 with causes {p1:1}." in done.output
    name = "broken_protocols.MbcpThatForgets"
    assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")
    *_, last = replay(read_schedule(tmp_path / f"{name}.json"))
    assert last.violation is not None
    assert last.violation.text == "it delivers p2:1 before p0:1, which happened before p2:1"
    (shown,) = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["counter_examples"]
    assert (shown["protocol"], len(shown["example"]["steps"])) == ("broken_protocols:MbcpThatForgets", 9)
    assert shown["files"] == [str(tmp_path / f"{name}{suffix}") for suffix in (".json", ".svg")]


def test_layouts_of_smaller_groups() -> None:
    found = [layout["subgroups"] for peers, layout in smaller_layouts({"subgroups": ["rt:2", "vt:1"]}, 3)]
    assert found[:3] == [["rt:2", "vt:1"], ["rt:1", "vt:1"], ["rt:2"]]
