"""The local engine gives the same rows in the same order as Spark, or says that only Spark can."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
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


def request(
    on_missing: str = "hold", split: str | None = None, check: bool = True, **roles: Any
) -> OrderRequest:
    return OrderRequest(dict.fromkeys(ROLES) | roles, on_missing, split=split, check=check)


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
        path = tmp_path / "in.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    result, tables = both(tmp_path, path, asked)
    assert result.counts.rows == len(rows)
    assert result.counts.duplicates > 10
    assert result.counts.quarantined >= 2
    assert len(tables) == (3 if on_missing == "hold" else 2)


def test_types_of_csv_are_those_that_spark_infers(tmp_path: Path) -> None:
    began = datetime(2024, 2, 28, 23, 59, 58, tzinfo=UTC)
    rows = [
        {
            "id": number,
            "deps": f"{number - 1};{number // 2}" if number else "",
            "code": f"{number:03}",
            "day": date(2024, 2, 28) + timedelta(number) if number != 3 else None,
            "time": (began + timedelta(seconds=number)).isoformat(" " if number % 2 else "T"),
            "local": f"2024-01-01 00:00:0{number % 10}.{number:03}",
            "big": 10**12 + number,
            "price": f"{number}.50" if number % 3 else number,
            "yes": ["true", "FALSE", "True"][number % 3],
            "mixed": ["2024", "x", "1.5"][number % 3],
            "empty": None,
            "text": ['say "hi", you', " padded ", "1e5x"][number % 3],
        }
        for number in range(30)
    ]
    path = write_csv(tmp_path / "events.csv", rows[::-1])
    _, tables = both(tmp_path, path, request(split=";", id="id", deps="deps", by="time"))
    assert [row[0] for row in tables["outcome=ordered"][1:]] == list(range(30))
    out = pq.ParquetFile(next(tmp_path.glob("out0/local/outcome=ordered/*.parquet"))).schema_arrow
    assert {
        name: str(out.field(name).type) for name in ("id", "code", "day", "big", "price", "yes", "mixed")
    } == {
        "id": "int32",
        "code": "int32",
        "day": "date32[day]",
        "big": "int64",
        "price": "double",
        "yes": "bool",
        "mixed": "string",
    }


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
    arrays = [{"p": 1, "vc": [1, 1]}, {"p": 0, "vc": [1, 0]}, {"p": 0, "vc": [2, 2]}]
    assert compare("arrays", arrays, origin="p", clock="vc").counts.held == 1
    groups = [{"g": n % 3 == 0, "id": n, "deps": []} for n in range(9)]
    assert compare("groups", groups, group="g", id="id", deps="deps").counts.ordered == 9


UNREADABLE: list[tuple[list[Row], Row]] = [
    ([{"id": "a", "deps": ["b", None]}, {"id": None, "deps": []}], {"id": "id", "deps": "deps"}),
    ([{"id": "a", "deps": ["b", None]}, {"id": "b", "deps": []}], {"id": "id", "deps": "deps"}),
    ([{"o": "a", "n": -1, "deps": ["a:x"]}], {"origin": "o", "seq": "n", "deps": "deps"}),
    ([{"o": "a", "n": 1, "deps": ["a:x"]}], {"origin": "o", "seq": "n", "deps": "deps"}),
    ([{"o": "a", "c": {"a": -1}}, {"o": "b", "c": None}], {"origin": "o", "clock": "c"}),
    ([{"o": "a", "c": {"a": 1, "b": -1}}], {"origin": "o", "clock": "c"}),
    ([{"o": "a", "c": {"b": 1}}, {"o": None, "c": {"b": 1}}], {"origin": "o", "clock": "c"}),
    ([{"o": "a", "c": {"b": 1}}], {"origin": "o", "clock": "c"}),
]


@pytest.mark.parametrize(("rows", "roles"), UNREADABLE)
def test_rows_that_cannot_be_read_are_refused_or_quarantined_alike(
    tmp_path: Path, rows: list[Row], roles: Row
) -> None:
    path = write_json(tmp_path / "in.jsonl", rows)
    refusals = []
    for engine in ("local", "spark"):
        with pytest.raises(InputError) as refusal:
            order_files(str(path), tmp_path / f"refused-{engine}", request(**roles), engine)
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]
    assert "--no-check" in refusals[0]
    both(tmp_path, path, request(check=False, **roles))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.csv", "id,deps,t\n1,,2024-01-02\n2,1,7\n", "column t has values whose type"),
        ("a.csv", "id,deps,t\n1,,+5\n2,1,7\n", "column t has values whose type"),
        ("a.csv", "id,deps,t\n1,,1e5\n2,1,7\n", "column t has values whose type"),
        ("a.csv", "id,deps\n+1,\n2,1\n", "column id has whole numbers in a form"),
        ("a.csv", 'id,deps\n1,"x\ny"\n', "line 2: quotes"),
        ("a.csv", "id,deps\na,,3\n", "Expected 2 columns"),
        ("a.json", '{"id": 1, "deps": []}\nhello\n', "line 2 is not JSON"),
        ("a.json", '{"id": 1, "deps": [], "x": 1}\n{"id": 2, "deps": [], "x": "y"}\n', "different types"),
        ("a.json", '{"id": 1.5, "deps": []}\n', "neither text nor whole numbers"),
        ("room=1/a.json", '{"id": 1, "deps": []}\n', "in the names of folders"),
    ],
)
def test_uncertain_types_are_left_to_spark(tmp_path: Path, name: str, text: str, reason: str) -> None:
    file = tmp_path / "in" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    asked = request(id="id", deps="deps", check=False)
    with pytest.raises(InputError, match=reason) as refusal:
        order_files(str(tmp_path / "in"), tmp_path / "local", asked, "local")
    assert "leave out --engine local" in str(refusal.value)
    assert not (tmp_path / "local").exists()
    assert order_files(str(tmp_path / "in"), tmp_path / "auto", asked).engine == "spark"


def test_three_rows_of_csv_need_no_spark(tmp_path: Path) -> None:
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
    (tmp_path / "chat.csv").write_text("id,after,text\nb,a,1e5\na,,7\n")
    done = run(*command[:3], "other", *command[4:])
    assert done.returncode == 2
    assert "column text has values whose type only Spark infers" in done.stderr
    assert "pip install 'antecede[spark]'" in done.stderr
