"""The commands as users run them: real processes, exit codes, one line per error.

Audits and graphs on Spark are run on the session that tests share; with a Spark of their own they are in the
tests of damaged and private files, and of hostile text and folders.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from pyspark.sql import SparkSession

from antecede.causality import CausalOrder
from antecede.cli.reproduce import reproduce
from antecede.protocols.catalog import PROTOCOLS
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.execution_from_rows import execution
from antecede.trace.explain import RunEvents
from command_line import antecede, antecede_here

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]


def document(*arguments: str, code: int = 0) -> Any:
    run = antecede_here if "spark" in arguments else antecede
    done = run(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "trace"
    simulate_to(folder, scenario(protocol="mbcp", peers=8, seconds=1, seed=7))
    return folder


def test_help_lists_the_commands() -> None:
    shown = antecede("--help").stdout
    for command in (
        "demo",
        "simulate",
        "sweep",
        "audit",
        "graph",
        "advise",
        "order",
        "held",
        "verify",
        "report",
        "doctor",
        "protocols",
        "explain",
    ):
        assert command in shown
        assert "--json" in antecede(command, "--help").stdout


def test_simulate_prints_what_it_cost(tmp_path: Path) -> None:
    arguments = ["simulate", "--protocol", "mbcp", "--peers", "6", "--seconds", "1", "--seed", "7"]
    shown = document(*arguments, "--out", str(tmp_path / "a"))
    assert shown["deliveries"] == 5 * shown["messages"] > 0
    assert {"cpu_seconds", "deliveries_per_second", "control_bytes_mean", "paper_bytes_mean"} <= shown.keys()
    assert shown["engine"]
    assert shown["engine_reason"]
    assert shown["stuck"] == 0
    assert antecede(*arguments, "--out", str(tmp_path / "b")).returncode == 0
    for name in ("_meta/meta.json", "part-00000.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert document(*arguments, "--metrics-only")["messages"] == shown["messages"]
    refused = antecede(*arguments, "--metrics-only", "--out", str(tmp_path / "c"))
    assert refused.returncode == 2
    assert "--metrics-only writes no trace, so --out would have no effect" in refused.stderr
    assert not (tmp_path / "c").exists()


def test_audit_of_a_clean_trace(trace: Path) -> None:
    shown = document("audit", str(trace))
    faults = (
        "causal_violations", "causal_late_deliveries", "causal_pairs_late", "causal_pairs_never",
        "fifo_violations", "missing", "duplicates", "orphans", "impossible",
    )  # fmt: skip
    assert {name: shown[name] for name in faults} == dict.fromkeys(faults, 0)
    assert (shown["causal_deliveries"], shown["fifo_deliveries"]) == (0, 0)  # deprecated names
    assert shown["processes"] == 8
    assert shown["deliveries"] == 7 * shown["messages"]
    assert "clean" in antecede("audit", str(trace)).stdout


def test_audit_names_exactly_the_exchanged_pair(spark: SparkSession, trace: Path, tmp_path: Path) -> None:
    """Two adjacent deliveries of one process, the second immediately dependent on the first."""
    del spark  # the session that is used
    table = pq.read_table(trace / "part-00000.parquet")
    whole = execution(table, {})
    order = CausalOrder(whole)
    rows = table.to_pylist()
    first, second = next(
        (one, other)
        for process in whole.names
        for mine in [[r for r in sorted(rows, key=lambda r: r["index"]) if r["process"] == process]]
        for one, other in itertools.pairwise(mine)
        if one["kind"] == other["kind"] == "deliver"
        and _id(one, whole.names) in order.immediate_dependencies(_id(other, whole.names))
    )
    first["index"], second["index"] = second["index"], first["index"]
    swapped = tmp_path / "swapped"
    swapped.mkdir()
    shutil.copytree(trace / "_meta", swapped / "_meta")
    pq.write_table(
        pq.read_table(trace / "part-00000.parquet").from_pylist(rows, table.schema), swapped / "p.parquet"
    )
    for engine in ("local", "spark"):
        page = tmp_path / f"{engine}.html"
        shown = document("audit", str(swapped), "--engine", engine, "--html", str(page), code=1)
        assert (shown["engine"], shown["page"]) == (engine, str(page))
        assert (shown["causal_violations"], shown["causal_late_deliveries"]) == (1, 1)
        assert (shown["causal_pairs_late"], shown["causal_pairs_never"], shown["missing"]) == (1, 0, 0)
        assert (shown["causal_deliveries"], shown["fifo_deliveries"]) == (1, shown["fifo_violations"])
        (violation,) = shown["violations"]
        assert violation["process"] == first["process"]
        assert violation["cause"] == f"{first['origin']}:{first['seq']}"
        assert violation["effect"] == f"{second['origin']}:{second['seq']}"
        assert "<h2>The violation</h2>" in page.read_text()
    refused = antecede("audit", str(swapped), "--html", str(page), "--violation", "2")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--violation 2: the audit reports 1 violation" in refused.stderr
    here, on_spark = ((tmp_path / f"{engine}.html").read_text() for engine in ("local", "spark"))
    assert "1 run; on Spark; Antecede" in on_spark
    assert here == on_spark.replace("on Spark; Antecede", "in this process; Antecede")
    done = antecede("audit", str(swapped), "--html", str(page))
    assert done.returncode == 1
    assert "before its cause" in done.stdout
    assert done.stdout.splitlines()[-1] == f"Page: {page}"


def test_graph_writes_the_oracle_s_edges_in_process_and_on_spark(
    spark: SparkSession, trace: Path, tmp_path: Path
) -> None:
    del spark  # the session that is used
    order = CausalOrder(execution(pq.read_table(trace / "part-00000.parquet"), {}))
    show = order.execution.show
    expected = {(show(c), show(e)) for e in order.messages for c in order.immediate_dependencies(e)}
    runs = {}
    for engine in ("local", "spark"):
        shown = document("graph", str(trace), "--out", str(tmp_path / "graph"), "--engine", engine)
        assert shown["engine"] == engine
        rows = pq.read_table(tmp_path / "graph" / "edges.parquet").to_pylist()
        assert {(row["cause"], row["effect"]) for row in rows} == expected
        assert len(rows) == len(expected)
        assert json.loads((tmp_path / "graph" / "summary.json").read_text())["runs"] == shown["runs"]
        runs[engine] = shown["runs"]
    (found,) = runs["local"]
    assert runs["spark"] == runs["local"]
    assert (found["messages"], found["dependencies"]) == (len(order.messages), len(expected))
    assert "largest antichain" in antecede("graph", str(trace)).stdout


def test_graph_of_a_table_of_dependencies(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("node,process,parents\n[/]c,p,a b\na,q,\nb,r,a\n")
    shown = document("graph", str(tmp_path / "t.csv"))
    (found,) = shown["runs"]
    assert (found["run"], found["stated"], found["dependencies"], found["antichain"]) == ("t", 3, 2, 1)
    done = antecede("graph", "t.csv", "--out", "g", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "g" / "precious").touch()
    refused = antecede("graph", "t.csv", "--out", "g", cwd=tmp_path)
    assert refused.returncode == 2
    assert "has something else in it" in refused.stderr
    (tmp_path / "t.csv").write_text("node,process,parents\na,p,b\nb,p,a\n")
    wrong = antecede("graph", "t.csv", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert "a cycle of 2 nodes" in wrong.stderr


def test_graphs_of_several_runs_are_one_row_each(tmp_path: Path) -> None:
    for seed in (1, 2):
        simulate_to(tmp_path / str(seed), scenario(protocol="mbcp", peers=3, seconds=0.5, seed=seed))
    shown = document("graph", str(tmp_path))
    assert len(shown["runs"]) == 2
    *lines, read = antecede("graph", str(tmp_path)).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", *(each["run"] for each in shown["runs"])]
    assert "rows of 2 files (1/part-00000.parquet, 2/part-00000.parquet); 2 runs" in read


def _id(row: dict[str, Any], names: Any) -> Any:
    from antecede.causality import MessageId

    return MessageId(list(names).index(row["origin"]), row["seq"])


def test_verify_prints_one_row_per_protocol() -> None:
    shown = document("verify", "all", "--runs", "20", "--seed", "1")
    assert [each["protocol"] for each in shown["protocols"]] == list(PROTOCOLS)
    assert shown["passed"] is True


def test_verify_checks_a_user_defined_protocol(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from antecede.protocols.mbcp import Mbcp\n"
        "class Hasty(Mbcp):\n"
        "    name = 'hasty'\n"
        "    def _accept(self, packet, unmet):\n"
        "        self.holdback.ready.append(packet)\n"
        "        return True\n"
    )
    done = antecede("verify", "mine:Hasty", "--runs", "30", cwd=tmp_path)
    assert done.returncode == 1
    assert "before its cause" in done.stdout


def test_doctor_finds_the_installed_components() -> None:
    found = {each["what"]: each for each in document("doctor")}
    assert found["java"]["found"]
    assert "pyspark 4" in found["[spark]"]["detail"]


def test_a_sweep_from_a_file_ends_in_a_report(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        '[run]\nseconds = 0.3\n[grid]\nprotocol = ["mbcp", "timestamp"]\npeers = [2, 3]\n'
    )
    done = antecede("sweep", "grid.toml", "--out", "here", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert len(shown["summary"]) == 4
    assert (tmp_path / shown["report"]).exists()
    again = antecede("sweep", "grid.toml", "--out", "here", cwd=tmp_path)
    assert "4 runs were finished before" in again.stdout
    (tmp_path / shown["report"]).unlink()
    assert antecede("report", "here", cwd=tmp_path).returncode == 0
    assert (tmp_path / shown["report"]).exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["audit", "nowhere"], "nowhere does not exist"),
        (["graph", "nowhere"], "nowhere does not exist"),
        (["graph", "."], "holds no trace"),
        (["graph", "nowhere", "--out", "s3a://bucket/graph"], "is a URL"),
        (["graph", "s3a://bucket/t", "--engine", "local"], "Spark only"),
        (["audit", "nowhere", "--engine", "quantum"], "no engine 'quantum'"),
        (["audit"], "Missing argument"),
        (["audit", "s3a://bucket/t", "--engine", "local"], "Spark only"),
        (["simulate", "--peers", "0"], "peers"),
        (["simulate", "--peers", "many"], "--peers"),
        (["simulate", "--delay", "soon"], "soon"),
        (["simulate", "--protocol", "gossip"], "gossip"),
        (["simulate", "--out", "/proc/nowhere"], "/proc/nowhere"),
        (["verify", "gossip"], "gossip"),
        (["verify", "mbcp", "--runs", "0"], "runs"),
        (["sweep", "nothing.toml"], "nothing.toml"),
        (["report", "nothing"], "nothing"),
        (["dance"], "dance"),
        (["simulate", "--out", "s3a://bucket/trace"], "is a URL"),
        (["report", "hdfs://name/study"], "is a URL"),
        (["audit", ""], "no trace is named"),
        (["audit", ".", "--limit", "-1"], "limit"),
        (["audit", ".", "--violation", "1"], "--violation is for --html"),
        (["audit", ".", "--html", "made/page.html"], "holds no trace"),
        (["audit", ".", "--html", "/dev/null/page.html"], "/dev/null cannot be a folder"),
        (["audit", ".", "--html", "."], "is a folder"),
        (["audit", ".", "--html", "s3a://bucket/page.html"], "is a URL"),
        (["audit", "nowhere", "--html", "page.html"], "nowhere does not exist"),
        (["audit", ".", "--master", "sc://127.0.0.1:1"], "holds no trace"),
        (["simulate", "--seed", "-1"], "seed"),
        (["simulate", "--reply", "0.5"], "most_messages"),
        (["simulate", "--protocol", ":"], "cannot load"),
        (
            ["simulate", "--protocol", "antecede.protocols.base:Protocol"],
            "lacks broadcast, deliver",
        ),
        (["verify", "mbcp", "--peers", "2000000"], "peers"),
        (["simulate", "--colour", "red"], "colour"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(arguments: list[str], expected: str, tmp_path: Path) -> None:
    done = antecede(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    assert expected in done.stderr


def test_importing_is_cheap_and_the_core_needs_no_extra() -> None:
    """The packages of an extra are imported by the command that needs them, not before."""
    heavy = "{'pyspark', 'pyarrow', 'pandas', 'numpy', 'websockets'}"
    script = f"import sys, antecede.cli.main, antecede.sim.verify; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_missing_extra_is_reported_with_the_install_command(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None; sys.argv = ['antecede', 'audit', '.'];"
        "from antecede.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert "add the extra sim to this environment: pip install 'antecede[sim]'" in done.stderr


def test_a_program_without_an_extra_ends_with_one_traceback() -> None:
    script = "import sys; sys.modules['pyspark'] = None; from antecede.spark import connect"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.splitlines()[-1].endswith(
        "pyspark is not installed; add the extra spark to this environment: pip install 'antecede[spark]'"
    )


def test_an_unreachable_cluster_is_reported_at_once(trace: Path) -> None:
    for address in ("sc://127.0.0.1:1", "spark://127.0.0.1:1"):
        done = antecede("audit", str(trace), "--master", address)
        assert (done.returncode, done.stderr) == (
            2,
            f"error: nothing answers at {address}: Connection refused\n",
        )


@pytest.mark.parametrize("running", [False, True])
def test_ctrl_c_stops_everything_and_reports_it(tmp_path: Path, running: bool) -> None:
    """Whether Spark is starting or running: one line, exit code 130, soon, and no JVM left behind."""
    (tmp_path / "grid.toml").write_text(
        f'[run]\nseconds = 5\n[grid]\nprotocol = ["mbcp"]\npeers = [30]\nseed = {list(range(100))}\n'
    )
    mark = f"antecede-test-{os.getpid()}-{running}"
    process = subprocess.Popen(
        [*ANTECEDE, "sweep", "grid.toml", "--out", "out"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JDK_JAVA_OPTIONS": f"{os.environ['JDK_JAVA_OPTIONS']} -Dmark={mark}"},
    )
    _wait_until(lambda: list(tmp_path.glob("out/runs/*/_run.json")) if running else _java(mark))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped; finished work is kept"
    assert len(list(tmp_path.glob("out/runs/*/_run.json"))) < 50
    _wait_until(lambda: not _running(mark))


def _wait_until(happened: Callable[[], object]) -> None:
    for _ in range(2400):
        if happened():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within four minutes")


def _java(mark: str) -> list[str]:
    return [
        pid for pid in _running(mark) if "java" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    ]


def _running(mark: str) -> list[str]:
    """Processes with a mark in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in environment.read_bytes():
                found.append(environment.parent.name)
    return found


def test_without_a_command_it_shows_its_help() -> None:
    done = antecede()
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout


def test_an_internal_error_is_not_a_verdict(trace: Path) -> None:
    script = (
        "import sys, antecede.audit.core as judge; judge.find_violations = None; "
        f"sys.argv = ['antecede', 'audit', {str(trace)!r}]; from antecede.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: internal: TypeError")
    assert done.stderr.count("\n") == 1


def test_protocols_are_listed_with_their_requirements() -> None:
    shown = document("protocols")
    assert [each["name"] for each in shown] == list(PROTOCOLS)
    assert [each["name"] for each in shown if each["links"]["fifo"]] == ["flooding", "pc"]
    mbcp, pc = (next(each for each in shown if each["name"] == name) for name in ("mbcp", "pc"))
    assert mbcp["changes_in_fixed_group"] == "nothing changes"
    assert pc["changes_in_fixed_group"] == "links open and close, newcomers join"
    assert mbcp["changes"] == pc["changes"] == "members join, leave, are removed, return"
    assert "membership" not in antecede("protocols").stdout  # what may change is said once
    for line in ("any order", "FIFO", "immediate dependencies", "until its causes are delivered"):
        assert line in antecede("protocols").stdout


def test_explain_shows_where_a_message_was_held_and_for_what(trace: Path) -> None:
    table = pq.read_table(trace / "part-00000.parquet")
    whole = execution(table, {})
    order = CausalOrder(whole)
    wait = RunEvents(table.to_pylist()).waits()[0]
    shown = document("explain", str(trace), "--message", wait.message)
    ids = {whole.show(message): message for message in order.messages}
    assert {ids[cause] for cause in shown["causes"]} == set(order.immediate_dependencies(ids[wait.message]))
    (there,) = [each for each in shown["deliveries"] if each["process"] == wait.process]
    assert (there["held_ns"], there["held_for"]) == (wait.delivered - wait.arrived, wait.cause)
    assert "depends immediately on" in antecede("explain", str(trace), "--message", wait.message).stdout
    bad = {"no process sends p0:999": ["p0:999"], "no run x": ["p0:1", "--run", "x"]}
    for expected, arguments in bad.items():
        done = antecede("explain", str(trace), "--message", *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert expected in done.stderr


def test_exported_runs_are_audited_from_their_traces_alone(tmp_path: Path) -> None:
    done = document("verify", "vcube-agg", "--runs", "4", "--peers", "5", "--export", str(tmp_path / "runs"))
    again = document("audit", str(tmp_path / "runs"))
    assert again["clean"]
    assert again["deliveries"] == done["protocols"][0]["deliveries"]


def test_reproduce_scores_a_paper_and_resumes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # the session that is used
    with pytest.raises(typer.Exit) as ended:
        reproduce(["001"], out=tmp_path / "here", markdown=tmp_path / "board.md", as_json=True)
    assert ended.value.exit_code == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["paper"] for row in shown["scoreboard"]} == {"001"}
    keys = {"paper", "quantity", "published", "measured", "low", "high", "runs", "ratio", "verdict", "why"}
    assert all(set(row) == keys | {"own", "scale", "likely", "tried"} for row in shown["scoreboard"])
    assert "deliveries audited on Spark: every one after its causes" in shown["audited"]
    assert "## Paper 001" in (tmp_path / "board.md").read_text()
    assert 'href="paper-001.html"' in (tmp_path / "here" / "report.html").read_text()
    assert "Every number and claim" in (tmp_path / "here" / "paper-001.html").read_text()
    again = antecede("reproduce", "001", "--out", "here", "--finished", cwd=tmp_path)
    assert again.returncode == 0
    assert "numbers and claims" in again.stdout
    wrong = antecede("reproduce", "005", cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "error: no paper '005'; there are 000, 001, 002, 003, 004\n",
    )
