from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import BitWindow

numbers = st.lists(st.integers(1, 70))


@given(numbers)
def test_a_window_is_a_set(added: list[int]) -> None:
    window, plain = BitWindow(), set[int]()
    for number in added:
        assert window.add(number) is (number not in plain)
        plain.add(number)
        assert sorted(plain) == list(window)
        assert len(window) == len(plain)
        assert window.last == max(plain)
        assert list(window.gaps()) == sorted(set(range(1, max(plain))) - plain)
        assert all((n in window) is (n in plain) for n in range(1, 75))


@given(numbers)
def test_a_window_is_restored_from_its_bytes(added: list[int]) -> None:
    window = BitWindow.from_numbers(added)
    assert BitWindow.from_bytes(window.to_bytes()) == window
    assert window.bits & 1 == 0
    assert BitWindow.from_numbers(sorted(added, reverse=True)) == window


@given(st.binary())
def test_arbitrary_bytes_raise_only_value_errors(data: bytes) -> None:
    try:
        window = BitWindow.from_bytes(data)
    except ValueError:
        return
    assert BitWindow.from_bytes(window.to_bytes()) == window


def test_numbers_start_at_one() -> None:
    with pytest.raises(ValueError, match="start at 1"):
        BitWindow().add(0)
