"""Paper 000's runs: an internal and an external group of equal size, joined by a super peer that sends no
messages of its own. Every peer sends every 70 to 90 ms, or at a fixed rate in all.

IDR is `mbcp` on all peers with a relay in place of the super peer; DS is `depseq` on the external group
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.papers.paper import Runs, Scale
from antecede.papers.readings import Joint, Seeds
from antecede.sim.network import RelayedModel, upper_bound
from antecede.sim.scenario import Scenario, scenario
from antecede.units import SECOND

PAPER = "000"
DELAYS = {"0–50 ms": "normal:0-50ms", "50–250 ms": "normal:50-250ms", "50–550 ms": "normal:50-550ms"}
_WARMUP = {"0–50 ms": 0.5, "50–250 ms": 1.0, "50–550 ms": 2.0}
_MEASURED: dict[Scale, float] = {"quick": 2.0, "full": 1.0}
"""Seconds after the warm-up. Seeds are worth more than length: Student's factor is 12.7 for two of them and
2.8 for five, which five times the length of two runs does not make up for."""
SIZES: dict[Scale, dict[str, list[int]]] = {
    "quick": {"0–50 ms": [10, 20, 40], "50–250 ms": [10, 20, 30], "50–550 ms": [10, 20, 30]},
    "full": {
        "0–50 ms": [10, 50, 100, 300, 500, 700, 900],
        "50–250 ms": [10, 50, 100, 200, 300, 400, 500],
        "50–550 ms": [10, 50, 100, 200, 300, 400],
    },
}
RATES = (2500, 2000, 1500, 1000)
"""Messages per second in all, in the scalability runs."""
RATE_SIZES: dict[Scale, dict[str, list[int]]] = {
    "quick": {},
    "full": {
        "0–50 ms": [50, 100, 200, 300, 500, 700, 900],
        "50–250 ms": [50, 100, 200, 300, 400, 500],
        "50–550 ms": [50, 100, 200, 300, 400],
    },
}
PASSIVE = 300, 100
"""Peers in all, and how many of them send: the paper's example of passive receivers."""

PROTOCOLS = ("freescale", "mbcp", "depseq")
USUAL = "normal:70-90ms"


def run(protocol: str, peers: int, delay: str, seed: int, scale: Scale, interval: str = USUAL) -> Scenario:
    """A run with `peers` peers, half of them in the internal group."""
    half = peers // 2
    # Everybody has sent twice before anything is measured.
    warmup = max(_WARMUP[delay], round(2.2 * upper_bound(interval) / SECOND, 3))
    fields: dict[str, object] = {
        "protocol": protocol, "seed": seed, "workload": "drawn", "interval": interval, "payload": 0,
        "seconds": warmup + _MEASURED[scale], "warmup": warmup, "probes": ("costs",),
    }  # fmt: skip
    if protocol == "freescale":
        layout = {"inside": [half], "form": "paper"}
        return scenario(**fields, peers=peers + 1, layout=layout, delay=DELAYS[delay], silent=(0,))
    if protocol == "mbcp":
        relayed = {"model": "relayed", "behind": half, "delay": DELAYS[delay]}
        return scenario(**fields, peers=peers, network=relayed)
    return scenario(**fields, peers=half, delay=DELAYS[delay])


def size(setting: Scenario) -> float:
    """The number of peers in the network of a run, without the super peer."""
    return {"freescale": setting.peers - 1, "mbcp": setting.peers, "depseq": 2 * setting.peers}[
        setting.protocol
    ]


def interval_of(rate: int, peers: int) -> str:
    """The interval of each peer at a fixed total rate, with the same relative spread as 70 to 90 ms."""
    mean = 1e6 * peers / rate
    return f"normal:{mean * 0.875:.0f}-{mean * 1.125:.0f}us"


def passive(seed: int, scale: Scale) -> Scenario:
    """The paper's example: of 300 peers 200 only receive, half of those that send are internal."""
    peers, active = PASSIVE
    half, sending = peers // 2, active // 2
    idle = [*range(1 + sending, 1 + half), *range(1 + half + sending, 1 + peers)]
    setting = run("freescale", peers, "50–250 ms", seed, scale)
    return msgspec.structs.replace(setting, silent=(0, *idle))


def seeds(scale: Scale) -> Seeds:
    """One seed for choosing: a run has thousands of messages, and readings differ only in what is counted."""
    return Seeds((), (1, 2, 3)) if scale == "quick" else Seeds((101,), (1, 2, 3, 4, 5))


def grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    """No reading of this paper needs other runs: they differ in what is counted."""
    del joint
    runs = [
        run(protocol, peers, delay, seed, scale)
        for delay, sizes in SIZES[scale].items()
        for peers in sizes
        for protocol in PROTOCOLS
        for seed in seeds
    ]
    runs += [
        run("freescale", peers, delay, seed, scale, interval_of(rate, peers))
        for delay, sizes in RATE_SIZES[scale].items()
        for rate in RATES
        for peers in sizes
        for seed in seeds
    ]
    return runs + [passive(seed, scale) for seed in seeds if scale == "full"]


def select(runs: Runs, protocol: str, delay: str, rate: int | None = None) -> Runs:
    """The runs of a protocol with these delays; at the usual interval, or at a fixed rate in all."""

    def belongs(setting: Scenario) -> bool:
        network = setting.network
        text = network.delay if isinstance(network, RelayedModel) else setting.delay
        interval = USUAL if rate is None else interval_of(rate, round(size(setting)))
        return text == DELAYS[delay] and setting.interval == interval and len(setting.silent) <= 1

    return runs.where(belongs, protocol=protocol)
