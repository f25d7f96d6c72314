"""The request to `run` and its result, the same for every engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from antecede.causal_order.merge import MergeRules
from antecede.causal_order.missing_causes import MissingIds
from antecede.causal_order.rules import OnMissing, RowCounts
from antecede.causal_order.text_types import parse_schema
from antecede.errors import InputError
from antecede.trace.csv_records import CsvFormat
from antecede.units import parse_duration

CHECKPOINT = "_checkpoint"
"""The checkpoint of a stream within its folder, unless another is given."""
DEFAULT_TIMEOUT = "10m"
OUTCOME = "outcome"
"""The column by which results are partitioned into folders: `ordered`, or one of NOT_ORDERED."""
NOT_ORDERED = {"held": "held", "quarantined": "quarantined", "duplicate": "duplicates"}
"""The statuses of rows that go to a folder of their own, and the names of their counts."""
STATUSES = ("ordered", "released", "held", "quarantined")
MAX_EXAMPLES = 3
MAX_UNREADABLE = 5
"""The number of examples of rows that could not be read."""

Progress = Callable[[str, int, int], None]


class OrderRequest(msgspec.Struct):
    """How to order events: names of columns by their roles, and the rules, as for `causal_order`."""

    columns: dict[str, str | None]
    on_missing: str = "hold"
    timeout: str = DEFAULT_TIMEOUT
    horizon: str = "24h"
    split: str | None = None
    strict: bool = False
    """Whether rows that cannot be read or ordered are errors; otherwise they are quarantined."""
    schema: str | None = None
    encoding: str | None = None
    separator: str = ","
    merges: bool = False
    """Whether the events are records of topics to be merged."""
    merge: MergeRules = msgspec.field(default_factory=MergeRules)
    without: list[str] = []
    """Tables whose topics are not among the records."""

    @property
    def types(self) -> dict[str, str]:
        """The types of columns of text files that the user has specified."""
        return parse_schema(self.schema) if self.schema is not None else {}

    @property
    def csv(self) -> CsvFormat:
        return CsvFormat(self.encoding, self.separator)

    def validate(self) -> None:
        """Refuse impossible options before anything is read or started."""
        if self.on_missing not in list(OnMissing):
            raise InputError(f"--on-missing: {self.on_missing!r} is none of {', '.join(OnMissing)}")
        self.refuse_wrong_durations()
        if self.split is not None and self.columns["deps"] is None:
            raise InputError("--split is for --deps, the column that has several ids")
        if self.split == "":
            raise InputError("--split: give the text between two ids, as in --split ' '")
        self.csv.validate()
        _ = self.types
        self._refuse_other_rules()

    def refuse_wrong_durations(self) -> None:
        for option, text in (("timeout", self.timeout), ("horizon", self.horizon)):
            try:
                parse_duration(text)
            except InputError as error:
                # Its own examples are delays of milliseconds.
                sentence = str(error).partition("; write one")[0]
                remedy = "" if sentence == str(error) else "; write one like 30s, 10m or 24h"
                raise InputError(f"--{option}: {sentence}{remedy}") from error

    def _refuse_other_rules(self) -> None:
        """Refuse options for rows that name their causes if topics are merged, and vice versa."""
        if not self.merges:
            for option, names in (("without", self.without), ("snapshot-of", self.merge.snapshot_of)):
                if names:
                    raise InputError(f"--{option} is for topics of Debezium, and these events are none")
        elif self.columns["group"] or self.columns["by"] or self.on_missing != OnMissing.HOLD:
            raise InputError(
                "--group, --by and --on-missing are for rows that name their causes; topics of Debezium have "
                "the order of their connector, and an incomplete transaction is held"
            )

    def refuse_unused(self, format_name: str) -> None:
        """Refuse options that do not apply to the files."""
        if format_name != "csv" and self.csv != CsvFormat():
            raise InputError(f"--encoding and --separator are for CSV, not for {format_name}")
        if format_name == "parquet" and self.schema is not None:
            raise InputError("--schema is for text files; Parquet has its own types")


class NeedsSparkError(InputError):
    """Events that the local engine cannot read exactly as Spark does. The message says why."""


class HeldRow(msgspec.Struct):
    """A row that a stream holds: the causes it waits for, those that have not even arrived, and since
    when."""

    group: str | None
    id: str
    waits_for: list[str]
    missing: list[str]
    since: datetime


class Example(msgspec.Struct):
    """A row that was held, quarantined or a duplicate, and why."""

    group: str | None
    id: str
    status: str
    reason: str
    since: datetime | None = None


class OrderResult(msgspec.Struct):
    """How many rows had which outcome."""

    counts: RowCounts
    examples: list[Example]
    """Some of the rows that were not ordered."""
    engine: str
    """`local` or `spark`."""
    unreadable: int = 0
    """How many of the quarantined rows could not be read."""
    unreadable_examples: list[str] = []
    """Where some of the unreadable rows are, and why."""
    interrupted: bool = False
    groups: int | None = None
    """The number of groups among the rows; a stream does not count them."""
    missing: MissingIds = msgspec.field(default_factory=MissingIds)


def has_finished_batch(checkpoint: Path) -> bool:
    """Whether the stream of a checkpoint has finished a batch."""
    return any(file.name.isdigit() for file in (checkpoint / "commits").glob("*"))
