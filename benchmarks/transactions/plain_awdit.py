"""The baseline: AWDIT's algorithm for causal consistency in plain Python, as one would write it from the
paper.

Møldrup and Pavlogiannis, "AWDIT: An Optimal Weak Database Isolation Tester" (PLDI 2025, arXiv 2504.06975): in
an order of transactions that contains session order and reads-from, each gets a vector clock; for every read
of x and every session, the last writer of x that the reader has seen must be committed before the writer that
it read from; the history is consistent if these edges have no cycle. Dictionaries, lists and a depth-first
search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from antecede.transactions.history import History

Transaction = tuple[int, int]
"""Session and place in it; (-1, 0) writes the initial values."""


def is_causally_convergent(history: History) -> bool:
    """Whether a history without aborted transactions and intermediate reads satisfies CCv (AWDIT's
    "causal")."""
    sessions = [
        [history.operations_of(number) for number in range(begin, end)]
        for begin, end in zip(
            history.session_start.tolist(), history.session_start.tolist()[1:], strict=False
        )
    ]
    writer = {
        (key, value): (session, place)
        for session, transactions in enumerate(sessions)
        for place, operations in enumerate(transactions)
        for write, key, value in operations
        if write
    }
    reads: dict[Transaction, list[tuple[int, Transaction]]] = {}
    for session, transactions in enumerate(sessions):
        for place, operations in enumerate(transactions):
            own, found = set(), []
            for write, key, value in operations:
                if write:
                    own.add(key)
                elif key not in own:
                    found.append((key, writer.get((key, value), (-1, 0))))
            reads[session, place] = found
    order = _causal_order(reads)
    if order is None:
        return False
    return _acyclic(_commit_edges(sessions, reads, order))


def _causal_order(reads: dict[Transaction, list[tuple[int, Transaction]]]) -> list[Transaction] | None:
    after: dict[Transaction, list[Transaction]] = defaultdict(list)
    waiting = dict.fromkeys(reads, 0)
    for (session, place), found in reads.items():
        sources = {source for _, source in found if source[0] >= 0}
        if place:
            sources.add((session, place - 1))
        for source in sources:
            after[source].append((session, place))
        waiting[session, place] = len(sources)
    order = [transaction for transaction, count in waiting.items() if not count]
    for transaction in order:
        for follower in after[transaction]:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    return order if len(order) == len(reads) else None


def _commit_edges(
    sessions: list[list[list[tuple[bool, int, int]]]],
    reads: dict[Transaction, list[tuple[int, Transaction]]],
    order: list[Transaction],
) -> dict[Transaction, set[Transaction]]:
    """Session order, reads-from and what the reads demand; everything follows the initial transaction."""
    clocks: dict[Transaction, list[int]] = {}
    writes: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    edges: dict[Transaction, set[Transaction]] = defaultdict(set)
    for session, place in order:
        here = (session, place)
        clock = clocks[session, place - 1].copy() if place else [0] * len(sessions)
        if place:
            edges[session, place - 1].add(here)
        else:
            edges[-1, 0].add(here)
        for _, source in reads[here]:
            if source[0] >= 0:
                edges[source].add(here)
                clock = list(map(max, clock, clocks[source]))
        for key, source in reads[here]:
            for other, places in writes[key].items():
                last = bisect_right(places, clock[other] - 1) - 1
                if last >= 0 and (other, places[last]) != source:
                    edges[other, places[last]].add(source)
        for key in {key for write, key, _ in sessions[session][place] if write}:
            writes[key][session].append(place)
        clock[session] = place + 1
        clocks[here] = clock
    return edges


def _acyclic(edges: dict[Transaction, set[Transaction]]) -> bool:
    """Depth first, without recursion."""
    done: set[Transaction] = set()
    open_now: set[Transaction] = set()
    for root in list(edges):
        if root in done:
            continue
        stack = [(root, iter(edges.get(root, ())))]
        open_now.add(root)
        while stack:
            node, followers = stack[-1]
            for follower in followers:
                if follower in open_now:
                    return False
                if follower not in done:
                    open_now.add(follower)
                    stack.append((follower, iter(edges.get(follower, ()))))
                    break
            else:
                stack.pop()
                open_now.discard(node)
                done.add(node)
    return True
