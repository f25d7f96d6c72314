"""The levels of consistency that a history may satisfy.

Let *session order* be the order of transactions within each session, *reads-from* relate each transaction to
those that read its writes, and the *causal order* be the transitive closure of both. Transactions are atomic:
in an explanation each is executed as a whole, and a read returns the last value written before it. The
initial values are written by a transaction before all others.

Read committed and read atomic are those of Biswas and Enea (OOPSLA 2019), by a *commit order*: a total order
of all transactions that contains the causal order. Where t3 reads x from t1, and t2 also writes x, t2 has to
come before t1 in it

- read committed (RC): if t3 has read something from t2 before, in the same transaction;
- read atomic (RA): if t3 reads anything from t2, or t2 is earlier in t3's session.

The three variants of causal consistency are those of Bouajjani, Enea, Guerraoui and Hamza (POPL 2017), for
transactions instead of single operations:

- causal consistency (CC): for each transaction, the transactions that causally precede it can be put in an
  order that contains the causal order and explains its reads. Every transaction may have an order of its own;
- causal memory (CM): for each session, one such order explains the reads of all its transactions;
- causal convergence (CCv): one order for all sessions: each transaction's reads are explained by its causal
  past, in that order. This is what Biswas and Enea, Plume and AWDIT call (transactional) causal consistency.

CM and CCv both imply CC, and neither the other. CCv implies RA, which implies RC. CC and CM imply neither,
because RC and RA demand an order on which all sessions agree.
"""

from __future__ import annotations

from antecede.errors import InputError

LEVELS = {
    "RC": "read committed",
    "RA": "read atomic",
    "CC": "causal consistency",
    "CM": "causal memory",
    "CCv": "causal convergence",
}
"""Short name and name, in the order in which they are reported."""

IMPLIED = {"RA": ("RC",), "CM": ("CC",), "CCv": ("CC", "RA", "RC")}
"""What a history that satisfies a level satisfies as well."""


def level_named(text: str) -> str:
    """The short name of a level, given in any spelling.

    >>> level_named("ccv"), level_named("read-atomic"), level_named("Causal")
    ('CCv', 'RA', 'CC')
    """
    wanted = text.lower().replace("-", " ").replace("_", " ").strip()
    names = {"causal": "CC"}
    for short, name in LEVELS.items():
        names |= {short.lower(): short, name: short}
    if wanted not in names:
        known = ", ".join(f"{short} ({name})" for short, name in LEVELS.items())
        raise InputError(f"{text!r} is no level of consistency; known are {known}")
    return names[wanted]
