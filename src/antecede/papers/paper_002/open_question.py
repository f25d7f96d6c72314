"""Paper 002's open question: flooding while links open and close. `pc` does it; this is what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from antecede.errors import InputError
from antecede.papers.paper import Figure, Runs, Scale
from antecede.papers.paper_002.overlays import PRINTED, TRIALS, broken, in_words
from antecede.papers.paper_002.runs import MS, PAPER
from antecede.papers.scoreboard import ScoreRow, claim
from antecede.sim.scenario import Scenario, scenario

OPEN_QUESTION = (
    "“Generalizing the algorithm to overcome dynamic changes directly is an important open problem.” Our "
    "protocol pc floods over links that open and close: causal order holds, a message still carries only its "
    "identity, and a change costs a ping over every link, and a pong."
)
CHURN = (0, 20, 100)
"""Links that open or close per second."""
OPEN_SIZES: dict[Scale, list[int]] = {"quick": [32], "full": [32, 64, 128]}


def open_grid(scale: Scale) -> list[Scenario]:
    """Flooding on a static hypercube, and `pc` on one with additional links that open and close."""
    return [
        scenario(
            protocol=protocol, peers=peers, seed=seed, seconds=2, rate=5, delay="1-50ms", churn=churn,
        )
        for peers in OPEN_SIZES[scale]
        for protocol, changes in (("flooding", (None,)), ("pc", CHURN))
        for churn in changes
        for seed in ((1, 2) if scale == "quick" else (1, 2, 3))
    ]  # fmt: skip


def _per_delivery(runs: Runs, figure: str) -> float:
    return fmean(run.value(figure) / run.metrics.deliveries for run in runs.finished)


def open_score(runs: Runs) -> list[ScoreRow]:
    return [*_moving_rows(), *_cost_rows(runs)]


def _moving_rows() -> list[ScoreRow]:
    try:
        scenario(protocol="flooding", churn=20)
        refused = False
    except InputError:
        refused = True
    naive, ours = broken(f"{PRINTED}:FloodingWithMovingLinks", churn=50.0), broken("pc", churn=50.0)
    shown = f"{'refused' if refused else 'let run'}; using new links at once, {in_words(*naive)}"
    statement = "flooding cannot run while links change"
    fixed = claim(PAPER, statement, refused and naive[0] > 0, shown, TRIALS)
    statement = "causal order by flooding while links change (pc)"
    return [fixed, claim(PAPER, statement, ours == (0, 0), in_words(*ours), TRIALS, own=True)]


def _cost_rows(runs: Runs) -> list[ScoreRow]:
    """The cost of changes at the largest size, compared with flooding a static overlay."""
    largest = max((run.scenario.peers for run in runs.finished), default=0)
    there = runs.where(peers=largest)
    parts = [there.where(protocol="flooding")]
    parts += [there.where(protocol="pc", churn=float(churn)) for churn in CHURN]
    known = all(len(part) for part in parts)

    def row(statement: str, values: list[float], unit: str, holds: bool) -> ScoreRow:
        pairs = zip(CHURN, values[1:], strict=False)
        moving = ", ".join(f"{value:.3g} with {churn}" for churn, value in pairs)
        shown = (
            f"flooding {values[0]:.3g}{unit}; pc {moving} changes a second, n = {largest}" if known else ""
        )
        return claim(PAPER, statement, holds if known else None, shown, len(there) if known else 0, own=True)

    parts = parts if known else []
    delays = [fmean(part.values("latency_mean_ns")) / MS for part in parts]
    carried = [fmean(part.values("control_bytes_mean")) for part in parts]
    packets = [_per_delivery(part, "packets") for part in parts]
    control = [_per_delivery(part, "link_bytes") for part in parts]
    same, more = "as flooding without changes, more with each", "per delivery"
    return [
        row("changes do not slow messages down (pc)", delays, " ms", _at_most(delays, 1.1)),
        row("a message carries no more when links change (pc)", carried, " bytes", _at_most(carried, 1)),
        row(f"packets {more}: {same} (pc)", packets, "", _rises(packets)),
        row(f"control bytes {more}: {same} (pc)", control, " bytes", _rises(control)),
    ]


def _at_most(values: Sequence[float], factor: float) -> bool:
    """Whether no value is above `factor` times the first."""
    return all(value <= factor * values[0] for value in values)


def _rises(values: Sequence[float]) -> bool:
    """Whether the first two are equal and the others rise from there."""
    return values[:1] == values[1:2] and list(values[1:]) == sorted(set(values[1:]))


def open_figures(runs: Runs) -> list[Figure]:
    charts = []
    for place, (figure, title, unit, scale) in enumerate(
        (("latency_mean_ns", "Mean delay", "ms", MS), ("packets", "Packets per delivery", "packets", 0.0),
         ("link_bytes", "Control bytes per delivery", "bytes", 0.0)), 1,
    ):  # fmt: skip
        lines = {}
        for name, part in (("pc", runs.where(protocol="pc")), ("flooding", runs.where(protocol="flooding"))):
            for peers, sized in part.by(lambda run: run.peers).items():
                by_churn = sized.by(lambda run: run.link_churn)
                points = [
                    (churn, fmean(each.values(figure)) / scale if scale else _per_delivery(each, figure))
                    for churn, each in by_churn.items()
                ]
                lines[f"{name}, {peers} nodes"] = points
        charts.append(Figure(f"beyond {place}", title, "link changes per second", unit, lines))
    return charts
