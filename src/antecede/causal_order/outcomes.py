"""Dispositions of rows and targets of dependencies: numbers that all passes share."""

from __future__ import annotations

SATISFIED, UNKNOWN, QUARANTINED = -1, -2, -3
"""The target of a dependency on a row outside the table: the cause was emitted before; it has never been
seen; it was quarantined before, so it will never be emitted."""

HELD, ORDERED, RELEASED, CYCLE, CAUSE_QUARANTINED, OVERDUE, DUPLICATE, UNREADABLE = range(8)
"""The disposition of a row: it waits for a cause; it follows all its causes; it is emitted without one of
them; it is on a cycle of dependencies; one of its causes is quarantined; one did not arrive in time; its
identity was seen before; its identity or its dependencies cannot be read."""
QUARANTINE_REASONS = (CYCLE, CAUSE_QUARANTINED, OVERDUE, UNREADABLE)
"""The dispositions of rows that are quarantined."""
