"""Every answer says what it is based on: files, rows read, rows skipped and why, runs, engine and version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from antecede import __version__
from antecede.cli.main import app
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

MAP = ["--map", "process=host,kind=what,message=id,kind.skip=TICK"]
COMMANDS = {
    "audit": [],
    "graph": [],
    "advise": ["--protocols", "mbcp"],
    "explain": ["--message", "q"],
}


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).stdout


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "ana.csv").write_text("host,what,id\nana,send,q\nana,TICK,\nana,deliver,a\nana,deliver\n")
    rows = [{"host": "ben", "what": "deliver", "id": "q"}, {"host": "ben", "what": "send", "id": "a"}]
    (folder / "ben.jsonl").write_text("\n".join([*map(json.dumps, rows), "", "no JSON", ""]))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_what_it_read(logs: Path, command: str) -> None:
    arguments = [command, str(logs), *MAP, *COMMANDS[command]]
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json"))["lineage"]
    files = [(Path(each["file"]).name, each["rows"], each["bytes"]) for each in found["files"]]
    sizes = {name: (logs / name).stat().st_size for name in ("ana.csv", "ben.jsonl")}
    assert files == [("ana.csv", 4, sizes["ana.csv"]), ("ben.jsonl", 3, sizes["ben.jsonl"])]
    assert (found["source"], found["rows_read"], found["rows_skipped"]) == (str(logs), 7, 3)
    assert {each["what"]: each["rows"] for each in found["skipped"]} == {
        "rows that cannot be read, left out": 2,
        "rows of kinds that --map says to skip": 1,
    }
    assert (found["runs"], found["engine"], found["version"]) == (1, "local", __version__)
    line = f"7 rows of 2 files, 3 skipped; 1 run; in this process; Antecede {__version__}"
    assert line in invoke(*arguments)


def test_the_page_names_what_it_read(logs: Path, tmp_path: Path) -> None:
    invoke("audit", str(logs), *MAP, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "7 rows of 2 files, 3 skipped; 1 run" in page
    assert "ben.jsonl" in page


@pytest.mark.parametrize("command", ["audit", "graph"])
def test_a_trace_of_ours_has_a_lineage_too(tmp_path: Path, command: str) -> None:
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=3, seconds=0.5))
    rows = pq.read_table(tmp_path / "t" / "part-00000.parquet").num_rows
    found = json.loads(invoke(command, str(tmp_path / "t"), "--json"))["lineage"]
    assert [(Path(each["file"]).name, each["rows"]) for each in found["files"]] == [
        ("part-00000.parquet", rows)
    ]
    assert (found["rows_read"], found["rows_skipped"], found["runs"]) == (rows, 0, 1)


def test_a_table_of_dependencies_has_a_lineage_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("node,process,parents\na,p,\nb,p,a\n,p,a\n")
    found = json.loads(invoke("graph", str(tmp_path / "t.csv"), "--json"))["lineage"]
    assert (found["rows_read"], found["rows_skipped"], len(found["files"])) == (3, 1, 1)
