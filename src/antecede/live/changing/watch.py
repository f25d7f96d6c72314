"""What a member observes about the others: which are suspected, and which changes to report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol as Interface

from antecede.live.changing.core import ChangingCore
from antecede.live.messages import MessageId
from antecede.live.operations.logs import Log
from antecede.live.suspicion import Suspicions
from antecede.live.view import ChangeKind
from antecede.membership.state import ViewChange

_KINDS: dict[str, ChangeKind] = {"admit": "joined", "leave": "left", "disown": "left", "remove": "removing"}


class Tell(Interface):
    """Notifies listeners of a change."""

    def __call__(
        self, kind: ChangeKind, label: str, by: str = "", message: MessageId | None = None, text: str = ""
    ) -> None: ...


class Watch:
    """Watches the members of the view, and reports changes."""

    def __init__(
        self, core: ChangingCore, labels: Mapping[int, str], suspicions: Suspicions, tell: Tell, log: Log
    ) -> None:
        self._core, self._labels, self._suspicions, self._tell, self._log = (
            core,
            labels,
            suspicions,
            tell,
            log,
        )

    def begin(self) -> None:
        """Start watching the members of the view."""
        core = self._core
        self._suspicions.watch(core.member.view - {core.me} if core.members else [])

    def hear(self, link: int) -> None:
        """Something has arrived on a link."""
        stream = self._core.member.stream_at.get(self._core.links[link][1])
        if stream is not None and self._suspicions.hear(stream):
            self._tell("trusted", self._labels[stream], text="it is heard again")

    def check(self) -> None:
        """Called periodically: suspect members that are silent for too long."""
        for stream in self._suspicions.check():
            timeout = self._suspicions.timeout(stream)
            self._tell("suspected", self._labels[stream], text=f"no sign of life for {timeout:.1f} s")

    def tell_changes(self) -> None:
        """Report the changes that the core has recorded."""
        invalid, self._core.invalid = self._core.invalid, []
        for text in invalid:
            self._log.warning("a message is not delivered to the application: %s", text)
        changes, self._core.changes = self._core.changes, []
        for change in changes:
            if (kind := self._kind_of(change)) is not None:
                origin, seq = change.message
                by = "" if kind == "removed" else self._labels[origin]
                text = "its last message is known to all" if kind == "removed" else ""
                message = MessageId(self._labels[origin], seq)
                self._tell(kind, self._labels[change.member], by, message, text)
        if changes:
            self.begin()

    def _kind_of(self, change: ViewChange) -> ChangeKind | None:
        if change.kind == "close":
            return "removed" if change.member in self._core.member.removals.removed else None
        if change.kind == "admit" and self._was_here(change.member):
            return "returned"
        return _KINDS[change.kind]

    def _was_here(self, stream: int) -> bool:
        """Whether a member was another incarnation before, as far as is known."""
        core, contact = self._core, self._core.contact_of(stream)
        others = (core.contact_of(each) for each in core.member.contacts if each != stream)
        return contact is not None and any(each is not None and each.name == contact.name for each in others)
