"""Paper 001: how likely is the worst case, a message that immediately depends on one of every participant's?

Participants send independently (Poisson processes), and every message takes one delay to all others. Then the
result depends only on the number of participants n and on the load: the messages that one participant sends
during one delay. `mbcp` runs unchanged, and every message's immediate predecessors are counted.

The load is not printed. Single values are scored at a load of 1, chosen before anything was run: each
participant sends once, on average, while a message is in flight, as in the paper's Figure 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from antecede.papers.paper import Figure, Paper, Reading, Runs, Scale, wire_figure
from antecede.papers.scoreboard import ScoreRow, claim, number
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
SEEDS: dict[Scale, tuple[int, ...]] = {"quick": (1, 2, 3, 4), "full": tuple(range(1, 11))}

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


def grid(scale: Scale) -> list[Scenario]:
    points = {(size, load, DELAY) for size in LOAD_SIZES for load in LOADS}
    points |= {(size, LOAD, DELAY) for size in SIZES} | {(SIZE, LOAD, VARIED)}
    random = [
        run(size, load, MESSAGES[scale], seed, delay)
        for size, load, delay in sorted(points)
        for seed in SEEDS[scale]
    ]
    return [*random, figure_5(), serial()]


def _at(runs: Runs, size: int, load: float | None = None, delay: str = DELAY) -> Runs:
    """The runs with random sends; at every load if `load` is None."""
    return runs.where(
        lambda setting: load is None or load_of(setting) == load, workload="poisson", peers=size, delay=delay
    )


def _line(runs: Runs, size: int, name: str = _WORST) -> list[tuple[float, float]]:
    return _at(runs, size).line(name, load_of)


def reached(line: Sequence[tuple[float, float]], value: float) -> float | None:
    """Where a line first reaches a value, by linear interpolation.

    >>> reached([(1, 0.0), (2, 10.0)], 5.0), reached([(1, 0.0), (2, 10.0)], 11.0)
    (1.5, None)
    """
    for (x, y), (next_x, next_y) in pairwise(line):
        if min(y, next_y) <= value <= max(y, next_y) and y != next_y:
            return x + (next_x - x) * (value - y) / (next_y - y)
    return None


def _read(line: Sequence[tuple[float, float]], where: float) -> float | None:
    """The height of a line at `where`."""
    return reached([(y, x) for x, y in line], where)


def score(runs: Runs) -> list[ScoreRow]:
    here, varied = _at(runs, SIZE, LOAD), _at(runs, SIZE, LOAD, VARIED)
    what = f"likelihood of the worst case, n = {SIZE}, at a load of {LOAD:g}"
    return [
        number(PAPER, f"{what}: n immediate predecessors", PUBLISHED, here.values(_WORST), _WHY),
        number(PAPER, f"{what}: all n − 1 others named", PUBLISHED, here.values(_NAMED), _WHY),
        number(
            PAPER, f"{what}: n predecessors, delays from 0 to twice the mean", PUBLISHED,
            varied.values(_WORST), _WHY,
        ),
        _where(runs),
        *_negligible(runs),
        *_falls(runs),
        *_cases(runs),
    ]  # fmt: skip


def _where(runs: Runs) -> ScoreRow:
    statement = f"the worst case has likelihood {PUBLISHED} for n = {SIZE}, at some load"
    line = _line(runs, SIZE)
    if len(line) < 2:
        return claim(PAPER, statement, None, "", 0)
    where = reached(line, PUBLISHED)
    heights = [y for _, y in line]
    shown = f"{min(heights):.3f} to {max(heights):.3f} over loads of {line[0][0]:g} to {line[-1][0]:g}"
    if where is not None:
        shown = f"at a load of {where:.2f}; {shown}"
    return claim(PAPER, statement, where is not None, shown, len(_at(runs, SIZE)), "at no load that was run")


def _negligible(runs: Runs) -> list[ScoreRow]:
    """At the chosen load, and at the one where the printed number appears."""
    small = SIZE + 1
    lines = _line(runs, SIZE), _line(runs, small)
    where = reached(lines[0], PUBLISHED) if len(lines[0]) > 1 else None
    rows = []
    for named, load in (
        (f"at a load of {LOAD:g}", LOAD),
        (f"at the load where n = {SIZE} has {PUBLISHED}", where),
    ):
        statement = f"for n > {SIZE} the worst case is negligible (n = {small} below 1 %), {named}"
        value = None if load is None or len(lines[1]) < 2 else _read(lines[1], load)
        shown = "" if value is None else f"{value:.4f} for n = {small}"
        holds = None if value is None else value < NEGLIGIBLE
        rows.append(
            claim(
                PAPER, statement, holds, shown, len(_at(runs, small)), "rarer than for three, not negligible"
            )
        )
    return rows


def _falls(runs: Runs) -> list[ScoreRow]:
    means = {size: fmean(samples) for size in SIZES if (samples := _at(runs, size, LOAD).values(_WORST))}
    means = {size: mean for size, mean in means.items() if size >= SIZE}
    values = list(means.values())
    count = sum(len(_at(runs, size, LOAD)) for size in means)
    falls = all(one > other or one == other == 0 for one, other in pairwise(values))
    shown = ", ".join(f"{mean:.4f} for {size}" for size, mean in means.items())
    largest = max(SIZES)
    last = means.get(largest)
    return [
        claim(
            PAPER, f"the worst case is rarer the larger the group, at a load of {LOAD:g}",
            falls if len(values) > 1 else None, shown, count, "it does not fall at every step",
        ),
        claim(
            PAPER, f"the probability of the worst case is minimal: below 1 % for n = {largest}",
            None if last is None else last < NEGLIGIBLE, "" if last is None else f"{last:.5f}",
            len(_at(runs, largest, LOAD)), "not at this load",
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


def figures(runs: Runs) -> list[Figure]:
    loads: dict[str, list[tuple[float, float]]] = {f"n = {size}": _line(runs, size) for size in LOAD_SIZES}
    loads[f"n = {SIZE}, all others named"] = _line(runs, SIZE, _NAMED)
    loads["each of 3 sends once"] = [(load, each_once(SIZE, load)) for load, _ in loads[f"n = {SIZE}"]]
    where = reached(loads[f"n = {SIZE}"], PUBLISHED) if len(loads[f"n = {SIZE}"]) > 1 else None
    at_load = runs.where(lambda setting: load_of(setting) == LOAD, workload="poisson", delay=DELAY)
    sizes = {
        "n predecessors": at_load.line(_WORST),
        "n − 1 named": at_load.line(_NAMED),
    }
    sizes["e⁻ⁿ"] = [(size, each_once(size)) for size, _ in sizes["n predecessors"]]
    note = f"The paper gives no load, so its {PUBLISHED} is drawn at all of them."
    if where is not None:
        note += f" Our line reaches it at {where:.2f}."
    note += " Under high load, a message is a worst case if its sender is the last to send again: 1/n."
    return [
        Figure(
            "a", "The worst case against the load", "messages per participant and delay",
            "share of messages", loads,
            {f"n = {SIZE}": [(load, PUBLISHED) for load, _ in loads[f"n = {SIZE}"]]}, note,
        ),
        Figure(
            "b", f"The worst case against the group, at a load of {LOAD:g}", "participants",
            "share of messages", sizes, {"n predecessors": [(float(SIZE), PUBLISHED)]},
        ),
        *wire_figure(
            {"mbcp": (at_load.line("paper_bytes_mean"), at_load.line("control_bytes_mean"))}, "participants"
        ),
    ]  # fmt: skip


READINGS = [
    Reading(
        "“the Poisson law and Bernoulli's law”",
        "every participant sends at random times, independently, all at the same rate",
        "the derivation is in a thesis that we do not have; the paper says no more",
    ),
    Reading(
        "the load: messages that a participant sends during one delay",
        "1 where a single value is scored, chosen before the runs; 0.1 to 4 in the figure",
        "not printed; in Figure 5 each participant sends once while the others' messages are in flight",
    ),
    Reading(
        "how long a message takes",
        "the same for every copy; additionally from 0 to twice that",
        "not printed; Δ is one reception time",
    ),
    Reading(
        "|CI| = n",
        "n immediate predecessors, the sender's own previous message being one of them",
        "“if one considers that each participant automatically receives their diffusions”",
    ),
    Reading(
        "|CI| as it is sent",
        "n − 1 messages of others named, scored additionally; the sender's own previous one may be implied",
        "Table 1 never names the sender's own message",
    ),
    Reading(
        "what 0.0497 may be",
        "nothing depends on it; the line “each sends once”, (ρ·e^−ρ)ⁿ, is drawn in both figures",
        "it looks like a truncated e⁻³ = 0.04979: Poisson's law for one send, Bernoulli's for all three",
    ),
    Reading("“negligible”", "below 1 %", "customary; the paper gives no number"),
]

STUDY = Paper(
    PAPER, "Immediate dependencies: the likelihood of the worst case", grid, score, figures, READINGS
)
