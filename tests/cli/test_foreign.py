"""import, export and audit --map as a person types them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import command_line
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

LOG = 'a {"a": 1}\nhello\nb {"a": 1, "b": 1}\nheard\nnothing of note\n'


def antecede(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.antecede(*arguments, cwd=folder)


def test_help_teaches_the_formats(tmp_path: Path) -> None:
    told = antecede(tmp_path, "import", "--help").stdout
    for word in ("shiviz", "editing", "dependencies", "git", "--regex", "--strict", "--json", "?<host>"):
        assert word in told
    assert "shiviz" in antecede(tmp_path, "export", "--help").stdout
    assert "message=msg" in antecede(tmp_path, "audit", "--help").stdout


def test_import_shows_what_it_found_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "it.log").write_text(LOG)
    done = antecede(tmp_path, "import", "shiviz", "it.log", "--out", "out")
    assert done.returncode == 0, done.stderr
    for text in (
        "2 of 2 processes",
        "1 of another process",
        "lines without a clock, left out: 1",
        "nothing of note",
    ):
        assert text in done.stdout
    shown = json.loads(antecede(tmp_path, "import", "shiviz", "it.log", "--out", "out", "--json").stdout)
    assert (shown["rows"], shown["parents_of_others"], shown["bad_rows"]) == (2, 1, 1)
    assert json.loads((tmp_path / "out" / "dependencies.json").read_text())["schema_version"] == 1
    refused = antecede(tmp_path, "import", "shiviz", "it.log", "--out", "out", "--strict")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "line 5: nothing of note" in refused.stderr
    audited = antecede(tmp_path, "audit", "out")
    assert audited.returncode == 0
    assert "2 records of 2 processes with 1 cause " in audited.stdout


def test_export_and_import_again(tmp_path: Path) -> None:
    simulate_to(tmp_path / "trace", scenario(protocol="mbcp", peers=3, seconds=0.3))
    shown = json.loads(antecede(tmp_path, "export", "shiviz", "trace", "--out", "run.log", "--json").stdout)
    assert "(?<host>" in antecede(tmp_path, "export", "shiviz", "trace", "--out", "run.log").stdout
    again = json.loads(
        antecede(tmp_path, "import", "shiviz", "run.log", "--out", "out", "--strict", "--json").stdout
    )
    assert (again["rows"], again["processes"]) == (shown["events"], shown["processes"])


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_audit_under_a_map(tmp_path: Path, engine: str) -> None:
    (tmp_path / "it.csv").write_text("who,what,msg\na,PUB,7\nb,SUB,7\nb,SUB,8\n")
    arguments = [
        "audit",
        "it.csv",
        "--map",
        "process=who,kind=what,message=msg",
        "--map",
        "kind.send=PUB,kind.deliver=SUB",
    ]
    done = antecede(tmp_path, *arguments, "--engine", engine, "--json")
    assert done.returncode == 1, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["trace"], shown["orphans"], shown["messages"], shown["engine"]) == ("it.csv", 1, 1, engine)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["import", "yaml", "it.log", "--out", "out"], "no format 'yaml'"),
        (["import", "shiviz", "nowhere", "--out", "out"], "nowhere does not exist"),
        (["import", "shiviz", "it.log"], "--out"),
        (["import", "shiviz", "it.log", "--out", "s3a://bucket/out"], "is a URL"),
        (["export", "dot", "it.log", "--out", "out"], "no format 'dot' to export"),
        (["export", "shiviz", "it.log", "--out", "out"], "a trace is a folder or a file ending in"),
        (["audit", "other.log"], "antecede sources lists the formats of other programs"),
        (["audit", "it.csv"], "under these names, or mapped with --map"),
        (["audit", "it.csv", "--map", "process=who"], "no column kind"),
        (["audit", "s3a://bucket/t", "--map", "process=who"], "--map is for local files"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(arguments: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "it.log").write_text(LOG)
    (tmp_path / "it.csv").write_text("who,msg\na,7\n")
    (tmp_path / "other.log").write_text("nothing that is known\n")
    done = antecede(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_bad_rows_are_shown_or_refused(tmp_path: Path) -> None:
    (tmp_path / "it.csv").write_text("who,what,msg\na,send,7\nb,deliver,7\n,deliver,7\n")
    (tmp_path / "deps.csv").write_text("node,process,parents\na,p,\nb,p,a zz\n")
    named = ["it.csv", "--map", "process=who,kind=what,message=msg"]
    example = "row 3, field who (process): it is empty"
    for arguments, wrong in (
        (["audit", *named], example),
        (["graph", *named], example),
        (["export", "shiviz", *named, "--out", "it.log"], example),
        (["graph", "deps.csv"], "the parents of b: zz"),
    ):
        done = antecede(tmp_path, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"  {wrong}\n" in done.stdout
        assert json.loads(antecede(tmp_path, *arguments, "--json").stdout)["bad_rows"] == 1
        refused = antecede(tmp_path, *arguments, "--strict")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert wrong in refused.stderr


def test_another_programs_log_is_exported_and_drawn_under_a_map(tmp_path: Path) -> None:
    (tmp_path / "it.csv").write_text("who,what,msg\na,send,7\nb,deliver,7\nb,send,8\n")
    named = ["it.csv", "--map", "process=who,kind=what,message=msg"]
    shown = json.loads(antecede(tmp_path, "graph", *named, "--out", "g", "--json").stdout)
    assert [(each["run"], each["dependencies"]) for each in shown["runs"]] == [("it", 1)]
    done = antecede(tmp_path, "export", "shiviz", *named, "--out", "it.log", "--json")
    assert json.loads(done.stdout)["events"] == 3
    before = {file.name: file.read_bytes() for file in (tmp_path / "g").iterdir()}
    (tmp_path / "bad.csv").write_text("node,process,parents\na,p,a\n")
    assert antecede(tmp_path, "graph", "bad.csv", "--out", "g").returncode == 2
    assert {file.name: file.read_bytes() for file in (tmp_path / "g").iterdir()} == before
