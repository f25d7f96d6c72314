"""antecede audit on histories of transactions, as a user types it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError
from antecede.jit import reported_compilation
from antecede.transactions import check, read_history

TRANSACTIONS = Path(__file__).parent.parent / "transactions"
SAMPLES = TRANSACTIONS / "samples"


def audit(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", *arguments])
    if isinstance(done.exception, InputError):
        raise done.exception
    return done.exit_code, done.stdout


def test_a_history_is_recognised_and_every_level_reported() -> None:
    code, text = audit(str(SAMPLES / "not_causal.txt"))
    assert code == 1
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "6 operations of 6 transactions in 3 sessions on 2 keys"
    assert "RC read committed yes" in lines
    assert "CC causal consistency no WriteCORead" in lines
    sentence = "T5 (session 2) read 1=1 from T0, although it had seen T3, which overwrote it after T0"
    assert f"• not CC, CM, CCv: {sentence}" in lines
    assert "T2 read 2=1 from T1" in lines
    assert "T3 (session 1): wrote 1=2" in lines


def test_a_causally_consistent_history_exits_with_0_even_if_stronger_levels_fail() -> None:
    code, text = audit(str(SAMPLES / "causal_only.txt"))
    assert code == 0
    assert "CyclicHB" in text
    assert audit(str(SAMPLES / "causal_only.txt"), "--level", "ccv")[0] == 1
    assert audit(str(SAMPLES / "long_fork.txt"), "--level", "causal-convergence")[0] == 0


def test_only_the_demanded_level_is_decided() -> None:
    code, text = audit(str(SAMPLES / "not_causal.txt"), "--level", "RA", "--json")
    document = json.loads(text)
    assert (code, document["clean"], document["demanded"]) == (0, True, "RA")
    assert list(document["verdict"]["levels"]) == ["RA"]


def test_json_has_the_witness() -> None:
    code, text = audit(str(SAMPLES / "lost_causality.txt"), "--json", "--preset", "plume")
    document = json.loads(text)
    assert (code, document["clean"], document["demanded"]) == (1, False, "CC")
    violation = document["verdict"]["levels"]["CC"]["violation"]
    assert violation["pattern"] == "WriteCOInitRead"
    assert [found["name"] for found in violation["transactions"]] == ["T0", "T1", "T2", "T3", "T4"]
    assert violation["transactions"][4] == {"name": "T4", "session": "2", "operations": ["read 1=0"]}


def test_the_output_includes_the_lineage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SAMPLES / "long_fork.txt"
    _, text = audit(str(path))
    assert text.splitlines()[-1].startswith("6 operations of 1 file (long_fork.txt); 1 run; in this process;")
    monkeypatch.syspath_prepend(str(TRANSACTIONS))
    writers = importlib.import_module("format_writers")
    folder = writers.write_cobra(read_history(path), tmp_path / "logs")
    code, text = audit(str(folder), "--json")
    lineage = json.loads(text)["lineage"]
    assert (code, lineage["rows_read"], lineage["engine"]) == (0, 6, "local")
    assert [(Path(file["file"]).name, file["rows"]) for file in lineage["files"]] == [
        ("T0.log", 1),
        ("T1.log", 1),
        ("T2.log", 2),
        ("T3.log", 2),
    ]


def test_reads_that_no_level_allows_are_counted_and_listed() -> None:
    code, text = audit(str(SAMPLES / "dirty_read.txt"))
    assert code == 1
    assert "3 operations of 2 transactions, 1 of them aborted, in 2 sessions" in text
    assert "AbortedRead: 1" in text
    sentence = "• T1 (session 1) read 1=1 from T-1 (session 0), which did not commit"
    assert sentence in text
    assert sentence not in audit(str(SAMPLES / "dirty_read.txt"), "--limit", "0")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["long_fork.txt", "--level", "serializable"],
            "'serializable' is no level of consistency; known are RC",
        ),
        (["long_fork.txt", "--html", "page.html"], "--html draws deliveries of messages"),
        (["long_fork.txt", "--preset", "cobra"], "byte 0: a record of unknown kind b'w'"),
        (["long_fork.txt", "--engine", "spark"], "are judged in this process; leave out --engine spark"),
        (["long_fork.txt", "--preset", "plume", "--map", "process=host"], "--map is for tables of events"),
        (["../format_writers.py", "--level", "CC"], "--level is for histories of transactions"),
    ],
)
def test_mistakes_get_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        audit(str(SAMPLES / arguments[0]), *arguments[1:])


def test_names_from_a_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "history.txt"
    path.write_text("w x\x1b[2J 1\n=====\nr x\x1b[2J 2\n")
    code, text = audit(str(path))
    assert code == 1
    assert "\x1b" not in text
    assert "read x\\x1b[2J=2, which nobody wrote" in text


OPERATIONS = """{:type :invoke, :f :txn, :value [[:w 1 1]], :process 0, :index 0}
{:type :ok, :f :txn, :value [[:w 1 1]], :process 0, :index 1}
"""


@pytest.mark.parametrize("preset", [[], ["--preset", "jepsen"]])
def test_a_jepsen_store_folder_is_read_as_its_history(preset: list[str], tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(OPERATIONS)
    (tmp_path / "results.edn").write_text("{:valid? true}")
    (tmp_path / "jepsen.log").write_text("2026-01-01 INFO jepsen.core\n")
    code, text = audit(str(tmp_path), *preset)
    assert code == 0
    assert "1 operation of 1 transaction" in text
    _, text = audit(str(tmp_path), "--json", *preset)
    (read,) = json.loads(text)["lineage"]["files"]
    assert (read["file"], read["rows"]) == (str(tmp_path / "history.edn"), 2)


@pytest.mark.parametrize("lines", [True, False])
def test_a_jepsen_folder_with_a_json_history_is_read(lines: bool, tmp_path: Path) -> None:
    done = [{"type": kind, "f": "txn", "value": [["w", 1, 1]], "process": 0} for kind in ("invoke", "ok")]
    written = "\n".join(map(json.dumps, done)) if lines else json.dumps(done)
    (tmp_path / "history.json").write_text(written)
    code, text = audit(str(tmp_path))
    assert (code, "1 operation of 1 transaction" in text) == (0, True)


def test_a_terminal_shows_compilation_for_the_first_history(tmp_path: Path) -> None:
    """In an installation without compiled code, which takes half a minute to make."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TERM": "xterm"}
    command = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
    reading, writing = os.openpty()
    words = ["audit", str(SAMPLES / "long_fork.txt"), "--level", "RC"]
    with subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=writing, env=environment
    ) as process:
        os.close(writing)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while b"compiling, once" not in shown and (part := os.read(reading, 4096)):
                shown += part
        process.kill()
    os.close(reading)
    assert b"compiling, once" in shown


def test_compilation_is_reported_only_if_it_happens() -> None:
    history = read_history(SAMPLES / "long_fork.txt")
    check(history)
    reported: list[bool] = []
    with reported_compilation(reported.append):
        check(history)
    assert reported == []
