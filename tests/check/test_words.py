"""Counter-examples in words and as diagrams."""

from __future__ import annotations

from antecede.check.bounds import Bounds
from antecede.check.counterexample import CounterExample, find_smallest
from antecede.check.draw import draw
from antecede.check.schedule import carried
from antecede.protocols.base import Protocol
from printed_protocols.pc import ForgetsWhatItKept
from printed_protocols.vcube import ChildrenAsPrinted, NoFirstCondition


def smallest(kind: type[Protocol], bounds: Bounds) -> CounterExample:
    found = find_smallest(kind, bounds, 100_000)
    assert found is not None
    return found


def test_a_counter_example_states_that_a_message_never_arrives() -> None:
    found = smallest(ChildrenAsPrinted, Bounds(peers=2))
    assert carried(found) == ["p0:1 never arrived at p1.", "It depends immediately on nothing."]
    assert ">never delivers p0:1</text>" in draw(found)


def test_a_wrongly_held_message_is_shown_with_its_control_information() -> None:
    found = smallest(NoFirstCondition, Bounds(peers=4, messages=2, senders=(0, 3)))
    arrived, depends = carried(found)
    assert arrived == "p3:1 arrived at p0 twice, first with clock [1, 0, 0, 1]."
    assert depends == "It depends immediately on nothing."  # but p3's clock counts p0:1
    drawn = draw(found)
    assert ">holds p3:1, which it has delivered</text>" in drawn
    assert "ClockPacket" not in drawn


def test_the_missing_message_is_highlighted_on_every_hop() -> None:
    bounds = Bounds(messages=3, senders=(0,), link_changes=1, layout={"overlay": "line"})
    assert ' missing"' in draw(smallest(ForgetsWhatItKept, bounds))
