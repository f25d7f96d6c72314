"""Sets of positive numbers that are nearly contiguous: a counter, and a window of bits above it.

What a process has received from one sender is almost always 1, 2, ... k with a few gaps at the end. So all
numbers up to `base` are in the set, and `bits` says which above it are: bit i stands for base + 1 + i. Adding
a number costs O(window / 64); the window shrinks as gaps are filled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple


class BitWindow:
    """A set of numbers from 1 up, compact when it is contiguous from below.

    >>> seen = BitWindow()
    >>> seen.add(1), seen.add(3), seen.add(3)
    (True, True, False)
    >>> list(seen.gaps()), seen
    ([2], BitWindow(1 + 3))
    >>> seen.add(2), seen
    (True, BitWindow(3))
    """

    __slots__ = ("base", "bits")

    def __init__(self, base: int = 0, bits: int = 0) -> None:
        self.base = base
        self.bits = bits
        self._advance_base()

    @classmethod
    def from_numbers(cls, numbers: Iterable[int]) -> BitWindow:
        window = cls()
        for number in numbers:
            window.add(number)
        return window

    def add(self, number: int) -> bool:
        """Add `number`; False if it was in the set already."""
        if number < 1:
            raise ValueError(f"numbers start at 1, not {number}")
        if number == self.base + 1 and not self.bits:
            self.base = number
            return True
        if number in self:
            return False
        self.bits |= 1 << (number - self.base - 1)
        self._advance_base()
        return True

    def add_span(self, first: int, last: int) -> bool:
        """Add every number from `first` to `last`. If one of them is in the set already, add none; False.

        >>> seen = BitWindow.from_numbers([5])
        >>> seen.add_span(1, 3), seen.add_span(3, 4), seen
        (True, False, BitWindow(3 + 5))
        """
        if first < 1 or last < first:
            raise ValueError(f"no numbers from {first} to {last}")
        if first == self.base + 1 and not self.bits:
            self.base = last
            return True
        span = (1 << last - first + 1) - 1
        if first <= self.base or self.bits >> first - self.base - 1 & span:
            return False
        self.bits |= span << first - self.base - 1
        self._advance_base()
        return True

    def add_between(self, low: int, high: int) -> None:
        """Add every number greater than `low` and less than `high`."""
        low = max(low, self.base)
        if low + 1 < high:
            self.bits |= (1 << high - low - 1) - 1 << low - self.base
            self._advance_base()

    def _advance_base(self) -> None:
        """Move the low ones of `bits` into `base`."""
        ones = (~self.bits & (self.bits + 1)).bit_length() - 1
        self.bits >>= ones
        self.base += ones

    def gaps(self) -> Iterator[int]:
        """The numbers that are missing below the largest one."""
        for offset in range(self.bits.bit_length()):
            if not self.bits >> offset & 1:
                yield self.base + 1 + offset

    @property
    def last(self) -> int:
        """The largest number in the set; 0 if it is empty."""
        return self.base + self.bits.bit_length()

    def __contains__(self, number: int) -> bool:
        return number <= self.base or bool(self.bits >> (number - self.base - 1) & 1)

    def __iter__(self) -> Iterator[int]:
        yield from range(1, self.base + 1)
        for offset in range(self.bits.bit_length()):
            if self.bits >> offset & 1:
                yield self.base + 1 + offset

    def __len__(self) -> int:
        return self.base + self.bits.bit_count()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BitWindow) and (self.base, self.bits) == (other.base, other.bits)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        above = [number for number in self if number > self.base]
        return f"BitWindow({' + '.join(map(str, [self.base, *above]))})"

    def to_bytes(self) -> bytes:
        """The length of the counter, the counter and the window, each in as few bytes as possible."""
        base = self.base.to_bytes((self.base.bit_length() + 7) // 8, "little")
        bits = self.bits.to_bytes((self.bits.bit_length() + 7) // 8, "little")
        return bytes([len(base)]) + base + bits

    @classmethod
    def from_bytes(cls, data: bytes) -> BitWindow:
        if not data or len(data) < 1 + data[0]:
            raise ValueError("a bit window is truncated")
        end = 1 + data[0]
        return cls(int.from_bytes(data[1:end], "little"), int.from_bytes(data[end:], "little"))


class OffsetBitmap(NamedTuple):
    """A set of numbers as packets carry it: the smallest, and a bit for each number from there on.

    >>> some = OffsetBitmap.from_numbers({3, 4, 8})
    >>> some, some.numbers(), some.span
    (OffsetBitmap(first=3, bits=b'#'), [3, 4, 8], 6)
    """

    first: int = 0
    bits: bytes = b""

    @classmethod
    def from_numbers(cls, numbers: Collection[int]) -> OffsetBitmap:
        if not numbers:
            return cls()
        first = min(numbers)
        bits = sum(1 << number - first for number in numbers)
        return cls(first, bits.to_bytes((bits.bit_length() + 7) // 8, "little"))

    def numbers(self) -> list[int]:
        """The numbers, in ascending order."""
        digits = f"{int.from_bytes(self.bits, 'little'):b}"  # linear time, unlike shifting bit by bit
        return [self.first + offset for offset, digit in enumerate(reversed(digits)) if digit == "1"]

    @property
    def span(self) -> int:
        """How many bits there are from the smallest number to the largest."""
        return int.from_bytes(self.bits, "little").bit_length()
