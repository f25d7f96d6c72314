"""Judges a dependency log: records that name their causes, of processes that may number their records.

What can be wrong with it:

- a cause is missing: no record has its id;
- ids are there more than once (the first record counts);
- causes form a cycle: strongly connected components, each with a shortest cycle in it;
- an effect is recorded before a cause of it, direct or through others, in the order of its own process: its
  partition's offset, its sequence number;
- an effect has an earlier time than its direct cause. That is the difference of two clocks, or a wrong clock;
  it is counted for each pair of processes, and nothing is corrected. It is no violation.

Cost: memory for ids and edges, time linear in both. Only where some cycle of causes and of the order within
processes exists can a record be before its cause (`process_order`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.process_order import NO_SEQ, Neighbours, early_records
from antecede.causality.components import components
from antecede.trace.bad_rows import brief
from antecede.units import format_duration

COLUMNS = ("id", "process", "seq", "causes", "time", "file", "row")
_MAX_SHOWN_PATH = 8


class MissingCause(msgspec.Struct):
    """An id that records name as a cause, and that no record has."""

    id: str
    effects: int
    """How many records name it."""
    text: str


class DuplicateId(msgspec.Struct):
    """An id that several records have."""

    id: str
    records: int
    text: str


class CausalCycle(msgspec.Struct):
    """Records that are causes of each other."""

    records: int
    path: list[str]
    """A shortest cycle among them, each the cause of the next, the last one of the first."""
    text: str


class EffectBeforeCause(msgspec.Struct):
    """A record that its process has before a cause of it."""

    process: str
    effect: str
    cause: str
    path: list[str]
    """From the cause to the effect, each the cause of the next."""
    text: str


class ClockSkew(msgspec.Struct):
    """Effects of one process that have earlier times than their causes of another."""

    cause_process: str
    effect_process: str
    effects: int
    """How many pairs of a direct cause and its effect."""
    of: int
    """How many such pairs have times at all."""
    largest: int
    """Nanoseconds."""
    cause: str
    effect: str
    text: str


class DependencyVerdict(msgspec.Struct):
    """What was found; counts are complete, lists are the worst of each kind, as many as were asked for."""

    records: int
    processes: int
    causes: int
    missing_ids: int
    """Different ids."""
    missing_causes: int
    """How often they are named."""
    duplicate_records: int
    """Records beyond the first of each id."""
    cycles: int
    records_on_cycles: int
    effects_before_causes: int
    skewed_pairs: int
    missing: list[MissingCause]
    duplicates: list[DuplicateId]
    cycle_list: list[CausalCycle]
    before_causes: list[EffectBeforeCause]
    skew: list[ClockSkew]

    @property
    def clean(self) -> bool:
        wrong = (self.missing_ids, self.duplicate_records, self.cycles, self.effects_before_causes)
        return not any(wrong)


def judge_dependency_log(batches: Iterable[pa.Table], limit: int = 10) -> DependencyVerdict:
    """Judge a log of `sources.dependency_log.SCHEMA`; `limit` bounds the examples of each kind."""
    tables = [batch.select(COLUMNS) for batch in batches]
    if not tables:
        return DependencyVerdict(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], [], [], [])
    return _Judgement(pa.concat_tables(tables).unify_dictionaries(), limit).verdict()


class _Judgement:
    """The log in numbers. A record is the first one of its id; records that repeat an id are left out."""

    def __init__(self, table: pa.Table, limit: int) -> None:
        self.limit = limit
        codes = table.column("id").combine_chunks().dictionary_encode().indices.to_numpy()
        # Dictionary codes are in the order of first occurrence.
        firsts = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
        self.all_rows, self.codes, self.firsts = table, codes, firsts
        self.table = table if len(firsts) == len(codes) else table.take(pa.array(firsts))
        self.ids = self.table.column("id").combine_chunks()
        process = self.table.column("process").combine_chunks().dictionary_encode()
        self.process, self.names = process.indices.to_numpy(), process.dictionary
        self.seq, self.has_seq = _numbers(self.table.column("seq"))
        self.time, self.has_time = _numbers(self.table.column("time"))
        causes = self.table.column("causes").combine_chunks()
        effect, named = pc.list_parent_indices(causes).to_numpy(), pc.list_flatten(causes)
        found = pc.index_in(named, self.ids)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        self.stated = len(named)
        self.missing_effect, self.missing_name = effect[~known], named.filter(pa.array(~known))
        self.effect = effect[known]
        self.cause = found.drop_null().to_numpy().astype(np.int64)

    def verdict(self) -> DependencyVerdict:
        missing_ids, missing = self._missing()
        duplicates = self._duplicates()
        cycles, on_cycle = self._cycles()
        early, before = self._before_causes(on_cycle)
        skewed, skew = self._skew()
        return DependencyVerdict(
            records=len(self.ids),
            processes=len(self.names),
            causes=self.stated,
            missing_ids=missing_ids,
            missing_causes=len(self.missing_effect),
            duplicate_records=len(self.codes) - len(self.firsts),
            cycles=len(cycles),
            records_on_cycles=sum(map(len, cycles)),
            effects_before_causes=early,
            skewed_pairs=skewed,
            missing=missing,
            duplicates=duplicates,
            cycle_list=[self._cycle(each) for each in cycles[: self.limit]],
            before_causes=before,
            skew=skew,
        )

    # Words.

    def _name(self, record: int) -> str:
        return brief(str(self.ids[record]))

    def _place(self, record: int) -> str:
        return _place(self.table, record)

    def _described(self, record: int) -> str:
        return f"{self._name(record)} of {brief(str(self.names[int(self.process[record])]))}"

    def _missing(self) -> tuple[int, list[MissingCause]]:
        if not len(self.missing_name):
            return 0, []
        encoded = self.missing_name.dictionary_encode()
        counts = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary))
        first = np.full(len(counts), -1, np.int64)
        indices = encoded.indices.to_numpy()
        first[indices[::-1]] = self.missing_effect[::-1]
        listed = []
        for code in np.argsort(-counts, kind="stable")[: self.limit].tolist():
            name, effects, record = str(encoded.dictionary[code]), int(counts[code]), int(first[code])
            others = "" if effects == 1 else f" and {effects - 1:,} more"
            text = (
                f"{brief(name)} is missing: it is a cause of {self._described(record)}"
                f" ({self._place(record)}){others}"
            )
            listed.append(MissingCause(name, effects, text))
        return len(counts), listed

    def _duplicates(self) -> list[DuplicateId]:
        if len(self.firsts) == len(self.codes):
            return []
        counts = np.bincount(self.codes)
        listed = []
        for code in np.argsort(-counts, kind="stable")[: self.limit].tolist():
            if counts[code] == 1:
                break
            first, second = np.flatnonzero(self.codes == code)[:2].tolist()
            places = f"{_place(self.all_rows, first)} and {_place(self.all_rows, second)}"
            more = "" if counts[code] == 2 else f", and {int(counts[code]) - 2:,} more"
            text = f"{self._described(code)} is there {int(counts[code]):,} times: {places}{more}"
            listed.append(DuplicateId(str(self.ids[code]), int(counts[code]), text))
        return listed

    # Cycles of causes.

    def _cycles(self) -> tuple[list[np.ndarray], np.ndarray]:
        """The components that are cycles, the largest first, and the number of each record's component."""
        size = len(self.ids)
        on_cycle = np.full(size, -1, np.int64)
        if (self.cause < self.effect).all():
            return [], on_cycle
        cycles = components(size, self.cause, self.effect)
        cycles.sort(key=lambda each: (-len(each), int(each[0])))
        for number, each in enumerate(cycles):
            on_cycle[each] = number
        return cycles, on_cycle

    def _cycle(self, records: np.ndarray) -> CausalCycle:
        inside = np.zeros(len(self.ids), np.bool_)
        inside[records] = True
        start = int(records[0])
        within = inside[self.cause] & inside[self.effect]
        effects = Neighbours(self.cause[within], self.effect[within])
        path = effects.shortest_path(start, lambda record: record == start)
        names = [self._name(record) for record in path]
        shown = _shortened(names)
        if len(path) == 1:
            text = f"{self._described(start)} is its own cause ({self._place(start)})"
        else:
            text = f"{len(records):,} records are causes of each other: {' → '.join([*shown, names[0]])}"
        return CausalCycle(len(records), [str(self.ids[record]) for record in path], text)

    # Effects before their causes.

    def _before_causes(self, on_cycle: np.ndarray) -> tuple[int, list[EffectBeforeCause]]:
        """Records that are before a cause in their process. What is around a cycle of causes is left out."""
        around = (on_cycle[self.cause] >= 0) & (on_cycle[self.cause] == on_cycle[self.effect])
        cause, effect = self.cause[~around], self.effect[~around]
        early = early_records(cause, effect, self.process, np.where(self.has_seq, self.seq, NO_SEQ))
        causes = Neighbours(effect, cause)
        return len(early), [self._early(record, causes) for record in early[: self.limit].tolist()]

    def _early(self, record: int, causes: Neighbours) -> EffectBeforeCause:
        process, seq = int(self.process[record]), int(self.seq[record])

        def is_later(other: int) -> bool:
            return bool(self.process[other] == process and self.has_seq[other] and self.seq[other] > seq)

        path = causes.shortest_path(record, is_later)[::-1]
        cause = path[0]
        names = [self._name(each) for each in path]
        through = "" if len(path) == 2 else f", through {' → '.join(_shortened(names))}"
        process_name = str(self.names[process])
        text = (
            f"{brief(process_name)} has {self._name(record)} at {seq:,} ({self._place(record)}) before its "
            f"cause {self._name(cause)} at {int(self.seq[cause]):,} ({self._place(cause)}){through}"
        )
        ids = [str(self.ids[each]) for each in path]
        return EffectBeforeCause(process_name, ids[-1], ids[0], ids, text)

    # Clocks.

    def _skew(self) -> tuple[int, list[ClockSkew]]:
        timed = self.has_time[self.cause] & self.has_time[self.effect]
        cause, effect = self.cause[timed], self.effect[timed]
        pair = self.process[cause].astype(np.int64) * len(self.names) + self.process[effect]
        skewed = np.flatnonzero(self.time[effect] < self.time[cause])
        if not len(skewed):
            return 0, []
        pairs, all_counts = np.unique(pair, return_counts=True)
        # The difference of two int64 may need 64 bits without a sign.
        behind = self.time[cause[skewed]].astype(np.uint64) - self.time[effect[skewed]].astype(np.uint64)
        order = np.lexsort((np.iinfo(np.uint64).max - behind, pair[skewed]))
        keys, starts, counts = np.unique(pair[skewed][order], return_index=True, return_counts=True)
        of = all_counts[np.searchsorted(pairs, keys)]
        worst_first = np.argsort(np.iinfo(np.uint64).max - behind[order[starts]], kind="stable")[: self.limit]
        found = []
        for at in worst_first.tolist():
            worst = order[starts[at]]
            edge = skewed[worst]
            largest = int(behind[worst])
            found.append(
                self._skew_of(int(cause[edge]), int(effect[edge]), largest, int(counts[at]), int(of[at]))
            )
        return len(skewed), found

    def _skew_of(self, cause: int, effect: int, largest: int, count: int, of: int) -> ClockSkew:
        one, other = (str(self.names[int(self.process[record])]) for record in (cause, effect))
        pair = f"{self._name(effect)} before {self._name(cause)}"
        text = (
            f"{count:,} of {of:,} effects at {brief(other)} have a time before their cause's at "
            f"{brief(one)}, by up to {format_duration(largest)}: {pair}"
        )
        return ClockSkew(one, other, count, of, largest, str(self.ids[cause]), str(self.ids[effect]), text)


def _numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A column's numbers, and where it has one."""
    present = column.is_valid().to_numpy()
    return pc.fill_null(column, 0).to_numpy(), present


def _place(table: pa.Table, record: int) -> str:
    return f"{table.column('file')[record]}, row {table.column('row')[record].as_py():,}"


def _shortened(names: list[str]) -> list[str]:
    return names if len(names) <= _MAX_SHOWN_PATH else [*names[: _MAX_SHOWN_PATH - 2], "…", names[-1]]
