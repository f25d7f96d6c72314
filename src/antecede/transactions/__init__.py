"""Verdicts on histories of transactions: causal consistency and weaker isolation levels, with witnesses.

    from antecede.transactions import check, read_history

    verdict = check(read_history("history.txt"))
    verdict.levels["CC"].ok

docs/transactions.md defines the levels and lists the formats.
"""

from antecede.transactions.history import History, HistoryBuilder, Status

__all__ = ["History", "HistoryBuilder", "Status"]
