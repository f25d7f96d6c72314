"""A body is delivered equal to what was broadcast, with the same types, or it is not accepted."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from live_groups import run, together

from antecede.errors import InputError
from antecede.live.envelope import decode_body, unwrap, wrap


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    pass


@dataclasses.dataclass
class Point:
    x: int


def same(one: Any, other: Any) -> bool:
    """Equal, with the same types throughout, signs of zeros included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return bool(one == other)


STRANGE: list[Any] = [
    math.nan, math.inf, -math.inf, 1e400, b"x", bytearray(b"x"), memoryview(b"x"), (1, 2), {1}, frozenset(),
    Colour.RED, Name("x"), Point(1), datetime.datetime(2026, 1, 1), decimal.Decimal("1.5"), uuid.UUID(int=1),
    collections.OrderedDict(a=1), collections.defaultdict(list), "\ud800", 2**5000, object(),
    1 + 2j, range(3), Ellipsis,
]  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**2100), 2**2100),
    st.floats(),
    st.text(st.characters()),
    st.binary(),
    st.sampled_from(STRANGE),
)
bodies = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(st.characters()), st.integers(), st.none()), inner, max_size=4),
        st.dictionaries(st.text(), inner, max_size=4),
        st.tuples(inner),
    ),
    max_leaves=20,
)


@given(bodies)
@example(-0.0)
@example([True, 1, 1.0, None])
@example({"": {"\x00": "\u2028"}})
@example(2**64)
@example([[[]]] * 3)
def test_accepted_bodies_round_trip_with_equal_types(body: Any) -> None:
    refusal = ""
    try:
        payload = wrap(body, False, None)
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("body")
        assert len(refusal.splitlines()) == 1
    else:
        assert same(decode_body(unwrap(payload)), body)


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
def test_values_that_would_not_round_trip_are_refused_with_their_path(strange: Any) -> None:
    for body, where in (
        ({"items": [0, 1, 2, {"price": strange}]}, "body.items[3].price: "),
        ([strange], "body[0]: "),
        ({"a b": strange}, "body['a b']: "),
    ):
        with pytest.raises(InputError) as refused:
            wrap(body, False, None)
        assert str(refused.value).startswith(where)
    if type(strange) is not bytes:
        with pytest.raises(InputError, match=r"^body: "):
            wrap(strange, False, None)


@pytest.mark.parametrize("key", [1, None, True, 1.5, b"k", (1,), Name("k"), "\udfff"])
def test_map_keys_that_would_not_round_trip_are_refused(key: Any) -> None:
    with pytest.raises(InputError, match=r"^body\.names.*: (a|the) key "):
        wrap({"names": {"fine": 1, key: 2}}, False, None)


def test_bodies_may_be_nested_but_not_without_end() -> None:
    body: list[Any] = []
    for _ in range(99):
        body = [body]
    assert decode_body(unwrap(wrap(body, False, None))) == body
    with pytest.raises(InputError, match=r"^body: it is nested deeper than 100 levels"):
        wrap([body], False, None)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InputError, match=r"^body: it is nested deeper"):
        wrap(endless, False, None)


def test_nothing_is_broadcast_if_a_body_is_refused() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            for strange in STRANGE:
                with pytest.raises(InputError):
                    await ana.broadcast({"value": strange})
            await ana.broadcast({"value": [-0.0, 2**64]})
            message = await anext(bo)
            assert (message.seq, repr(message.body)) == (1, "{'value': [-0.0, 18446744073709551616]}")

    run(test())
