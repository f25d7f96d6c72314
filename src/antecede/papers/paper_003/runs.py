"""Paper 003's runs: how many messages a gateway orders, HCG compared with the basic protocol B (section 5).

A real-time subgroup of a gateway and a local process, and a remote process. In every window the gateway
forwards one message a of the remote process and the local process sends one message b, each at any time in
[0, λ]; then nothing happens until both are delivered. Messages a and b are ordered if the packet in which the
gateway forwards b names a. The remote process has no delay, so a is forwarded when it is sent.

In closed form: HCG orders a before b if b is sent δl or more after a, in (1 − δl/λ)²/2 of all windows. B does
so if a has arrived when b leaves the subgroup's order, δl after it was sent: in 1 − (1 − δl/λ)²/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from antecede.papers.paper import Runs, Scale
from antecede.papers.readings import Joint, Seeds
from antecede.sim.scenario import Scenario, scenario

PAPER = "003"
LAMBDAS = (100, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
"""Figure 7's axis, in µs."""
FIGURE_7_DELAYS = (100, 1000)
FIGURE_8_LAMBDA = 30_000
FIGURE_8_DELAYS: dict[Scale, tuple[int, ...]] = {
    "quick": (100, 400, 700, 1000),
    "full": tuple(range(100, 1001, 100)),
}
COMMON = (30_000, 1000)
"""λ and δl for which the text gives a value of both figures."""
PUBLISHED = {"7": 50.0, "8": 45.0}
WINDOWS: dict[Scale, int] = {"quick": 400, "full": 2000}
PROTOCOLS = ("hcg", "basic")

GATEWAY, LOCAL, REMOTE = range(3)
FORWARDED = "p1_after_p2"
OWN, OWN_REVERSED = "p1_after_p0", "p0_after_p1"


def closed_form(lam: float, delay: float) -> float:
    """The share of pairs that HCG orders.

    >>> round(closed_form(30_000, 1000), 4), closed_form(100, 1000)
    (0.4672, 0.0)
    """
    return max(0.0, 1 - delay / lam) ** 2 / 2


def closed_form_basic(lam: float, delay: float) -> float:
    """The share of pairs that B orders.

    >>> round(closed_form_basic(30_000, 1000), 4), closed_form_basic(100, 1000)
    (0.5328, 1.0)
    """
    return 1 - closed_form(lam, delay)


def closed_form_ratio(lam: float, delay: float) -> float:
    return 100 * closed_form(lam, delay) / closed_form_basic(lam, delay)


def run(protocol: str, lam: int, delay: int, windows: int, seed: int, *, own: bool = False) -> Scenario:
    """A run of `windows` windows; with `own`, a is the gateway's own message."""
    window = 2 * (lam + 2 * delay)
    return scenario(
        protocol=protocol, peers=3, layout={"subgroups": ["rt:2", "vt:1"]}, seed=seed, payload=0,
        delay="0us", local_delay=f"{delay}us", workload="windows", rate=1e6 / window, jitter=lam / window,
        seconds=windows * window / 1e6, silent=(REMOTE if own else GATEWAY,), probes=("named",),
    )  # fmt: skip


def window_of(setting: Scenario) -> float:
    return round(1e6 * setting.jitter / setting.rate)


def delay_of(setting: Scenario) -> float:
    return float((setting.local_delay or "0us").removesuffix("us"))


def seeds(scale: Scale) -> Seeds:
    return Seeds((), (1, 2, 3, 4)) if scale == "quick" else Seeds((101, 102, 103), tuple(range(1, 11)))


def is_own(joint: Joint) -> bool:
    """Whether a is a message of the gateway itself."""
    return joint["a"] != "forwarded"


def grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    points = {(lam, delay) for lam in LAMBDAS for delay in FIGURE_7_DELAYS}
    points |= {(FIGURE_8_LAMBDA, delay) for delay in FIGURE_8_DELAYS[scale]}
    windows = WINDOWS[scale]
    return [
        run(protocol, lam, delay, windows, seed, own=is_own(joint))
        for lam, delay in sorted(points)
        for protocol in PROTOCOLS
        for seed in seeds
    ]


def pair_of(joint: Joint) -> str:
    """The figure of a run that counts the ordered pairs."""
    return {"forwarded": FORWARDED, "own": OWN, "own, reversed": OWN_REVERSED}[joint["a"]]


def select(runs: Runs, protocol: str, lam: float, delay: float) -> Runs:
    return runs.where(
        lambda setting: (window_of(setting), delay_of(setting)) == (lam, delay), protocol=protocol
    )


def ordered_shares(runs: Runs, protocol: str, lam: float, delay: float, name: str = FORWARDED) -> list[float]:
    """The share of ordered pairs, in %, for each seed."""
    return [100 * value for value in select(runs, protocol, lam, delay).values(name)]


def ratios_to_basic(runs: Runs, lam: float, delay: float, name: str = FORWARDED) -> list[float]:
    """HCG's share over B's, in %, for each seed."""
    pairs = zip(
        ordered_shares(runs, "hcg", lam, delay, name),
        ordered_shares(runs, "basic", lam, delay, name),
        strict=False,
    )
    return [100 * hcg / basic for hcg, basic in pairs if basic]


def shown(runs: Runs, joint: Joint, lam: float, delay: float) -> list[float]:
    """What Figures 7 and 8 show, in the joint reading, in %, for each seed."""
    if joint["ratio"] == "share":
        return ordered_shares(runs, "hcg", lam, delay, pair_of(joint))
    ratios = ratios_to_basic(runs, lam, delay, pair_of(joint))
    return ratios if joint["ratio"] == "HCG over B" else [100 - ratio for ratio in ratios]


def delays_run(runs: Runs) -> list[float]:
    """The delays of Figure 8 that were run."""
    return sorted(runs.where(lambda setting: window_of(setting) == FIGURE_8_LAMBDA).by(delay_of))


def means_by_seed(values: Sequence[Sequence[float]]) -> list[float]:
    """Each seed's mean over all points."""
    return [fmean(each) for each in zip(*values, strict=False)]
