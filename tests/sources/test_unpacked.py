"""Compressed files, other separators, and tables of Delta and Iceberg."""

from __future__ import annotations

import bz2
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import SAMPLES, refusal, run, run_json

from antecede.temporary_folders import remove_abandoned


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    # As the program writes it: two frames one after the other are one file.
    return packed


PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd, ".bz2": bz2.compress}
EVENTS = "who,n,what,msg\nana,1,send,a\nben,1,deliver,a\nben,2,send,b\nana,2,deliver,b\n"
MAP = "process=who,index=n,kind=what,message=msg"


@pytest.mark.parametrize("ending", PACKED)
def test_sources_may_be_compressed(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"spans.json{ending}"
    file.write_bytes(PACKED[ending]((SAMPLES / "otlp.json").read_bytes()))
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["records"]) == (1, "otlp", 6)


@pytest.mark.parametrize("ending", PACKED)
def test_traces_and_tables_may_be_compressed(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"log.csv{ending}"
    file.write_bytes(PACKED[ending](EVENTS.encode()))
    code, found = run_json("audit", file, "--map", MAP)
    assert (code, found["messages"], found["trace"]) == (0, 2, str(file))
    file.write_bytes(PACKED[ending]((EVENTS + "ana,x,send,c\n").encode()))
    assert f"{file}, row 5" in refusal("audit", file, "--map", MAP, "--strict")


def test_files_of_a_folder_may_be_compressed(tmp_path: Path) -> None:
    header, *rows = EVENTS.splitlines(keepends=True)
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "1.csv.gz").write_bytes(gzip.compress((header + "".join(rows[:2])).encode()))
    (folder / "2.csv").write_text(header + "".join(rows[2:]))
    code, found = run_json("audit", folder, "--map", MAP)
    assert (code, found["messages"], found["runs"]) == (0, 2, 1)


@pytest.mark.parametrize(
    ("separator", "ending"), [("\t", ".tsv"), (";", ".csv"), ("|", ".csv"), ("\t", ".tsv.gz")]
)
def test_other_separators_are_detected(separator: str, ending: str, tmp_path: Path) -> None:
    text = EVENTS.replace(",", separator).replace(f"{separator}b\n", f'{separator}"b,""x"\n').encode()
    file = tmp_path / f"log{ending}"
    file.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    code, found = run_json("audit", file, "--map", MAP)
    assert (code, found["messages"]) == (0, 2)
    code, found = run_json("order", file, "--out", tmp_path / "out", "--id", "msg", "--deps", "what")
    assert found["rows"] == 4
    assert [(each["file"], each["bytes"]) for each in found["lineage"]["files"]] == [
        (str(file), file.stat().st_size)
    ]


def test_a_decompressed_copy_is_shown_under_its_original_name(tmp_path: Path) -> None:
    """In messages, in lineages, in the names of runs, and in the reasons of rows that are quarantined."""
    rows = EVENTS.replace(",", "\t") + "ana\n"
    for name, data in (
        ("log.tsv", rows.encode()),
        ("log.v2.csv", rows.replace("\t", ";").encode()),
        ("log.csv.gz", gzip.compress(rows.replace("\t", ",").encode())),
        ("log.tsv.gz", gzip.compress(rows.encode())),
    ):
        file = tmp_path / name
        file.write_bytes(data)
        out = tmp_path / f"out of {name}"
        _, found = run_json("order", file, "--out", out, "--id", "msg", "--deps", "n")
        (reason,) = pq.read_table(out / "outcome=quarantined").column("reason").to_pylist()
        assert reason == f"{name}, row 5: it does not have the header's 4 fields, but 1"
        code, found = run_json("audit", file, "--map", MAP)
        assert (code, found["lineage"]["files"][0]["file"]) == (0, str(file))
        assert found["bad"][0]["examples"] == [f"row 5 (line 6): {reason.partition(': ')[2]}"]
        assert f"5 rows of 1 file ({name}), 1 skipped" in run("audit", file, "--map", MAP)[1]
        _, found = run_json("graph", file, "--map", MAP)
        assert found["runs"][0]["run"] == ("log.v2" if name == "log.v2.csv" else "log")
    table = tmp_path / "dep.csv"
    table.write_text("node;process;parents\na;p;\nb;p;a\n")
    _, found = run_json("graph", table)
    assert (found["runs"][0]["run"], found["lineage"]["files"][0]["file"]) == ("dep", str(table))
    table.write_text('who;n;what;msg\nana;1;send;"a"b\n')
    assert f"{table}, line 2: " in refusal("audit", table, "--map", MAP)


def test_a_compressed_file_beside_one_of_the_same_name_does_not_replace_it(tmp_path: Path) -> None:
    header, *rows = EVENTS.splitlines(keepends=True)
    folder = tmp_path / "logs"
    folder.mkdir()
    first, second = (header + "".join(part) for part in (rows[:2], rows[2:]))
    (folder / "a.csv").write_text(first)
    (folder / "a.csv.gz").write_bytes(gzip.compress(second.encode()))
    code, found = run_json("audit", folder, "--map", MAP)
    assert (code, found["messages"], found["lineage"]["rows_read"]) == (0, 2, 4)
    assert (folder / "a.csv").read_text() == first


def test_a_bomb_is_refused_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress(EVENTS.encode() + b"\n" * (20 << 20)))
    assert "decompresses to more than" in refusal("audit", file, "--map", MAP)
    spans = tmp_path / "spans.json.gz"
    spans.write_bytes(gzip.compress((SAMPLES / "otlp.json").read_bytes() + b"\n" * (20 << 20)))
    assert "decompresses to more than" in refusal("audit", spans)
    remove_abandoned()
    assert not list(tmp_path.glob("antecede-*"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(EVENTS.encode())[:-9], "damaged gzip"),
        (bz2.compress(EVENTS.encode())[:-9], "damaged bzip2"),
        (zstd(EVENTS.encode())[:-9], "damaged zstd"),
        (b"PK\x03\x04" + b"\0" * 40, "a zip archive; unpack it first"),
        (b"\xfd7zXZ\x00" + b"\0" * 40, "compressed with xz"),
    ],
)
def test_undecompressible_files_are_refused(data: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    file.write_bytes(data)
    refused = refusal("audit", file, "--map", MAP)
    assert why in refused
    assert str(file) in refused


def test_compressed_parquet_is_recognised_too(tmp_path: Path) -> None:
    """Alone, and in a folder with a file that is not compressed; findings name the file as it is called."""
    rows = [{"id": name, "parents": [parent]} for name, parent in (("b", "a"), ("c", "b"), ("d", "lost"))]
    for number, part in enumerate((rows[:1], rows[1:])):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / f"{number}.parquet")
    packed = tmp_path / "1.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "1.parquet").read_bytes()))
    (tmp_path / "1.parquet").unlink()
    _, found = run_json("audit", packed)
    assert (found["preset"], found["records"], found["missing_causes"]) == ("graph", 2, 2)
    _, found = run_json("audit", tmp_path)
    assert [each["id"] for each in found["missing"]] == ["a", "lost"]
    assert [each["file"] for each in found["lineage"]["files"]] == [str(tmp_path / "0.parquet"), str(packed)]
    run("order", tmp_path, "--out", tmp_path / "out", "--on-missing", "release")
    ordered = pq.read_table(tmp_path / "out" / "outcome=ordered").to_pylist()
    assert {row["file"] for row in ordered} == {str(tmp_path / "0.parquet"), str(packed)}


def delta_by_hand(folder: Path) -> Path:
    """A table as Delta Lake writes it: one of its two files was removed by a later version."""
    (folder / "_delta_log").mkdir(parents=True)
    rows = [json.loads(line) for line in (SAMPLES / "kcat.jsonl").read_text().splitlines()]
    flat = [{"topic": row["topic"], "partition": row["partition"], "offset": row["offset"]} for row in rows]
    pq.write_table(pa.Table.from_pylist(flat[:4]), folder / "part-0.parquet")
    pq.write_table(pa.Table.from_pylist(flat[4:]), folder / "part-1.parquet")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("topic", "string"), ("partition", "long"), ("offset", "long"))
    ]
    schema = json.dumps({"type": "struct", "fields": fields})

    def add(name: str) -> dict[str, object]:
        size = (folder / name).stat().st_size
        about = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
        return {"add": about}

    metadata = {
        "id": "1f2e3d4c-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    versions: list[list[dict[str, object]]] = [
        [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": metadata},
            add("part-0.parquet"),
            add("part-1.parquet"),
        ],
        [{"remove": {"path": "part-0.parquet", "deletionTimestamp": 1, "dataChange": True}}],
    ]
    for number, actions in enumerate(versions):
        text = "\n".join(map(json.dumps, actions))
        (folder / "_delta_log" / f"{number:020}.json").write_text(text)
    return folder


def without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, module, None)


def test_a_delta_table_is_not_read_as_plain_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = delta_by_hand(tmp_path / "table")
    without("deltalake", monkeypatch)
    for words in (["audit"], ["graph"], ["advise"], ["order", "--out", str(tmp_path / "out")]):
        refused = refusal(words[0], table, *words[1:])
        assert "pip install 'antecede[delta]'" in refused, words
    # Within a folder of other files, and where only files are read, it is refused too.
    assert "is a table of Delta Lake" in refusal("audit", tmp_path, "--map", "process=topic,message=offset")
    assert "is a table of Delta Lake" in refusal("audit", tmp_path)
    assert "is a table of Delta Lake" in refusal("audit", tmp_path, "--preset", "kafka")
    columns = ["--out", str(tmp_path.parent / "out"), "--id", "offset", "--deps", "topic"]
    assert "is a table of Delta Lake" in refusal("order", tmp_path, *columns)


def test_an_iceberg_or_hudi_table_is_not_read_as_plain_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without("pyiceberg.table", monkeypatch)
    iceberg, hudi = tmp_path / "iceberg", tmp_path / "hudi"
    for folder, inner in ((iceberg, "data"), (hudi, ".hoodie")):
        (folder / inner).mkdir(parents=True)
        pq.write_table(pa.table({"topic": ["a"], "partition": [0], "offset": [1]}), folder / "0.parquet")
    (iceberg / "metadata").mkdir()
    (iceberg / "metadata" / "v1.metadata.json").write_text("{}")
    assert "pip install 'antecede[iceberg]'" in refusal("audit", iceberg)
    assert "is a table of Apache Hudi" in refusal("audit", hudi)


def test_a_delta_table_is_read_by_its_log(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the extra delta is not installed")
    table = delta_by_hand(tmp_path / "table")
    _, found = run_json("order", table, "--out", tmp_path / "out")
    assert (found["rows"], found["in"]) == (2, str(table))
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["file"] for row in rows} == {str(table)}
    assert f"{table} has 2 records as kafka" in refusal("audit", table)
    (read,) = found["lineage"]["files"]
    assert (read["file"], read["rows"], read["version"]) == (str(table), 2, "version 1")
    _, shown = run("order", table, "--out", tmp_path / "again")
    assert "2 rows of 1 file (table, version 1)" in shown
    columns = "process=topic,kind=topic,message=offset,kind.send=payments"
    assert f"{table}, row 1" in refusal("audit", table, "--map", columns)
    shutil.rmtree(table / "_delta_log")
    _, found = run_json("order", table, "--out", tmp_path / "plain")
    assert found["rows"] == 6
    broken = delta_by_hand(tmp_path / "broken")
    (broken / "_delta_log" / f"{0:020}.json").write_text("{")
    assert "that cannot be read" in refusal("audit", broken)


def test_an_iceberg_table_is_read_by_its_metadata(tmp_path: Path) -> None:
    catalog = pytest.importorskip("pyiceberg.catalog.sql", reason="the extra iceberg is not installed")
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    made = catalog.SqlCatalog("t", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{warehouse}")
    made.create_namespace("n")
    rows = pa.table({"topic": ["a", "a", "b"], "partition": [0, 0, 0], "offset": [1, 2, 3]})
    table = made.create_table("n.t", schema=rows.schema)
    table.append(rows)
    table.delete("offset = 2")
    folder = Path(table.location().removeprefix("file://"))
    _, found = run_json("order", folder, "--out", tmp_path / "out")
    assert found["rows"] == 2
    (read,) = found["lineage"]["files"]
    assert (read["file"], read["version"]) == (str(folder), f"snapshot {table.metadata.current_snapshot_id}")
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    assert "names a file outside its folder" in refusal("audit", moved)


def test_names_of_temporary_copies_are_not_shown(tmp_path: Path) -> None:
    """A copy is shown under the name that the user gave."""
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress((EVENTS + "ana,x,send,c\n").encode()))
    _, out = run("audit", file, "--map", MAP)
    assert "antecede-unpacked" not in out


def test_every_command_that_decompresses_takes_the_option_that_its_refusal_names(tmp_path: Path) -> None:
    spans = tmp_path / "spans.json.gz"
    spans.write_bytes(gzip.compress((SAMPLES / "otlp.json").read_bytes() + b"\n" * (20 << 20)))
    trace = tmp_path / "log.csv.gz"
    trace.write_bytes(gzip.compress(EVENTS.encode() + b"\n" * (20 << 20)))
    sources: list[list[str | Path]] = [
        ["audit", spans],
        ["graph", spans],
        ["order", spans, "--out", tmp_path / "ordered"],
    ]
    for words in sources:
        assert "give --max-bytes" in refusal(*words)
        assert "decompresses to more than 50 bytes" in refusal(*words, "--max-bytes", "50")
    traces: list[list[str | Path]] = [
        ["audit", trace, "--map", MAP],
        ["explain", trace, "--map", MAP, "--message", "a"],
    ]
    for words in traces:
        assert "give --max-bytes" in refusal(*words)
        code, out = run(*words, "--max-bytes", "30000000")
        assert code == 0, out
    code, found = run_json("audit", spans, "--max-bytes", "30000000")
    assert (code, found["records"]) == (1, 6)
    history = tmp_path / "history.txt"
    history.write_text("w x 1\n=====\nr x 1\n")
    assert "more than 5 bytes" in refusal("audit", history, "--max-bytes", "5")


def test_one_message_of_a_compressed_trace_is_explained_and_exported(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress(EVENTS.encode()))
    code, found = run_json("explain", file, "--map", MAP, "--message", "b")
    assert (code, found["causes"], found["lineage"]["source"]) == (0, ["a"], str(file))
    code, found = run_json("export", "shiviz", file, "--map", MAP, "--out", tmp_path / "log.shiviz")
    assert (code, found["events"]) == (0, 4)
