"""The local engine gives the same rows in the same order as Spark, or refuses what only Spark supports."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antecede.causal_order.request import OrderRequest, OrderResult
from antecede.causal_order.run import order_files
from antecede.errors import InputError

pytest.importorskip("pyspark")
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROLES = ("group", "id", "deps", "origin", "seq", "clock", "by")
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    """With one partition, Spark writes groups in the order of their names."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def request(on_missing: str = "hold", split: str | None = None, **options: Any) -> OrderRequest:
    roles = dict.fromkeys(ROLES) | {name: options.pop(name) for name in ROLES if name in options}
    return OrderRequest(roles, on_missing, split=split, **options)


def written(out: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Names of columns and rows as they are in the files, by outcome."""
    tables = {}
    for folder in sorted(out.glob("outcome=*")):
        table = pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))])
        columns = [_comparable(column) for column in table.columns]
        tables[folder.name] = [tuple(table.column_names), *zip(*columns, strict=True)]
    return tables


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    """Spark writes times as INT96, which Arrow reads without a zone."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def both(tmp_path: Path, path: Path, asked: OrderRequest) -> tuple[OrderResult, dict[str, list[Any]]]:
    """Order by both engines, and compare what they return and write."""
    place = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
    local = order_files(str(path), place / "local", asked, "local")
    spark = order_files(str(path), place / "spark", asked, "spark")
    assert (local.engine, spark.engine) == ("local", "spark")
    assert local.counts == spark.counts
    assert local.examples == spark.examples
    assert local.unreadable_examples == spark.unreadable_examples
    rows = written(place / "local")
    assert rows == written(place / "spark")
    return local, rows


def random_rows(rng: random.Random, size: int) -> list[Row]:
    """Rows of a few groups in random order: some come twice, lack a cause, or are on a cycle."""
    rooms = ["tea", "bär", "", None, "x y"]
    rows: list[Row] = []
    for number in range(size):
        before = range(number % len(rooms), number, len(rooms))
        deps = [f"m{rng.choice(before)}" for _ in range(rng.randrange(3)) if before]
        if number in (20, 25):
            deps.append("m25" if number == 20 else "m20")
        if rng.random() < 0.03:
            deps.append(f"lost{number}")
        row = {
            "id": f"m{number}",
            "room": rooms[number % len(rooms)],
            "deps": deps,
            "n": number,
            "at": rng.choice([None, 1.5, -0.0, 0.0, 2.25e3, float(number)]),
            "note": rng.choice(["", None, 'né\t"q"', "a, b", "7"]),
            "flag": rng.choice([True, False, None]),
        }
        rows.append(row)
        if rng.random() < 0.1:
            rows.append(row | {"note": "again"})
        if rng.random() < 0.05:
            rows.append(row)
    rng.shuffle(rows)
    return rows


def write_json(file: Path, rows: list[Row]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_csv(file: Path, rows: list[Row], split: str = " ") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        for row in rows:
            texts = {
                name: split.join(map(str, value)) if isinstance(value, list) else value
                for name, value in row.items()
            }
            writer.writerow(texts)
    return file


@pytest.mark.parametrize("on_missing", ["hold", "release", "quarantine"])
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_random_rows_are_ordered_alike(tmp_path: Path, form: str, on_missing: str) -> None:
    rows = random_rows(random.Random(f"{form} {on_missing}"), 300)
    asked = request(on_missing, split=" " if form == "csv" else None, group="room", id="id", deps="deps")
    if form == "json":
        path = write_json(tmp_path / "in" / "a.jsonl", rows[::2]).parent
        write_json(path / "deep" / "b.json", rows[1::2])
        rows[0]["more"] = {"z": [1, None], "a": 'q"\u0001'}
    elif form == "csv":
        path = write_csv(tmp_path / "in" / "a.csv", rows[::2]).parent
        write_csv(path / "b.csv", rows[1::2])
        asked.columns["by"] = "at"
    else:
        path = tmp_path / "in [1]"
        for place, part in {"a-b/x+%20.parquet": rows[::2], "a/b é.parquet": rows[1::2]}.items():
            (path / place).parent.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(part, pa.Table.from_pylist(rows).schema), path / place)
    result, tables = both(tmp_path, path, asked)
    assert result.counts.rows == len(rows)
    assert result.counts.duplicates > 10
    assert result.counts.quarantined >= 2
    assert len(tables) == (4 if on_missing == "hold" else 3)
    assert len(tables["outcome=duplicate"]) == result.counts.duplicates + 1
    in_order = [*rows[1::2], *rows[::2]] if form == "parquet" else [*rows[::2], *rows[1::2]]
    first = {(row["room"] or "", str(row["id"])): row["note"] or "" for row in reversed(in_order)}
    for name, (columns, *found) in tables.items():
        room, own, note = (columns.index(each) for each in ("room", "id", "note"))
        kept = [(row[room] or "", str(row[own])) for row in found]
        if name != "outcome=duplicate":
            assert [first[key] for key in kept] == [row[note] or "" for row in found]


def test_reasons_name_the_file_and_the_row(tmp_path: Path) -> None:
    write_json(tmp_path / "in" / "a.jsonl", [{"id": "a", "deps": []}])
    (tmp_path / "in" / "b.jsonl").write_text('\n{"deps": ["a"]}\n{\n{"id": "", "deps": []}\n')
    result, tables = both(tmp_path, tmp_path / "in", request(id="id", deps="deps"))
    assert (result.counts.quarantined, result.unreadable) == (3, 1)
    names, *rows = tables["outcome=quarantined"]
    reasons = {row[names.index("reason")].partition(": ")[0::2] for row in rows}
    assert {("b.jsonl, row 2", "it has no id"), ("b.jsonl, row 4", "it has no id")} < reasons


def test_columns_of_csv_are_text_unless_a_schema_says_otherwise(tmp_path: Path) -> None:
    rows = [
        {
            "id": ["001", "01", "1"][number % 3] + "0" * (number // 3),
            "deps": "",
            "phone": f"0049{number:03}",
            "n": number,
            "time": f"2024-02-28T23:59:{number:02}+01:00",
            "day": f"2024-02-{number + 1:02}" if number != 3 else None,
            "price": f"{number}.50",
            "yes": ["true", "FALSE"][number % 2],
            "text": ['say "hi", you', " padded ", "two\r\nlines", "né", "NULL"][number % 5],
        }
        for number in range(28)
    ]
    path = write_csv(tmp_path / "events.csv", rows[::-1])
    result, tables = both(tmp_path, path, request(id="id", deps="deps", by="n"))
    assert result.counts.ordered == len(rows)
    names, *ordered = tables["outcome=ordered"]
    texts = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    assert [dict(zip(names[:-4], row, strict=False)) for row in ordered] == texts
    schema = "n int, `time` timestamp, day date, price double, yes boolean"
    both(tmp_path, path, request(id="id", deps="deps", by="n", schema=schema))
    out = pq.ParquetFile(next(tmp_path.glob("out1/local/outcome=ordered/*.parquet"))).schema_arrow
    assert {field.name: str(field.type) for field in out if str(field.type) != "string"} == {
        "n": "int32",
        "time": "timestamp[us, tz=UTC]",
        "day": "date32[day]",
        "price": "double",
        "yes": "bool",
        "unreadable_row": "binary",
        "causal_index": "int64",
    }


def test_json_values_keep_their_text_and_ids_their_type(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 12345678901234567, "after": [], "price": 1.10, "mixed": 1, "big": 123456789012345678901}\n'
        '{"id": 2, "after": [12345678901234567], "price": 2, "mixed": "1", "o": {"b": 1.0,  "a": [] }}\n'
    )
    _, tables = both(tmp_path, path, request(id="id", deps="after"))
    names, first, second = tables["outcome=ordered"]
    assert dict(zip(names[:5], first, strict=False)) == {
        "id": 12345678901234567,
        "after": [],
        "price": "1.10",
        "mixed": "1",
        "big": "123456789012345678901",
    }
    assert second[2:6] == ("2", '"1"', None, '{"b": 1.0,  "a": [] }')
    path.write_text('{"id": 1, "after": []}\n{"id": "1", "after": null}\n{"id": 1.0, "after": ["1"]}\n')
    for engine in ("local", "spark"):
        with pytest.raises(InputError, match=r"id: column id has whole numbers \(1\) and text"):
            order_files(str(path), tmp_path / "refused", request(id="id", deps="after"), engine)
    schema = "id string, after array<string>"
    result, _ = both(tmp_path, path, request(id="id", deps="after", schema=schema))
    assert (result.counts.ordered, result.counts.duplicates, result.counts.quarantined) == (2, 1, 0)


def test_parquet_types_are_preserved(tmp_path: Path) -> None:
    size = 40
    rng = random.Random(1)
    some: dict[str, tuple[pa.DataType, Any]] = {
        "decimal": (pa.decimal128(12, 2), lambda n: Decimal(n - 20) / 100),
        "wide": (pa.decimal128(38, 4), lambda n: Decimal((n - 20) * 10**30) / 10000),
        "octets": (pa.binary(), lambda n: bytes(rng.randbytes(n))),
        "double": (pa.float64(), lambda n: [float("nan"), -0.0, 0.0, 1.5, float("inf")][n % 5]),
        "float": (pa.float32(), lambda n: [float("nan"), -0.0, 2.5][n % 3]),
        "tiny": (pa.int8(), lambda n: n - 20),
        "zoned": (pa.timestamp("us", "UTC"), lambda n: n * 10**9),
        "unzoned": (pa.timestamp("us"), lambda n: n * 10**9),
        "day": (pa.date32(), lambda n: n),
        "yes": (pa.bool_(), lambda n: n % 2 == 0),
        "inner": (pa.struct([("a", pa.list_(pa.string()))]), lambda n: {"a": [str(n), None]}),
        "map": (pa.map_(pa.string(), pa.int64()), lambda n: [("b", n), ("a", None)]),
    }
    ids = [f"m{n % 30}" for n in range(size)]
    columns = {"id": pa.array(ids), "after": pa.array([[] for _ in ids], pa.list_(pa.string()))}
    for name, (kind, value) in some.items():
        columns[name] = pa.array([None if n % 7 == 3 else value(n) for n in range(size)], kind)
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "a.parquet")
    local = order_files(
        str(tmp_path / "a.parquet"), tmp_path / "local", request(id="id", deps="after"), "local"
    )
    spark = order_files(
        str(tmp_path / "a.parquet"), tmp_path / "spark", request(id="id", deps="after"), "spark"
    )
    assert local.counts == spark.counts
    read = [
        pa.concat_tables(
            [pq.ParquetFile(file).read() for file in sorted((out).glob("outcome=ordered/*.parquet"))]
        )
        for out in (tmp_path / "local", tmp_path / "spark")
    ]
    for found in read:
        assert {name: found.schema.field(name).type for name in some} == {
            name: kind for name, (kind, _) in some.items()
        }
    assert str(read[0].to_pylist()) == str(read[1].to_pylist())
    # What Spark cannot read stays as it is in this process.
    more = {"id": ["a"], "after": pa.array([None], pa.string()), "ns": pa.array([1], pa.timestamp("ns"))}
    odd = pa.table(more | {"u": pa.array([2**64 - 1], pa.uint64()), "t": pa.array([5], pa.time64("us"))})
    pq.write_table(odd, tmp_path / "b.parquet")
    order_files(str(tmp_path / "b.parquet"), tmp_path / "odd", request(id="id", deps="after"))
    (file,) = (tmp_path / "odd").glob("outcome=ordered/*.parquet")
    assert pq.ParquetFile(file).read().select(odd.column_names) == odd


def test_every_form_of_dependencies_is_ordered_alike(tmp_path: Path) -> None:
    def compare(name: str, rows: list[Row], **options: Any) -> OrderResult:
        result, _ = both(tmp_path, write_json(tmp_path / f"{name}.jsonl", rows), request(**options))
        return result

    one_id: list[Row] = [
        {"k": 3, "after": 2},
        {"k": 2, "after": 1},
        {"k": 1, "after": None},
        {"k": 5, "after": 4},
    ]
    assert compare("one", one_id, id="k", deps="after").counts.held == 1
    blank: list[Row] = [{"k": "b", "after": "a"}, {"k": "a", "after": "  "}, {"k": "c", "after": "\t"}]
    assert compare("blank", blank, id="k", deps="after").counts.ordered == 3
    pairs: list[Row] = [
        {"who": who, "n": n, "after": [f"{other}:{n - 1}" for other in ("ana", "b:en", 7)] if n else []}
        for n in (3, 1, 0, 2)
        for who in ("ana", "b:en", "7")
    ]
    assert compare("text", pairs, origin="who", seq="n", deps="after").counts.ordered == 12
    structs = [row | {"after": [{"o": "ana", "s": row["n"] - 1}] if row["n"] else None} for row in pairs]
    assert compare("structs", structs, origin="who", seq="n", deps="after").counts.ordered == 12
    clocks = [
        {"who": "ben", "clock": {"ana": 1, "ben": 1}},
        {"who": "ana", "clock": {"ana": 1}},
        {"who": "cy", "clock": {"ana": 3, "cy": 1}},
        {"who": "cy", "clock": {"cy": 2, "ben": 1, "ana": 0}},
    ]
    for rule in ("hold", "release", "quarantine"):
        compare(f"clocks {rule}", clocks, on_missing=rule, origin="who", clock="clock")
        texts = [row | {"clock": json.dumps(row["clock"])} for row in clocks]
        compare(f"texts {rule}", texts, on_missing=rule, origin="who", clock="clock")
    odd = ["", "{", "[1]", '{"cy": 1.0}', '{"cy": "1"}', '{"cy": 1e0, "cy": 2}', "{'cy': 1}", '{"cy": null}']
    broken = [{"who": "cy", "clock": text} for text in odd] + texts
    assert compare("broken", broken, origin="who", clock="clock").counts.quarantined == 7
    arrays = [{"p": 1, "vc": [1, 1]}, {"p": 0, "vc": [1, 0]}, {"p": 0, "vc": [2, 2]}]
    assert compare("arrays", arrays, origin="p", clock="vc").counts.held == 1
    groups = [{"g": n % 3 == 0, "id": n, "deps": []} for n in range(9)]
    assert compare("groups", groups, group="g", id="id", deps="deps").counts.ordered == 9


UNREADABLE: list[tuple[list[Row], Row]] = [
    ([{"id": "a", "deps": ["b", None]}, {"id": None, "deps": []}], {"id": "id", "deps": "deps"}),
    ([{"id": "a", "deps": ["b"]}, {"id": "", "deps": []}], {"id": "id", "deps": "deps"}),
    ([{"o": "a", "n": -1, "deps": ["a:x"]}], {"origin": "o", "seq": "n", "deps": "deps"}),
    ([{"o": "a", "n": 1, "deps": ["a:x"]}], {"origin": "o", "seq": "n", "deps": "deps"}),
    ([{"o": "a", "c": {"a": -1}}, {"o": "b", "c": None}], {"origin": "o", "clock": "c"}),
    ([{"o": "a", "c": {"a": 1, "b": -1}}], {"origin": "o", "clock": "c"}),
    ([{"o": "a", "c": {"b": 1}}, {"o": None, "c": {"b": 1}}], {"origin": "o", "clock": "c"}),
    ([{"o": "a", "c": {"b": 1}}], {"origin": "o", "clock": "c"}),
]


@pytest.mark.parametrize(("rows", "roles"), UNREADABLE)
def test_both_engines_refuse_or_quarantine_the_same_unreadable_rows(
    tmp_path: Path, rows: list[Row], roles: Row
) -> None:
    path = write_json(tmp_path / "in.jsonl", rows)
    refusals = []
    for engine in ("local", "spark"):
        with pytest.raises(InputError) as refusal:
            order_files(str(path), tmp_path / f"refused-{engine}", request(strict=True, **roles), engine)
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]
    assert "leave out --strict" in refusals[0]
    both(tmp_path, path, request(**roles))


def damaged_csv(rng: random.Random, rows: list[Row], encoding: str) -> bytes:
    """Rows as some program writes them, with some that cannot be read."""
    out = io.StringIO(newline="")
    end = rng.choice(["\n", "\r\n"])
    quoted = rng.random() < 0.5
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow(row.values())
        if rng.random() < 0.1:
            out.write(rng.choice(["", "a", "a,b,c,d,e,f,g,h", '"x"y,1,2', "\x00", "  "]) + end)
    data = out.getvalue().encode(encoding)
    return data.replace(b"again", b"ag\xe9in") if encoding == "utf-8-sig" else data


@pytest.mark.parametrize("seed", range(8))
def test_both_engines_read_unusual_files_alike(tmp_path: Path, seed: int) -> None:
    """Quoted line ends, other numbers of fields, byte-order marks, Latin-1, several files, folders."""
    rng = random.Random(seed)
    encoding = ["utf-8-sig", "latin-1", "utf-16", "utf-8"][seed % 4]
    folder = tmp_path / "in" / ("day=1" if seed > 3 else "a")
    folder.mkdir(parents=True)
    rows = random_rows(rng, 60)
    for row in rows:
        row["deps"] = " ".join(row["deps"])
        row["note"] = rng.choice(["", "a\nb", 'q"q', "né", "\r\n", row["note"], "x,y", " "])
    for part in range(3):
        own = rows[part::3]
        if part == 1:  # the same columns in another order
            own = [dict(reversed(row.items())) for row in own]
        (folder / f"{part}.csv").write_bytes(damaged_csv(rng, own, encoding))
    (folder / "2.csv").rename(tmp_path / "elsewhere.csv")
    (folder / "2.csv").symlink_to(tmp_path / "elsewhere.csv")
    given = encoding if encoding == "latin-1" else None
    asked = request(split=" ", group="room", id="id", deps="deps", encoding=given, schema="n int")
    result, tables = both(tmp_path, tmp_path / "in", asked)
    assert result.unreadable > 0
    bad = tables["outcome=quarantined"]
    assert sum("row " in str(row[-1]) for row in bad) == result.unreadable
    if seed > 3:
        assert "day" in bad[0]
    refusals = []
    for engine in ("local", "spark"):
        with pytest.raises(InputError, match="rows cannot be read; one is") as refusal:
            strict = request(split=" ", group="room", id="id", deps="deps", encoding=given, strict=True)
            order_files(str(tmp_path / "in"), tmp_path / "strict", strict, engine)
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_large_files_read_in_parts_give_the_same_rows(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from antecede.causal_order import event_files_on_spark

    monkeypatch.setattr(event_files_on_spark, "_PART_BYTES", 2000)
    rows = random_rows(random.Random(form), 300)
    if form == "csv":
        plain = [row | {"deps": " ".join(row["deps"]), "note": "n"} for row in rows]
        path = write_csv(tmp_path / "a.csv", plain)
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n") + b"\nx\n\na,b\n")
    else:
        path = write_json(tmp_path / "a.jsonl", rows)
        path.write_text(path.read_text() + "\n{\n[1]\n")
    result, _ = both(
        tmp_path, path, request(split=" " if form == "csv" else None, group="room", id="id", deps="deps")
    )
    assert result.unreadable == 2
    assert result.counts.rows == len(rows) + 2


def test_a_small_csv_file_is_ordered_without_spark(tmp_path: Path) -> None:
    (tmp_path / "chat.csv").write_text("id,after,text\nb,a,yes\na,,tea?\nc,lost,\n")
    program = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from antecede.cli.main import main
main()
"""
    command = ["order", "chat.csv", "--out", "out", "--id", "id", "--deps", "after"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path, timeout=120
        )

    done = run(*command, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "local"
    assert [row[0] for row in written(tmp_path / "out")["outcome=ordered"][1:]] == ["a", "b"]
    assert written(tmp_path / "out")["outcome=held"][1][-1] == "waits for lost"
    done = run(*command[:3], "other", *command[4:], "--engine", "spark")
    assert done.returncode == 2
    assert "pip install 'antecede[spark]'" in done.stderr
