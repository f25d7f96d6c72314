"""Unreadable input is refused in one sentence about the file or option that the user named."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError

KAFKA = (
    '{"topic": "a", "partition": 0, "offset": 1, "headers": ["ce_id", "1"]}\n'
    '{"topic": "b", "partition": 0, "offset": 1, "headers": ["ce_id", "2", "causation_id", "1"]}\n'
)
HISTORY = "{:type :invoke, :f :write, :value 1, :process 0}\n{:type :ok, :f :write, :value 1, :process 0}\n"


def refusal(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert isinstance(done.exception, InputError), done.exception
    return str(done.exception)


@pytest.mark.parametrize("command", ["audit", "graph"])
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, command: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "log.csv").write_text("node,process,parents\na,p,\n")
    closed.chmod(0)
    words = [sys.executable, "-c", "from antecede.cli.main import main; main()", command, "closed"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything")
        rights = "-dac_override,-dac_read_search"
        words = ["setpriv", "--bounding-set", rights, "--inh-caps", rights, *words]
    try:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    finally:
        closed.chmod(0o700)
    assert (done.returncode, done.stderr) == (2, "error: you may not read closed; ask for permission\n")


@pytest.mark.parametrize("command", ["audit", "graph", "advise"])
@pytest.mark.parametrize("name", ["zero.csv.gz", "packed.csv.gz", "zero.csv"])
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str, command: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.startswith("packed") else b"")
    assert f"{name} is empty" in refusal(command, tmp_path / name)


def test_other_commands_refuse_transaction_histories(tmp_path: Path) -> None:
    (tmp_path / "hist.edn").write_text(HISTORY)
    for command, *options in (("graph",), ("advise",), ("order", "--out", str(tmp_path / "out"))):
        words = [command, str(tmp_path / "hist.edn"), *options]
        said = refusal(*words)
        assert "hist.edn is a history of transactions, which only audit reads" in said
        assert "only audit reads" in refusal(*words, "--preset", "jepsen")


def test_the_names_of_all_formats_are_in_the_errors(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(KAFKA)
    assert "jepsen is a format of histories of transactions" in refusal("sources", "jepsen")
    for words in (["sources", "jepsn"], ["audit", tmp_path / "log.jsonl", "--preset", "jepsn"]):
        said = refusal(*words)
        assert "kafka" in said
        assert "for audit also plume, dbcop, cobra, awdit, jepsen" in said


def test_the_refusal_of_a_non_change_event_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(KAFKA.replace('"headers"', '"payload": "{}", "headers"'))
    said = refusal("audit", tmp_path / "log.jsonl", "--preset", "debezium")
    assert "row 1: it has neither op and source nor status and id" in said


def test_a_run_per_file_needs_deliveries(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(KAFKA)
    (tmp_path / "hist.edn").write_text(HISTORY)
    for command in ("audit", "graph", "advise"):
        said = refusal(command, tmp_path / "log.jsonl", "--run-per-file")
        assert "--run-per-file is for logs with deliveries" in said
    assert "--run-per-file" in refusal("audit", tmp_path / "hist.edn", "--run-per-file")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"id": "a\xff", "parents": []}', "byte 10 is not text in UTF-8"),
        (rb'{"id": "\ud800", "parents": []}', "half of a surrogate pair"),
    ],
)
def test_a_line_that_is_not_json_is_reported_with_the_reason(tmp_path: Path, line: bytes, why: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"id": "b", "parents": ["c"]}\n' + line + b"\n")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "log.jsonl")])
    assert "row 2: " in done.stdout
    assert why in done.stdout
    names = ["--map", "message=id,kind=what"]
    (tmp_path / "trace.jsonl").write_bytes(b'{"process": "a", "what": "send", "id": "m"}\n' + line + b"\n")
    assert why in CliRunner().invoke(app, ["graph", str(tmp_path / "trace.jsonl"), *names]).stdout
