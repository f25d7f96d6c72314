"""Files that commands write: a flipped bit is detected, and only the owner can read the files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.reader import read_trace
from command_line import antecede

PART = "part-00000.parquet"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "trace"
    simulate_to(folder, scenario(protocol="mbcp", peers=5, seconds=1, seed=7))
    return folder


def flipped(trace: Path, target: Path, place: int) -> Path:
    """A copy of a trace with one bit of its part flipped."""
    target.mkdir(exist_ok=True)
    data = bytearray((trace / PART).read_bytes())
    data[place] ^= 1 << place % 8
    (target / PART).write_bytes(data)
    shutil.copytree(trace / "_meta", target / "_meta", dirs_exist_ok=True)
    return target


def pages(trace: Path) -> dict[str, range]:
    """Where the pages of each column are in the part."""
    group = pq.ParquetFile(trace / PART).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {
        each.path_in_schema: range(start, start + each.total_compressed_size)
        for each in columns
        for start in [each.dictionary_page_offset or each.data_page_offset]
    }


def test_audit_notices_a_flipped_bit_in_any_column(trace: Path, tmp_path: Path) -> None:
    for column, places in pages(trace).items():
        damaged = flipped(trace, tmp_path / column, places[-1])
        done = CliRunner().invoke(app, ["audit", str(damaged)])
        assert isinstance(done.exception, InputError), column
        assert str(damaged / PART) in str(done.exception)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_damaged_trace_is_refused_in_one_sentence_naming_the_file(
    trace: Path, tmp_path: Path, engine: str
) -> None:
    damaged = flipped(trace, tmp_path / "damaged", pages(trace)["seq"][-1])
    done = antecede("audit", str(damaged), "--engine", engine)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert str(damaged / PART) in done.stderr
    assert done.stdout == ""


def test_no_flipped_bit_changes_what_is_read(trace: Path, tmp_path: Path) -> None:
    """Wherever the bit is flipped, the file is refused or its rows are unchanged."""
    whole = read_trace(trace)
    size = (trace / PART).stat().st_size
    for place in range(0, size, max(1, size // 3000)):
        try:
            read = read_trace(flipped(trace, tmp_path / "damaged", place))
        except InputError:
            continue
        assert read.equals(whole), f"a bit of byte {place} of {size}"


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_files_are_for_their_owner_only(trace: Path, tmp_path: Path, umask: int) -> None:
    out = tmp_path / "out"
    out.mkdir()
    table = tmp_path / "parents.csv"
    table.write_text("node,process,seq,parents\na,ana,1,\nb,bo,1,a\n")
    commands = [
        ["simulate", "--peers", "3", "--seconds", "0.2", "--out", str(out / "trace")],
        ["audit", str(trace), "--html", str(out / "page.html")],
        ["graph", str(trace), "--out", str(out / "graph")],
        ["import", "dependencies", str(table), "--out", str(out / "table")],
        ["export", "shiviz", str(trace), "--out", str(out / "shiviz.log")],
        ["explore", str(trace), "--out", str(out / "explorer")],
        ["order", str(table), "--id", "node", "--deps", "parents", "--out", str(out / "ordered")],
    ]
    for command in commands:
        done = antecede(*command, umask=umask)
        assert done.returncode == 0, done.stderr
    assert_private(out)


def test_files_written_by_spark_are_readable_only_by_their_owner(trace: Path, tmp_path: Path) -> None:
    done = antecede("graph", str(trace), "--engine", "spark", "--out", str(tmp_path / "graph"), umask=0)
    assert done.returncode == 0, done.stderr
    assert_private(tmp_path / "graph")


def assert_private(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and file.stat().st_size]
    assert files
    modes = {str(file.relative_to(folder)): oct(file.stat().st_mode & 0o777) for file in files}
    assert set(modes.values()) == {"0o600"}, modes
    assert os.access(files[0], os.R_OK | os.W_OK)
