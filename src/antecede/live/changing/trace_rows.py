"""The rows that a process of a dynamic group adds to its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antecede.causality import MessageId
from antecede.live.changing.causes import Causes
from antecede.live.trace_rows import ADMIT, CLOSE, LEAVE, RECEIVE, REMOVE, TraceBuffer, TraceRow
from antecede.membership.state import ViewChange

if TYPE_CHECKING:
    from antecede.live.changing.delivering import DeliveringCore

_CHANGES = {"admit": ADMIT, "leave": LEAVE, "remove": REMOVE, "disown": REMOVE, "close": CLOSE}
"""The kinds of rows for changes. A disowned member never began, and counts as removed."""
_MANY_NAMES = 1_024


class TraceRows:
    """Rows refer to members by the index of their labels in `names`."""

    def __init__(self, core: DeliveringCore, buffer: TraceBuffer) -> None:
        self._core, self._buffer = core, buffer
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def resume(self, names: list[str], first: int, rows: list[TraceRow]) -> None:
        """Restore rows that are not in the trace's folder yet."""
        self.names[:] = names
        self._codes = {name: code for code, name in enumerate(names)}
        self._buffer.first, self._buffer.rows = first, rows

    def forget_names(self) -> None:
        """Forget labels of former members when no remaining row refers to them."""
        if not self._buffer.rows and len(self.names) > _MANY_NAMES:
            self.resume([], self._buffer.first, [])

    def add_received(self, messages: Sequence[MessageId], theirs: int, now: int) -> None:
        stream = self._core.member.stream_at.get(theirs)
        if stream is not None:
            link = self._code(self._core.labels[stream])
            for message in messages:
                self.add(RECEIVE, message, now, link=link)

    def add_change(self, change: ViewChange, now: int) -> None:
        member = self._code(self._core.labels[change.member])
        self.add(_CHANGES[change.kind], change.message, now, member=member)

    def add(
        self,
        kind: int,
        message: MessageId,
        now: int,
        control: int = 0,
        payload: int = 0,
        link: int = -1,
        member: int = -1,
        causes: Causes | None = None,
    ) -> None:
        core = self._core
        origin, process = self._code(core.labels[message.origin]), self._code(core.identity.label)
        named = None
        if causes is not None and not core.has_phones:
            named = [(self._code(core.labels[peer]), seq) for peer, seq in sorted(causes.items())]
        row = TraceRow(kind, origin, message.seq, now, control, payload, link, named, member, process)
        self._buffer.add(row)

    def _code(self, label: str) -> int:
        codes = self._codes
        if (code := codes.get(label)) is None:
            code = codes[label] = len(self.names)
            self.names.append(label)
        return code
