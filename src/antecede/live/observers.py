"""The listeners to a group's events, and the last events for later inspection."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence

from antecede.live.messages import Message, MessageId, Notice, Subscription
from antecede.live.operations.recent import RecentMessages
from antecede.live.view import MemberChange

_MAX_CHANGES, _MAX_NOTICES = 200, 100


class Observers:
    """Listeners are referenced weakly: an abandoned one is forgotten. `notes_broadcasts` says that the
    application's own messages are not delivered to it, so they are noted when it broadcasts them."""

    def __init__(self, notes_broadcasts: bool) -> None:
        self._notes_broadcasts = notes_broadcasts
        self.changes: deque[MemberChange] = deque(maxlen=_MAX_CHANGES)
        self.notices: deque[Notice] = deque(maxlen=_MAX_NOTICES)
        """The last events, the newest last."""
        self.recent: RecentMessages | None = None
        """The last messages, while somebody requests them."""
        self._listeners: weakref.WeakSet[Subscription[Notice]] = weakref.WeakSet()
        self._watchers: weakref.WeakSet[Subscription[MemberChange]] = weakref.WeakSet()
        self._has_ended = False

    def listen(self) -> Subscription[Notice]:
        listener: Subscription[Notice] = Subscription()
        self._listeners.add(listener)
        if self._has_ended:
            listener.end()
        return listener

    def watch(self) -> Subscription[MemberChange]:
        watcher: Subscription[MemberChange] = Subscription()
        self._watchers.add(watcher)
        if self._has_ended:
            watcher.end()
        return watcher

    def tell_notice(self, notice: Notice) -> None:
        self.notices.append(notice)
        for listener in self._listeners:
            listener.put(notice)

    def tell_change(self, change: MemberChange) -> None:
        self.changes.append(change)
        for watcher in self._watchers:
            watcher.put(change)

    def delivered(self, message: Message) -> None:
        """A message is delivered to the application for the first time."""
        if self.recent is not None and not self.recent.add(message.id, message.causes):
            self.recent = None  # nobody requests them any more

    def broadcast(
        self, message: MessageId, causes: Mapping[int, int], names: Sequence[str] | Mapping[int, str]
    ) -> None:
        """The application has broadcast a message, with these causes by origin."""
        if self.recent is None or not self._notes_broadcasts:
            return
        named = tuple(MessageId(names[origin], seq) for origin, seq in sorted(causes.items()))
        if not self.recent.add(message, named):
            self.recent = None

    def end(self) -> None:
        """No more events will follow."""
        self._has_ended = True
        for listener in self._listeners:
            listener.end()
        for watcher in self._watchers:
            watcher.end()

    @property
    def count(self) -> int:
        """How many listeners there are."""
        return len(self._listeners)
