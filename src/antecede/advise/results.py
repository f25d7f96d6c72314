"""The figures that advice consists of."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """What one protocol costs on a workload; None where it was not simulated."""

    protocol: str
    control_bytes_mean: float | None
    """Of a message's own packet, as its sender sends it, on the wire."""
    control_bytes_p99: float | None
    exact: bool
    """Whether these two follow from the log alone, over all its messages, and from no simulation."""
    copies: float | None
    """Packets that a message makes, over all links."""
    link_bytes: float | None
    """Control bytes of all those packets, a message."""
    total_bytes: float | None
    """The same with the payload in every copy: what the recommendation goes by."""
    stored_bytes: float | None
    """What a member keeps, on average over members and over the time: its saved state."""
    extra_delay_ns: float | None
    """How much later than by a direct send a message is delivered, on average: hops and holding."""


class FreescaleRoles(msgspec.Struct, frozen=True):
    """Who is what in freescale."""

    super_peer: str
    internal: list[str]
    external: list[str]
    why: str


class Advice(msgspec.Struct, frozen=True):
    """What each protocol would cost on one run's workload, and which one to take."""

    run: str
    processes: int
    messages: int
    simulated_messages: int
    """How many of them, the first ones, the simulated figures are from."""
    recommended: str
    reason: str
    otherwise: str | None
    """What would be better if deliveries might be later."""
    delay_mean_ns: float
    """Of a direct send."""
    delay: str
    """Where the delays are from."""
    payload_bytes: int
    logged_control_bytes_mean: float | None
    """What the log says that its own system sent along."""
    assumptions: list[str]
    split: FreescaleRoles | None
    costs: list[Cost]
