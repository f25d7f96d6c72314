"""A DataFrame in causal order: the same whatever its partitions, and every row has an outcome."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from antecede.errors import InputError
from antecede.trace.foreign.shiviz import LOG_FORMATS, compile_pattern

pytest.importorskip("pyspark")
from antecede.causal_order.on_spark import whole_groups
from antecede.spark import causal_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GRAPHS = ("antidote_git", "clownschool", "git_makefile_A2", "postgres_25x400")


@pytest.fixture(autouse=True, scope="module")
def few_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def in_parts(spark: SparkSession, rows: Sequence[Any], schema: str, parts: int, seed: int = 0) -> DataFrame:
    """Rows shuffled and spread over so many partitions."""
    mixed = random.Random(seed).sample(list(rows), len(rows))
    return spark.createDataFrame(mixed, schema).repartition(parts)


def listed(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows in a fixed order, so that two frames can be compared."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


EVENTS = "room string, id string, deps array<string>, at double, note string, more struct<a:string,b:string>"


def events(rng: random.Random, rooms: int, many: int) -> list[tuple[Any, ...]]:
    """Rows of many rooms: some have duplicates that differ, some lack a cause, a few are on cycles."""
    rows: list[tuple[Any, ...]] = []
    for number in range(rooms):
        room = None if number == 0 else f"room {number}"
        size = many if number else 10 * many
        for place in range(size):
            deps = [str(rng.randrange(max(0, place - 9), place)) for _ in range(rng.randrange(3)) if place]
            if rng.random() < 0.01:
                deps.append(f"lost {place}")
            if place == 5 and number % 7 == 0:
                deps.append("6")
            if place == 6 and number % 7 == 0:
                deps.append("5")
            at = None if rng.random() < 0.1 else float(rng.randrange(4))
            rows.append((room, str(place), deps, at, "first", (None, "x")))
            if rng.random() < 0.05:
                rows.append((room, str(place), deps[:1], at, "second", (None, "x")))
            if rng.random() < 0.05:
                rows.append((room, str(place), deps, at, "first", ("x", None)))
    return rows


@pytest.mark.parametrize("on_missing", ["hold", "release", "quarantine"])
def test_a_batch_gives_the_same_rows_whatever_its_partitions(spark: SparkSession, on_missing: str) -> None:
    rows = events(random.Random(1), 300, 12)
    outcomes = [
        causal_order(
            in_parts(spark, rows, EVENTS, parts, seed=parts),
            group="room",
            id="id",
            deps="deps",
            by="at",
            on_missing=on_missing,
        )
        for parts in (1, 3, 17)
    ]
    first = listed(outcomes[0])
    assert all(listed(other) == first for other in outcomes[1:])
    assert len(first) == len({(room, row) for room, row, *_ in rows})
    assert_indices_count(outcomes[2].collect())


def assert_indices_count(rows: Sequence[Any]) -> None:
    """In each group indices are 0, 1, 2 … in the order of the rows; each after the causes that have one."""
    place: dict[tuple[str | None, str], int] = {}
    sizes: Counter[str | None] = Counter()
    for row in rows:
        if row.causal_index is None:
            assert row.status in ("held", "quarantined")
            assert row.reason
            continue
        assert row.causal_index == sizes[row.room]
        sizes[row.room] += 1
        place[row.room, row.id] = row.causal_index
        assert (row.reason is None) == (row.status == "ordered")
    for row in rows:
        if row.status == "ordered":
            assert all(place[row.room, dep] < row.causal_index for dep in row.deps)


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        # Spark's hash passes nulls over, and takes no maps.
        ("origin string, seq int, p string, q string", [("a", 0, None, "x"), ("a", 0, "x", None)]),
        (
            "origin string, seq int, p array<string>",
            [("a", 0, ["x", None]), ("a", 0, [None, "x"]), ("a", 0, ["x"])],
        ),
        ("origin string, seq int, p map<string,int>", [("a", 0, {"x": 1}), ("a", 0, {"x": 2}), ("a", 0, {})]),
        (
            "origin string, seq int, p struct<q:array<map<string,string>>>",
            [("a", 0, ([{"x": None}],)), ("a", 0, ([{"y": None}],)), ("a", 0, ([],)), ("a", 0, None)],
        ),
    ],
)
def test_which_duplicate_stays_does_not_depend_on_which_arrived_first(
    spark: SparkSession, schema: str, rows: list[Any]
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    kept = set()
    for order in (rows, rows[::-1]):
        frame = (
            spark.createDataFrame(order, schema)
            .coalesce(1)
            .withColumn("deps", F.lit(None).cast("array<string>"))
        )
        (row,) = causal_order(frame, origin="origin", seq="seq", deps="deps").collect()
        kept.add(repr(row))
    assert len(kept) == 1


def test_the_clock_chosen_for_a_duplicate_does_not_depend_on_arrival_order(
    spark: SparkSession,
) -> None:
    rows = [("x", {"x": 1, "y": 1}), ("x", {"x": 1}), ("y", {"y": 1})]
    outcomes = [
        causal_order(
            spark.createDataFrame(order, "o string, c map<string,long>").coalesce(1), origin="o", clock="c"
        )
        for order in (rows, rows[::-1])
    ]
    assert listed(outcomes[0]) == listed(outcomes[1])


def test_columns_may_have_any_name(spark: SparkSession) -> None:
    schema = "`a.room` string, `my id` string, `de``ps` array<string>, `100%` int, `a%2Eroom` string"
    rows = [("r", "b", ["a"], 1, "x"), ("r", "a", [], 2, "y"), ("s", "a", [], 2, "z")]
    frame = spark.createDataFrame(rows, schema)
    asked: dict[str, Any] = {"group": "a.room", "id": "my id", "deps": "de`ps", "by": "100%"}
    found = causal_order(frame, **asked)
    assert found.columns[:-3] == frame.columns
    assert sorted(map(tuple, found.drop("reason").collect())) == [
        (*rows[1], 0, "ordered"),
        (*rows[0], 1, "ordered"),
        (*rows[2], 0, "ordered"),
    ]
    with pytest.raises(InputError, match=r"id: column my id: 1 row"):
        causal_order(spark.createDataFrame([("r", None, [], 1, "x")], schema), **asked)


def grouped(sizes: Sequence[tuple[str | None, int]], slices: Sequence[int]) -> list[pa.RecordBatch]:
    """Rows of groups, one after the other, in batches of these sizes and a last one with the rest."""
    table = pa.table(
        {
            "group": pa.array([name for name, size in sizes for _ in range(size)], pa.string()),
            "n": pa.array(range(sum(size for _, size in sizes)), pa.int64()),
            "text": pa.array(["x" * 50] * sum(size for _, size in sizes)),
        }
    ).combine_chunks()
    (whole,) = table.to_batches()
    batches, at = [], 0
    for size in slices:
        batches.append(whole.slice(at, size))
        at += size
    return [*batches, whole.slice(at)]


@pytest.mark.parametrize("in_memory", [1 << 20, 600, 0])
@pytest.mark.parametrize("enough", [1, 7, 40, 1_000])
def test_groups_stay_whole_however_batches_cut_them(
    enough: int, in_memory: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for seed in range(25):
        rng = random.Random(seed)
        names = [*(f"g{number}" for number in range(rng.randrange(1, 9))), None]
        sizes = [(name, rng.choice([1, 2, 3, 30])) for name in names]
        slices = [rng.choice([0, 1, 2, 5, 30]) for _ in range(rng.randrange(12))]
        batches = grouped(sizes, slices)
        tables = list(whole_groups(iter(batches), "group", enough, in_memory))
        assert [n for table in tables for n in table.column("n").to_pylist()] == list(
            range(sum(dict(sizes).values()))
        )
        found = [list(dict.fromkeys(table.column("group").to_pylist())) for table in tables]
        assert [name for part in found for name in part] == names
        most = max(enough, *dict(sizes).values()) + max(len(batch) for batch in batches)
        assert all(len(table) <= most for table in tables)
        (alone,) = whole_groups(iter(batches), None, enough, in_memory)
        assert alone.num_rows == sum(dict(sizes).values())
    assert not list(tmp_path.iterdir())
    assert not list(whole_groups(iter([]), "group", enough, in_memory))


def test_rows_beyond_the_memory_limit_are_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in grouped([("a", 100), ("b", 10)], [20] * 5):
            yield batch
            seen.append(len(list(tmp_path.iterdir())))

    tables = list(whole_groups(watched(), "group", 50, 2_000))
    assert [len(table) for table in tables] == [100, 10]
    assert seen[:5] == [0, 1, 1, 1, 1]
    assert not list(tmp_path.iterdir())
    assert tables[0].column("n").to_pylist() == list(range(100))


def test_real_graphs_come_out_in_causal_order(spark: SparkSession, real_traces: Path) -> None:
    rows = []
    for name in GRAPHS:
        with (real_traces / f"{name}.dag.csv").open(newline="") as file:
            rows += [(name, row["node"], row["parents"].split()) for row in csv.DictReader(file)]
    frame = in_parts(spark, rows, "room string, id string, deps array<string>", 5)
    found = causal_order(frame, group="room", id="id", deps="deps").collect()
    assert {row.status for row in found} == {"ordered"}
    assert sorted((row.room, row.id, row.deps) for row in found) == sorted(rows)
    assert_indices_count(found)


def test_a_real_log_is_ordered_by_its_clocks(spark: SparkSession, real_traces: Path) -> None:
    text = (real_traces / "shiviz_chord.log").read_text()
    rows = [
        (match["host"], match["clock"]) for match in compile_pattern(LOG_FORMATS["GoVector"]).finditer(text)
    ]
    found = causal_order(
        in_parts(spark, rows, "host string, clock string", 3), origin="host", clock="clock"
    ).collect()
    assert sorted((row.host, row.clock) for row in found) == sorted(rows)
    count: Counter[str] = Counter()
    for place, row in enumerate(found):
        clock = json.loads(row.clock)
        count[row.host] += 1
        assert clock[row.host] == count[row.host]
        assert all(count[host] >= entry for host, entry in clock.items())
        assert row.causal_index == place


IDS = "id string, deps array<string>, n int, at timestamp"
STREAMS = "o string, s long, d array<struct<user:string,number:int>>, x double"
CLOCKS = "o string, c map<string,int>, text string, a array<int>, f double, number long"
HOW = "name either id and deps, or origin, seq and deps, or origin and clock"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (IDS, {"id": "idd", "deps": "deps"}, "id: events have no column idd; did you mean id?"),
    (IDS, {"id": "id", "deps": "causes"}, "deps: events have no column causes; they have id, deps, n, at"),
    (IDS, {"id": "id", "deps": "deps", "group": "rom"}, "group: events have no column rom"),
    (IDS, {"id": 7, "deps": "deps"}, "id: the name of a column is expected, not 7"),
    (IDS, {"id": "at", "deps": "deps"}, "id: column at is timestamp; ids are text or whole numbers"),
    (
        IDS,
        {"id": "id", "deps": "at"},
        "deps: column at is timestamp; expected an array of ids like those of id (text)",
    ),
    (
        IDS,
        {"id": "n", "deps": "deps"},
        "deps: column deps is array<string>; expected an array of ids like those of n (who",
    ),
    (IDS, {"id": "id", "deps": "n"}, "deps: column n is int; expected"),
    (IDS, {"id": "id", "deps": "deps", "group": "deps"}, "group: column deps is array<string>; a group is"),
    (IDS, {"id": "id", "deps": "deps", "by": "deps"}, "by: column deps is array<string>; expected"),
    (IDS, {}, f"{HOW}: the columns that state a row's causes; given: none"),
    (IDS, {"id": "id"}, f"{HOW}: the columns that state a row's causes; given: id"),
    (IDS, {"deps": "deps"}, "given: deps"),
    (IDS, {"id": "id", "deps": "deps", "seq": "n"}, "given: id, deps, seq"),
    (
        IDS,
        {"id": "id", "deps": "deps", "on_missing": "wait"},
        "on_missing: 'wait' is none of hold, release, quarantine",
    ),
    (
        IDS,
        {"id": "id", "deps": "deps", "timeout": "soon"},
        "timeout: 'soon' is not a duration; write one like 30s",
    ),
    (IDS, {"id": "id", "deps": "deps", "timeout": "-5s"}, "timeout: '-5s' is not a duration"),
    (IDS, {"id": "id", "deps": "deps", "timeout": 5}, "timeout: 5 is not a duration"),
    (IDS, {"id": "id", "deps": "deps", "timeout": None}, "timeout: None is not a duration"),
    (IDS, {"id": "id", "deps": "deps", "horizon": "10"}, "horizon: '10' is not a duration"),
    (
        IDS + ", Status int",
        {"id": "id", "deps": "deps"},
        "events have a column Status, a name that the result needs; rename it",
    ),
    (IDS + ", causal_index int", {"id": "id", "deps": "deps"}, "events have a column causal_index, a name"),
    (IDS + ", _antecede_id int", {"id": "id", "deps": "deps"}, "events have a column _antecede_id, a name"),
    (
        STREAMS,
        {"origin": "x", "seq": "s", "deps": "d"},
        "origin: column x is double; an origin is text or a whole number",
    ),
    (STREAMS, {"origin": "o", "seq": "x", "deps": "d"}, "seq: column x is double; expected whole numbers"),
    (
        STREAMS,
        {"origin": "o", "seq": "s", "deps": "x"},
        "deps: column x is double; expected an array of (origin, seq)",
    ),
    (
        CLOCKS,
        {"origin": "o", "clock": "f"},
        "clock: column f is double; expected a map from origin to whole numbers",
    ),
    (
        CLOCKS,
        {"origin": "o", "clock": "a"},
        "origin: column o is string; as the clock a is an array, an origin is a place",
    ),
    (
        CLOCKS,
        {"origin": "f", "clock": "c"},
        "origin: column f is double; an origin is text or a whole number",
    ),
]


@pytest.mark.parametrize("streams", [False, True])
def test_unorderable_input_is_refused_before_any_job_runs(
    spark: SparkSession, tmp_path: Path, streams: bool
) -> None:
    for schema, asked, message in REFUSED:
        frame = (
            spark.readStream.schema(schema).parquet(str(tmp_path))
            if streams
            else spark.createDataFrame([], schema)
        )
        with pytest.raises(InputError) as refusal:
            causal_order(frame, **asked)
        assert message in str(refusal.value), (schema, asked)


CANNOT_BE_READ: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    (
        "id string, deps array<string>",
        (None, []),
        {"id": "id", "deps": "deps"},
        "id: column id: 1 row cannot be",
    ),
    (
        "o string, s int, d array<string>",
        (None, 1, []),
        {"origin": "o", "seq": "s", "deps": "d"},
        "origin: column o: 1",
    ),
    (
        "o string, s int, d array<string>",
        ("a", -1, []),
        {"origin": "o", "seq": "s", "deps": "d"},
        "seq: column s: 1 row",
    ),
    (
        "o string, s int, d array<string>",
        ("a", None, []),
        {"origin": "o", "seq": "s", "deps": "d"},
        "seq: column s: 1",
    ),
    (
        "o string, c string",
        ("a", "[1, 2]"),
        {"origin": "o", "clock": "c"},
        "clock: column c: 1 row cannot be ordered, as",
    ),
    ("o string, c string", ("a", '{"a": "x"}'), {"origin": "o", "clock": "c"}, "clock: column c: 1 row"),
    (
        "o string, c map<string,int>",
        ("a", {"b": 1}),
        {"origin": "o", "clock": "c"},
        "as its clock has no entry above 0",
    ),
    (
        "o string, c map<string,int>",
        ("a", {"a": 1, "b": -1}),
        {"origin": "o", "clock": "c"},
        "null or below 0",
    ),
    ("o int, c array<int>", (2, [1, 1]), {"origin": "o", "clock": "c"}, "clock: column c: 1 row"),
]


def test_a_batch_with_unreadable_rows_is_refused_or_quarantines_them(spark: SparkSession) -> None:
    for schema, row, asked, message in CANNOT_BE_READ:
        frame = spark.createDataFrame([row], schema)
        with pytest.raises(InputError) as refusal:
            causal_order(frame, **asked)
        assert message in str(refusal.value)
        assert "check=False" in str(refusal.value)
    (aside,) = causal_order(frame, check=False, **asked).collect()
    assert (aside.status, aside.causal_index) == ("quarantined", None)
    assert aside.reason == "its clock has no entry above 0 for its own origin"


def test_a_null_or_empty_cause_is_none(spark: SparkSession) -> None:
    nulls = [("a", [None]), ("b", ["a", ""]), ("c", None), ("d", [""])]
    events = spark.createDataFrame(nulls, "id string, deps array<string>")
    found = causal_order(events, id="id", deps="deps").collect()
    assert {row.id: row.status for row in found} == dict.fromkeys("abcd", "ordered")
    pairs = [("a", 1, [""]), ("a", 2, [None, "a:1"]), ("a", 3, ["a:x"]), ("a", 4, ["b"])]
    events = spark.createDataFrame(pairs, "o string, s int, d array<string>")
    found = causal_order(events, origin="o", seq="s", deps="d", check=False).collect()
    reason = "a dependency of it cannot be read"
    assert [(row.s, row.reason) for row in found] == [(1, None), (2, None), (3, reason), (4, reason)]
