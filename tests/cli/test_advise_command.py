"""antecede advise, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antecede.advise.core import ADVISED_PROTOCOLS
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from command_line import antecede


def document(*arguments: str) -> Any:
    done = antecede("advise", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advise") / "trace"
    simulate_to(folder, scenario(protocol="mbcp", peers=8, seconds=1, seed=7))
    return folder


def test_advise_prints_a_table_and_a_recommendation(trace: Path) -> None:
    done = antecede("advise", str(trace))
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for protocol in ADVISED_PROTOCOLS:
        assert f"\n{protocol} " in done.stdout
    assert "simulated on the log's sends, all messages" in done.stdout
    assert "of those that deliver within 10%" in done.stdout


def test_json_and_options(trace: Path, tmp_path: Path) -> None:
    behind = tmp_path / "behind.txt"
    behind.write_text("p1\np2\n\n")
    arguments = (
        str(trace),
        "--protocols",
        "mbcp, freescale",
        "--internal",
        str(behind),
        "--deliveries",
        "100",
    )
    found = document(*arguments)
    assert (found["trace"], found["engine"]) == (str(trace), "local")
    (run,) = found["runs"]
    assert [cost["protocol"] for cost in run["costs"]] == ["mbcp", "freescale"]
    assert run["split"]["internal"] == ["p1", "p2"]
    assert run["simulated_messages"] == 12 < run["messages"]
    (given,) = document(str(trace), "--protocols", "mbcp", "--delay", "3ms")["runs"]
    assert (given["delay"], given["delay_mean_ns"]) == ("given", 3_000_000)


def test_advise_reads_dependency_tables_and_mapped_columns(tmp_path: Path) -> None:
    table = tmp_path / "graph.csv"
    table.write_text("node,process,parents\n1,a,\n2,b,1\n3,a,2\n4,c,3 1\n")
    (run,) = document(str(table))["runs"]
    assert (run["run"], run["processes"], run["messages"]) == ("graph", 3, 4)
    assert any("times are not used" in note for note in run["assumptions"])
    log = tmp_path / "log.csv"
    log.write_text("host,what,id\nana,PUB,x\nben,SUB,x\nben,PUB,y\nana,SUB,y\n")
    names = "process=host,message=id,kind=what,kind.send=PUB,kind.deliver=SUB"
    (run,) = document(str(log), "--map", names)["runs"]
    assert (run["run"], run["processes"], run["messages"]) == ("log", 2, 2)


def test_advise_reads_logs_with_vector_clocks_only(tmp_path: Path) -> None:
    log = tmp_path / "clocks.log"
    log.write_text('a {"a":1}\nask\nb {"b":1, "a":1}\nanswer\nc {"c":1, "b":1, "a":1}\nthank\n')
    form = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
    done = antecede("import", "shiviz", str(log), "--out", str(tmp_path / "out"), "--regex", form)
    assert done.returncode == 0, done.stderr
    (run,) = document(str(tmp_path / "out"))["runs"]
    assert (run["processes"], run["messages"]) == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["{trace}", "--protocols", "hcg"], "advise does not support protocol 'hcg'; choose from timestamp"),
        (["{trace}", "--protocols", ","], "names nobody"),
        (["{trace}", "--internal", "zoe"], "there is no process 'zoe'"),
        (["{trace}", "--delay", "soon"], "'soon' is not a duration"),
        (["{trace}", "--engine", "abacus"], "no engine 'abacus'"),
        (["{trace}", "--slower", "-1"], "--slower"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(trace: Path, arguments: list[str], message: str) -> None:
    done = antecede("advise", *(word.format(trace=trace) for word in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_advise_refuses_several_groups(tmp_path: Path) -> None:
    groups = {"left": (0, 1), "right": (1, 2)}
    simulate_to(tmp_path / "t", scenario(protocol="multigroup", peers=3, seconds=0.5, groups=groups))
    done = antecede("advise", str(tmp_path / "t"))
    assert done.returncode == 2
    assert "only multigroup keeps order across groups" in done.stderr


def test_real_logs(real_traces: Path) -> None:
    arguments = (str(real_traces / "clownschool.events.parquet"), "--map", "index=idx,message=msg")
    (run,) = document(*arguments, "--deliveries", "2000")["runs"]
    assert (run["processes"], run["messages"]) == (3, 23_136)
    from_log = {cost["protocol"]: cost["control_bytes_mean"] for cost in run["costs"]}
    (table,) = document(str(real_traces / "clownschool.dag.csv"), "--deliveries", "2000")["runs"]
    from_table = {cost["protocol"]: cost["control_bytes_mean"] for cost in table["costs"]}
    for protocol in ("timestamp", "timestamp-diff", "mbcp", "depseq"):
        assert from_log[protocol] == pytest.approx(from_table[protocol])
