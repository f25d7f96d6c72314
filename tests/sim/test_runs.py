"""Runs: the same seed gives the same trace, byte for byte, and metrics follow from events."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.sim.engines import simulate
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario


def digest(folder: Path) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("protocol", ["timestamp", "timestamp-diff", "mbcp"])
def test_a_scenario_gives_the_same_bytes_with_any_hash_seed(tmp_path: Path, protocol: str) -> None:
    setting = scenario(protocol=protocol, peers=6, seconds=1, reply=0.05, faults=("duplicate:5%:50ms",))
    script = (
        "import sys; from antecede.sim.record import simulate_to; from antecede.sim.scenario import scenario;"
        f"simulate_to(sys.argv[1], scenario(protocol={protocol!r}, peers=6, seconds=1, reply=0.05,"
        " faults=('duplicate:5%:50ms',)))"
    )
    simulate_to(tmp_path / "here", setting)
    for hash_seed in ("0", "12345"):
        there = tmp_path / hash_seed
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(there)], check=True, env=environment)
        assert digest(there) == digest(tmp_path / "here")


def test_a_seed_gives_the_same_run_in_every_version() -> None:
    """Replaying an old seed must give the old run; if this fails, seeds have lost their meaning."""
    metrics = simulate(scenario(protocol="mbcp", peers=5, seconds=1, seed=42, delay="normal:0-50ms")).metrics
    total = round(metrics.latency_mean_ns * metrics.deliveries)
    seen = (metrics.messages, metrics.deliveries, metrics.held, total, metrics.simulated_ns)
    assert seen == (49, 196, 6, 4973780464, 1044143017)


def test_another_seed_is_another_run() -> None:
    runs = [simulate(scenario(protocol="mbcp", peers=4, seed=seed)).metrics for seed in (1, 2)]
    assert runs[0] != runs[1]


def test_a_trace_may_be_written_again_but_other_files_are_not_overwritten(tmp_path: Path) -> None:
    setting = scenario(protocol="mbcp", peers=2, seconds=0.3)
    simulate_to(tmp_path / "trace", setting)
    before = digest(tmp_path / "trace")
    simulate_to(tmp_path / "trace", setting)
    assert digest(tmp_path / "trace") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="something else in it"):
        simulate_to(tmp_path / "mine", setting)


class LatencyObserver:
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


def test_metrics_follow_from_the_events() -> None:
    watch = LatencyObserver()
    setting = scenario(protocol="mbcp", peers=6, reply=0.05, faults=("duplicate:20%:300ms",))
    metrics = simulate(setting, [watch]).metrics
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
