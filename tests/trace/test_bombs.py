"""Decompression bombs are refused in one sentence, using little memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv.pop(1)),) * 2)
from antecede.cli.main import main
main()
"""
MEMORY = 3 << 30
"""Of addresses, most of which are Arrow's and numba's libraries and reserved only."""
FILLING = {"editing": b"{},", "shiviz": b'a {"a":1}\n\n', "dependencies": b"a,b,1," + b"p " * 500 + b"\n"}
START = {"editing": b'{"txns":[', "shiviz": b'a {"a":1}\nhi\n', "dependencies": b"node,process,seq,parents\n"}


def antecede(*arguments: str, memory: int = MEMORY) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(memory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def bomb(file: Path, start: bytes, filling: bytes, size: int) -> Path:
    """A gzip file of `size` bytes once it is decompressed: many members, of which each is a megabyte."""
    member = gzip.compress(filling * ((1 << 20) // len(filling)))
    file.write_bytes(gzip.compress(start) + member * (size >> 20))
    return file


@pytest.mark.parametrize("form", list(START))
def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, form: str) -> None:
    file = bomb(tmp_path / "log.gz", START[form], FILLING[form], 300 << 20)
    assert file.stat().st_size < 2 << 20
    done = antecede("import", form, str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {file} has ")
    assert "--max-bytes" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_one_line_without_end_is_refused_too(tmp_path: Path) -> None:
    file = bomb(tmp_path / "log.gz", START["dependencies"], b"x", 300 << 20)
    done = antecede("import", "dependencies", str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "--max-bytes" in done.stderr


def test_the_limit_can_be_raised_and_lowered(tmp_path: Path) -> None:
    """A log of 40 MB that compresses well is not taken for granted, and is read if the user says so."""
    file = bomb(tmp_path / "log.gz", START["editing"], b" ", 40 << 20)
    with file.open("ab") as stream:
        stream.write(gzip.compress(b'{"parents":[],"agent":0}]}'))
    out = tmp_path / "out"
    assert antecede("import", "editing", str(file), "--out", str(out)).returncode == 2
    raised = antecede("import", "editing", str(file), "--out", str(out), "--max-bytes", "100000000")
    assert raised.returncode == 0, raised.stderr
    lowered = antecede("import", "editing", str(file), "--out", str(out), "--max-bytes", "1000")
    assert lowered.returncode == 2
    assert "more than 1,000 bytes" in lowered.stderr


def test_ordinary_gzip_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "log.gz"
    lines = "".join(f'host{n % 7} {{"host{n % 7}":{n // 7 + 1}}}\nevent {n}\n' for n in range(20_000))
    file.write_bytes(gzip.compress(lines.encode()))
    done = antecede("import", "shiviz", str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr


def event(name: str) -> dict[str, object]:
    return {
        "run": "r",
        "group": "g",
        "process": name,
        "index": 0,
        "kind": "send",
        "origin": name,
        "seq": 1,
        "time": 0,
    }


def test_a_parquet_file_of_huge_pages_is_refused_by_its_footer(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    row = pa.Table.from_pylist([event("x" * (100 << 20))])
    pq.write_table(row, file, compression="zstd", use_dictionary=False, write_statistics=False)
    del row
    assert file.stat().st_size < 1 << 20
    done = antecede("audit", str(file))
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "decompress" in done.stderr


def test_dictionary_encoded_long_names_are_refused_before_expansion(tmp_path: Path) -> None:
    """In a dictionary, a name of a megabyte costs its rows a few bits each."""
    file = tmp_path / "log.parquet"
    names = pa.array(["n" * (1 << 20)])
    rows = 50_000
    name = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), names)
    number = pa.array(range(rows))
    text = pa.array(["g"] * rows)
    kind = pa.array(["send"] * rows)
    columns = {"run": text, "group": text, "process": name, "index": number, "kind": kind, "origin": name}
    columns |= {"seq": number, "time": number}
    pq.write_table(pa.table(columns), file, compression="zstd", store_schema=False)
    assert file.stat().st_size < 4 << 20
    for arguments in (["audit", str(file)], ["audit", str(file), "--map", "kind.send=send"]):
        done = antecede(*arguments)
        assert done.returncode == 2
        assert str(file) in done.stderr
        assert "column process" in done.stderr


def test_an_impossible_row_count_in_parquet_is_refused(tmp_path: Path) -> None:
    """Nodes have different names; a run of equal ones takes no room at all in Parquet."""
    file = tmp_path / "parents.parquet"
    nulls = pa.nulls(50_000_000, pa.string())
    table = pa.table({"node": nulls, "process": nulls})
    lists = pa.nulls(50_000_000, pa.list_(pa.string()))
    pq.write_table(table.append_column("parents", lists), file)
    assert file.stat().st_size < 2 << 20
    done = antecede("graph", str(file), memory=3 << 29)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {file} ")
    assert "rows" in done.stderr


def test_a_json_line_over_the_length_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    with file.open("wb") as stream:
        stream.write(b'{"run":"')
        stream.truncate(3 << 30)  # a sparse file: it takes no room on the disk
    for arguments in (["audit", str(file)], ["audit", str(file), "--map", "process=host"]):
        done = antecede(*arguments, "--engine", "local")
        assert done.returncode == 2
        assert f"{file}, row 1" in done.stderr, done.stderr
