"""Paper 003's scoreboard."""

from __future__ import annotations

from statistics import fmean

from antecede.papers.paper import Runs
from antecede.papers.paper_003.runs import (
    COMMON,
    FIGURE_7_DELAYS,
    FIGURE_8_LAMBDA,
    FORWARDED,
    GATEWAY,
    LAMBDAS,
    PAPER,
    PUBLISHED,
    delay_of,
    delays_run,
    is_own,
    means_by_seed,
    ordered_shares,
    pair_of,
    ratios_to_basic,
    shown,
    window_of,
)
from antecede.papers.paper_003.theorems import theorem_rows
from antecede.papers.readings import Joint
from antecede.papers.scoreboard import ScoreRow, claim, number

_WHY = {
    "share": "the paper says “about”; ours is (1 − δl/λ)²/2",
    "HCG over B": (
        "in this reading the printed value does not follow from the model: B orders little more than HCG, as "
        "both orders of a and b are equally likely and few pairs are within δl"
    ),
}


def score(runs: Runs, joint: Joint) -> list[ScoreRow]:
    at_both = shown(runs, joint, *COMMON)
    along = [shown(runs, joint, FIGURE_8_LAMBDA, delay) for delay in delays_run(runs)]
    at = f"at λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    over = f"at λ = {FIGURE_8_LAMBDA:,} µs, over δl = 100–1000 µs"
    of_7, of_8 = PUBLISHED["7"], PUBLISHED["8"]
    why = _WHY.get(joint["ratio"], _WHY["HCG over B"])
    return [
        number(PAPER, f"Figure 7: {at}, %", of_7, at_both, why),
        number(PAPER, f"Figure 8: {over}, %", of_8, means_by_seed(along), why),
        number(PAPER, f"Figure 8: {at}, %", of_8, at_both, why),
        _invariance(runs, joint),
        *_frequency(runs, joint),
        _fewer(runs, joint),
        *(_only_if(runs) if not is_own(joint) else []),
        *theorem_rows(),
    ]


def _invariance(runs: Runs, joint: Joint) -> ScoreRow:
    """Invariant means that it ends within 10 % of where it began, as for a number that matches."""
    statement = "Figure 8: invariant for δl (ends within 10 % of where it began)"
    values = {delay: shown(runs, joint, FIGURE_8_LAMBDA, delay) for delay in delays_run(runs)}
    means = {delay: fmean(samples) for delay, samples in values.items() if samples}
    if len(means) < 2:
        return claim(PAPER, statement, None, "", 0)
    first, last = min(means), max(means)
    change = means[last] / means[first] - 1 if means[first] else 0.0
    text = f"{means[first]:.1f} % at {first:g} µs, {means[last]:.1f} % at {last:g} µs: {change:+.1%}"
    count = sum(len(samples) for samples in values.values())
    return claim(PAPER, statement, abs(change) <= 0.1, text, count, "it changes slowly, as (1 − δl/λ)² does")


def _frequency(runs: Runs, joint: Joint) -> list[ScoreRow]:
    rows = []
    for delay in FIGURE_7_DELAYS:
        statement = (
            f"the more frequently a process sends, the fewer messages are causally ordered, δl = {delay:,} µs"
        )
        values = {lam: ordered_shares(runs, "hcg", lam, delay, pair_of(joint)) for lam in LAMBDAS}
        means = {lam: fmean(samples) for lam, samples in values.items() if samples}
        ordered = list(means.values())
        holds = ordered == sorted(ordered) and ordered[0] < ordered[-1] if len(means) > 1 else None
        text = ", ".join(f"{mean:.1f} % at {lam:,} µs" for lam, mean in means.items())
        count = sum(len(samples) for samples in values.values())
        rows.append(claim(PAPER, statement, holds, text, count, "the share does not rise with λ throughout"))
    return rows


def _fewer(runs: Runs, joint: Joint) -> ScoreRow:
    """Section 6 states what section 5 is meant to show."""
    statement = "HCG orders fewer messages than B, at every λ and δl"
    points = sorted({(window_of(done.scenario), delay_of(done.scenario)) for done in runs.finished})
    ratios = {
        point: fmean(samples)
        for point in points
        if (samples := ratios_to_basic(runs, *point, pair_of(joint)))
    }
    if not ratios:
        return claim(PAPER, statement, None, "", 0)
    most, least = min(ratios.values()), max(ratios.values())
    text = f"{100 - least:.1f} to {100 - most:.1f} % fewer"
    common = ratios.get((float(COMMON[0]), float(COMMON[1])))
    if common is not None:
        text += f"; {100 - common:.1f} % at λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    count = len(runs)
    return claim(PAPER, statement, least < 100, text, count, "at some point B orders as few")


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
            holds, text = beyond > 0, f"where the difference is δl and {beyond:,.0f} ns or more"
        else:
            early = -(beyond / 1000 + delay)
            holds, text = early > 0, f"even where b was sent {early:,.0f} µs before a, δl = {delay:g} µs"
        rows.append(claim(PAPER, statement, holds, text, len(here), "ordered by another rule"))
    return rows
