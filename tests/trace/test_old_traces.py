"""Traces that earlier releases wrote get the verdict that they got then.

`old_traces/RELEASE.zip` has them, `old_traces/make_old_traces.py` says how they were made. A release that
changes the schema adds an archive of its predecessor.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antecede.audit.run import audit_path
from antecede.errors import InputError
from antecede.trace.reader import read_files, read_metas, read_table, trace_files
from antecede.trace.schema import META, META_FOLDER, REQUIRED

ARCHIVES = sorted((Path(__file__).parent / "old_traces").glob("*.zip"))
CASES = [
    pytest.param(archive, trace, id=f"{archive.stem}-{trace}")
    for archive in ARCHIVES
    for trace in sorted({name.partition("/")[0] for name in zipfile.ZipFile(archive).namelist()})
]
_FORMER_NAMES = {"causal_violations": "causal_deliveries", "fifo_violations": "fifo_deliveries"}


def unpack(archive: Path, trace: str, folder: Path) -> tuple[Path, dict[str, int]]:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    expected: dict[str, int] = json.loads((folder / trace / "expected.json").read_text())
    return folder / trace / "trace", expected


@pytest.mark.parametrize(("archive", "trace"), CASES)
def test_an_old_trace_gets_its_original_verdict(archive: Path, trace: str, tmp_path: Path) -> None:
    path, expected = unpack(archive, trace, tmp_path)
    counts = audit_path(str(path), "local", 10, None).verdict.counts()
    compared = {name: expected.get(name, expected.get(_FORMER_NAMES.get(name, ""))) for name in counts}
    assert {name: counts[name] for name in counts if compared[name] is not None} == {
        name: value for name, value in compared.items() if value is not None
    }
    assert counts["deliveries"] == expected["deliveries"] > 0


@pytest.mark.parametrize(("archive", "trace"), CASES)
def test_group_members_of_an_old_trace_are_known(archive: Path, trace: str, tmp_path: Path) -> None:
    path, _ = unpack(archive, trace, tmp_path)
    (meta,) = read_metas(path)
    assert meta.protocol == "mbcp"
    assert [len(members) for members in meta.groups.values()] == [4]


@pytest.mark.parametrize(("archive", "trace"), CASES)
def test_the_schema_only_gains_columns(archive: Path, trace: str, tmp_path: Path) -> None:
    path, _ = unpack(archive, trace, tmp_path)
    (file,) = trace_files(path)
    before, now = pq.read_table(file), read_table([file])
    assert set(REQUIRED) <= set(before.column_names)
    for name in now.column_names:
        if name in before.column_names:
            assert now.column(name).to_pylist() == before.column(name).to_pylist()
    assert sum(len(table) for table in read_files([file], None)) == len(before)


def test_a_trace_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path, _ = unpack(ARCHIVES[0], "clean", tmp_path)
    meta = json.loads((path / META).read_text())
    (path / META).write_text(json.dumps(meta | {"schema_version": 2}))
    with pytest.raises(InputError, match="has schema version 2, this Antecede reads up to 1; upgrade it"):
        read_metas(path)


def test_a_foreign_file_with_a_trace_file_name_is_left_alone(tmp_path: Path) -> None:
    path, _ = unpack(ARCHIVES[0], "clean", tmp_path)
    (path / META).unlink()
    (path / META_FOLDER).rmdir()
    (path / "meta.json").write_text('{"title": "measurements"}')
    assert read_metas(path) == []
