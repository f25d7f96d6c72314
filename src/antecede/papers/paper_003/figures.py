"""Paper 003's Figures 7 and 8, as shares of pairs and as ratios to the basic protocol."""

from __future__ import annotations

import math

from antecede.papers.paper import Figure, Points, Runs, mean
from antecede.papers.paper_003.runs import (
    COMMON,
    FIGURE_7_DELAYS,
    FIGURE_8_LAMBDA,
    LAMBDAS,
    PUBLISHED,
    closed_form,
    closed_form_basic,
    closed_form_ratio,
    delays_run,
    ordered_shares,
    ratios_to_basic,
    select,
)
from antecede.papers.readings import Joint


def figures(runs: Runs, joint: Joint) -> list[Figure]:
    del joint  # both are drawn
    return [*_figure_7(runs), *_figure_8(runs)]


def _power(lam: float) -> float:
    """The place on an axis of powers of ten, in as many digits as a tick has room for."""
    return round(math.log10(lam), 2)


def _figure_7(runs: Runs) -> list[Figure]:
    shares: dict[str, Points] = {}
    ratios: dict[str, Points] = {}
    for delay in FIGURE_7_DELAYS:
        lams = [lam for lam in LAMBDAS if len(select(runs, "hcg", lam, delay))]
        name = f"δl = {delay:,} µs"
        shares[f"HCG, {name}"] = [
            (_power(lam), mean(ordered_shares(runs, "hcg", lam, delay))) for lam in lams
        ]
        shares[f"closed form, {name}"] = [(_power(lam), 100 * closed_form(lam, delay)) for lam in lams]
        both = [lam for lam in lams if ratios_to_basic(runs, lam, delay)]
        ratios[f"HCG over B, {name}"] = [
            (_power(lam), mean(ratios_to_basic(runs, lam, delay))) for lam in both
        ]
        ratios[f"closed form, {name}"] = [(_power(lam), closed_form_ratio(lam, delay)) for lam in both]
    printed = [(_power(COMMON[0]), PUBLISHED["7"])]
    at = f"δl = {COMMON[1]:,} µs"
    x_label = "power of ten of λ in µs"
    axis = f"On the x axis 2 is 100 µs, 3 is 1,000 µs; the printed value is at λ = {COMMON[0]:,} µs."
    return [
        Figure("7", "Pairs ordered by HCG", x_label, "% of pairs", shares, {f"HCG, {at}": printed},
            axis),
        Figure(
            "7, second reading", "Pairs ordered by HCG, relative to B", x_label, "% of B", ratios,
            {f"HCG over B, {at}": printed},
            f"The axis is labelled a ratio to B. {axis}",
        ),
    ]  # fmt: skip


def _figure_8(runs: Runs) -> list[Figure]:
    delays = delays_run(runs)

    def line(protocol: str) -> Points:
        points = ((delay, ordered_shares(runs, protocol, FIGURE_8_LAMBDA, delay)) for delay in delays)
        return [(delay, mean(samples)) for delay, samples in points if samples]

    shares = {
        "HCG": line("hcg"),
        "HCG, closed form": [(delay, 100 * closed_form(FIGURE_8_LAMBDA, delay)) for delay in delays],
        "B": line("basic"),
        "B, closed form": [(delay, 100 * closed_form_basic(FIGURE_8_LAMBDA, delay)) for delay in delays],
    }
    both = [delay for delay in delays if ratios_to_basic(runs, FIGURE_8_LAMBDA, delay)]
    ratios = {
        "HCG over B": [(delay, mean(ratios_to_basic(runs, FIGURE_8_LAMBDA, delay))) for delay in both],
        "closed form": [(delay, closed_form_ratio(FIGURE_8_LAMBDA, delay)) for delay in both],
    }
    printed = [(delay, PUBLISHED["8"]) for delay in delays]
    title, x_label = f"λ = {FIGURE_8_LAMBDA:,} µs", "δl, µs"
    return [
        Figure(
            "8", f"Pairs ordered, {title}", x_label, "% of pairs", shares, {"HCG": printed},
            "Where the figures meet, at 1000 µs, the text gives about 50 % for Figure 7.",
        ),
        Figure(
            "8, second reading", f"Pairs ordered by HCG, relative to B, {title}", x_label, "% of B", ratios,
            {"HCG over B": printed},
        ),
    ]  # fmt: skip
