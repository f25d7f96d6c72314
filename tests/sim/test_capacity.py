"""Kernels that run out of capacity: the reference takes over, and observers see every event once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError
from antecede.sim import engines
from antecede.sim.engines import simulate
from antecede.sim.kernels.contract import ObserverFeed
from antecede.sim.kernels.flooding import event as flooding
from antecede.sim.kernels.freescale import event as freescale
from antecede.sim.kernels.hcg import event as hcg
from antecede.sim.kernels.runtime import routed, world
from antecede.sim.kernels.vcube import state as vcube
from antecede.sim.scenario import scenario
from event_log import EventLog


@pytest.fixture(autouse=True)
def every_run_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled engines run even short scenarios, and show their events often."""
    monkeypatch.setattr(engines, "_SHORT", dict.fromkeys(engines._SHORT, 0))
    monkeypatch.setattr(world, "_EVENTS_PER_CALL", 20)


SLOW = {"model": "routed", "bits_per_second": 1e4}
SMALL: tuple[tuple[str, dict[str, object], object, str, int], ...] = (
    ("vcube", {"peers": 4, "rate": 50}, vcube, "_MAX_MESSAGES", 20),
    ("vcube-agg", {"peers": 4, "rate": 50}, vcube, "_MAX_MESSAGES", 20),
    ("hcg", {"peers": 4, "rate": 50, "delay": "0-2s"}, hcg, "_MAX_PACKETS", 60),
    ("flooding", {"peers": 4, "rate": 50, "network": SLOW}, routed, "_MAX_FRAGMENTS", 50),
)


@pytest.mark.parametrize(("protocol", "fields", "module", "limit", "value"), SMALL)
def test_the_reference_takes_over_a_full_kernel_and_events_are_observed_once(
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    fields: dict[str, object],
    module: object,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(module, limit, value)
    given = scenario(protocol=protocol, **fields)
    shown: list[int] = []
    start_over = ObserverFeed.start_over

    def count(feed: Any) -> None:
        shown.append(feed._shown)
        start_over(feed)

    monkeypatch.setattr(ObserverFeed, "start_over", count)
    here, there = EventLog(), EventLog()
    result = simulate(given, [here])
    assert (result.engine, result.reason) == (
        "reference",
        "more is in flight than the event engine has capacity for",
    )
    assert shown[-1] > 0, "the kernel had shown some events before it gave up"
    assert result.metrics == simulate(given, [there], "reference").metrics
    assert here.events == there.events
    with pytest.raises(InputError, match="the event engine has capacity for; use reference or auto"):
        simulate(given, engine="event")


def test_the_command_falls_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command once chose the engine itself and then asked for it, so that nothing could stand in."""
    monkeypatch.setattr(vcube, "_MAX_MESSAGES", 20)
    words = ["simulate", "--protocol", "vcube", "--peers", "2", "--rate", "100", "--delay", "1ms"]
    done = CliRunner().invoke(app, [*words, "--metrics-only", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["engine"] == "reference"


RESTARTED: tuple[tuple[str, Any, dict[str, object]], ...] = (
    ("freescale", freescale, {"peers": 5, "rate": 400, "delay": "wild:1us-1s", "seconds": 1}),
    ("flooding", flooding, {"peers": 5, "rate": 400, "delay": "wild:1us-1s", "fifo": False}),
)


@pytest.mark.parametrize(("protocol", "module", "fields"), RESTARTED)
def test_a_run_that_starts_over_with_more_memory_shows_every_event_once(
    monkeypatch: pytest.MonkeyPatch, protocol: str, module: Any, fields: dict[str, object]
) -> None:
    monkeypatch.setattr(freescale, "_BITS_PER_MESSAGE", 0)
    given = scenario(protocol=protocol, **fields)
    attempts = 0
    attempt = module._attempt

    def count(*arguments: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return attempt(*arguments)

    monkeypatch.setattr(module, "_attempt", count)
    here, there = EventLog(), EventLog()
    assert simulate(given, [here], "event").metrics == simulate(given, [there], "reference").metrics
    assert here.events == there.events
    assert attempts > 1


def test_observers_do_not_make_a_kernel_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    attempt = freescale._attempt

    def count(*arguments: Any) -> Any:
        nonlocal runs
        runs += 1
        return attempt(*arguments)

    monkeypatch.setattr(freescale, "_attempt", count)
    simulate(scenario(protocol="freescale", peers=5), [EventLog()], "event")
    assert runs == 1
