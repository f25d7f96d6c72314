"""Repair: requesting messages that were lost with their sender from other members, and answering such
requests.

A member requests messages that a connected partner has delivered and that it has been missing for a while;
the partner replies with the packets as they arrived. Where only the links keep the order (`flooding`, `pc`),
such packets are of no use, and a member behind a super peer receives everything from that one. Time
O(members) per check, O(messages) per reply.

While the link to an origin in a mesh is down, none of its messages is in transit, so there is nothing to wait
for: a member that sends a message is immediately asked for its missing causes. A lasting partition between
two members costs a detour, not a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from antecede.live.stability import Stability
from antecede.live.transport.outbox import Outbox, is_skipped
from antecede.protocols.base import Protocol, RemoteError, Span

_MAX_REPLY_BYTES = 1 << 20
_MAX_SPAN = 1_000
"""Messages of one origin in one request."""
_MAX_REQUEST = 10_000
"""Messages in one request."""
_ASK_PAUSE = 10_000_000
"""Minimum interval between two requests for missing causes, in nanoseconds."""
REPEAT_PAUSE = 300_000_000
"""How long to wait for an answer, in nanoseconds."""
MANY_PACKETS = 256
"""Above this many unacknowledged packets, packets whose messages are all stable are emptied."""


class Repair:
    """The messages that this member is missing, and those that it can supply."""

    def __init__(self, protocol: Protocol, stability: Stability) -> None:
        self._stability = stability
        self.is_possible = type(protocol).on_repair is not Protocol.on_repair and stability.upstream is None
        self._missing_since: dict[int, tuple[int, int]] = {}
        """For each origin, the last message before the gap and when that was first seen."""
        self._looked_at = -_ASK_PAUSE
        self._asked: dict[int, tuple[Span, int, int]] = {}
        """For each origin that is not connected: what was last requested, from which partner, and when."""

    def request(self, now: int, patience: int, connected: Iterable[int]) -> tuple[int, list[Span]] | None:
        """Which partner to ask for which messages that have been missing for `patience`, though others have
        them."""
        if not self.is_possible:
            return None
        stability, partners = self._stability, list(connected)
        requests: dict[int, list[Span]] = {}
        for origin in range(stability.size):
            base = stability.received[origin].base
            able = [peer for peer in partners if stability.matrix_clock[peer][origin] > base]
            if origin == stability.me or not able or not stability.takes_repair(origin, base + 1):
                self._missing_since.pop(origin, None)
                continue
            where, since = self._missing_since.get(origin, (-1, now))
            if where != base:
                self._missing_since[origin] = (base, now)
            elif now - since >= patience:
                helper = able[(now // max(patience, 1) + origin) % len(able)]
                last = min(stability.matrix_clock[helper][origin], base + _MAX_SPAN)
                requests.setdefault(helper, []).append((origin, base + 1, last))
        if not requests:
            return None
        helper, spans = max(requests.items(), key=lambda item: len(item[1]))
        return helper, spans[: _MAX_REQUEST // _MAX_SPAN]

    def request_held(
        self, last_awaited: Callable[[int], int], now: int, helper: int, closed: Collection[int]
    ) -> list[Span]:
        """What to request from a partner that has just sent something, while some links are closed: messages
        of origins at their other end, if others depend on them or the partner reports to have them.

        `last_awaited` returns the last message of an origin that others depend on. Time O(links closed),
        since this is called for each frame, however many messages are held.
        """
        stability = self._stability
        if not closed or not self.is_possible or not stability.is_mesh or now - self._looked_at < _ASK_PAUSE:
            return []
        self._looked_at = now
        spans = []
        for origin in closed:
            last = max(stability.matrix_clock[helper][origin], last_awaited(origin))
            asked, of, at = self._asked.get(origin, ((origin, 0, 0), helper, now - REPEAT_PAUSE))
            first = stability.received[origin].base + 1
            if now - at < REPEAT_PAUSE:
                if of == helper and asked[1] == first:
                    continue  # the partner does not have it either
                if of != helper:
                    first = max(first, asked[2] + 1)  # another partner will supply the earlier ones
            last = min(last, first + _MAX_SPAN - 1)
            if first <= last and stability.takes_repair(origin, first):
                spans.append((origin, first, last))
                self._asked[origin] = (spans[-1], helper, now)
        return spans[: _MAX_REQUEST // _MAX_SPAN]

    def validate(self, spans: Sequence[Span]) -> None:
        """Raise a `RemoteError` for a request that no correct member sends."""
        if len(spans) > self._stability.size or sum(last - first for _, first, last in spans) > _MAX_REQUEST:
            raise RemoteError(f"it asks for more than {_MAX_REQUEST} messages at once")
        for origin, first, last in spans:
            if not 0 <= origin < self._stability.size or not 1 <= first <= last:
                raise RemoteError("it asks for messages that cannot exist")

    def reply(self, spans: Iterable[Span]) -> list[bytes]:
        """Packets of the requested messages, as far as they are available here and fit into one reply."""
        stability = self._stability
        packets: dict[int, bytes] = {}
        room = _MAX_REPLY_BYTES
        for origin, first, last in spans:
            for seq in range(first, last + 1):
                if origin == stability.me and seq > stability.matrix_clock[stability.me][stability.me]:
                    break  # not durable yet
                entry = stability.unstable[origin].get(seq)
                if entry is None or entry.packet is None or id(entry.packet) in packets:
                    continue
                if room > 0:
                    packets[id(entry.packet)] = entry.packet
                    room -= len(entry.packet)
        return list(packets.values())

    def skip_stable(self, protocol: Protocol, outboxes: Iterable[Outbox]) -> None:
        """Empty the packets in slow partners' outboxes whose messages are stable: the partner received them
        by repair."""
        self._stability.settle()
        if not self.is_possible:
            return
        stable = self._stability.stable
        for box in outboxes:
            box.skipped = max(box.skipped, box.acked)
            while box.skipped < box.last and len(box.packets) > MANY_PACKETS:
                data = box.packets[box.skipped + 1]
                is_empty = is_skipped(data)
                spans = () if is_empty else protocol.decode(data).spans()
                if not is_empty and not (spans and all(last <= stable[origin] for origin, _, last in spans)):
                    break
                box.skipped += 1
                box.skip(box.skipped)
