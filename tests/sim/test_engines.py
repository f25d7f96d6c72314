"""Every engine gives what the reference gives."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as some

from antecede.compiled import splitmix64
from antecede.papers.paper_004 import runs as paper_004
from antecede.protocols import catalog
from antecede.protocols.pc import Pc
from antecede.sim import counter_rng
from antecede.sim.engines import Engine, simulate
from antecede.sim.kernels.runtime import counter_rng as compiled
from antecede.sim.network import parse_delay
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from antecede.units import SECOND
from event_log import EventLog

DELAYS = ("20ms", "0-1ms", "1-100ms", "normal:0-50ms", "wild:1us-1s", "0-20s", "gauss:10ms,9ms,1us")
FAULTS = ("spike:100-200ms:300ms", "duplicate:5%:50ms", "reorder:10%:200ms", "loss:1%")
FLAT = ("timestamp", "timestamp-diff", "mbcp", "depseq")
SIZES = (1, 2, 3, 5, 8, 13, 21)
words = some.integers(0, (1 << 64) - 1)


@for_all(words, some.integers(0, 1 << 40), some.integers(1, 1 << 62))
def test_compiled_random_values_are_the_same(bits: int, number: int, span: int) -> None:
    word = np.uint64(bits)
    assert int(splitmix64.mix(word)) == counter_rng.mix(bits)
    assert int(compiled.draw(word, number)) == counter_rng.draw(bits, number)
    assert int(compiled.between(word, number, number + span)) == counter_rng.between(
        bits, number, number + span
    )
    assert compiled.normal(word) == counter_rng.normal(bits)
    assert int(compiled.exponential(word, number)) == counter_rng.exponential(bits, number)
    key = counter_rng.key(bits, number)
    assert int(compiled.extended(np.uint64(key), span)) == counter_rng.key(bits, number, span)


@pytest.mark.parametrize("text", [*DELAYS, "wild:0-10ms", "gauss:1ms,2ms,1us", "0-100s"])
@for_all(words)
def test_compiled_delays_are_the_same_delays(text: str, bits: int) -> None:
    delay = parse_delay(text)
    assert int(compiled.delay_of(*compiled.model(delay), np.uint64(bits))) == delay.sample(bits)


def create(**fields: object) -> Scenario:
    """A scenario. What only direct links have is refused on other networks."""
    if fields.get("network") is not None:
        for name in ("delay", "fifo", "faults"):
            fields.pop(name, None)
    return scenario(**fields)


def any_scenario(source: random.Random, protocol: str, **others: object) -> Scenario:
    """A random run of a protocol that kernels support."""
    pick = source.choice
    peers = pick(SIZES)
    fields: dict[str, object] = {
        "protocol": protocol, "peers": peers, "seed": source.getrandbits(60),
        "seconds": pick((0.2, 0.7)), "rate": pick((1.0, 10.0, 60.0)), "burst": pick((None, 3)),
        "workload": pick(("periodic", "poisson", "drawn", "once", "rounds", "windows")),
        "jitter": pick((0.0, 0.5, 3.0)), "payload": pick((0, 100, 300, 70_000)),
        "interval": pick(("normal:70-90ms", "0-10ms")), "most_messages": pick((None, None, 7, 40)),
        "delay": pick(DELAYS), "silent": pick(((), (0,))),
    }  # fmt: skip
    example = create(**fields | others)
    return msgspec.structs.replace(example, senders=pick((None, None, 1 + example.peers // 3)))


def flat_scenario(source: random.Random) -> Scenario:
    """A random run that the recurrence supports."""
    pick = source.choice
    others: dict[str, object] = {
        "fifo": pick((None, True)),
        "probes": pick(((), ("costs",), ("costs", "immediate"))),
        "warmup": pick((0.0, 0.1)),
    }
    if source.random() < 0.3:
        others["network"] = {"model": "relayed", "behind": source.randrange(22), "delay": pick(DELAYS)}
    return any_scenario(source, pick(FLAT), **others)


def event_scenario(source: random.Random, protocol: str) -> Scenario:
    """Any run that an event kernel can do: with answers, with faults, in order or not, in any layout."""
    most, peers = source.choice((None, 7, 40)), source.choice(SIZES)
    others: dict[str, object] = {
        "most_messages": most,
        "peers": peers,
        "fifo": source.choice((None, True, False)),
        "faults": tuple(fault for fault in FAULTS if source.random() < 0.15),
        "reply": source.choice((0.0, 0.3)) if most else 0.0,
    }
    if protocol == "flooding" and not others["faults"] and others["fifo"] is not False:
        others["probes"] = source.choice(((), ("queues",)))
    if protocol in FLAT:
        pick = source.choice
        relayed = {"model": "relayed", "behind": source.randrange(22), "delay": pick(DELAYS)}
        others["network"] = pick((None, None, None, relayed, {"model": "nodes", "transmission": "1ms"}))
        others["count"] = pick(("wire", "paper"))
        others["probes"] = pick(((), ("costs",), ("immediate",), ("queues",), ("costs", "immediate")))
        others["warmup"] = pick((0.0, 0.1))
    layout = catalog.find_protocol(protocol).layout
    if layout is not None:
        others["layout"] = msgspec.to_builtins(layout.random(peers, source.randrange))
        others["local_delay"] = source.choice((None, "wild:1us-10ms", "0-2ms", "0us"))
        others["skew"] = source.choice((None, "1ms", "50ms"))
        named = () if protocol in ("freescale", "pc") else ("named",)
        others["probes"] = source.choice(((), named, ("costs",)))
        if protocol == "freescale":
            others["faults"] = FAULTS[:1]
        others["warmup"] = source.choice((0.0, 0.1))
    if catalog.find_protocol(protocol).dynamic_links:
        others["churn"] = source.choice((None, 5.0, 50.0, 500.0))
    return any_scenario(source, protocol, **others)


def paper_scenario(source: random.Random, protocol: str) -> Scenario:
    """Any run as paper 004 measures it: nodes with queues or plain links, and a probe that sees packets."""
    pick = source.choice
    nodes = {
        "model": "nodes", "propagation": pick((*DELAYS, "gauss:100ms,25ms,1ms")), "mtu": pick((60, 1500)),
        "queue": pick(("sends", "node", "messages")), "drawn": pick(("copy", "message", "link")),
        "transmission": pick(("0s", "1us", "1ms", "70ms")), "processing": pick(("0s", "1ms")),
    }  # fmt: skip
    others: dict[str, object] = {
        "network": pick((None, nodes, nodes)),
        "count": pick(("wire", "paper")),
        "probes": pick(((), ("bundles",), ("bundles",))),
        "warmup": pick((0.0, 0.1)),
        "payload": pick((0, 50, 200, 1600)),
    }
    usual = msgspec.to_builtins(event_scenario(source, protocol))
    others["workload"] = pick((usual["workload"], "starts"))
    return create(**{**usual, **others})


def routed_scenario(source: random.Random, protocol: str) -> Scenario:
    """Any run as paper 002 measures it: on routes with queues, in fragments, down trees or not."""
    pick = source.choice
    header, room = pick((1, 32, 40)), pick((9, 60, 1468))
    network = {
        "model": "routed", "edge": pick((None, 0.0, 0.1, 0.4, 1.0)), "delay": pick(("0s", *DELAYS)),
        "bits_per_second": pick((1e4, 1e6, 10e6, 8e9)), "mtu": header + room, "header": header,
        "multicast": pick((False, True)),
    }  # fmt: skip
    others: dict[str, object] = {
        "network": network,
        "count": pick(("wire", "paper")),
        "probes": pick(((), ("queues",), ("queues",))),
        "warmup": pick((0.0, 0.1)),
        "payload": pick((0, 1, 3 * room)) if room < 1000 else pick((0, 200, 1600)),
    }
    usual = msgspec.to_builtins(event_scenario(source, protocol))
    return create(**{**usual, **others, "senders": pick((None, 1, (usual["peers"] + 1) // 2))})


@for_all(some.integers(0, 1 << 60))
def test_the_recurrence_engine_equals_the_reference(seed: int) -> None:
    example = flat_scenario(random.Random(seed))
    assert simulate(example, engine="recurrence").metrics == simulate(example, engine="reference").metrics


@pytest.mark.parametrize(
    "protocol", ["flooding", "pc", "freescale", "hcg", "basic", "vcube", "vcube-agg", *FLAT]
)
@for_all(some.integers(0, 1 << 60))
def test_the_event_kernels_equal_the_reference(protocol: str, seed: int) -> None:
    example = event_scenario(random.Random(seed), protocol)
    here, there = EventLog(), EventLog()
    assert simulate(example, [here], "event").metrics == simulate(example, [there], "reference").metrics
    assert here.events == there.events


@pytest.mark.parametrize("protocol", ["vcube", "vcube-agg", paper_004.AGG, paper_004.SINGLE])
@for_all(some.integers(0, 1 << 60))
def test_the_event_kernels_measure_paper_004_as_the_reference_does(protocol: str, seed: int) -> None:
    example = paper_scenario(random.Random(seed), protocol)
    here, there = EventLog(), EventLog()
    assert simulate(example, [here], "event").metrics == simulate(example, [there], "reference").metrics
    assert here.events == there.events


@pytest.mark.parametrize("receives", [True, False])
@pytest.mark.parametrize("sample", [1, 3])
def test_every_engine_leaves_the_same_trace(tmp_path: Path, receives: bool, sample: int) -> None:
    example = scenario(protocol="flooding", peers=21, seconds=1, rate=200)
    engines: tuple[Engine, ...] = ("reference", "event")
    for engine in engines:
        simulate_to(tmp_path / engine, example, engine=engine, receives=receives, sample=sample)
    here, there = (
        sorted(file for file in (tmp_path / engine).rglob("*") if file.is_file()) for engine in engines
    )
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]
    table = pq.read_table(tmp_path / "event" / "part-00000.parquet")
    assert set(table.column("seq").to_numpy() % sample) == {1 % sample}
    assert set(table.column("kind").to_pylist()) == {"send", "deliver"} | ({"receive"} if receives else set())


@for_all(
    some.integers(0, 1 << 60), some.sampled_from((0, 1, 5)), some.integers(1, 5), some.sampled_from((1, 2, 5))
)
def test_pc_restarts_buffers_repeats_pings_and_forgets_old_ones(
    seed: int, buffered: int, patience: int, pings: int
) -> None:
    """As above, with bounds low enough for these short runs to reach."""
    source = random.Random(seed)
    example = msgspec.structs.replace(event_scenario(source, "pc"), churn=source.choice((50.0, 200.0)))
    here, there = EventLog(), EventLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pc, "max_buffered", buffered)
        patch.setattr(Pc, "pong_timeout", patience * SECOND)
        patch.setattr(Pc, "max_recent_pings", pings)
        assert simulate(example, [here], "event").metrics == simulate(example, [there], "reference").metrics
    assert here.events == there.events


@pytest.mark.parametrize("protocol", ["flooding", *FLAT])
@for_all(some.integers(0, 1 << 60))
def test_the_event_kernels_measure_paper_002_as_the_reference_does(protocol: str, seed: int) -> None:
    example = routed_scenario(random.Random(seed), protocol)
    here, there = EventLog(), EventLog()
    assert simulate(example, [here], "event").metrics == simulate(example, [there], "reference").metrics
    assert here.events == there.events


def test_packets_lost_with_a_closed_link_do_not_lengthen_a_run() -> None:
    """With these seeds the last of all copies under way is on a link that closes."""
    for seed in (9, 42):
        example = scenario(
            protocol="pc", peers=3, seed=seed, seconds=1, workload="once", silent=(1, 2), churn=20,
            delay="wild:10ms-100s", most_messages=1, layout={"overlay": "line"},
        )  # fmt: skip
        assert simulate(example, engine="event").metrics == simulate(example, engine="reference").metrics


@pytest.mark.parametrize("protocol", ["hcg", "basic"])
def test_a_gateway_that_forgets_old_messages_matches_the_reference(protocol: str) -> None:
    """A gateway remembers a thousand messages of each sender; here one forwards more."""
    example = scenario(
        protocol=protocol, peers=5, seconds=1.2, rate=500, delay="0-30ms", local_delay="0-5ms",
        layout={"subgroups": ["vt:3", "vt:2"]}, probes=("costs", "named"),
    )  # fmt: skip
    found = simulate(example, engine="event").metrics
    assert found == simulate(example, engine="reference").metrics
    assert found.messages > 2500


@pytest.mark.parametrize("protocol", FLAT)
def test_flat_protocols_match_with_many_peers_and_many_messages_in_flight(protocol: str) -> None:
    """More peers than are compared at once, and more messages of a sender than its ring has room for."""
    many = {"peers": 70, "most_messages": 150, "reply": 0.02, "delay": "wild:1us-1s"}
    burst = {"peers": 4, "workload": "rounds", "senders": 2, "burst": 50, "delay": "0-1s", "fifo": True}
    for fields in (many, burst):
        example = scenario(protocol=protocol, seconds=0.3, **fields)
        here, there = EventLog(), EventLog()
        assert simulate(example, [here], "event").metrics == simulate(example, [there], "reference").metrics
        assert here.events == there.events


def test_messages_delivered_while_silent_are_causes_of_a_later_send() -> None:
    """Far more messages than table rows are delivered before the silent peer sends."""
    for protocol in ("mbcp", "timestamp-diff"):
        example = scenario(
            protocol=protocol, peers=9, seconds=4, delay="0-5ms", workload="drawn", interval="wild:1ms-3s"
        )
        assert simulate(example, engine="recurrence").metrics == simulate(example, engine="reference").metrics


def test_times_beyond_32_bits_match_the_reference() -> None:
    example = scenario(protocol="mbcp", peers=6, seconds=3, delay="1-9s")
    found = simulate(example, engine="recurrence").metrics
    assert found == simulate(example, engine="reference").metrics
    assert found.latency_max_ns > 1 << 32
