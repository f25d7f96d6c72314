"""The causal past and future of a message, among the messages that members have recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from antecede.live.operations.state import MemberMessages

_MAX_LISTED = 200
_MAX_DRAWN = 48


class NotedMessages:
    """The messages that several members have recorded, merged."""

    def __init__(self, noted: Iterable[MemberMessages]) -> None:
        self.causes: dict[str, list[str]] = {}
        """Immediate dependencies; a message follows everything that it names."""
        self.delivered: dict[str, dict[str, float]] = {}
        """The time of delivery, by message and member."""
        for member in noted:
            for each in member.messages:
                self.causes.setdefault(each.id, each.causes)
                self.delivered.setdefault(each.id, {})[member.me] = each.time
        self._effects: dict[str, list[str]] = {}
        for message, causes in self.causes.items():
            for cause in causes:
                self._effects.setdefault(cause, []).append(message)

    def first(self, message: str) -> float:
        """The time at which the message was first delivered anywhere."""
        return min(self.delivered.get(message, {}).values(), default=0.0)

    def past(self, message: str) -> list[str]:
        """All causes of the message, nearest first. A message that no member has recorded is included, its
        own causes are not."""
        return _closure(message, self.causes)

    def future(self, message: str) -> list[str]:
        """Everything after it, the nearest first."""
        return _closure(message, self._effects)

    def in_order(self, messages: Iterable[str]) -> list[str]:
        """Causes first, otherwise by time."""
        wanted = sorted(set(messages), key=lambda each: (self.first(each), each))
        chosen, placed, found = set(wanted), set[str](), list[str]()
        for root in wanted:
            stack = [(root, iter(self.causes.get(root, ())))]
            while stack:
                message, causes = stack[-1]
                cause = next((each for each in causes if each in chosen and each not in placed), None)
                if cause is not None and all(cause != each for each, _ in stack):
                    stack.append((cause, iter(self.causes.get(cause, ()))))
                elif cause is None:
                    stack.pop()
                    if message not in placed:
                        placed.add(message)
                        found.append(message)
        return found


def _closure(message: str, edges: Mapping[str, list[str]]) -> list[str]:
    found, seen = list[str](), {message}
    queue = deque([message])
    while queue:
        for each in edges.get(queue.popleft(), ()):
            if each not in seen:
                seen.add(each)
                found.append(each)
                queue.append(each)
    return found


def drawn(noted: NotedMessages, messages: Iterable[str]) -> list[dict[str, Any]]:
    """Messages in the form that the page draws."""
    return [
        {"id": message, "origin": message.rpartition(":")[0], "causes": noted.causes.get(message, [])}
        for message in noted.in_order(messages)
    ]


def around(noted: NotedMessages, message: str) -> dict[str, Any]:
    """A message with its causal past and future, in the form that the page shows."""
    past, future = noted.past(message), noted.future(message)
    unknown = [each for each in [message, *past] if each not in noted.causes]
    near = [message, *past[: _MAX_DRAWN // 2], *future[: _MAX_DRAWN // 2]]
    latest = sorted(noted.causes, key=noted.first, reverse=True)
    near += [each for each in latest if each not in near][: max(0, _MAX_DRAWN - len(near))]
    known = len(noted.causes.keys() | {message} | set(past))
    return {
        "id": message,
        "known": message in noted.causes,
        "causes": noted.causes.get(message, []),
        "past": past[:_MAX_LISTED],
        "past_count": len(past),
        "future": future[:_MAX_LISTED],
        "future_count": len(future),
        "concurrent_count": known - 1 - len(past) - len(future),
        "is_complete": not unknown,
        "delivered": [
            {"member": member, "time": time}
            for member, time in sorted(noted.delivered.get(message, {}).items(), key=lambda each: each[1])
        ],
        "messages": drawn(noted, near),
    }
