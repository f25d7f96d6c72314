"""Rows of groups that overlap and change: each member is a process of the trace.

Members are named after their process and group, `p3.a`; for a second membership in that group, `p3.a.2`. The
column `of_process` is the process, in whose order the rows of all its members are numbered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from antecede.sim.recorder import Recorder
from antecede.sim.scenario import Scenario
from antecede.trace.event_tables import EventTables
from antecede.trace.schema import Members


class OverlapRecorder(Recorder):
    """Is told of each address before anything happens there."""

    def __init__(self, scenario: Scenario, *arguments: Any) -> None:
        super().__init__(scenario, *arguments)
        self._run = scenario.key()
        self._width = len(str(scenario.peers - 1))
        self._names: list[str] = []
        self._times: dict[tuple[int, str], int] = {}
        """How often each process has been in each group."""
        self._process_of = np.zeros(scenario.most_processes(), np.int64)
        self._group_at: list[int] = []

    def place(self, address: int, process: int, group: str) -> None:
        self.flush()
        times = self._times[process, group] = self._times.get((process, group), 0) + 1
        self._names.append(member_name(f"p{process:0{self._width}}", group, times))
        self._process_of[address] = process
        self._group_at.append(self._groups[group])
        self._tables = EventTables(self._run, self._groups, self._names)

    def _group_code(self, process: int, message: object) -> int:
        return self._group_at[process]

    def _table(
        self, rows: np.ndarray, group: np.ndarray, member: np.ndarray, payload_bytes: np.ndarray
    ) -> pa.Table:
        table = super()._table(rows, group, member, payload_bytes)
        codes = self._process_of[rows[:, 1]]
        names = [f"p{process:0{self._width}}" for process in range(int(self._process_of.max()) + 1)]
        whole = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names))
        return table.append_column("of_process", whole)

    def _next_indices(self, process: np.ndarray) -> np.ndarray:
        return super()._next_indices(self._process_of[process])


def member_name(process: str, group: str, times: int = 1) -> str:
    """The name of a member when a process is in a group for the first, second, … time."""
    return f"{process}.{group}" + (f".{times}" if times > 1 else "")


def founding_members(scenario: Scenario) -> Members:
    """The members of each group at the start."""
    names = scenario.peer_names()
    return {
        group: [member_name(names[peer], group) for peer in peers]
        for group, peers in scenario.audiences().items()
    }
