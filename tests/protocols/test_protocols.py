"""Every protocol on random executions, judged by the oracle: exactly once, in causal order, none stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import Judgement, MessageId, judge
from antecede.causality.vector_clock import happened_before
from antecede.protocols import catalog
from antecede.protocols.base import Packet, Protocol
from antecede.protocols.flat import ClockPacket, DependencyPacket
from antecede.sim import counter_rng
from antecede.sim.engines import simulate
from antecede.sim.scenario import Scenario
from antecede.sim.verify import Histories
from antecede.sim.world import World
from smallest_run import smallest_run

protocols = pytest.mark.parametrize("protocol", list(catalog.PROTOCOLS))

scenarios = st.builds(
    Scenario,
    protocol=st.just("mbcp"),
    peers=st.integers(1, 6),
    seconds=st.sampled_from([0.2, 0.5]),
    seed=st.integers(0, 2**64 - 1),
    workload=st.sampled_from(["periodic", "poisson"]),
    rate=st.sampled_from([2.0, 10.0, 40.0]),
    jitter=st.sampled_from([0.0, 3.0]),
    reply=st.sampled_from([0.0, 0.3]),
    delay=st.sampled_from(["wild:1us-1s", "0-300ms", "5ms", "0"]),
    fifo=st.booleans(),
    faults=st.sets(st.sampled_from(["duplicate:30%:500ms", "reorder:30%:900ms", "spike:50-200ms:600ms"])).map(
        lambda faults: tuple(sorted(faults))
    ),
    payload=st.just(4),
    most_messages=st.just(40),
)


def arranged(scenario: Scenario, protocol: str) -> Scenario:
    """The scenario for a protocol: links provide what it requires, and no more."""
    make = catalog.find_protocol(protocol)
    kinds = ("spike",) if make.links.fifo else ("spike", "reorder", "duplicate")
    if make.links.bounded_delays:
        kinds = ("duplicate",)
    layout = make.layout and make.layout.random(scenario.peers, counter_rng.RandomStream(scenario.seed).below)
    return msgspec.structs.replace(
        scenario,
        protocol=protocol,
        fifo=scenario.fifo or make.links.fifo,
        faults=tuple(fault for fault in scenario.faults if fault.startswith(kinds)),
        layout=msgspec.to_builtins(layout),
        skew="20ms" if make.links.bounded_delays else None,
        churn=scenario.rate * 3 if make.dynamic_links else None,
    )


def world(scenario: Scenario, protocol: str) -> tuple[World, Histories, list[Protocol]]:
    scenario = arranged(scenario, protocol)
    members = scenario.members()
    histories = Histories(scenario)
    return scenario.world(members, [histories]), histories, members


def judged(histories: Histories) -> Judgement:
    return judge(histories.execution())


@protocols
@given(scenario=scenarios)
def test_every_protocol_delivers_exactly_once_in_causal_order_with_none_stuck(
    protocol: str, scenario: Scenario
) -> None:
    made, histories, members = world(scenario, protocol)
    made.run()
    assert judged(histories).verdict.clean, smallest_run(arranged(scenario, protocol))
    held = [member.waiting() for member in members if member.waiting()]
    assert held == [], smallest_run(arranged(scenario, protocol))


def test_a_property_that_fails_shows_the_smallest_run() -> None:
    failing = Scenario("mbcp", 6, 0.5, seed=1, rate=40.0, delay="wild:1us-1s", most_messages=40)
    properties: Any = test_every_protocol_delivers_exactly_once_in_causal_order_with_none_stuck
    with pytest.raises(AssertionError, match="fails with 3 messages at 3 processes") as raised:
        properties.hypothesis.inner_test("broken_protocols:MbcpThatForgets", failing)
    assert "p2:1 arrived at p1 with causes {p1:1}." in str(raised.value)


@protocols
@given(scenario=scenarios)
def test_a_held_message_names_a_cause_that_is_not_delivered_yet(protocol: str, scenario: Scenario) -> None:
    made, histories, members = world(scenario, protocol)
    seen: list[tuple[int, MessageId, MessageId, set[MessageId]]] = []
    while made.step():
        for peer, member in enumerate(members):
            had = {step.message for step in histories.steps[peer]}
            seen += [(peer, wait.message, wait.cause, had) for wait in member.waiting() if wait.cause]
    order = judged(histories).order
    for _, message, cause, had in seen:
        assert order.happened_before(cause, message)
        assert cause not in had
        assert message not in had


@protocols
@given(scenario=scenarios, every=st.integers(1, 7))
def test_saving_and_restoring_in_mid_run_changes_nothing(
    protocol: str, scenario: Scenario, every: int
) -> None:
    plain, undisturbed, _ = world(scenario, protocol)
    plain.run()
    made, histories, members = world(scenario, protocol)
    steps = 0
    while made.step():
        steps += 1
        if steps % every == 0:
            peer = steps % scenario.peers
            members[peer] = type(members[peer]).restore(members[peer].save())
    assert histories.steps == undisturbed.steps


def packets_of(scenario: Scenario, protocol: str) -> tuple[dict[MessageId, Packet], Judgement]:
    """A run, with the packet that carried each message."""
    made, histories, _ = world(scenario, protocol)
    packets: dict[MessageId, Packet] = {}

    def watched(source: int, to: Sequence[int], packet: Packet) -> None:
        packets[packet.message_ids()[0]] = packet
        World.transmit(made, source, to, packet)

    made.transmit = watched  # type: ignore[method-assign]
    made.run()
    return packets, judged(histories)


@given(scenario=scenarios)
def test_mbcp_names_exactly_the_immediate_dependencies(scenario: Scenario) -> None:
    """Without the sender's own previous message, which sender order implies."""
    packets, judgement = packets_of(scenario, "mbcp")
    for message, packet in packets.items():
        assert isinstance(packet, DependencyPacket)
        immediate = set(judgement.order.immediate_dependencies(message)) - {
            MessageId(message.origin, message.seq - 1)
        }
        assert {MessageId(peer, seq) for peer, seq in packet.causes.items()} == immediate


@given(scenario=scenarios)
def test_vector_clocks_are_happened_before(scenario: Scenario) -> None:
    packets, judgement = packets_of(scenario, "timestamp")
    clocks = {message: packet.clock for message, packet in packets.items() if isinstance(packet, ClockPacket)}
    for one in clocks:
        for other in clocks:
            before = judgement.order.happened_before(one, other)
            assert happened_before(clocks[one], clocks[other]) is before


class Times:
    """When each process delivered each message."""

    def __init__(self) -> None:
        self.delivered: set[tuple[int, MessageId, int]] = set()

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        pass

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        pass

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self.delivered.add((process, message, time))


@given(scenario=scenarios)
def test_all_flat_protocols_deliver_at_the_same_moments(scenario: Scenario) -> None:
    """They encode the same order in different ways: the bytes differ, not the waiting."""
    runs = []
    for protocol in ("timestamp", "timestamp-diff", "mbcp", "depseq"):
        times = Times()
        simulate(msgspec.structs.replace(scenario, protocol=protocol, reply=0.0), [times])
        runs.append(times.delivered)
    assert all(run == runs[0] for run in runs)
