"""The links of a process: numbered packets between two addresses, as the core remembers them."""

from __future__ import annotations

from typing import Any

from antecede.live.changing.contact import Contact
from antecede.live.events import AckReceived, Life
from antecede.live.transport.outbox import CHAIN_START, Outbox
from antecede.membership.packets import ProgressReport


class Presence:
    """Which links have a connection; `PartnerLink` notifies the core through it."""

    def __init__(self) -> None:
        self.connected: set[int] = set()


class LinkTable:
    """Links, numbered in the order of their creation, which a replay repeats. Numbers are never reused."""

    signatures: Any = None
    statements: Any = None
    seals = None
    size = 0

    def __init__(self) -> None:
        self.links: dict[int, tuple[int, int]] = {}
        """The two addresses of each link, this process's first."""
        self.next_link = 0
        self._link_numbers: dict[tuple[int, int], int] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.received_chain: dict[int, bytes] = {}
        self.durably_received: dict[int, int] = {}
        self.durable_chain: dict[int, bytes] = {}
        self.lineage: list[Life] = []
        self.partner_lineages: dict[int, list[Life]] = {}
        self.equivocators: Any = {}
        """Links to members that are proven to lie."""
        self.rejected: dict[int, str] = {}
        """Links on which an invalid packet arrived that no correct member sends, and the error."""
        self.stability = Presence()
        self.arrivals: set[int] = set()
        """Links on which packets have arrived since the last `Ready`."""
        self.touched: set[int] = set()
        """Links that may have packets to send or may need a connection; to be taken by the driver."""
        self.packets: dict[int, list[bytes]] = {}
        """Packets that the next `Ready` sends."""
        self.greeted: dict[int, Contact] = {}
        """By address, the contact in the last greeting from there, which states its listening address."""
        self.strangers: set[int] = set()
        """Links to processes that have never been in the view here."""
        self.void: set[int] = set()
        """Links whose other end has said that no process is there any more."""
        self.reported: dict[int, ProgressReport] = {}
        """The last report sent on a link, unless a checkpoint followed."""
        self.reports_heard: dict[int, ProgressReport] = {}
        """The last report received on a link."""
        self.dropped: list[int] = []
        """Links that were dropped, to be taken by the driver."""

    def find_link(self, mine: int, theirs: int) -> int | None:
        return self._link_numbers.get((mine, theirs))

    def add_link(self, mine: int, theirs: int) -> int:
        link = self._link_numbers.get((mine, theirs))
        if link is None:
            link = self._link_numbers[mine, theirs] = self.next_link
            self.next_link += 1
            self.links[link] = mine, theirs
            self.outboxes[link] = Outbox()
            self.sent[link] = self.received[link] = 0
            self.received_chain[link] = CHAIN_START
            self.durably_received[link] = 0
            self.durable_chain[link] = CHAIN_START
            self.touched.add(link)
        return link

    def take_touched(self) -> set[int]:
        """Existing links that may have to be served or called."""
        touched, self.touched = self.touched, set()
        return touched

    def resume_link(self, link: int, mine: int, theirs: int) -> None:
        """Restore a link that existed before a restart."""
        self.next_link = link
        self.add_link(mine, theirs)

    def drop_link(self, link: int) -> None:
        """Drop a link: no more packets arrive on it, and those sent on it no longer matter."""
        mine, theirs = self.links.pop(link)
        del self._link_numbers[mine, theirs]
        tables: tuple[dict[int, Any], ...] = (
            self.outboxes,
            self.sent,
            self.received,
            self.received_chain,
            self.durably_received,
            self.durable_chain,
            self.partner_lineages,
            self.rejected,
            self.packets,
            self.reported,
            self.reports_heard,
        )
        for table in tables:
            table.pop(link, None)
        for links in (self.strangers, self.void, self.arrivals, self.touched):
            links.discard(link)
        if all(other != theirs for _, other in self.links.values()):
            self.greeted.pop(theirs, None)
        self.dropped.append(link)

    def is_blank(self, link: int) -> bool:
        """Whether no packet was ever sent or received on a link."""
        return not self.sent[link] and not self.received[link]

    def has_progressed(self, link: int) -> bool:
        """Whether a packet has arrived on a link, durable or not, or one that was sent was acknowledged."""
        return bool(self.received[link] or self.outboxes[link].acked)

    @property
    def has_unacked(self) -> bool:
        """Whether a process that may still be up has not acknowledged all packets sent to it."""
        return any(box.packets for link, box in self.outboxes.items() if link not in self.void)

    def enqueue(self, link: int, data: bytes) -> None:
        self.sent[link] += 1
        self.packets.setdefault(link, []).append(data)

    def _on_ack(self, event: AckReceived) -> None:
        self.outboxes[event.link].ack(event.number, event.chain)
