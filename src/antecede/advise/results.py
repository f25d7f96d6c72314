"""The types that advice consists of."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """What one protocol costs on a workload; None where a simulation would be needed and was not run."""

    protocol: str
    control_bytes_mean: float | None
    """Control bytes of a message's own packet, as its sender puts it on the wire."""
    control_bytes_p99: float | None
    exact: bool
    """Whether these two figures are computed from all messages of the log, without a simulation."""
    copies: float | None
    """Packets per message, over all links."""
    link_bytes: float | None
    """Control bytes of all these packets, per message."""
    total_bytes: float | None
    """The same including the payload of every copy; the recommendation is based on this figure."""
    stored_bytes: float | None
    """The size of a member's saved state, on average over members and time."""
    extra_delay_ns: float | None
    """How much later a message is delivered than by a direct send, on average: hops and time in the hold-back
    queue."""


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
    """The number of messages, from the first on, that were simulated."""
    recommended: str
    reason: str
    otherwise: str | None
    """The better protocol if later deliveries are acceptable."""
    delay_mean_ns: float
    """The mean delay of a direct send."""
    delay: str
    """The source of the delays."""
    payload_bytes: int
    logged_control_bytes_mean: float | None
    """Control bytes that the logged system sent along, if the log says so."""
    assumptions: list[str]
    split: FreescaleRoles | None
    costs: list[Cost]
