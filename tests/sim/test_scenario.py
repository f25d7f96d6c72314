"""Scenarios: what is refused, and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from antecede.errors import InputError
from antecede.sim.engines import simulate
from antecede.sim.network import NodesModel, RoutedModel
from antecede.sim.scenario import Scenario, scenario


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"peers": 0}, "peers"),
        ({"peers": 2.5}, "peers"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"rate": 0}, "rate"),
        ({"seed": -1}, "seed"),
        ({"reply": 2}, "reply"),
        ({"reply": 0.2}, "most_messages"),
        ({"rate": 1e-300}, "rate"),
        ({"delay": "9" * 400 + "s"}, "too long"),
        ({"delay": "-5ms"}, "'-5ms'"),
        ({"payload": -1}, "payload"),
        ({"workload": "bursty"}, "workload"),
        ({"colour": "red"}, "colour"),
        ({"delay": "soon"}, "soon"),
        ({"faults": ["plague"]}, "plague"),
        ({"protocol": "gossip"}, "gossip"),
    ],
)
def test_an_invalid_scenario_is_refused_with_the_field(fields: dict[str, object], names: str) -> None:
    with pytest.raises(InputError, match=names):
        scenario(**{"protocol": "mbcp", **fields})


@pytest.mark.parametrize("network", ["routed", "nodes", "relayed,behind=1,delay=1ms"])
@pytest.mark.parametrize("fault", ["loss:1%", "duplicate:1%:50ms", "reorder:10%:200ms", "spike:1-2s:300ms"])
def test_faults_of_packets_are_refused_where_they_would_have_no_effect(network: str, fault: str) -> None:
    with pytest.raises(InputError, match=f"faults: {fault} is for direct links"):
        scenario(protocol="mbcp", peers=3, network=network, faults=[fault])
    for fifo in (True, False):
        with pytest.raises(InputError, match="fifo is for direct links"):
            scenario(protocol="mbcp", peers=3, network=network, fifo=fifo)
    assert scenario(protocol="mbcp", peers=3, network=network, faults=["crash:1s:2"]).faults


def test_a_scenario_without_a_protocol_says_what_to_write() -> None:
    with pytest.raises(InputError, match='protocol is missing; write protocol = "mbcp"'):
        scenario(peers=3)


def test_seconds_may_have_a_unit() -> None:
    assert scenario(protocol="mbcp", seconds="2s") == scenario(protocol="mbcp", seconds=2)
    with pytest.raises(InputError, match="seconds: 'soon' is not a duration"):
        scenario(protocol="mbcp", seconds="soon")


def test_a_failure_after_the_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"crash:10s:3 comes after the 2 s .* set seconds to more than 10"):
        scenario(protocol="mbcp", faults=["crash:10s:3"])


def test_different_scenarios_have_different_keys() -> None:
    base = Scenario(protocol="mbcp")
    other = msgspec.structs.replace(base, delay="1-101ms")
    assert base.key() != other.key()
    assert base.key() == Scenario(protocol="mbcp").key() == Scenario(protocol="mbcp", seconds=2).key()
    assert base.key().startswith("mbcp-10-")


def test_changing_a_user_protocol_changes_the_scenario_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "own_protocol.py"
    module.write_text("from antecede.protocols.mbcp import Mbcp\nclass Own(Mbcp): name = 'own'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    setting = scenario(protocol="own_protocol:Own")
    before = setting.key()
    module.write_text(module.read_text() + "# changed\n")
    assert setting.key() != before


def test_a_scenario_can_choose_its_network() -> None:
    setting = scenario(
        protocol="timestamp", peers=20, seconds=0.01, workload="rounds", rate=1000, senders=4, burst=2,
        payload=0, count="paper", network={"model": "routed", "multicast": True},
    )  # fmt: skip
    assert isinstance(setting.network, RoutedModel)
    metrics = simulate(setting).metrics
    assert (metrics.messages, metrics.deliveries, metrics.stuck) == (80, 80 * 19, 0)
    assert metrics.measured["fragments"] == 80 * 19
    assert metrics.measured["sent_bytes"] == 80 * 19 * (32 + 4 * 20)
    vcube = scenario(protocol="vcube", peers=16, seconds=0.5, workload="once", network={"model": "nodes"})
    assert vcube.network == NodesModel()
    assert simulate(vcube).metrics.measured["packets"] == 16 * 15
    assert msgspec.convert(msgspec.to_builtins(setting), type(setting)) == setting


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ({"model": "paper"}, "paper"),
        ({"model": "routed", "mtu": 10}, "header"),
        ({"model": "routed", "edge": 2.0}, "edge"),
        ({"model": "routed", "delay": "soon"}, "soon"),
        ({"model": "nodes", "processing": "1"}, "duration"),
        ({"model": "nodes", "size": 3}, "size"),
    ],
)
def test_an_invalid_network_is_refused(network: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        scenario(protocol="mbcp", network=network)
