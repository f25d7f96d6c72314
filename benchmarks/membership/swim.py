"""SWIM with the defaults that memberlist documents for a local network (`DefaultLANConfig`).

Probes every second with a time-out of 500 ms, 3 indirect probes and a direct one over TCP, suspicion
multiplier 4 with a maximum of 6 times the minimum that shrinks as others confirm, gossip to 3 members every
200 ms while there is news, each item sent 4 log10(n + 1) times, and the awareness of Lifeguard up to 8. State
is exchanged by TCP every 30 s; that is counted, and has no other effect here, where no packet is lost.
"""

from __future__ import annotations

import math

from network import SECOND, Network

PROBE_INTERVAL, PROBE_TIMEOUT, INDIRECT_CHECKS = 1.0, 0.5, 3
SUSPICION_MULT, SUSPICION_MAX_MULT, RETRANSMIT_MULT = 4, 6, 4
GOSSIP_INTERVAL, GOSSIP_NODES, PUSH_PULL_INTERVAL, MAX_AWARENESS = 0.2, 3, 30.0, 8
_PER_PACKET = 30
"""Items of news in a packet: about 1,400 bytes."""

News = tuple[str, int, int, int]
"""alive, suspect or dead; the member; its incarnation; the reporter."""


class Group:
    """All members, and their findings."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.suspected: dict[int, int] = {}
        """When each member was first suspected, by any other."""
        self.dead_known: dict[tuple[int, int], int] = {}
        """When a member declared another dead, or learned of it."""
        self.false_suspicions = self.false_deaths = 0
        self.members = [Member(me, self) for me in range(network.size)]
        for member in self.members:
            network.after(network.random.uniform(0, PROBE_INTERVAL), member.probe)
            network.after(network.random.uniform(0, GOSSIP_INTERVAL), member.gossip)
            network.after(network.random.uniform(0, PUSH_PULL_INTERVAL), member.push_pull)


class Member:
    def __init__(self, me: int, group: Group) -> None:
        self.me, self.group, self.network = me, group, group.network
        self.incarnation = self.awareness = 0
        self.state: dict[int, tuple[str, int]] = {}
        """The state of other members, if it is not (alive, 0)."""
        self.suspectors: dict[int, set[int]] = {}
        self.suspicion_began: dict[int, int] = {}
        self.news: dict[int, tuple[News, int]] = {}
        """The latest news about each member, and how often it was sent."""
        self.order: list[int] = []
        self.waiting: dict[int, int] = {}
        """The number of the probe that is awaited for each member."""
        self.probes = 0

    # Probes.

    def probe(self) -> None:
        if not self.network.is_up(self.me):
            return
        target = self._next_target()
        if target is not None:
            self.probes += 1
            self.waiting[target] = self.probes
            self._packet(target, self.group.members[target].on_ping, self.me, self.probes)
            self.network.after(PROBE_TIMEOUT * (self.awareness + 1), self.on_timeout, target, self.probes)
            interval = PROBE_INTERVAL * (self.awareness + 1)
            self.network.after(interval, self.on_probe_end, target, self.probes)
        self.network.after(PROBE_INTERVAL * (self.awareness + 1), self.probe)

    def _next_target(self) -> int | None:
        for _ in range(self.network.size):
            if not self.order:
                self.order = [each for each in range(self.network.size) if each != self.me]
                self.network.random.shuffle(self.order)
            target = self.order.pop()
            if self.state.get(target, ("alive", 0))[0] != "dead":
                return target
        return None

    def on_ping(self, source: int, number: int) -> None:
        self._packet(source, self.group.members[source].on_ack, self.me, number)

    def on_ack(self, target: int, number: int) -> None:
        if self.waiting.get(target) == number:
            del self.waiting[target]
            self.awareness = max(0, self.awareness - 1)

    def on_timeout(self, target: int, number: int) -> None:
        if self.waiting.get(target) != number or not self.network.is_up(self.me):
            return
        others = [each for each in range(self.network.size) if each not in (self.me, target)]
        for helper in self.network.random.sample(others, min(INDIRECT_CHECKS, len(others))):
            self._packet(helper, self.group.members[helper].on_ping_request, self.me, target, number)
        self._packet(target, self.group.members[target].on_ping, self.me, number)  # Over TCP.

    def on_ping_request(self, source: int, target: int, number: int) -> None:
        self._packet(target, self.group.members[target].on_indirect_ping, self.me, source, number)

    def on_indirect_ping(self, helper: int, source: int, number: int) -> None:
        self._packet(helper, self.group.members[helper].on_indirect_ack, source, self.me, number)

    def on_indirect_ack(self, source: int, target: int, number: int) -> None:
        self._packet(source, self.group.members[source].on_ack, target, number)

    def on_probe_end(self, target: int, number: int) -> None:
        if self.waiting.get(target) == number and self.network.is_up(self.me):
            del self.waiting[target]
            self.awareness = min(MAX_AWARENESS - 1, self.awareness + 1)
            incarnation = self.state.get(target, ("alive", 0))[1]
            self.hear(("suspect", target, incarnation, self.me))

    # News.

    def _packet(self, to: int, action: object, *arguments: int) -> None:
        self.network.send(self.me, to, self.group.members[to].on_packet, self._take_news(), action, arguments)

    def on_packet(self, news: list[News], action: object, arguments: tuple[int, ...]) -> None:
        for each in news:
            self.hear(each)
        action(*arguments)  # type: ignore[operator]

    def gossip(self) -> None:
        if not self.network.is_up(self.me):
            return
        if self.news:
            others = [each for each in range(self.network.size) if each != self.me]
            for to in self.network.random.sample(others, min(GOSSIP_NODES, len(others))):
                if news := self._take_news():
                    self.network.send(self.me, to, self.group.members[to].on_packet, news, _nothing, ())
        self.network.after(GOSSIP_INTERVAL, self.gossip)

    def push_pull(self) -> None:
        if self.network.is_up(self.me):
            self.network.sent += 2
            self.network.after(PUSH_PULL_INTERVAL, self.push_pull)

    def _take_news(self) -> list[News]:
        limit = RETRANSMIT_MULT * math.ceil(math.log10(self.network.size + 1))
        chosen = sorted(self.news.values(), key=lambda each: each[1])[:_PER_PACKET]
        for news, told in chosen:
            if told + 1 >= limit:
                del self.news[news[1]]
            else:
                self.news[news[1]] = news, told + 1
        return [news for news, _ in chosen]

    def hear(self, news: News) -> None:
        kind, member, incarnation, by = news
        state, known = self.state.get(member, ("alive", 0))
        if member == self.me:
            if kind != "alive" and incarnation >= self.incarnation:
                self.incarnation = incarnation + 1
                self.awareness = min(MAX_AWARENESS - 1, self.awareness + 1)
                self._tell(("alive", self.me, self.incarnation, self.me))
        elif kind == "alive":
            if incarnation > known:
                self.state[member] = "alive", incarnation
                self.suspectors.pop(member, None)
                self._tell(news)
        elif kind == "suspect":
            self._hear_suspicion(news, state, known, by)
        elif state != "dead" and incarnation >= known:
            self._declare_dead(member, incarnation, by)

    def _hear_suspicion(self, news: News, state: str, known: int, by: int) -> None:
        _, member, incarnation, _ = news
        if incarnation < known or state == "dead":
            return
        if state == "suspect":
            if by not in self.suspectors[member]:
                self.suspectors[member].add(by)
                self._tell(news)
                self._wait_for_refutation(member, incarnation)
            return
        self.state[member] = "suspect", incarnation
        self.suspectors[member], self.suspicion_began[member] = {by}, self.network.now
        if by == self.me:
            self.group.suspected.setdefault(member, self.network.now)
            self.group.false_suspicions += self.network.is_up(member)
        self._tell(news)
        self._wait_for_refutation(member, incarnation)

    def _wait_for_refutation(self, member: int, incarnation: int) -> None:
        least = SUSPICION_MULT * max(1.0, math.log10(self.network.size)) * PROBE_INTERVAL
        most = SUSPICION_MAX_MULT * least
        expected = SUSPICION_MULT - 2 if self.network.size - 2 >= SUSPICION_MULT - 2 else 0
        confirmed = len(self.suspectors[member]) - 1
        share = math.log(confirmed + 1) / math.log(expected + 1) if expected else 1.0
        timeout = max(least, most - share * (most - least))
        end = self.suspicion_began[member] + round(timeout * SECOND)
        self.network.at(max(end, self.network.now), self.on_suspicion_end, member, incarnation, end)

    def on_suspicion_end(self, member: int, incarnation: int, end: int) -> None:
        if self.state.get(member) == ("suspect", incarnation) and self.network.is_up(self.me):
            self._declare_dead(member, incarnation, self.me)

    def _declare_dead(self, member: int, incarnation: int, by: int) -> None:
        self.state[member] = "dead", incarnation
        self.group.dead_known.setdefault((self.me, member), self.network.now)
        self.group.false_deaths += by == self.me and self.network.is_up(member)
        self._tell(("dead", member, incarnation, by))

    def _tell(self, news: News) -> None:
        self.news[news[1]] = news, 0


def _nothing() -> None:
    pass
