"""What applications call the incarnations that a core knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antecede.live.changing.membership import MembershipCore

_MAX_REMEMBERED = 4_096
"""Labels of streams that are forgotten: applications may still have messages of theirs."""


class Labels(Mapping[int, str]):
    """Labels by stream; they never change."""

    def __init__(self, core: MembershipCore) -> None:
        self._core = core
        self._known: dict[int, str] = {}

    def __getitem__(self, stream: int) -> str:
        label = self._known.get(stream)
        if label is None:
            contact = self._core.contact_of(stream) if self._core.members else None
            if contact is None:
                return f"~{stream:x}"
            if len(self._known) >= _MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            label = self._known[stream] = contact.label
        return label

    def learn(self, labels: Mapping[int, str]) -> None:
        """Of streams that may be forgotten everywhere."""
        for stream, label in labels.items():
            if stream not in self._known:
                while len(self._known) >= _MAX_REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[stream] = label

    def __iter__(self) -> Iterator[int]:
        return iter(self._core.member.contacts)

    def __len__(self) -> int:
        return len(self._core.member.contacts)
