"""Changing groups on the event engine match the reference event for event."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.sim.engines import Engine, choose, reference, simulate
from antecede.sim.kernels.changing import event
from antecede.sim.kernels.changing.state import Capacities
from antecede.sim.kernels.contract import ObserverFeed
from antecede.sim.metrics import Metrics
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from event_log import EventLog

PROTOCOLS = ("mbcp", "vcube", "pc", "timestamp-diff")
DETECTORS = (
    None,
    "none",
    "adaptive,remove=never",
    "adaptive,report=50ms,remove=500ms",
    "adaptive,report=200ms",
)


class ChangeLog(EventLog):
    """All events, including view changes."""

    def change(self, process: int, kind: str, member: int, message: MessageId, time: int) -> None:
        self.events.append(("change", process, kind, member, message, time))


def any_changes(source: random.Random, peers: int, seconds: float) -> dict[str, tuple[str, ...]]:
    """Any changes and faults, at least one of them."""

    def time() -> float:
        return round(source.uniform(0.05, seconds), 3)

    def peer() -> int:
        return source.randrange(peers)

    def span() -> str:
        first, last = sorted((time(), time()))
        return f"{first}-{round(last + 0.002, 3)}s"

    def part() -> str:
        return ",".join(map(str, source.sample(range(peers), source.randint(1, max(1, peers // 2)))))

    rates = (0.3, 1, 2)
    churn = (
        lambda: f"join:{time()}s",
        lambda: f"leave:{time()}s:{peer()}",
        lambda: f"remove:{time()}s:{peer()}",
        lambda: f"poisson:{source.choice(rates)}",
        lambda: f"poisson:{source.choice(rates)}:{source.choice((10, 30, 60))}%",
    )
    faults = (
        lambda: f"crash:{time()}s:{peer()}",
        lambda: f"crash:{span()}:{peer()}",
        lambda: f"suspect:{span()}:{peer()}",
        lambda: f"partition:{span()}:{part()}",
    )
    found = {
        "churn": tuple(source.choice(churn)() for _ in range(source.randrange(4))),
        "faults": tuple(source.choice(faults)() for _ in range(source.randrange(3))),
    }
    return found if any(found.values()) else {**found, "churn": (churn[0](),)}


def any_scenario(seed: int, protocol: str) -> Scenario:
    """A random changing-group run that the kernel supports."""
    source = random.Random(seed)
    pick = source.choice
    peers, seconds = pick((2, 3, 4, 5, 6, 8, 9, 12)), pick((1.0, 2.0, 4.0))
    return scenario(
        protocol=protocol, peers=peers, seconds=seconds, seed=seed, rate=pick((1.0, 5.0, 20.0, 60.0)),
        workload=pick(("periodic", "poisson", "drawn", "once", "rounds", "windows")),
        interval="normal:70-90ms", burst=pick((None, 3)), payload=pick((0, 10, 300)),
        most_messages=pick((None, None, 40)), silent=pick(((), (0,))), count=pick(("wire", "paper")),
        senders=pick((None, None, 1 + peers // 3)), skew=pick((None, "1ms")),
        delay=pick(("5ms", "1-50ms", "wild:1us-100ms", "normal:0-50ms", "exp:20ms", "0-1s")),
        detector=pick(DETECTORS), **any_changes(source, peers, seconds),
    )  # fmt: skip


def run_on_reference(given: Scenario) -> tuple[Metrics, list[tuple[object, ...]]]:
    log = ChangeLog()
    return reference.run(given, ObserverFeed([log]), None), log.events


def run_compiled(given: Scenario) -> tuple[Metrics, list[tuple[object, ...]], int]:
    log = ChangeLog()
    run = event.Alternation(given, ObserverFeed([log]), None)
    return run.run(), log.events, run.calm_events


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(8))
def test_the_event_engine_reproduces_changing_groups_of_the_reference(protocol: str, seed: int) -> None:
    given = any_scenario(seed, protocol)
    metrics, events = run_on_reference(given)
    compiled, shown, _ = run_compiled(given)
    assert shown == events
    assert compiled == metrics


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_most_events_of_a_rarely_changing_group_run_in_the_kernel(protocol: str) -> None:
    given = scenario(protocol=protocol, peers=16, seconds=6, delay="1-20ms", churn=("join:2s",))
    metrics, events = run_on_reference(given)
    compiled, shown, calm = run_compiled(given)
    assert (shown, compiled) == (events, metrics)
    assert calm > metrics.packets / 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_kernel_out_of_capacity_alternates_with_the_reference(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Capacities(messages=60, causes=400, reports=300, entries=500, arrivals=500)
    monkeypatch.setattr(event, "CAPACITIES", small)
    monkeypatch.setattr(event, "_ROWS", (1 << 16) + 100)
    given = scenario(protocol=protocol, peers=5, seconds=3, rate=20, delay="1-50ms", churn=("leave:2s:1",))
    metrics, events = run_on_reference(given)
    compiled, shown, calm = run_compiled(given)
    assert (shown, compiled) == (events, metrics)
    assert calm > 0


def test_every_engine_leaves_the_same_trace_of_changes(tmp_path: Path) -> None:
    given = scenario(
        protocol="mbcp", peers=6, seconds=3, churn=("join:1s", "leave:2s:1"), faults=("crash:1.5s:3",)
    )
    engines: tuple[Engine, ...] = ("reference", "event")
    for engine in engines:
        simulate_to(tmp_path / engine, given, engine=engine)
    here, there = (
        sorted(file for file in (tmp_path / engine).rglob("*") if file.is_file()) for engine in engines
    )
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]
    kinds = pq.read_table(tmp_path / "event" / "part-00000.parquet").column("kind").to_pylist()
    assert {"admit", "leave", "remove"} < set(kinds)


def test_long_runs_of_changing_groups_use_the_compiled_engine() -> None:
    given = scenario(protocol="mbcp", peers=100, seconds=60, churn=("poisson:0.1",))
    assert choose(given, observed=True).engine == "event"
    short = scenario(protocol="mbcp", peers=5, seconds=1, churn=("join:0.5s",))
    assert choose(short, observed=True)[:2] == ("reference", "the run is short")
    assert simulate(short, engine="event").metrics == simulate(short, engine="reference").metrics


REFUSED: tuple[tuple[dict[str, object], str], ...] = (
    ({"protocol": "depseq"}, "its group changes, and depseq is compiled for fixed groups only"),
    ({"reply": 0.001}, "its group changes, and members answer messages"),
    ({"probes": ("costs",)}, "its group changes, and probes look at its members"),
    ({"faults": ("spike:1-2s:300ms",)}, "its group changes, and its packets are delayed by a fault"),
    ({"peers": 600}, "its group changes, and has more than 500 members"),
)


@pytest.mark.parametrize(("fields", "why"), REFUSED)
def test_unsupported_scenarios_fall_back_or_are_refused_with_the_reason(
    fields: dict[str, object], why: str
) -> None:
    given = scenario(**{"protocol": "mbcp", "detector": "adaptive", "peers": 200, "seconds": 100} | fields)
    assert choose(given, observed=False)[:2] == ("reference", why)
    with pytest.raises(InputError, match=why):
        choose(given, observed=False, engine="event")


def test_fixed_groups_with_crashes_run_on_the_reference() -> None:
    given = scenario(protocol="flooding", peers=200, seconds=100, faults=("crash:1s:3",))
    assert choose(given, observed=False)[:2] == (
        "reference",
        "its processes crash, and flooding is compiled for those that do not",
    )
