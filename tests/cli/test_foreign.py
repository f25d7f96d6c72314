"""import, export and audit --map as a person types them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import command_line
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

LOG = 'a {"a": 1}\nhello\nb {"a": 1, "b": 1}\nheard\nnothing of note\n'


def antecede(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.antecede(*arguments, cwd=folder)


def test_import_help_explains_the_formats(tmp_path: Path) -> None:
    told = antecede(tmp_path, "import", "--help").stdout
    for word in ("shiviz", "editing", "dependencies", "git", "--regex", "--strict", "--json", "?<host>"):
        assert word in told
    assert "shiviz" in antecede(tmp_path, "export", "--help").stdout
    assert "message=msg" in antecede(tmp_path, "audit", "--help").stdout


def test_import_reports_its_findings_and_skipped_lines(tmp_path: Path) -> None:
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
def test_audit_under_a_map(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    del spark  # the session that is used
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.csv").write_text("who,what,msg\na,PUB,7\nb,SUB,7\nb,SUB,8\n")
    arguments = [
        "audit",
        "it.csv",
        "--map",
        "process=who,kind=what,message=msg",
        "--map",
        "kind.send=PUB,kind.deliver=SUB",
    ]
    done = command_line.antecede_here(*arguments, "--engine", engine, "--json")
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
        (["export", "shiviz", "it.log", "--out", "out"], "audit, graph, advise and order read it"),
        (["audit", "other.log"], "antecede sources lists the formats of other programs"),
        (["audit", "it.csv"], "say with --map which of them are the process, the kind"),
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
    example = "row 3 (line 4), field who (process): it is empty"
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


POINT_TO_POINT = """process,index,kind,msg,to
ana,1,send,q,ben
ben,1,deliver,q,
ben,2,send,a,ana
ana,2,deliver,a,
cleo,1,send,c,ana
ana,3,deliver,c,
"""


def test_missing_deliveries_without_a_destinations_column_explain_the_assumption(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(POINT_TO_POINT)
    hint = "no column destinations: every message is expected at every process"
    found = antecede(tmp_path, "audit", "log.csv", "--map", "message=msg", "--html", "a.html")
    assert found.returncode == 1
    assert "missing deliveries" in found.stdout
    assert hint in found.stdout
    page = (tmp_path / "a.html").read_text()
    assert hint in page
    assert "addressed" not in page
    named = antecede(tmp_path, "audit", "log.csv", "--map", "message=msg,destinations=to")
    assert (named.returncode, hint in named.stdout) == (0, False)
    lost = POINT_TO_POINT.replace("ana,3,deliver,c,\n", "")
    (tmp_path / "lost.csv").write_text(lost)
    map_ = ["--map", "message=msg,destinations=to"]
    missing = antecede(tmp_path, "audit", "lost.csv", *map_, "--html", "b.html")
    assert (missing.returncode, hint in missing.stdout) == (1, False)
    assert "addressed" in (tmp_path / "b.html").read_text()


def test_an_unmapped_table_without_destinations_explains_the_assumption(tmp_path: Path) -> None:
    header = "run,group,process,index,kind,origin,seq,time\n"
    (tmp_path / "log.csv").write_text(
        f"{header}r,g,a,1,send,a,1,1\nr,g,b,1,deliver,a,1,2\nr,g,c,1,send,c,1,3\n"
    )
    assert "no column destinations" in antecede(tmp_path, "audit", "log.csv").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--preset", "shiviz"], "antecede import shiviz LOG --out FOLDER --regex"),
        (["--map", "clock=vc"], "antecede order --origin … --clock vc"),
        (["--map", "parent=vc"], "for rows that name their parents node, process, seq, parents"),
        (["--map", "message=msg"], "kind 'recv' is not send"),
        (["--map", "message=msg"], "as in kind.deliver=recv, or kind.skip=recv"),
    ],
)
def test_an_error_names_the_command_or_the_map_that_helps(
    arguments: list[str], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(POINT_TO_POINT.replace("deliver", "recv"))
    refused = antecede(tmp_path, "audit", "log.csv", *arguments)
    assert refused.returncode == 2
    assert expected in refused.stderr


@pytest.mark.parametrize(
    ("seq", "judged"), [("", "the order of the records was not judged"), (",seq", "in their own process")]
)
def test_a_clean_dependency_audit_states_whether_order_was_judged(
    seq: str, judged: str, tmp_path: Path
) -> None:
    places = (",2", ",1", ",1") if seq else ("", "", "")
    rows = (f"{row}{place}" for row, place in zip(("b,x,a", "a,x,", "c,y,b"), places, strict=True))
    (tmp_path / "log.csv").write_text("\n".join([f"node,process,parents{seq}", *rows, ""]))
    done = antecede(tmp_path, "audit", "log.csv")
    assert done.returncode == 0
    assert judged in done.stdout
    found = json.loads(antecede(tmp_path, "audit", "log.csv", "--json").stdout)
    assert found["order_judged"] == bool(seq)


def test_html_writes_no_page_for_a_source_without_deliveries(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("node,process,parents\na,x,\nb,x,a\n")
    done = antecede(tmp_path, "audit", "log.csv", "--html", "page.html")
    assert done.returncode == 0
    assert "clean" in done.stdout
    assert "No page: --html draws deliveries" in done.stdout
    assert "antecede graph" in done.stdout
    assert not (tmp_path / "page.html").exists()


def test_the_page_of_a_log_without_membership_omits_membership_counts(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(POINT_TO_POINT)
    antecede(tmp_path, "audit", "log.csv", "--map", "message=msg", "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "delivered twice" in page
    assert "members wrongly in a view" not in page


def test_audit_help_lists_the_fields_of_map(tmp_path: Path) -> None:
    told = " ".join(antecede(tmp_path, "audit", "--help").stdout.replace("│", " ").split())
    for name in ("process", "kind", "message", "origin", "seq", "index", "destinations", "time", "parents"):
        assert name in told, name
