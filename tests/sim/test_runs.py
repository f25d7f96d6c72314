"""Runs: the same seed gives the same trace, byte for byte, and metrics are what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.sim.engines import simulate
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from antecede.sweep.grid import expand, read_grid


def digest(folder: Path) -> dict[str, str]:
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("protocol", ["timestamp", "timestamp-diff", "mbcp"])
def test_same_scenario_same_bytes_whatever_the_hash_seed(tmp_path: Path, protocol: str) -> None:
    given = scenario(protocol=protocol, peers=6, seconds=1, reply=0.05, faults=("duplicate:5%:50ms",))
    script = (
        "import sys; from antecede.sim.record import simulate_to; from antecede.sim.scenario import scenario;"
        f"simulate_to(sys.argv[1], scenario(protocol={protocol!r}, peers=6, seconds=1, reply=0.05,"
        " faults=('duplicate:5%:50ms',)))"
    )
    simulate_to(tmp_path / "here", given)
    for hash_seed in ("0", "12345"):
        there = tmp_path / hash_seed
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(there)], check=True, env=environment)
        assert digest(there) == digest(tmp_path / "here")


def test_a_known_run_never_changes() -> None:
    """Replaying an old seed must give the old run; if this fails, seeds have lost their meaning."""
    metrics = simulate(scenario(protocol="mbcp", peers=5, seconds=1, seed=42, delay="normal:0-50ms")).metrics
    total = round(metrics.latency_mean_ns * metrics.deliveries)
    seen = (metrics.messages, metrics.deliveries, metrics.held, total, metrics.simulated_ns)
    assert seen == (49, 196, 6, 4973780464, 1044143017)


def test_another_seed_is_another_run() -> None:
    runs = [simulate(scenario(protocol="mbcp", peers=4, seed=seed)).metrics for seed in (1, 2)]
    assert runs[0] != runs[1]


def test_the_trace_may_be_written_again_but_nothing_else_is_overwritten(tmp_path: Path) -> None:
    given = scenario(protocol="mbcp", peers=2, seconds=0.3)
    simulate_to(tmp_path / "trace", given)
    before = digest(tmp_path / "trace")
    simulate_to(tmp_path / "trace", given)
    assert digest(tmp_path / "trace") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="something else in it"):
        simulate_to(tmp_path / "mine", given)


class Watch:
    """Latencies and waits, computed from the events alone."""

    def __init__(self) -> None:
        self.sent: dict[MessageId, int] = {}
        self.arrived: dict[tuple[int, MessageId], int] = {}
        self.latencies: list[int] = []
        self.waits: list[int] = []

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self.sent[message] = time

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self.arrived.setdefault((process, message), time)

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self.latencies.append(time - self.sent[message])
        self.waits.append(time - self.arrived[process, message])


def test_metrics_are_what_the_events_say() -> None:
    watch = Watch()
    given = scenario(protocol="mbcp", peers=6, reply=0.05, faults=("duplicate:20%:300ms",))
    metrics = simulate(given, [watch]).metrics
    held = [wait for wait in watch.waits if wait]
    assert metrics.messages == len(watch.sent)
    assert metrics.deliveries == len(watch.latencies) == 5 * metrics.messages
    assert metrics.latency_mean_ns == sum(watch.latencies) / len(watch.latencies)
    assert metrics.latency_max_ns == max(watch.latencies)
    assert metrics.held == len(held)
    assert metrics.hold_mean_ns == pytest.approx(sum(held) / len(held))
    assert metrics.stuck == 0
    assert metrics.packets == metrics.deliveries
    assert metrics.link_bytes == pytest.approx(metrics.control_bytes_mean * metrics.messages * 5)


def test_loss_leaves_messages_stuck_and_the_run_ends() -> None:
    metrics = simulate(scenario(protocol="mbcp", peers=5, faults=("loss:10%",))).metrics
    assert metrics.stuck > 0
    assert metrics.deliveries < 4 * metrics.messages


def test_sending_stops_at_the_limit() -> None:
    assert simulate(scenario(protocol="mbcp", peers=3, most_messages=7)).metrics.messages == 7


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
def test_a_scenario_that_cannot_be_names_what_is_wrong(fields: dict[str, object], names: str) -> None:
    with pytest.raises(InputError, match=names):
        scenario(**{"protocol": "mbcp", **fields})


def test_a_grid_is_every_combination() -> None:
    runs = expand({"seconds": 1}, {"protocol": ["mbcp", "timestamp"], "peers": [2, 3], "seed": [1, 2, 3]})
    assert len(runs) == len({run.key() for run in runs}) == 12
    assert (runs[0].protocol, runs[-1].protocol) == ("mbcp", "timestamp")


def test_keys_are_as_different_as_scenarios() -> None:
    base = Scenario(protocol="mbcp")
    other = msgspec.structs.replace(base, delay="1-101ms")
    assert base.key() != other.key()
    assert base.key() == Scenario(protocol="mbcp").key() == Scenario(protocol="mbcp", seconds=2).key()
    assert base.key().startswith("mbcp-10-")


def test_a_mended_protocol_of_one_s_own_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "own_protocol.py"
    module.write_text("from antecede.protocols.mbcp import Mbcp\nclass Own(Mbcp): name = 'own'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    given = scenario(protocol="own_protocol:Own")
    before = given.key()
    module.write_text(module.read_text() + "# mended\n")
    assert given.key() != before


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[run", "not TOML"),
        ("[runs]\nseconds = 1", "runs"),
        ("run = 3", "sections"),
        ('[grid]\nprotocol = "mbcp"', "protocol"),
        ('[grid]\nprotocol = ["mbcp"]\npeers = []', "0 runs"),
        ('[grid]\nprotocol = ["mbcp", "mbcp"]', "twice"),
        ('[run]\npeers = 3\n[grid]\nprotocol = ["mbcp"]\npeers = [1]', "peers"),
        ('[run]\ncolour = 1\n[grid]\nprotocol = ["mbcp"]', "colour"),
        ("[run]\nseconds = 1", "protocol"),
    ],
)
def test_a_grid_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, names: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=names) as error:
        read_grid(file)
    assert str(file) in str(error.value)


def test_a_grid_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_grid(tmp_path / "nothing.toml")
