"""The rules for event rows are the same one by one, for arrays and for whole runs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from antecede.errors import InputError
from antecede.trace.schema import KINDS, SCHEMA
from antecede.trace.validate import (
    check_columns,
    check_event,
    check_run,
    invalid_events,
    kind_codes,
    validate_parquet_batch,
    validate_row,
)

ROW = {
    "run": "r",
    "group": "g",
    "process": "a",
    "index": 0,
    "kind": "send",
    "origin": "a",
    "seq": 1,
    "time": 0,
}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**ROW, **row} for row in rows], schema=SCHEMA)


def refused(row: dict[str, Any]) -> bool:
    try:
        check_event(row["process"], row["index"], row["kind"], row["origin"], row["seq"])
    except InputError:
        return True
    return False


def test_array_and_row_validation_agree() -> None:
    cases = [
        {**ROW, "kind": kind, "seq": seq, "origin": origin}
        for kind, seq, origin in product((*KINDS, "sned"), (-1, 0, 1, 2), ("a", "b"))
    ]
    rows = pa.Table.from_pylist(cases, schema=SCHEMA)
    origins = np.array([case["origin"] == "b" for case in cases], np.int64)
    found = invalid_events(
        kind_codes(rows.column("kind")), rows.column("seq").to_numpy(), origins, np.zeros_like(origins)
    )
    assert found.tolist() == [refused(case) for case in cases]
    for case in cases:
        if refused(case):
            with pytest.raises(InputError, match="process a, index 0: "):
                check_run(table(case))
        else:
            check_run(table(case))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{}, {"seq": 2}], "process a has two events with index 0; the index must number"),
        ([{}, {"index": 1}], "a:1 is sent twice, again at index 1; a seq is used once by its origin"),
        ([{"destinations": ["b", None]}], "the destinations of a:1 have an empty name among them"),
        ([{"origin": None}], "field origin is empty in 1 row"),
    ],
)
def test_impossible_runs_are_refused(rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(InputError) as error:
        check_run(table(*rows))
    assert says in str(error.value)


def test_every_format_names_file_row_and_field() -> None:
    file = Path("t")
    with pytest.raises(InputError, match="t, row 12, field origin: it is empty, and it is required"):
        validate_row({**ROW, "origin": None}, file, 12)
    (batch,) = table({}, {"origin": None}).to_batches()
    with pytest.raises(InputError, match="t, row 12, field origin: it is empty, and it is required"):
        validate_parquet_batch(batch, SCHEMA, file, rows_before=10)


def test_a_table_with_single_column_message_ids_gets_a_map_suggestion() -> None:
    with pytest.raises(InputError, match="as in --map message=message"):
        check_columns(["process", "index", "kind", "message"], "log.csv")
    with pytest.raises(InputError, match="has no columns origin, seq"):
        check_columns([*(name for name in ROW if name not in ("origin", "seq"))], "log.csv")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("process,index,kind,msg", r"has the columns process, index, kind, msg; .*as in --map message=msg;"),
        ("Host,idx,type,id", r"as in --map process=Host,kind=type,message=id,index=idx;"),
        ("when,text", r"as in --map process=…,kind=…,message=…;"),
        (
            "id,text,answers",
            r"antecede order --id id --deps answers .* --map node=id,process=…,parents=answers",
        ),
        ("id,kind,process,parent", r"as in --map message=id;"),
    ],
)
def test_an_unmapped_foreign_table_gets_a_map_suggestion(columns: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        check_columns(columns.split(","), "log.csv")
