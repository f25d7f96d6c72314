"""Verdicts on histories of transactions: causal consistency and weaker isolation levels, with witnesses.

    import antecede.transactions

    history = antecede.transactions.read_history("history.txt")
    antecede.transactions.check(history).levels["CC"].ok

docs/transactions.md defines the levels and lists the formats.
"""

from antecede.transactions.check import ConsistencyVerdict, LevelVerdict, check
from antecede.transactions.explain import LevelViolation
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
    "check",
    "read_history",
]
