"""The links of a process: numbered packets between two addresses, as the core remembers them."""

from __future__ import annotations

from typing import Any

from antecede.live.changing.contact import Contact
from antecede.live.events import AckReceived, Incarnation
from antecede.live.transport.outbox import CHAIN_START, Outbox


class Presence:
    """Which links have a connection: what `PartnerLink` tells the core of a connection."""

    def __init__(self) -> None:
        self.connected: set[int] = set()


class LinkTable:
    """Links, by number in the order of their creation, which a replay repeats."""

    signatures = statements = seals = None
    size = 0

    def __init__(self) -> None:
        self.links: list[tuple[int, int]] = []
        """The two addresses of each, this process's first."""
        self._link_numbers: dict[tuple[int, int], int] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.received_chain: dict[int, bytes] = {}
        self.durably_received: dict[int, int] = {}
        self.durable_chain: dict[int, bytes] = {}
        self.lineage: list[Incarnation] = []
        self.partner_lineages: dict[int, list[Incarnation]] = {}
        self.equivocators: dict[int, Any] = {}
        self.rejected: dict[int, str] = {}
        """Links on which something came that no correct member sends, and what."""
        self.stability = Presence()
        self.packets: dict[int, list[bytes]] = {}
        """What the next `Ready` sends."""
        self.greeted: dict[int, Contact] = {}
        """Who has greeted, by address: it knows best where it listens."""

    def add_link(self, mine: int, theirs: int) -> int:
        link = self._link_numbers.get((mine, theirs))
        if link is None:
            link = self._link_numbers[mine, theirs] = len(self.links)
            self.links.append((mine, theirs))
            self.outboxes[link] = Outbox()
            self.sent[link] = self.received[link] = 0
            self.received_chain[link] = CHAIN_START
            self.durably_received.setdefault(link, 0)
            self.durable_chain.setdefault(link, CHAIN_START)
        return link

    def enqueue(self, link: int, data: bytes) -> None:
        self.sent[link] += 1
        self.packets.setdefault(link, []).append(data)

    def _on_ack(self, event: AckReceived) -> None:
        self.outboxes[event.link].ack(event.number, event.chain)
