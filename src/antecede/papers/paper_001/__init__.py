"""Paper 001: how likely is the worst case, a message that immediately depends on one of every participant's?

Participants send independently (Poisson processes), and every message takes one delay to all others. Then the
result depends only on the number of participants n and on the load: the messages that one participant sends
during one delay. `mbcp` runs unchanged, and every message's immediate predecessors are counted.

The load is not printed, so it is a reading. The plainest is 1: each participant sends once, on average, while
a message is in flight, as in the paper's Figure 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from antecede.papers.paper import Figure, Paper, Runs, Scale, wire_figure
from antecede.papers.paper_001.propositions import proposition_rows
from antecede.papers.readings import Alternative, Joint, Reading, Seeds, fixed
from antecede.papers.scoreboard import ScoreRow, claim, number
from antecede.papers.verdicts import all_hold, is_less
from antecede.sim.scenario import Scenario, scenario

PAPER = "001"
PUBLISHED = 0.0497
NEGLIGIBLE = 0.01
SIZE = 3
"""The paper's example."""
LOAD = 1.0
LOADS = (0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0)
LOAD_SIZES = (3, 4)
SIZES = (2, 3, 4, 5, 6, 8, 10)
MESSAGES: dict[Scale, int] = {"quick": 1200, "full": 10_000}

_DELAY_MS = 10
DELAY = f"{_DELAY_MS}ms"
VARIED = f"0-{2 * _DELAY_MS}ms"
"""The same mean."""
_WORST, _NAMED = "worst_share", "named_all_share"

_WHY = (
    "the derivation is in a thesis; 0.0497 looks like a truncated e⁻³ = 0.04979, the probability that each "
    "of three sends exactly once in a mean interval, which is neither necessary nor sufficient for the worst "
    "case"
)


def each_once(size: float, load: float = 1.0) -> float:
    """The probability that each of `size` participants sends exactly once: Poisson, then Bernoulli.

    >>> round(each_once(3), 5)
    0.04979
    """
    return math.pow(load * math.exp(-load), size)


def run(size: int, load: float, messages: int, seed: int, delay: str = DELAY) -> Scenario:
    """About `messages` messages in all, after a warm-up of five delays and intervals."""
    rate = 1000 * load / _DELAY_MS
    warmup = 5 / rate + 5 * _DELAY_MS / 1000
    return scenario(
        protocol="mbcp", peers=size, workload="poisson", rate=rate, delay=delay, seed=seed, payload=0,
        seconds=warmup + messages / size / rate, warmup=warmup, probes=("immediate",),
    )  # fmt: skip


def figure_5() -> Scenario:
    """All send at once, and again when they have received each other's messages."""
    return scenario(
        protocol="mbcp", peers=SIZE, workload="rounds", rate=1000 / (2 * _DELAY_MS), delay=DELAY, payload=0,
        seconds=1.0, warmup=_DELAY_MS / 1000, probes=("immediate",),
    )  # fmt: skip


def serial() -> Scenario:
    """Participants take turns, one message at a time."""
    return scenario(
        protocol="mbcp", peers=SIZE, workload="periodic", jitter=0.0, rate=1.0, delay="1us", payload=0,
        seconds=30.0, warmup=2.0, probes=("immediate",),
    )  # fmt: skip


def load_of(setting: Scenario) -> float:
    return round(setting.rate * _DELAY_MS / 1000, 6)


def seeds(scale: Scale) -> Seeds:
    return Seeds((), (1, 2, 3, 4)) if scale == "quick" else Seeds((101, 102, 103), tuple(range(1, 11)))


def grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    """Every size at the load of the joint reading, and Figure a's line."""
    delay = _delay(joint)
    points = {(size, load) for size in LOAD_SIZES for load in LOADS}
    points |= {(size, _load(joint)) for size in SIZES}
    random = [
        run(size, load, MESSAGES[scale], seed, delay) for size, load in sorted(points) for seed in seeds
    ]
    return [*random, figure_5(), serial()]


def _load(joint: Joint) -> float:
    return float(joint["load"])


def _delay(joint: Joint) -> str:
    return VARIED if joint["delays"] == "varied" else DELAY


def _counted(joint: Joint) -> str:
    return _NAMED if joint["worst case"] == "named" else _WORST


def _at(runs: Runs, joint: Joint, size: int, load: float | None = None) -> Runs:
    """The runs with random sends; at every load if `load` is None."""
    return runs.where(
        lambda setting: load is None or load_of(setting) == load,
        workload="poisson",
        peers=size,
        delay=_delay(joint),
    )


def _line(runs: Runs, joint: Joint, size: int, name: str) -> list[tuple[float, float]]:
    return _at(runs, joint, size).line(name, load_of)


def reached(line: Sequence[tuple[float, float]], value: float) -> float | None:
    """Where a line first reaches a value, by linear interpolation.

    >>> reached([(1, 0.0), (2, 10.0)], 5.0), reached([(1, 0.0), (2, 10.0)], 11.0)
    (1.5, None)
    """
    for (x, y), (next_x, next_y) in pairwise(line):
        if min(y, next_y) <= value <= max(y, next_y) and y != next_y:
            return x + (next_x - x) * (value - y) / (next_y - y)
    return None


def score(runs: Runs, joint: Joint) -> list[ScoreRow]:
    load, counted = _load(joint), _counted(joint)
    here = _at(runs, joint, SIZE, load).values(counted)
    return [
        number(PAPER, f"likelihood of the worst case, n = {SIZE}", PUBLISHED, here, _WHY),
        _negligible(runs, joint),
        *_falls(runs, joint),
        *_cases(runs),
        *proposition_rows(),
    ]


def _negligible(runs: Runs, joint: Joint) -> ScoreRow:
    small = SIZE + 1
    load = _load(joint)
    values = _at(runs, joint, small, load).values(_counted(joint))
    statement = f"for n > {SIZE} the worst case is negligible (n = {small} below 1 %, at the load judged)"
    shown = f"{fmean(values):.4f} for n = {small} at a load of {load:g}" if values else ""
    line = _line(runs, joint, small, _counted(joint))
    above = [where for where, share in line if where > load and share >= NEGLIGIBLE]
    if values and above:
        shown += f"; 1 % or more from a load of {min(above):g} on"
    holds = is_less(values, [NEGLIGIBLE] * len(values))
    return claim(PAPER, statement, holds, shown, len(values), "not negligible at this load")


def _falls(runs: Runs, joint: Joint) -> list[ScoreRow]:
    counted = _counted(joint)
    samples = {size: _at(runs, joint, size, _load(joint)).values(counted) for size in SIZES if size >= SIZE}
    samples = {size: values for size, values in samples.items() if values}
    steps = [
        True if max(one) == max(other) == 0 else is_less(other, one)
        for one, other in pairwise(samples.values())
    ]
    shown = ", ".join(f"{fmean(values):.4f} for {size}" for size, values in samples.items())
    largest = max(SIZES)
    last = samples.get(largest, [])
    return [
        claim(
            PAPER, "the worst case is rarer the larger the group", all_hold(steps), shown,
            sum(map(len, samples.values())), "it does not fall at every step",
        ),
        claim(
            PAPER, f"the probability of the worst case is minimal: below 1 % for n = {largest}",
            is_less(last, [NEGLIGIBLE] * len(last)),
            f"{fmean(last):.5f} at a load of {_load(joint):g}" if last else "", len(last),
            "not at this load",
        ),
    ]  # fmt: skip


def _cases(runs: Runs) -> list[ScoreRow]:
    rounds, turns = runs.where(workload="rounds"), runs.where(workload="periodic")
    everyone = runs.where(workload="poisson")
    worst, one = rounds.values(_WORST), turns.values("immediate_mean")
    over = [run.value("immediate_most") - run.scenario.peers for run in everyone.finished]
    full, more = sum(each == 0 for each in over), sum(each > 0 for each in over)
    return [
        claim(
            PAPER, "Figure 5: after n parallel messages and a pause until all are there, |CI| = n",
            all(share == 1 for share in worst) if worst else None,
            f"so for {100 * fmean(worst):g} % of messages" if worst else "", len(rounds), "not for all",
        ),
        claim(
            PAPER, "a serial message has |CI| = 1", all(mean == 1 for mean in one) if one else None,
            f"{fmean(one):g} on average" if one else "", len(turns), "not for all",
        ),
        claim(
            PAPER, "|CI| is at most n", not more if over else None,
            f"n in {full} of {len(over)} runs, more in {more}", len(over), "a message has more",
        ),
    ]  # fmt: skip


def figures(runs: Runs, joint: Joint) -> list[Figure]:
    loads = {f"n = {size}": _line(runs, joint, size, _WORST) for size in LOAD_SIZES}
    loads[f"n = {SIZE}, all others named"] = _line(runs, joint, SIZE, _NAMED)
    loads["each of 3 sends once"] = [(load, each_once(SIZE, load)) for load, _ in loads[f"n = {SIZE}"]]
    # The printed value belongs to the line that it is judged by.
    named = _counted(joint) == _NAMED
    judged = f"n = {SIZE}, all others named" if named else f"n = {SIZE}"
    where = reached(loads[judged], PUBLISHED) if len(loads[judged]) > 1 else None
    chosen = _load(joint)
    at_load = runs.where(lambda setting: load_of(setting) == chosen, workload="poisson", delay=_delay(joint))
    sizes = {"n predecessors": at_load.line(_WORST), "n − 1 named": at_load.line(_NAMED)}
    sizes["each sends once"] = [(size, each_once(size, chosen)) for size, _ in sizes["n predecessors"]]
    note = f"The paper gives no load, so its {PUBLISHED} is drawn at all of them."
    if where is not None:
        note += f" The line that is judged, “{judged}”, reaches it at {where:.2f}."
    note += " Under high load, a message is a worst case if its sender is the last to send again: 1/n."
    return [
        Figure(
            "a", "The worst case against the load", "messages per participant and delay",
            "share of messages", loads,
            {judged: [(load, PUBLISHED) for load, _ in loads[judged]]}, note,
        ),
        Figure(
            "b", f"The worst case against the group, at a load of {chosen:g}", "participants",
            "share of messages", sizes,
            {"n − 1 named" if named else "n predecessors": [(float(SIZE), PUBLISHED)]},
        ),
        *wire_figure(
            {"mbcp": (at_load.line("paper_bytes_mean"), at_load.line("control_bytes_mean"))}, "participants"
        ),
    ]  # fmt: skip


READINGS = [
    fixed(
        "“the Poisson law and Bernoulli's law”",
        "every participant sends at random times, independently, all at the same rate",
        "the derivation is in a thesis that we do not have; the paper says no more",
    ),
    Reading(
        "load",
        "the load: messages that a participant sends during one delay",
        tuple(
            Alternative(f"{load:g}", f"{load:g}", "as in Figure 5" if load == LOAD else "not printed", "rate")
            for load in sorted(LOADS, key=lambda load: (load != LOAD, load))
        ),
    ),
    Reading(
        "delays",
        "how long a message takes",
        (
            Alternative("equal", "the same for every copy", "Δ is one reception time", "delay"),
            Alternative("varied", "from 0 to twice the mean", "not printed", "delay"),
        ),
    ),
    Reading(
        "worst case",
        "|CI| = n",
        (
            Alternative(
                "predecessors",
                "n immediate predecessors, the sender's own previous message being one of them",
                "“if one considers that each participant automatically receives their diffusions”",
                "worst_share",
            ),
            Alternative(
                "named",
                "n − 1 messages of others named; the sender's own previous one may be implied",
                "Table 1 never names the sender's own message",
                "named_all_share",
            ),
        ),
    ),
    fixed(
        "what 0.0497 may be",
        "nothing depends on it; the line “each sends once”, (ρ·e^−ρ)ⁿ, is drawn in both figures",
        "it looks like a truncated e⁻³ = 0.04979: Poisson's law for one send, Bernoulli's for all three",
    ),
    fixed("“negligible”", "below 1 %", "customary; the paper gives no number"),
]

STUDY = Paper(
    PAPER, "Immediate dependencies: the likelihood of the worst case", READINGS, seeds, grid, score, figures
)
