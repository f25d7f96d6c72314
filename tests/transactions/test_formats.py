"""Histories in the formats of other programs: the same verdict in each, and one sentence for bad files."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from format_writers import write_awdit, write_cobra, write_dbcop, write_dbcop_json, write_plume
from random_histories import random_history
from replicated_store import replicated_history

from antecede.errors import InputError
from antecede.transactions import History, check, read_history
from antecede.transactions.formats import recognise, recognise_path

WRITERS: dict[str, Callable[[History, Path], Path]] = {
    "plume": write_plume,
    "dbcop": write_dbcop,
    "cobra": write_cobra,
    "dbcop, JSON": lambda history, path: write_dbcop_json(history, path, compact=False),
    "dbcop, short JSON": lambda history, path: write_dbcop_json(history, path, compact=True),
}


@pytest.mark.parametrize("form", WRITERS)
def test_a_history_has_one_verdict_in_every_format(form: str, tmp_path: Path) -> None:
    for seed in range(40):
        history = random_history(seed)
        path = WRITERS[form](history, tmp_path / f"history-{seed}")
        name = form.split(",")[0]
        assert recognise_path(path) == name
        for preset in (None, name) if "JSON" not in form else (None,):
            again = read_history(path, preset)
            verdict = check(again)
            assert {level: found.ok for level, found in verdict.levels.items()} == {
                level: found.ok for level, found in check(history).levels.items()
            }
            assert verdict.faults == check(history).faults
            assert again.operations == history.operations


def test_dbcop_sessions_are_numbered_alike_in_all_its_formats(tmp_path: Path) -> None:
    """Files of dbcop do not number them; it counts from 1 itself, as 0 is the one of initial values."""
    history = random_history(3)
    forms = [name for name in WRITERS if name.startswith("dbcop")]
    read = [read_history(WRITERS[form](history, tmp_path / form)) for form in forms]
    names = [[again.session_name(session) for session in range(again.sessions)] for again in read]
    assert names == [[str(number + 1) for number in range(history.sessions)]] * len(forms)


def test_awdits_text_has_explicit_initial_values(tmp_path: Path) -> None:
    """A session that writes them need not come first, so weaker verdicts differ; a store's history is fine in
    both."""
    for seed in range(20):
        history = replicated_history(seed, by_timestamp=True)
        path = write_awdit(history, tmp_path / f"{seed}.txt")
        assert recognise_path(path) == "awdit"
        again = read_history(path)
        assert again.transactions == history.transactions + 1
        assert check(again).levels["CCv"].ok


def test_an_explicit_initial_write_is_not_counted_as_a_duplicate_write(tmp_path: Path) -> None:
    path = tmp_path / "history.txt"
    path.write_text("w(1,0,9,0)\nw(2,0,9,0)\nr(1,0,1,1)\nw(1,1,1,1)\n")
    assert check(read_history(path)).clean
    path.write_text("w(1,1,9,0)\nw(1,0,9,1)\nr(1,0,1,2)\n")
    with pytest.raises(
        InputError, match=r"T1 wrote 0, which is also the initial value, so reads of it are ambiguous"
    ):
        check(read_history(path))


def test_compressed_with_windows_lines_a_byte_order_mark_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfw(1,1,0,0)\r\n\r\n  r(1,1,1,1) \r\n"))
    assert recognise_path(path) == "plume"
    assert read_history(path).operations == 2
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfw x 1\r\n=====\r\n\r\nr x 1"))
    assert recognise_path(path) == "awdit"
    assert read_history(path).sessions == 2


def test_a_read_of_a_value_written_twice_is_refused_as_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "history.txt"
    path.write_text("w(1,5,0,0)\nw(1,5,1,1)\n")
    assert check(read_history(path)).clean, "nobody read it"
    path.write_text("w(1,5,0,0)\nw(1,5,1,1)\nr(1,5,2,2)\n")
    with pytest.raises(InputError, match=r"T0 and T1 both wrote 1=5, so it is unknown which of them T2 read"):
        check(read_history(path))
    path.write_text("w(1,5,0,-1)\nw(1,5,1,1)\nr(1,5,2,2)\n")
    assert check(read_history(path)).clean, "a transaction was tried again"


BAD = {
    "plume": [
        (b"w(1,1,0,0)\nx(1,1,0,0)\n", r"line 2: 'x\(1,1,0,0\)' is not r\(KEY,VALUE,SESSION,TRANSACTION\)"),
        (b"w(1,1,0,0)\nw(1,1,0)\n", "line 2"),
        (b"w(1,1,0,0)\n\nw(1,-1,0,0)\n", "line 3"),
        (b"w(1,1,0,0)\nw(1,1,0,-2)\n", "line 2"),
        (b"w(1,1,0,0)\nw(1,1234567890123456789,0,1)\n", "at most 18 digits"),
        (b"w(1,1,0,0)\nw(1,\x1b[2J,0,1)\n", r"x1b"),
        (b"\n", "is empty"),
    ],
    "awdit": [
        (b"w x 1\nr x\n", "line 2: 'r x' is not 'r KEY VALUE'"),
        (b"w x 1\nd x 2\n", "line 2"),
        (b"\n=====\n", "is empty"),
    ],
    "cobra": [
        (b"S" + bytes(8) + b"W" + bytes(23), "byte 9: an incomplete record"),
        (b"S" + bytes(8) + b"X" + bytes(24), "byte 9: a record of unknown kind b'X'"),
        (b"S" + bytes(8) + b"S" + bytes(8), "byte 9: record S is out of place"),
        (b"S" + bytes(8) + b"C" + b"\x01" * 8, "byte 9: record C is out of place"),
        (b"S" + bytes(8) + b"C" + bytes(8), "no reads or writes"),
    ],
    "dbcop": [
        (bytes(40), "ends at byte 40"),
        (bytes(64) + struct.pack("<Q", 1 << 60), "1,152,921,504,606,846,976 sessions do not fit"),
        (bytes(72), "has no events"),
        (bytes(72) + b"more", "goes on after the history"),
        (bytes(64) + struct.pack("<QQQ", 1, 1, 1) + bytes([7]) + bytes(18), "flags are neither 0 nor 1"),
        (bytes(64) + struct.pack("<QQQBQQBB", 1, 1, 1, 1, 1 << 63, 1, 1, 1), "more than 2⁶³ − 1"),
    ],
}


@pytest.mark.parametrize(
    ("preset", "data", "sentence"),
    [(preset, data, sentence) for preset, cases in BAD.items() for data, sentence in cases],
)
def test_bad_files_get_one_sentence(preset: str, data: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(data)
    with pytest.raises(InputError, match=sentence):
        read_history(path, preset)


@pytest.mark.parametrize(
    "document", ['{"data": 5}', "[5]", "[[5]]", '[[{"events": 5}]]', '[[{"events": [["x", 1, 2]]}]]', "[["]
)
def test_bad_json_gets_one_sentence(document: str, tmp_path: Path) -> None:
    from antecede.transactions.formats import dbcop_json

    path = tmp_path / "history.json"
    path.write_text(document)
    with pytest.raises(InputError, match=r"history\.json"):
        dbcop_json.read(path)


def test_damaged_files_never_crash(tmp_path: Path) -> None:
    rng = random.Random(1)
    history = replicated_history(1, transactions=12)
    for form, writer in WRITERS.items():
        path = writer(history, tmp_path / form)
        file = path if path.is_file() else next(iter(path.iterdir()))
        whole = file.read_bytes()
        for _ in range(60):
            damaged = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            file.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(1, len(damaged))])])
            try:
                check(read_history(path, None if "JSON" in form else form))
            except InputError:
                continue


def test_other_files_are_not_taken_for_histories(tmp_path: Path) -> None:
    text = [
        "",
        "{}",
        "[]",
        "run,group,process\n",
        '{"run": "a", "kind": "send"}\n',
        "Two\nlines\n",
        "r x\n",
        "S",
    ]
    text += ["Sent from somewhere", "wait for it\n", "r for real\nand so on"]
    others = [*(one.encode() for one in text), b"PAR1" + bytes(100), bytes(100), b"\x1f\x8b"]
    assert [other for other in others if recognise(other)] == []
    (tmp_path / "folder").mkdir()
    assert recognise_path(tmp_path / "folder") is None
    with pytest.raises(InputError, match="is no history in a known format"):
        (tmp_path / "text").write_text("Some text\n")
        read_history(tmp_path / "text")
    with pytest.raises(InputError, match="does not exist"):
        read_history(tmp_path / "nothing")
    with pytest.raises(InputError, match="'elle' is no format of histories"):
        read_history(tmp_path / "text", "elle")
