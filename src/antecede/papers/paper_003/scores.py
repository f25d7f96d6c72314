"""Paper 003's scoreboard."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from antecede.papers.paper import Runs
from antecede.papers.paper_003.runs import (
    COMMON,
    FIGURE_7_DELAYS,
    FIGURE_8_LAMBDA,
    FORWARDED,
    GATEWAY,
    LAMBDAS,
    OWN,
    OWN_REVERSED,
    PAPER,
    PUBLISHED,
    delay_of,
    delays_run,
    means_by_seed,
    ordered_shares,
    percent,
    ratios_to_basic,
    select,
    window_of,
)
from antecede.papers.scoreboard import ScoreRow, claim, interval, number

_WHY_ABOUT = "the paper says “about”; ours is (1 − δl/λ)²/2"
_WHY_RATIO = (
    "in this reading the printed value does not follow from the model: B orders little more than HCG, as "
    "both orders of a and b are equally likely and few pairs are within δl"
)
_WHY_MEET = "the same λ and δl have two printed values; our runs have one"


def score(runs: Runs) -> list[ScoreRow]:
    shares, ratios = ordered_shares(runs, "hcg", *COMMON), ratios_to_basic(runs, *COMMON)
    along = [ordered_shares(runs, "hcg", FIGURE_8_LAMBDA, delay) for delay in delays_run(runs)]
    along_ratios = [ratios_to_basic(runs, FIGURE_8_LAMBDA, delay) for delay in delays_run(runs)]
    own = select(runs, "hcg", *COMMON, own=True)
    at = f"at λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    over = f"at λ = {FIGURE_8_LAMBDA:,} µs, over δl = 100–1000 µs"
    of_7, of_8 = PUBLISHED["7"], PUBLISHED["8"]
    rows = [
        number(PAPER, f"Figure 7: pairs ordered {at}, %", of_7, shares, _WHY_ABOUT),
        number(PAPER, f"Figure 8: pairs ordered {over}, %", of_8, means_by_seed(along), _WHY_ABOUT),
        number(PAPER, f"Figure 8: pairs ordered {at}, %", of_8, shares, _WHY_ABOUT),
        number(PAPER, f"Figure 7, a sent by the gateway itself: a before b {at}, %", of_7,
               percent(own, OWN), _WHY_ABOUT),
        number(PAPER, f"Figure 7, a sent by the gateway itself: b before a {at}, %", of_7,
               percent(own, OWN_REVERSED), _WHY_ABOUT),
        number(PAPER, f"Figure 7, read as HCG over B {at}, %", of_7, ratios, _WHY_RATIO),
        number(PAPER, f"Figure 8, read as HCG over B {over}, %", of_8, means_by_seed(along_ratios),
               _WHY_RATIO),
        number(PAPER, f"Figure 7, read as saved of B {at}, %", of_7, [100 - r for r in ratios], _WHY_RATIO),
        number(PAPER, f"Figure 8, read as saved of B {over}, %", of_8,
               [100 - r for r in means_by_seed(along_ratios)], _WHY_RATIO),
    ]  # fmt: skip
    return [*rows, _meet(shares), *_invariance(runs), *_frequency(runs), _fewer(runs), *_only_if(runs)]


def _meet(shares: Sequence[float]) -> ScoreRow:
    """Decided by the printed values alone; ours is for comparison."""
    at = f"λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    statement = f"Figures 7 and 8 agree where they meet, {at}: about 50 % and about 45 %"
    if not shares:
        return claim(PAPER, statement, None, "", 0)
    mean, low, high = interval(shares)
    holds = PUBLISHED["7"] == PUBLISHED["8"]
    return claim(PAPER, statement, holds, f"{mean:.1f} % ({low:.1f} to {high:.1f})", len(shares), _WHY_MEET)


def _invariance(runs: Runs) -> list[ScoreRow]:
    """Invariant means that it ends within 10 % of where it began, as for a number that matches."""
    rows = []
    for what, values in (
        (
            "pairs ordered",
            {delay: ordered_shares(runs, "hcg", FIGURE_8_LAMBDA, delay) for delay in delays_run(runs)},
        ),
        ("HCG over B", {delay: ratios_to_basic(runs, FIGURE_8_LAMBDA, delay) for delay in delays_run(runs)}),
    ):
        statement = f"Figure 8: invariant for δl (ends within 10 % of where it began), read as {what}"
        means = {delay: fmean(samples) for delay, samples in values.items() if samples}
        if len(means) < 2:
            rows.append(claim(PAPER, statement, None, "", 0))
            continue
        first, last = min(means), max(means)
        change = means[last] / means[first] - 1 if means[first] else 0.0
        shown = f"{means[first]:.1f} % at {first:g} µs, {means[last]:.1f} % at {last:g} µs: {change:+.1%}"
        count = sum(len(samples) for samples in values.values())
        rows.append(
            claim(PAPER, statement, abs(change) <= 0.1, shown, count, "it falls slowly, as (1 − δl/λ)² does")
        )
    return rows


def _frequency(runs: Runs) -> list[ScoreRow]:
    rows = []
    for delay in FIGURE_7_DELAYS:
        statement = (
            f"the more frequently a process sends, the fewer messages are causally ordered, δl = {delay:,} µs"
        )
        values = {lam: ordered_shares(runs, "hcg", lam, delay) for lam in LAMBDAS}
        means = {lam: fmean(samples) for lam, samples in values.items() if samples}
        ordered = list(means.values())
        holds = ordered == sorted(ordered) and ordered[0] < ordered[-1] if len(means) > 1 else None
        shown = ", ".join(f"{mean:.1f} % at {lam:,} µs" for lam, mean in means.items())
        count = sum(len(samples) for samples in values.values())
        rows.append(claim(PAPER, statement, holds, shown, count, "the share does not rise with λ throughout"))
    return rows


def _fewer(runs: Runs) -> ScoreRow:
    """Section 6 states what section 5 is meant to show."""
    statement = "HCG orders fewer messages than B, at every λ and δl"
    points = sorted({(window_of(done.scenario), delay_of(done.scenario)) for done in runs.finished})
    ratios = {point: fmean(samples) for point in points if (samples := ratios_to_basic(runs, *point))}
    if not ratios:
        return claim(PAPER, statement, None, "", 0)
    most, least = min(ratios.values()), max(ratios.values())
    shown = f"{100 - least:.1f} to {100 - most:.1f} % fewer"
    common = ratios.get((float(COMMON[0]), float(COMMON[1])))
    if common is not None:
        shown += f"; {100 - common:.1f} % at λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    count = len(runs.where(silent=(GATEWAY,)))
    return claim(PAPER, statement, least < 100, shown, count, "at some point B orders as few")


def _only_if(runs: Runs) -> list[ScoreRow]:
    """The shortest time from the send of a to that of b where a gateway orders a before b."""
    rows = []
    for protocol, statement in (
        ("hcg", "HCG: a precedes b only if b.LT − a.LT > δj"),
        ("basic", "B: a precedes b if b reaches the gateway after a, even if b was sent first"),
    ):
        here = runs.where(protocol=protocol, silent=(GATEWAY,))
        least = [
            (done.value(f"{FORWARDED}_least_ns") - 1000 * delay_of(done.scenario), delay_of(done.scenario))
            for done in here.finished
            if f"{FORWARDED}_least_ns" in done.metrics.measured
        ]
        if not least:
            rows.append(claim(PAPER, statement, None, "", 0))
            continue
        beyond, delay = min(least)
        if protocol == "hcg":
            holds, shown = beyond > 0, f"where the difference is δl and {beyond:,.0f} ns or more"
        else:
            early = -(beyond / 1000 + delay)
            holds, shown = early > 0, f"even where b was sent {early:,.0f} µs before a, δl = {delay:g} µs"
        rows.append(claim(PAPER, statement, holds, shown, len(here), "ordered by another rule"))
    return rows
