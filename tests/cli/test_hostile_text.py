r"""Names and ids that others chose, through every command: nothing of them reaches the terminal raw.

A name may hold escape sequences, line breaks, changes of direction or Rich's markup. People see `\x1b` and
`[red]`; programs get the name itself, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from command_line import antecede_bytes

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
HOSTILE = (
    "\x1b[2J\x1b]0;t\x07\x9b31m\r\nforged\u202e\u2066\u2028\x7f\u200b[red]x[/red][link=http://e.org]y:skull:"
)
RAW = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ud800-\udfff]"
)
"""What no output may have; a line end is all that is left of the control characters."""
ANA, BO, CY = (f"{name}{HOSTILE}" for name in ("ana", "bo", "cy"))


def row(process: str, index: int, kind: str, origin: str, seq: int, **more: Any) -> dict[str, Any]:
    event = {"run": f"run{HOSTILE}", "group": f"g{HOSTILE}", "process": process, "index": index}
    return event | {"kind": kind, "origin": origin, "seq": seq, "time": 10 * index} | more


EVENTS = [
    row(ANA, 0, "send", ANA, 1),
    row(BO, 0, "receive", ANA, 1),
    row(BO, 1, "deliver", ANA, 1),
    row(BO, 2, "send", BO, 1),
    row(CY, 0, "deliver", BO, 1),
    row(CY, 1, "deliver", ANA, 1),
    row(ANA, 1, "deliver", BO, 1),
]
"""cy delivers bo's message before its cause."""


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in rows)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    (folder / "log.jsonl").write_text(lines(*EVENTS))
    (folder / "two.jsonl").write_text(lines(*EVENTS, *({**each, "run": "other"} for each in EVENTS)))
    (folder / "kind.jsonl").write_text(lines(row(ANA, 0, HOSTILE, ANA, 1)))
    (folder / "seq.jsonl").write_text(lines({**EVENTS[0], "seq": HOSTILE}))
    (folder / "twice.jsonl").write_text(lines(EVENTS[0], {**EVENTS[0], "index": 1}))
    (folder / "foreign.jsonl").write_text(lines(*({**each, "seq": HOSTILE} for each in EVENTS)))
    (folder / f"{HOSTILE.replace('/', '')}.jsonl").write_text("{")
    rows = [["node", "process", "seq", "parents", ESCAPE], [HOSTILE, ANA, "1", "", ""]]
    rows += [["b", BO, "1", HOSTILE.split()[0], ""], ["c", CY, HOSTILE, "b", ""], ["d", CY, "2", "b", ""]]
    text = "".join(",".join(map(quoted, each)) + "\n" for each in rows)
    (folder / "parents.csv").write_text(text, newline="")
    (folder / "chain.csv").write_text(text.replace(quoted("b"), quoted(f"b{ESCAPE}:skull:")), newline="")
    (folder / "unknown.csv").write_text(
        f"node,process,seq,parents\na,{quoted(ANA)},1,{quoted('x' + ESCAPE)}\n"
    )
    (folder / "header.csv").write_text(f"{quoted(HOSTILE)},{quoted(HOSTILE)}\n1,2\n", newline="")
    clock = json.dumps({ESCAPE: 1})
    (folder / "clocks.log").write_text(f"{ESCAPE} {clock}\nevent\n{ESCAPE} {clock}\nevent\nbad {HOSTILE} \n")
    (folder / "held.jsonl").write_text(
        lines({"id": f"a{HOSTILE}", "deps": [f"b{HOSTILE}"], "room": f"r{HOSTILE}"}, {"id": "c", "deps": []})
    )
    (folder / "editing.json").write_text(json.dumps({"txns": [{"agent": ANA}, {"parents": HOSTILE}]}))
    table = pa.Table.from_pylist([{f"column{HOSTILE}": 1}])
    pq.write_table(table, folder / "columns.parquet")
    simulate_to(folder / "trace", scenario(protocol="mbcp", peers=3, seconds=0.2))
    return folder


ESCAPE = "\x1b[31m\x9b2J\u202e[red]x[/red]"
"""Without white space, for formats in which that ends a name."""


def antecede(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return antecede_bytes(*arguments, cwd=folder)


def checked(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """Everything printed, checked to contain no raw control characters and no internal error."""
    shown = done.stdout.decode() + done.stderr.decode()
    assert b"\x1b" not in done.stdout + done.stderr
    assert RAW.findall(shown) == []
    assert "error: internal" not in shown
    assert done.returncode == code, shown
    return shown


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (1, ["audit", "log.jsonl"]),
        (1, ["audit", "two.jsonl"]),
        (1, ["audit", "log.jsonl", "--html", "{out}/page.html"]),
        (1, ["audit", "log.jsonl", "--engine", "spark"]),
        (0, ["graph", "log.jsonl"]),
        (0, ["graph", "two.jsonl"]),
        (0, ["graph", "chain.csv"]),
        (0, ["explain", "log.jsonl", "--message", f"{BO}:1"]),
        (0, ["advise", "log.jsonl", "--deliveries", "100"]),
        (0, ["order", "held.jsonl", "--id", "id", "--deps", "deps", "--group", "room", "--out", "{out}/o"]),
        (0, ["export", "shiviz", "log.jsonl", "--out", "{out}/log"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_results_escape_hostile_text(folder: Path, tmp_path: Path, code: int, arguments: list[str]) -> None:
    shown = checked(antecede(folder, *(each.format(out=tmp_path) for each in arguments)), code)
    for text in tmp_path.glob("*.html"):
        assert RAW.findall(text.read_text("utf-8")) == []
        assert "[red]x[/red]" in text.read_text("utf-8")
    if arguments[0] != "export":
        assert r"\x1b[2J" in shown
        assert r"\u202e" in shown
        assert "[red]x[/red]" in shown
        assert ":skull:" in shown
    for log in tmp_path.glob("log"):
        assert RAW.findall(log.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["dependencies", "parents.csv"],
        ["dependencies", "unknown.csv"],
        ["shiviz", "clocks.log"],
        ["editing", "editing.json"],
    ],
    ids=lambda arguments: arguments[1],
)
def test_import_reports_escape_hostile_text(folder: Path, tmp_path: Path, arguments: list[str]) -> None:
    shown = checked(antecede(folder, "import", *arguments, "--out", str(tmp_path / "table")), 0)
    assert ": 1" in shown
    strict = antecede(folder, "import", *arguments, "--out", str(tmp_path / "strict"), "--strict")
    assert checked(strict, 2).startswith("error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "kind.jsonl"],
        ["audit", "seq.jsonl"],
        ["audit", "twice.jsonl"],
        ["audit", "header.csv"],
        ["audit", f"{HOSTILE}.jsonl".replace("/", "")],
        ["audit", f"absent{HOSTILE}"],
        ["audit", "columns.parquet", "--map", f"process={HOSTILE}"],
        ["audit", "log.jsonl", "--map", f"{HOSTILE}=x"],
        ["audit", "log.jsonl", f"--{HOSTILE}"],
        ["graph", "header.csv"],
        ["explain", "log.jsonl", "--message", HOSTILE],
        ["explain", "log.jsonl", "--message", "a:1", "--run", HOSTILE],
        ["explain", "two.jsonl", "--message", "a:1"],
        ["advise", "log.jsonl", "--protocols", HOSTILE],
        ["order", "held.jsonl", "--id", HOSTILE, "--deps", "deps", "--out", "{out}/o"],
        ["import", HOSTILE, "parents.csv", "--out", "{out}/o"],
        ["import", "shiviz", "clocks.log", "--regex", f"({HOSTILE}", "--out", "{out}/o"],
        ["import", "git", f"absent{HOSTILE}", "--out", "{out}/o"],
        ["simulate", "--protocol", HOSTILE],
        ["simulate", "--protocol", f"{ESCAPE}:{ESCAPE}"],
        ["sweep", f"absent{HOSTILE}"],
        ["report", f"absent{HOSTILE}"],
        [HOSTILE],
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[1][:8]}" if len(arguments) > 1 else "command",
)
def test_errors_escape_hostile_text(folder: Path, tmp_path: Path, arguments: list[str]) -> None:
    done = antecede(folder, *(each.replace("{out}", str(tmp_path)) for each in arguments))
    shown = checked(done, 2)
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1


def test_json_carries_the_exact_name_without_raw_control_characters(folder: Path) -> None:
    shown = checked(antecede(folder, "explain", "log.jsonl", "--message", f"{BO}:1", "--json"), 0)
    document = json.loads(shown)
    assert document["message"] == f"{BO}:1"
    assert document["causes"] == [f"{ANA}:1"]
    shown = checked(antecede(folder, "audit", "log.jsonl", "--json"), 1)
    assert json.loads(shown)["violations"][0]["process"] == CY


def test_a_path_that_is_not_utf_8_is_shown_escaped(folder: Path) -> None:
    done = antecede(folder, "audit", os.fsdecode(b"absent\xff\x1b.jsonl"))
    assert r"\udcff\x1b" in checked(done, 2)


def test_progress_shows_rich_markup_literally(folder: Path, tmp_path: Path) -> None:
    """On a terminal, which takes Rich's own escape sequences; the name of a protocol comes from the user."""
    terminal = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm"}
    (tmp_path / "mine.py").write_text("from antecede.protocols.mbcp import Mbcp\n")
    command = [*ANTECEDE, "verify", "mine:Mbcp", "--runs", "3"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=terminal, timeout=300)
    assert done.returncode == 0, done.stderr
    assert b"mine:Mbcp" in done.stdout
