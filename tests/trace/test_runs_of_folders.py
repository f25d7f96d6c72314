"""Which rows belong together: the files of a folder are one run, unless something says otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from antecede.cli.main import app
from antecede.errors import InputError

MAP = ["--map", "process=host,kind=what,message=id"]

ANA = ["ana,send,hello", "ana,deliver,reply"]
BEN = ["ben,deliver,hello", "ben,send,reply"]
CLEO = ["cleo,deliver,reply", "cleo,deliver,hello"]


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])


def document(*arguments: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(audit(*arguments, "--json").stdout)
    return found


def write(file: Path, rows: list[str], header: str = "host,what,id") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([header, *rows, ""]))


def check_cleo_is_found(found: dict[str, object]) -> None:
    """One run, in which cleo delivered the reply before what it replies to; nothing else is wrong."""
    counts = ("runs", "messages", "deliveries", "causal_violations", "missing", "orphans", "duplicates")
    assert [found[name] for name in counts] == [1, 2, 4, 1, 0, 0, 0]


def test_one_file_per_host_is_one_run(tmp_path: Path) -> None:
    for host, rows in (("ana", ANA), ("ben", BEN), ("cleo", CLEO)):
        write(tmp_path / "logs" / f"{host}.csv", rows)
    check_cleo_is_found(document(str(tmp_path / "logs"), *MAP))
    shown = audit(str(tmp_path / "logs"), *MAP)
    assert shown.exit_code == 1
    assert "4 deliveries of 2 messages at 3 processes in 1 run" in shown.stdout


def test_a_file_per_day_is_read_in_order(tmp_path: Path) -> None:
    """Without an index the rows' order counts, and the tenth file comes after the second."""
    rows = [*ANA, *BEN, *CLEO]
    for number, row in enumerate(rows, start=6):
        write(tmp_path / "logs" / f"day-{number}.csv", [row])
    check_cleo_is_found(document(str(tmp_path / "logs"), *MAP))


def test_partitions_are_one_run_and_their_names_are_columns(tmp_path: Path) -> None:
    for day, rows in (("2024-05-01", [*ANA, *BEN]), ("2024-05-02", CLEO)):
        write(tmp_path / "logs" / f"date={day}" / "part-0.csv", rows)
    check_cleo_is_found(document(str(tmp_path / "logs"), *MAP))
    two = document(str(tmp_path / "logs"), "--map", "process=host,kind=what,message=id,run=date")
    assert (two["runs"], two["orphans"]) == (2, 2)
    hosts = tmp_path / "hosts"
    for host, rows in (("ana", ANA), ("ben", BEN), ("cl%C3%A9o", CLEO)):
        write(hosts / f"host={host}" / "log.csv", [row.partition(",")[2] for row in rows], "what,id")
    found = document(str(hosts), *MAP)
    check_cleo_is_found(found)
    assert found["violations"][0]["process"] == "cléo"  # type: ignore[index]


def test_several_parquet_files_are_one_run(tmp_path: Path) -> None:
    for number, row in enumerate([*ANA, *BEN, *CLEO]):
        columns = {name: [value] for name, value in zip(("host", "what", "id"), row.split(","), strict=True)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.snappy.parquet")
    check_cleo_is_found(document(str(tmp_path), *MAP))


def test_a_column_or_the_option_makes_several_runs(tmp_path: Path) -> None:
    fine = [*ANA[:1], *BEN, *ANA[1:]]
    for day in ("monday", "tuesday"):
        write(tmp_path / "logs" / f"{day}.csv", fine)
    refused = audit(str(tmp_path / "logs"), *MAP)
    assert isinstance(refused.exception, InputError)
    assert "message hello is sent twice" in str(refused.exception)
    assert "--run-per-file" in str(refused.exception)
    found = document(str(tmp_path / "logs"), *MAP, "--run-per-file")
    assert (found["runs"], found["clean"], found["messages"]) == (2, True, 4)
    assert "in 2 runs" in audit(str(tmp_path / "logs"), *MAP, "--run-per-file").stdout
    for day in ("monday", "tuesday"):
        write(tmp_path / "named" / f"{day}.csv", [f"{row},{day}" for row in fine], "host,what,id,run")
    found = document(str(tmp_path / "named"), *MAP)
    assert (found["runs"], found["clean"]) == (2, True)


@pytest.mark.parametrize("command", ["graph", "advise"])
def test_graph_and_advise_take_the_same_runs(tmp_path: Path, command: str) -> None:
    for host, rows in (("ana", ANA), ("ben", BEN), ("cleo", CLEO)):
        write(tmp_path / "logs" / f"{host}.csv", rows)
    arguments = [command, str(tmp_path / "logs"), *MAP, "--json"]
    arguments += ["--protocols", "mbcp"] if command == "advise" else []
    (run,) = json.loads(CliRunner().invoke(app, arguments).stdout)["runs"]
    assert (run["run"], run["messages"]) == ("logs", 2)


def test_the_real_violation_of_a_log_in_a_file_per_host_is_found(real_traces: Path, tmp_path: Path) -> None:
    table = pq.read_table(real_traces / "clownschool.events.parquet")
    for process in table["process"].unique().to_pylist():
        rows = table.filter(pa.compute.equal(table["process"], process))
        pq.write_table(rows, tmp_path / f"host-{process}.parquet")
    found = document(str(tmp_path), "--map", "index=idx,message=msg")
    assert (found["runs"], found["clean"], found["orphans"]) == (1, True, 0)
