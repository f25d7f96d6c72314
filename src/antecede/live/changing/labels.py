"""The application's names for the incarnations that a core knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from antecede.errors import InputError
from antecede.live.settings import validate_name
from antecede.membership.packets import is_founder

if TYPE_CHECKING:
    from antecede.live.changing.membership import MembershipCore

_MAX_REMEMBERED = 4_096
"""Labels of forgotten streams: applications may still have messages of theirs."""


_NONCE_LENGTH = 8
_NONCE_DIGITS = frozenset("0123456789abcdef")


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
        """Remember labels of streams that may be forgotten everywhere."""
        for stream, label in labels.items():
            if stream not in self._known:
                while len(self._known) >= _MAX_REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[stream] = label

    def learn_author(self, stream: int, author: str) -> None:
        """Remember the original author of a message that is brought back, as stated by the member that brings
        it back: this process may never have known the author's stream."""
        if self[stream].startswith("~") and is_label(author, stream):
            self.learn({stream: author})

    def __iter__(self) -> Iterator[int]:
        return iter(self._core.member.contacts)

    def __len__(self) -> int:
        return len(self._core.member.contacts)


def is_label(text: str, stream: int) -> bool:
    """Whether this may be the label of an incarnation: a founder's name, or a name with the first half of a
    nonce.

    >>> is_label("dana~1f2e3d4c", 1 << 62), is_label("dana", 0), is_label("dana", 1 << 62)
    (True, True, False)
    """
    name, tilde, nonce = text.partition("~")
    try:
        validate_name(name)
    except InputError:
        return False
    if is_founder(stream):
        return not tilde
    return len(nonce) == _NONCE_LENGTH and _NONCE_DIGITS.issuperset(nonce)
