"""Which engine runs a scenario, what kernels support, and the reasons reported to users."""

from __future__ import annotations

import math

import pytest

from antecede.errors import InputError
from antecede.sim.engines import Engine, choose, precompile, simulate
from antecede.sim.kernels.contract import Unsupported
from antecede.sim.kernels.flat import event as flat_events
from antecede.sim.kernels.flat import recurrence as flat
from antecede.sim.kernels.flooding import event as flooding
from antecede.sim.kernels.hcg import event as hcg
from antecede.sim.kernels.pc import event as pc
from antecede.sim.scenario import Scenario, scenario


def test_the_pc_kernel_refuses_unsupported_scenarios() -> None:
    cases: tuple[tuple[dict[str, object], str], ...] = (
        (
            {"network": {"model": "relayed", "behind": 2, "delay": "1ms"}},
            "delays depend on what else is sent",
        ),
        ({"probes": ("costs", "queues")}, "probe queues is not compiled for pc"),
        (
            {"peers": 100_000, "churn": 1000, "silent": (*range(1, 100_000),)},
            "too many peers have to remember the pings of too many others",
        ),
        ({"peers": 20_000}, "too many peers have to remember too many senders"),
    )
    for fields, why in cases:
        assert pc.supports(scenario(protocol="pc", **fields)) == Unsupported(why)


def test_the_flat_event_kernel_refuses_unsupported_scenarios() -> None:
    routed = {"model": "routed"}
    cases: tuple[tuple[dict[str, object], str], ...] = (
        (
            {"network": {**routed, "bits_per_second": 1e12}},
            "fragments take no time, so they do not keep their order",
        ),
        ({"probes": ("costs", "named")}, "probe named is not compiled for mbcp"),
        ({"peers": 5001}, "there are more than 5,000 peers"),
    )
    for fields, why in cases:
        assert flat_events.supports(scenario(protocol="mbcp", **fields)) == Unsupported(why)


def test_the_hcg_kernel_refuses_unsupported_scenarios() -> None:
    network = {"model": "relayed", "behind": 2, "delay": "1ms"}
    cases: tuple[tuple[dict[str, object], str], ...] = (
        ({"network": network}, "delays depend on what else is sent"),
        ({"probes": ("costs", "queues")}, "probe queues is not compiled for hcg"),
        ({"peers": 301, "probes": ("named",)}, "probe named compares more than 300 peers"),
        (
            {"peers": 20_000, "layout": {"subgroups": ["rt:20000"]}},
            "its subgroups are too large, or too many",
        ),
    )
    for fields, why in cases:
        assert hcg.supports(scenario(protocol="hcg", **fields)) == Unsupported(why)


def test_compiled_engines_refuse_unsupported_routed_networks() -> None:
    routed = {"model": "routed"}
    cases: tuple[tuple[dict[str, object], str], ...] = (
        ({"network": routed, "peers": 5000}, "routes between so many nodes take too much memory"),
        (
            {"network": {**routed, "bits_per_second": 1e12}},
            "fragments take no time, so they do not keep their order",
        ),
        ({"network": routed, "probes": ("costs", "queues")}, "probe costs is not compiled for flooding"),
        (
            {"fifo": False, "probes": ("queues",)},
            "probe queues needs FIFO links: the kernel has no queue of messages that arrive out of order",
        ),
    )
    for fields, why in cases:
        assert flooding.supports(scenario(protocol="flooding", **fields)) == Unsupported(why)
    assert flooding.supports(scenario(protocol="flooding", network=routed, probes=("queues",))) is None


def test_the_fastest_engine_is_chosen_with_a_reason() -> None:
    small, large = (scenario(protocol="mbcp", peers=peers, seconds=2) for peers in (10, 300))
    assert choose(small, observed=False)[:2] == ("reference", "the run is short")
    assert choose(large, observed=False)[0] == "recurrence"
    assert choose(large, observed=True)[0] == "event"
    measured = scenario(protocol="mbcp", peers=300, seconds=2, probes=("named",))
    assert choose(measured, observed=False)[:2] == ("reference", "probe named is not compiled for mbcp")
    with pytest.raises(InputError, match="traces and observers need single events"):
        choose(large, observed=True, engine="recurrence")
    other = scenario(protocol="multigroup", peers=200, seconds=20)
    assert choose(other, observed=False)[:2] == ("reference", "multigroup has no compiled version")
    with pytest.raises(InputError, match="cannot run this scenario: multigroup has no compiled version"):
        simulate(other, engine="recurrence")


def test_kernels_for_a_sweep_are_compiled_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, str]] = []

    def record(example: Scenario, engine: Engine) -> None:
        compiled.append((example.protocol, engine))

    monkeypatch.setattr("antecede.sim.engines.simulate", record)
    large = [scenario(protocol=name, peers=500, seconds=2) for name in ("mbcp", "freescale", "multigroup")]
    short, tiny = (scenario(protocol="freescale", peers=peers) for peers in (50, 5))
    assert precompile([*large, scenario(protocol="flooding", peers=10), short, tiny]) == [
        True, True, True, False, True, False,
    ]  # fmt: skip
    assert compiled == [("mbcp", "recurrence"), ("freescale", "event")]
    assert choose(short, observed=False)[:2] == ("reference", "the run is short")
    assert choose(short, observed=False, long=True)[0] == "event"


def test_every_engine_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "_CHUNK", 100)
    monkeypatch.setattr("antecede.sim.engines.reference._EVENTS_PER_REPORT", 50)
    example = scenario(protocol="mbcp", peers=10, seconds=1)
    engines: tuple[Engine, ...] = ("reference", "recurrence")
    for engine in engines:
        reports: list[float] = []
        metrics = simulate(example, engine=engine, progress=reports.append).metrics
        assert len(reports) > 3
        assert reports == sorted(reports)
        assert math.isclose(reports[-1], 1.0, abs_tol=0.6)
        assert metrics == simulate(example).metrics
