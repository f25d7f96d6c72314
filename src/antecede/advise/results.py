"""The types that advice consists of."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """What one protocol costs on a workload; None where it would have to be simulated and was not."""

    protocol: str
    control_bytes_mean: float | None
    """Of a message's own packet, as its sender puts it on the wire."""
    control_bytes_p99: float | None
    exact: bool
    """Whether these two are computed from all messages of the log, without a simulation."""
    copies: float | None
    """Packets a message, over all links."""
    link_bytes: float | None
    """Control bytes of all these packets, a message."""
    total_bytes: float | None
    """The same with the payload of every copy; the recommendation goes by this."""
    stored_bytes: float | None
    """The size of a member's saved state, on average over members and time."""
    extra_delay_ns: float | None
    """How much later than by a direct send a message is delivered, on average: hops and hold-back."""


class FreescaleRoles(msgspec.Struct, frozen=True):
    """The roles of a group's members in freescale."""

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
    """How many of them, from the first on, were simulated."""
    recommended: str
    reason: str
    otherwise: str | None
    """What would be better if deliveries may be later."""
    delay_mean_ns: float
    """Of a direct send."""
    delay: str
    """Where the delays come from."""
    payload_bytes: int
    logged_control_bytes_mean: float | None
    """What the log's own system sent along, if it says so."""
    assumptions: list[str]
    split: FreescaleRoles | None
    costs: list[Cost]
