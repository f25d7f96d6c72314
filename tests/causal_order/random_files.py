"""Random tables of events in files as people have them, and what `antecede order` should make of them.

The expectation is computed from the rows themselves, by the definition: a row is ordered if all rows that it
depends on, directly or not, are there and on no cycle. It shares no code with the engines. As a program, this
tries as many tables as are asked for:

    python tests/causal_order/random_files.py --tables 10000
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from antecede.causal_order.request import OrderRequest, OrderResult
from antecede.causal_order.run import order_files

ROLES = ("group", "id", "deps", "origin", "seq", "clock", "by")
FORMS = ("csv", "jsonl", "parquet")
_LATIN = ["a", "007", "é", "ß", '"', ",", "\n", " ", "", "null", "1.10"]
_PIECES = [*_LATIN, "\r\n", "\t", "\u2028", "🙂", "'", "\\"]
_IDS = ["{n}", "0{n}", "00{n}", "m{n}", "ä{n}", "{n} x"]

Row = dict[str, Any]


class RandomTable(NamedTuple):
    """A table in files and the expected disposition of its rows."""

    path: Path
    request: OrderRequest
    rows: list[Row]
    """The readable rows."""
    unreadable: int


def make_table(rng: random.Random, folder: Path) -> RandomTable:
    """Write a random table into one or more files."""
    form = rng.choice(FORMS)
    encoding = rng.choice(["utf-8", "utf-8-sig", "latin-1", "utf-16"]) if form == "csv" else "utf-8"
    rows = random_rows(rng, form, _LATIN if encoding == "latin-1" else _PIECES)
    by_room = rng.random() < 0.3
    parts = rng.randrange(1, 4)
    unreadable = 0
    folder.mkdir()
    files: dict[Path, list[Row]] = {}
    for row in rows:
        place = f"room={row['room']}" if by_room else ""
        files.setdefault(folder / place / f"{rng.randrange(parts)}.{form}", []).append(row)
    for file, own in files.items():
        file.parent.mkdir(exist_ok=True)
        if by_room:
            own = [{name: value for name, value in row.items() if name != "room"} for row in own]
        if form == "csv":
            data, bad = csv_bytes(rng, own, encoding)
            file.write_bytes(data)
            unreadable += bad
        elif form == "jsonl":
            text, bad = json_text(rng, own)
            file.write_text(text, newline="")
            unreadable += bad
        else:
            pq.write_table(pa.Table.from_pylist(own, schema=_schema(own[0])), file)
    asked = OrderRequest(
        dict.fromkeys(ROLES) | {"group": "room", "id": "id", "deps": "after"},
        rng.choice(["hold", "release", "quarantine"]),
        split=";" if form == "csv" else None,
        encoding="latin-1" if encoding == "latin-1" else None,
    )
    path = next(iter(files)) if len(files) == 1 and not by_room else folder
    return RandomTable(path, asked, rows, unreadable)


def random_rows(rng: random.Random, form: str, pieces: list[str]) -> list[Row]:
    """Rows of a few rooms: ids that differ only in zeros, missing causes, cycles, duplicates, rows without
    parents."""
    names = list(dict.fromkeys(rng.choice(_IDS).format(n=n // 2) for n in range(rng.randrange(1, 14))))
    whole = form != "csv" and rng.random() < 0.3
    ids: list[Any] = list(range(len(names))) if whole else names
    rows = []
    for room in rng.sample(["tea", "bar", "x y", "ü"], rng.randrange(1, 3)):
        for at, name in enumerate(ids):
            choice = ids if rng.random() < 0.1 else ids[:at]
            after = [rng.choice(choice) for _ in range(rng.randrange(3)) if choice]
            if rng.random() < 0.08:
                after.append(9999 if whole else "lost")
            listed: Any = after
            if form == "csv":
                listed = ";".join(map(str, after)) or rng.choice(["", ";", " "])
            elif not after:
                listed = rng.choice([None, [], [None] if whole else [""]])
            texts = {f"t{n}": "".join(rng.choices(pieces, k=rng.randrange(4))) for n in range(2)}
            rows.append({"id": name, "room": room, "after": listed, **texts})
            if rng.random() < 0.05:
                rows.append(dict(rows[-1]))
    rng.shuffle(rows)
    return rows


def csv_bytes(rng: random.Random, rows: list[Row], encoding: str) -> tuple[bytes, int]:
    """Rows as some program writes them, and how many of them cannot be read."""
    out = io.StringIO(newline="")
    end = rng.choice(["\n", "\r\n"])
    quoting = rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
    names = rng.sample(list(rows[0]), len(rows[0]))
    writer = csv.DictWriter(out, names, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    writer.writeheader()
    bad = 0
    for row in rows:
        writer.writerow(row)
        if rng.random() < 0.1:
            out.write(end)
        if rng.random() < 0.1:
            out.write(rng.choice(["x", "a," * 9, '"x"y,b,c,d,e', "x,y"]) + end)
            bad += 1
    data = out.getvalue().encode(encoding)
    if encoding.startswith("utf-8") and rng.random() < 0.2:
        data += b'\xe9,b,c,"d"' + (b",e" if len(names) == 5 else b"") + end.encode()
        bad += 1
    return data, bad


def json_text(rng: random.Random, rows: list[Row]) -> tuple[str, int]:
    """Rows as JSON lines, and how many of them cannot be read."""
    lines: list[str] = []
    bad = 0
    for row in rows:
        kept = {name: value for name, value in row.items() if value is not None or rng.random() < 0.5}
        if not lines:  # a file without any parents would be a table without the column
            kept.setdefault("after", None)
        lines.append(json.dumps(kept, ensure_ascii=rng.random() < 0.5))
        if rng.random() < 0.1:
            lines.append("")
        if rng.random() < 0.1:
            lines.append(rng.choice(["{", "[1]", '{"id": }', "hello", '"x"']))
            bad += 1
    return ("\ufeff" if rng.random() < 0.2 else "") + "\n".join(lines) + "\n", bad


def _schema(row: Row) -> pa.Schema:
    kind = pa.int64() if isinstance(row["id"], int) else pa.string()
    kinds = {"id": kind, "after": pa.list_(kind)}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in row])


def check_table(table: RandomTable, out: Path, engine: str = "local") -> None:
    """Order a table and compare the result with the definition."""
    result = order_files(str(table.path), out, table.request, engine)
    assert result.unreadable == table.unreadable, (result.unreadable, table.unreadable)
    written = {
        folder.name.removeprefix("outcome="): pa.concat_tables(
            [pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))]
        ).to_pylist()
        for folder in out.glob("outcome=*")
    }
    by_id = _by_identity(table.rows)
    outcomes = _outcomes(by_id, table.request.on_missing)
    again = written.pop("duplicate", [])
    assert len(again) == len(table.rows) - len(by_id)
    assert all(by_id[row["room"], row["id"]]["t0"] == row["t0"] for row in again)
    _compare_outcomes(written, by_id, outcomes, table.unreadable)
    _compare_order(written.get("ordered", []), by_id, outcomes)
    _compare_counts(result, table, outcomes)


def _causes(row: Row) -> set[Any]:
    after = row["after"]
    names = [part.strip(" ") for part in after.split(";")] if isinstance(after, str) else after or []
    return {name for name in names if name not in ("", None)}


def _by_identity(rows: list[Row]) -> dict[tuple[str, Any], Row]:
    # Rows with one id are equal here, so it does not matter which of them stays.
    return {(row["room"], row["id"]): row for row in rows}


def _outcomes(by_id: dict[tuple[str, Any], Row], on_missing: str) -> dict[tuple[str, Any], str]:
    """Ordered, released, held or quarantined, by a search from each row."""
    found = {}
    for key, row in by_id.items():
        missing, reached = _reach(by_id, key)
        doomed = any(one in _reach(by_id, one)[1] for one in ({key} | reached))
        direct = {(row["room"], name) for name in _causes(row)}
        if on_missing == "release":
            on_cycle = key in reached
            lacks = any(one not in by_id or one in _reach(by_id, one)[1] for one in direct)
            found[key] = "quarantined" if on_cycle else "released" if lacks else "ordered"
        elif doomed or (on_missing == "quarantine" and missing):
            found[key] = "quarantined"
        else:
            found[key] = "held" if missing else "ordered"
    return found


def _reach(by_id: dict[tuple[str, Any], Row], key: tuple[str, Any]) -> tuple[bool, set[tuple[str, Any]]]:
    """Whether a row depends on a missing one, and all rows that it depends on."""
    missing, reached = False, set()
    pending = [key]
    while pending:
        room, _ = one = pending.pop()
        for name in _causes(by_id[one]):
            cause = (room, name)
            if cause not in by_id:
                missing = True
            elif cause not in reached:
                reached.add(cause)
                pending.append(cause)
    return missing, reached


def _compare_outcomes(
    written: dict[str, list[Row]],
    by_id: dict[tuple[str, Any], Row],
    outcomes: dict[tuple[str, Any], str],
    unreadable: int,
) -> None:
    """Each row is exactly once in the folder of its outcome, with unchanged values."""
    seen = {}
    for folder, rows in written.items():
        for row in rows:
            if row["id"] is None:
                assert folder == "quarantined"
                unreadable -= 1
                continue
            key = (row["room"], row["id"])
            assert key not in seen, key
            seen[key] = row["status"]
            assert folder == (row["status"] if row["status"] in ("held", "quarantined") else "ordered")
            assert {name: row[name] for name in by_id[key]} == by_id[key]
    assert unreadable == 0
    assert seen == outcomes


def _compare_order(
    ordered: list[Row], by_id: dict[tuple[str, Any], Row], outcomes: dict[tuple[str, Any], str]
) -> None:
    """Indices count from 0 in each group, and rows come after their causes that are emitted."""
    place = {(row["room"], row["id"]): row["causal_index"] for row in ordered}
    for room in {row["room"] for row in ordered}:
        indices = [row["causal_index"] for row in ordered if row["room"] == room]
        assert indices == list(range(len(indices)))
    for key, index in place.items():
        for name in _causes(by_id[key]):
            cause = (key[0], name)
            assert outcomes.get(cause) not in ("ordered", "released") or place[cause] < index


def _compare_counts(result: OrderResult, table: RandomTable, outcomes: dict[tuple[str, Any], str]) -> None:
    counts = result.counts
    assert counts.rows == len(table.rows) + table.unreadable
    assert counts.duplicates == len(table.rows) - len(outcomes)
    assert counts.held == sum(outcome == "held" for outcome in outcomes.values())
    if counts.held:
        assert result.missing.rows == counts.held
    assert counts.quarantined == table.unreadable + sum(one == "quarantined" for one in outcomes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first table")
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    asked = parser.parse_args()
    start = time.perf_counter()
    for seed in range(asked.first, asked.first + asked.tables):
        with tempfile.TemporaryDirectory() as folder:
            try:
                table = make_table(random.Random(seed), Path(folder) / "in")
                check_table(table, Path(folder) / "out", asked.engine)
            except Exception as error:
                raise SystemExit(f"table {seed}: {type(error).__name__}: {error}") from error
    print(f"{asked.tables:,} tables as expected, in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
