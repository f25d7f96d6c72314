"""The oracle against the definition of causal order, written out as a transitive closure."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import CausalOrder, Execution, Kind, MessageId, Step, Verdict, judge

Place = tuple[int, int]


@st.composite
def executions(draw: st.DrawFn) -> Execution:
    """Small executions, mostly valid, with swaps, losses, duplicates, orphans and deliveries before their
    sends."""
    peers = draw(st.integers(1, 4))
    histories: list[list[Step]] = [[] for _ in range(peers)]
    sent: list[MessageId] = []
    for _ in range(draw(st.integers(0, 14))):
        process = draw(st.integers(0, peers - 1))
        due = [m for m in sent if Step(Kind.DELIVER, m) not in histories[process] and m.origin != process]
        delivers: bool = draw(st.booleans())
        if due and delivers:
            histories[process].append(Step(Kind.DELIVER, draw(st.sampled_from(due))))
        else:
            message = MessageId(process, 1 + sum(m.origin == process for m in sent))
            sent.append(message)
            histories[process].append(Step(Kind.SEND, message))
    for _ in range(draw(st.integers(0, 3))):
        history = histories[draw(st.integers(0, peers - 1))]
        fault = draw(st.sampled_from(["swap", "drop", "repeat", "orphan", "early"]))
        at = draw(st.integers(0, max(0, len(history) - 1)))
        if fault == "swap" and at + 1 < len(history):
            history[at], history[at + 1] = history[at + 1], history[at]
        elif fault == "drop" and history and history[at].kind is Kind.DELIVER:
            del history[at]
        elif fault == "repeat" and history:
            history.append(Step(Kind.DELIVER, history[at].message))
        elif fault == "orphan":
            history.insert(at, Step(Kind.DELIVER, MessageId(draw(st.integers(0, peers)), 99)))
        elif fault == "early" and sent:
            history.insert(at, Step(Kind.DELIVER, draw(st.sampled_from(sent))))
    audiences: dict[MessageId, frozenset[int]] = {}
    if draw(st.booleans()):
        everyone = st.frozensets(st.integers(0, peers - 1))
        audiences = {m: draw(everyone) for m in sent if draw(st.booleans())}
    return Execution(histories, audiences)


class BruteForce:
    """The definitions, literally, on all pairs of events."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.events = {
            (p, i): step for p, history in enumerate(execution.histories) for i, step in enumerate(history)
        }
        self.sends = {step.message: place for place, step in self.events.items() if step.kind is Kind.SEND}
        edges = self._process_order() | {(self.sends[m], d) for m, d in self._sent_deliveries()}
        reach = closure(set(self.events), edges)
        self.impossible = {
            (place[0], message)
            for message, place in self._sent_deliveries()
            if (place, self.sends[message]) in reach
        }
        valid = {(self.sends[m], d) for m, d in self._sent_deliveries() if (d[0], m) not in self.impossible}
        self.reach = closure(set(self.events), self._process_order() | valid)

    def _process_order(self) -> set[tuple[Place, Place]]:
        return {((p, i), (p, j)) for p, i in self.events for q, j in self.events if p == q and i < j}

    def _first(self, process: int, message: MessageId) -> Place | None:
        """The position at which a process first had a message, by sending or by delivering it."""
        places = [
            place for place, step in self.events.items() if place[0] == process and step.message == message
        ]
        return min(places, default=None)

    def _sent_deliveries(self) -> list[tuple[MessageId, Place]]:
        return [
            (step.message, place)
            for place, step in self.events.items()
            if step.kind is Kind.DELIVER
            and step.message in self.sends
            and self._first(place[0], step.message) == place
        ]

    def before(self, m: MessageId, n: MessageId) -> bool:
        return (self.sends[m], self.sends[n]) in self.reach

    def addressed(self, message: MessageId, process: int) -> bool:
        audience = self.execution.audiences.get(message, range(len(self.execution.histories)))
        return process in audience or process == message.origin

    def pairs(self) -> set[tuple[int, MessageId, MessageId, bool]]:
        found = set()
        for effect, place in self._sent_deliveries():
            for cause in self.sends:
                if not (self.before(cause, effect) and self.addressed(cause, place[0])):
                    continue
                had = self._first(place[0], cause)
                if had is None or had > place:
                    found.add((place[0], cause, effect, had is not None))
        return found

    def verdict(self) -> Verdict:
        pairs = self.pairs()
        processes = range(len(self.execution.histories))
        firsts = {(p, step.message) for (p, _), step in self.events.items()}
        return Verdict(
            processes=len(processes),
            messages=len(self.sends),
            deliveries=sum(step.kind is Kind.DELIVER for step in self.events.values()),
            causal_violations=len({(p, effect) for p, _, effect, _ in pairs}),
            causal_late_deliveries=len({(p, effect) for p, _, effect, late in pairs if late}),
            causal_pairs_late=sum(late for *_, late in pairs),
            causal_pairs_never=sum(not late for *_, late in pairs),
            fifo_violations=len(
                {(p, effect) for p, cause, effect, _ in pairs if cause.origin == effect.origin}
            ),
            missing=sum(self.addressed(m, p) and (p, m) not in firsts for m in self.sends for p in processes),
            duplicates=sum(
                step.kind is Kind.DELIVER and self._first(place[0], step.message) != place
                for place, step in self.events.items()
            ),
            orphans=len({(p, m) for p, m in firsts if m not in self.sends}),
            impossible=len(self.impossible),
        )


def closure(nodes: set[Place], edges: set[tuple[Place, Place]]) -> set[tuple[Place, Place]]:
    """Warshall's transitive closure."""
    reach = set(edges)
    for middle in nodes:
        into = [a for a, b in reach if b == middle]
        out = [b for a, b in reach if a == middle]
        reach |= {(a, b) for a in into for b in out}
    return reach


@given(executions())
def test_the_verdict_follows_from_the_definitions(execution: Execution) -> None:
    assert judge(execution).verdict == BruteForce(execution).verdict()


@given(executions())
def test_every_violating_pair_is_reported_with_a_path_that_holds(execution: Execution) -> None:
    judgement, brute = judge(execution), BruteForce(execution)
    violations = list(judgement.violations())
    assert {tuple(each) for each in violations} == brute.pairs()
    assert len(violations) == len(set(violations))
    for violation in violations:
        path = judgement.path(violation)
        assert (path[0], path[-1]) == (violation.cause, violation.effect)
        for earlier, later in itertools.pairwise(path):
            sent = judgement.order.histories[later.origin].index(Step(Kind.SEND, later))
            had = [step.message for step in judgement.order.histories[later.origin][:sent]]
            assert earlier in had
        assert judgement.explain(violation).endswith(".")


@given(executions())
def test_immediate_dependencies_are_the_causes_with_nothing_between(execution: Execution) -> None:
    order, brute = CausalOrder(execution), BruteForce(execution)
    for message in order.messages:
        causes = {m for m in brute.sends if brute.before(m, message)}
        assert causes == {m for m in brute.sends if order.happened_before(m, message)}
        assert set(order.immediate_dependencies(message)) == {
            m for m in causes if not any(brute.before(m, n) and n in causes for n in brute.sends)
        }


def test_the_path_is_a_shortest_one() -> None:
    execution = Execution.from_tuples(
        [("send", 0, 1)],
        [("deliver", 0, 1), ("send", 1, 1)],
        [("deliver", 0, 1), ("deliver", 1, 1), ("send", 2, 1)],
        [("deliver", 2, 1)],
    )
    judgement = judge(execution)
    explained = [judgement.explain(each) for each in judgement.violations()]
    assert explained == [
        "p3 delivered p2:1 and never its cause p0:1: p2 delivered p0:1 and then sent p2:1.",
        "p3 delivered p2:1 and never its cause p1:1: p2 delivered p1:1 and then sent p2:1.",
    ]


def test_a_gap_in_the_causal_path_still_counts() -> None:
    """The sender of c never delivered a; still a happened before c, through b."""
    execution = Execution.from_tuples(
        [("send", 0, 1)],
        [("deliver", 0, 1), ("send", 1, 1)],
        [("deliver", 1, 1), ("send", 2, 1)],
        [("deliver", 2, 1), ("deliver", 1, 1), ("deliver", 0, 1)],
    )
    verdict = judge(execution).verdict
    assert (verdict.causal_pairs_late, verdict.causal_pairs_never, verdict.missing) == (3, 1, 4)


def test_a_cycle_is_impossible_and_leaves_other_verdicts_intact() -> None:
    execution = Execution.from_tuples(
        [("deliver", 1, 1), ("send", 0, 1)],
        [("deliver", 0, 1), ("send", 1, 1)],
        [("deliver", 0, 1), ("deliver", 1, 1), ("send", 2, 1)],
    )
    judgement = judge(execution)
    assert judgement.verdict.impossible == 2
    assert judgement.verdict.causal_violations == 0
    assert judgement.order.immediate_dependencies(MessageId(2, 1)) == [MessageId(0, 1), MessageId(1, 1)]
