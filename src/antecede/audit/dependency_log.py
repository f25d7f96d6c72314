"""Judges a dependency log: records that name their causes, of processes that may number their records.

What can be wrong with it:

- a cause is missing: no record has its id;
- an id occurs more than once (the first record counts);
- causes form a cycle: strongly connected components, each with a shortest cycle in it;
- an effect precedes one of its causes, direct or transitive, in the order of its own process: by partition
  offset or sequence number;
- an effect has an earlier time than its direct cause. This is clock skew, not a violation; it is counted for
  each pair of processes, and no time is corrected.

Cost: memory for ids and edges, time linear in both. A record can precede its cause only where causes and
process order together form a cycle (`process_order`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.cyclic_faults import cyclic_faults
from antecede.audit.dependency_findings import (
    RECORD_COLUMNS,
    ClockSkew,
    DependencyVerdict,
    DuplicateId,
    LogRecord,
    MissingCause,
    causal_cycle,
    clock_skew,
    duplicate_id,
    effect_before_cause,
    missing_cause,
)
from antecede.audit.process_order import NO_SEQ

COLUMNS = ("id", "process", "seq", "causes", "time", "file", "row")


def judge_dependency_log(
    batches: Iterable[pa.Table], limit: int = 10, counted: str = "row"
) -> DependencyVerdict:
    """Judge a log of `sources.dependency_log.SCHEMA`; `limit` bounds the examples of each kind.

    `counted` says in words what the column `row` is the number of.
    """
    tables = [batch.select(COLUMNS) for batch in batches]
    if not tables:
        return DependencyVerdict(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], [], [], [])
    return _Judgement(pa.concat_tables(tables).unify_dictionaries(), limit, counted).verdict()


class _Judgement:
    """The log as numbers. A record is the first one with its id; records that repeat an id are left out."""

    def __init__(self, table: pa.Table, limit: int, counted: str) -> None:
        self.limit, self.counted = limit, counted
        codes = table.column("id").combine_chunks().dictionary_encode().indices.to_numpy()
        # Dictionary codes follow the order of first occurrence.
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
        seq = np.where(self.has_seq, self.seq, NO_SEQ)
        cyclic = cyclic_faults(self.cause, self.effect, self.process, seq, self.limit)
        skewed, skew = self._skew()
        return DependencyVerdict(
            records=len(self.ids),
            processes=len(self.names),
            causes=self.stated,
            missing_ids=missing_ids,
            missing_causes=len(self.missing_effect),
            duplicate_records=len(self.codes) - len(self.firsts),
            cycles=cyclic.cycles,
            records_on_cycles=cyclic.on_cycles,
            effects_before_causes=cyclic.early,
            skewed_pairs=skewed,
            missing=missing,
            duplicates=self._duplicates(),
            cycle_list=[causal_cycle(size, self._records(path)) for size, path in cyclic.cycle_paths],
            before_causes=[effect_before_cause(self._records(path)) for path in cyclic.early_paths],
            skew=skew,
        )

    def _record(self, table: pa.Table, at: int) -> LogRecord:
        return LogRecord._make([*(table.column(name)[at].as_py() for name in RECORD_COLUMNS), self.counted])

    def _records(self, path: list[int]) -> list[LogRecord]:
        return [self._record(self.table, record) for record in path]

    def _missing(self) -> tuple[int, list[MissingCause]]:
        if not len(self.missing_name):
            return 0, []
        encoded = self.missing_name.dictionary_encode()
        counts = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary))
        first = np.full(len(counts), -1, np.int64)
        indices = encoded.indices.to_numpy()
        first[indices[::-1]] = self.missing_effect[::-1]
        worst = np.argsort(-counts, kind="stable")[: self.limit].tolist()
        listed = [
            missing_cause(
                str(encoded.dictionary[code]), int(counts[code]), self._record(self.table, int(first[code]))
            )
            for code in worst
        ]
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
            listed.append(
                duplicate_id(
                    int(counts[code]),
                    self._record(self.all_rows, first),
                    self._record(self.all_rows, second),
                )
            )
        return listed

    def _skew(self) -> tuple[int, list[ClockSkew]]:
        timed = self.has_time[self.cause] & self.has_time[self.effect]
        cause, effect = self.cause[timed], self.effect[timed]
        pair = self.process[cause].astype(np.int64) * len(self.names) + self.process[effect]
        skewed = np.flatnonzero(self.time[effect] < self.time[cause])
        if not len(skewed):
            return 0, []
        pairs, all_counts = np.unique(pair, return_counts=True)
        # The difference of two int64 values may need 64 unsigned bits.
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
            one, other = self._records([int(cause[edge]), int(effect[edge])])
            found.append(clock_skew(one, other, largest, int(counts[at]), int(of[at])))
        return len(skewed), found


def _numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A column's numbers, and a mask of the rows that have one."""
    present = column.is_valid().to_numpy()
    return pc.fill_null(column, 0).to_numpy(), present
