"""Tables of dependencies under other column names: imported, and taken by graph and advise as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError

MAP = ["--map", "node=commit,process=author,parents=after"]
ROWS = [("c1", "ana", []), ("c2", "ben", ["c1"]), ("c3", "ana", ["c1", "c2"]), ("c4", "ben", ["gone"])]


def document(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    return json.loads(done.stdout)


@pytest.fixture(params=["csv", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / f"commits.{request.param}"
    if request.param == "csv":
        lines = [f"{node},{who},{' '.join(after)}" for node, who, after in ROWS]
        file.write_text("\n".join(["commit,author,after", *lines, ""]))
    else:
        columns = zip(*ROWS, strict=True)
        pq.write_table(
            pa.table(dict(zip(("commit", "author", "after"), map(list, columns), strict=True))), file
        )
    return file


def test_a_table_with_other_names_is_imported(table: Path, tmp_path: Path) -> None:
    found = document("import", "dependencies", str(table), "--out", str(tmp_path / "out"), *MAP)
    assert (found["rows"], found["parents"], found["bad_rows"]) == (4, 3, 1)
    rows = pq.read_table(tmp_path / "out" / "dependencies.parquet").to_pylist()
    assert [(row["node"], row["process"], row["seq"]) for row in rows] == [
        ("c1", "ana", 1), ("c2", "ben", 1), ("c3", "ana", 2), ("c4", "ben", 2),
    ]  # fmt: skip


def test_graph_and_advise_accept_a_mapped_dependency_table(table: Path) -> None:
    found = document("graph", str(table), *MAP)
    (run,) = found["runs"]
    assert (run["run"], run["messages"], run["stated"], run["dependencies"]) == ("commits", 4, 3, 2)
    lineage = found["lineage"]
    assert (lineage["rows_read"], lineage["rows_skipped"], lineage["runs"]) == (4, 0, 1)
    assert lineage["files"][0]["file"] == str(table)
    (advice,) = document("advise", str(table), *MAP, "--protocols", "mbcp")["runs"]
    assert advice["messages"] == 4


def test_audit_accepts_a_mapped_dependency_table(table: Path) -> None:
    found = document("audit", str(table), *MAP)
    assert (found["preset"], found["records"], found["causes"], found["clean"]) == (
        "dependencies",
        4,
        4,
        False,
    )
    assert [each["id"] for each in found["missing"]] == ["gone"]
    assert found["lineage"]["files"][0]["file"] == str(table)
    assert found["lineage"]["rows_read"] == 4


def test_an_invalid_dependency_map_is_refused_with_the_column(table: Path) -> None:
    for names, says in (
        ("node=commit,parents=before", "has no column"),
        ("node=commit,parents=after,kind=x", "'kind=x' is no column of a table of dependencies"),
    ):
        for command in ("graph", "audit"):
            refused = CliRunner().invoke(app, [command, str(table), "--map", names])
            assert isinstance(refused.exception, InputError)
            assert says in str(refused.exception)


def test_graph_and_audit_read_the_same_table(tmp_path: Path) -> None:
    """Lists in brackets, a quote in the wrong place, names that look like numbers or nothing."""
    text = '\ufeffnode,process,parents\n001,a,\n01,b,"[""001""]"\n"x\ny",a,01\n"bad"q,b,01\nnan,b,NULL 01\n'
    (tmp_path / "t.csv").write_text(text)
    audited, drawn = (document(command, str(tmp_path / "t.csv")) for command in ("audit", "graph"))
    (run,) = drawn["runs"]
    assert (run["messages"], run["stated"]) == (audited["records"], 3) == (4, 3)
    assert audited["missing_causes"] == 1
    assert [each["examples"] for each in audited["bad"]] == [each["examples"] for each in drawn["bad"]][:1]
    for name in ("rows_read", "rows_skipped", "skipped"):
        assert audited["lineage"][name] == drawn["lineage"][name]


@pytest.mark.parametrize("command", ["audit", "graph", "advise"])
def test_the_encoding_of_a_table_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "t.csv").write_bytes("knoten,wer,eltern\nä,p,\nö,q,ä\n".encode("latin-1"))
    names = "node=knoten,process=wer,parents=eltern"
    found = document(command, str(tmp_path / "t.csv"), "--map", f"{names},encoding=latin-1")
    assert (found["lineage"]["rows_read"], found["lineage"]["rows_skipped"]) == (2, 0)
    done = CliRunner().invoke(app, [command, str(tmp_path / "t.csv"), "--map", f"{names},encoding=klingon"])
    assert isinstance(done.exception, InputError)
    assert "--map encoding: there is no encoding 'klingon'" in str(done.exception)
