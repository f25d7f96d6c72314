"""Verdicts on histories of transactions: causal consistency and weaker isolation levels, with witnesses.

    from antecede.transactions import check, read_history

    verdict = check(read_history("history.txt"))
    verdict.levels["CC"].ok

- `history`: sessions of transactions of reads and writes, as arrays; `formats`: readers of files
- `levels`: the levels and what they mean; `definitions`: the same, executable, for a few transactions
- `reads_from`: which write each read saw; `decide`: which levels are satisfied, by compiled code
- `witness`, `explain`: a minimal part of the history that shows a violation, in words

Names are imported when they are first used, and numba with them. docs/transactions.md is the user's page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.lazy_names import lazy_names

if TYPE_CHECKING:
    from antecede.transactions.check import ConsistencyVerdict, LevelVerdict, check
    from antecede.transactions.explain import LevelViolation, WitnessTransaction
    from antecede.transactions.formats import read_history
    from antecede.transactions.history import History, HistoryBuilder, Operation, Status
    from antecede.transactions.levels import LEVELS

__all__ = [
    "LEVELS",
    "ConsistencyVerdict",
    "History",
    "HistoryBuilder",
    "LevelVerdict",
    "LevelViolation",
    "Operation",
    "Status",
    "WitnessTransaction",
    "check",
    "read_history",
]

_MODULES = {
    **dict.fromkeys(("ConsistencyVerdict", "LevelVerdict", "check"), "antecede.transactions.check"),
    **dict.fromkeys(("LevelViolation", "WitnessTransaction"), "antecede.transactions.explain"),
    **dict.fromkeys(("History", "HistoryBuilder", "Operation", "Status"), "antecede.transactions.history"),
    "LEVELS": "antecede.transactions.levels",
    "read_history": "antecede.transactions.formats",
}

if not TYPE_CHECKING:  # a type checker must refuse names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
