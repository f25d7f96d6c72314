"""Paper 000's scoreboard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise
from statistics import fmean

from antecede.papers.paper import FinishedRun, Points, Runs, mean
from antecede.papers.paper_000.home_numbers import home_intervals
from antecede.papers.paper_000.runs import DELAYS, PAPER, PASSIVE, RATES, USUAL, select, size
from antecede.papers.readings import Joint
from antecede.papers.scoreboard import ScoreRow, claim, number, slope
from antecede.papers.verdicts import MATCH, Holds, all_hold, flat_scale, interval, is_less, opposite

MEASURES = {
    # printed quantity: (protocol, figure of a run)
    "internal communication": ("freescale", "down_paper_bytes"),
    "external communication": ("freescale", "across_paper_bytes"),
    "IDR communication": ("mbcp", "dependent_paper_bytes"),
    "DS communication": ("depseq", "sequenced_paper_bytes"),
    "internal storage": ("freescale", "internal_storage"),
    "external storage": ("freescale", "external_storage"),
    "IDR storage": ("mbcp", "member_storage"),
}
SLOPES = {
    "internal communication": (0.098, 0.461, 0.990),
    "external communication": (1.018, 3.480, 3.617),
    "IDR communication": (1.760, 4.965, 3.830),
    "DS communication": (4.356, 5.561, 7.162),
    "internal storage": (0.143, 0.603, 1.325),
    "external storage": (2.952, 4.225, 4.680),
    "IDR storage": (5.388, 6.838, 6.378),
}
AT = {
    # at 900, 500 and 400 peers
    "internal communication": (90, 230, 400),
    "external communication": (950, 1700, 1400),
    "IDR communication": (1650, 2400, 1500),
    "DS communication": (3950, 2800, 2850),
    "internal storage": (128, 300, 550),
    "external storage": (2700, 2100, 1860),
    "IDR storage": (4900, 3400, 2500),
}
LARGEST_PUBLISHED = (900, 500, 400)
RATIOS = {
    ("IDR communication", "internal communication"): (18.3, 10.0, 3.5),
    ("IDR storage", "internal storage"): (38.0, 11.0, 4.5),
    ("IDR communication", "external communication"): (1.7, 1.4, 1.0),
    ("DS communication", "external communication"): (4.1, 1.64, 2.0),
    ("IDR storage", "external storage"): (1.7, 1.6, 1.3),
}
RATE_SLOPES = {
    # delays: of the internal and of the external group, for each rate
    "0–50 ms": ((0.0612, 0.0611, 0.0603, 0.0583), (0.0685, 0.0728, 0.0735, 0.0719)),
    "50–250 ms": ((0.0083, 0.0041, 0.0045, 0.0241), (0.4632, 0.1215, 0.0147, -0.0374)),
    "50–550 ms": ((0.002177, 0.002721, 0.005813, -0.006493), None),
}

WIDEST_GAP = 0.05
"""“The difference between slopes with the message limit is less than five percent.”"""
RATE_RATIOS = {"internal communication": 1.60, "external communication": 13.9}
"""How much smaller slopes are at fixed rates, 0–50 ms."""
RATE_RATIOS_LONG = {"internal communication": 45.0, "external communication": 25.0}
"""The same at 50–250 ms."""

_WHY_DS = "what a peer has of its super peer's numbers, and what is counted of it, is not printed"
_WHY_RATIO = "the ratio still changes with the size"
_cached_intervals = cache(home_intervals)


def value(done: FinishedRun, measure: str, joint: Joint) -> float:
    """A printed quantity of a run, counted as the joint reading says."""
    figure = MEASURES[measure][1]
    if measure == "internal communication" and joint["Last"] == "bit":
        figure = "down_last_paper_bytes"
    counted = done.value(figure)
    if measure == "DS communication" and joint["DS"] == "home":
        setting = done.scenario
        counted += 8 * _cached_intervals(
            setting.peers, setting.delay, setting.interval or USUAL, setting.seed
        )
    return counted


def line(runs: Runs, measure: str, joint: Joint) -> Points:
    """The mean of a quantity at each size."""
    return [
        (peers, mean([value(done, measure, joint) for done in sized.finished]))
        for peers, sized in runs.by(size).items()
    ]


def _slopes(runs: Runs, measure: str, joint: Joint, least: float = 0.0) -> list[float]:
    """The slope over sizes of at least `least`, for each seed, where there is more than one size."""
    by_seed = runs.where(lambda setting: size(setting) >= least).by(lambda setting: setting.seed).values()
    lines = [line(each, measure, joint) for each in by_seed]
    return [slope(points) for points in lines if len(points) > 1]


def _at(runs: Runs, measure: str, joint: Joint, peers: float) -> list[float]:
    there = runs.where(lambda setting: size(setting) == peers)
    return [value(done, measure, joint) for done in there.finished]


def _of(runs: Runs, measure: str, delay: str, rate: int | None = None) -> Runs:
    return select(runs, MEASURES[measure][0], delay, rate)


def score(runs: Runs, joint: Joint) -> list[ScoreRow]:
    rows = []
    for place, delay in enumerate(DELAYS):
        largest = LARGEST_PUBLISHED[place]
        for measure, printed in SLOPES.items():
            slopes = _slopes(_of(runs, measure, delay), measure, joint)
            what = f"{measure}, slope per peer, {delay}"
            rows.append(number(PAPER, what, printed[place], slopes, _why(measure)))
        for measure, at in AT.items():
            values = _at(_of(runs, measure, delay), measure, joint, largest)
            what = f"{measure} at {largest} peers, {delay}, bytes"
            rows.append(number(PAPER, what, at[place], values, _why(measure)))
        rows += _ratios(runs, joint, delay, place)
    return [*rows, *_rate_rows(runs, joint), *_rate_claims(runs, joint), *_claims(runs, joint)]


def _ratios(runs: Runs, joint: Joint, delay: str, place: int) -> list[ScoreRow]:
    rows = []
    for (above, below), printed in RATIOS.items():
        tops, bottoms = (_largest(_of(runs, each, delay), each, joint) for each in (above, below))
        ratios = [top / bottom for top, bottom in zip(tops, bottoms, strict=False) if bottom]
        what = f"{above} over {below}, {delay}"
        rows.append(number(PAPER, what, printed[place], ratios, _why(above) or _WHY_RATIO))
    return rows


def _why(measure: str) -> str:
    return _WHY_DS if measure.startswith("DS") else ""


def _largest(runs: Runs, measure: str, joint: Joint) -> list[float]:
    by_size = runs.by(size)
    return _at(runs, measure, joint, max(by_size)) if by_size else []


def _rate_slopes(runs: Runs, joint: Joint, measure: str, delay: str, rate: int) -> list[float]:
    return _slopes(_linear(_of(runs, measure, delay, rate), joint), measure, joint)


def _linear(runs: Runs, joint: Joint) -> Runs:
    """The runs of the linear part."""
    return runs.where(lambda setting: size(setting) >= float(joint["linear from"]))


def _rate_rows(runs: Runs, joint: Joint) -> list[ScoreRow]:
    rows = []
    for delay, groups in RATE_SLOPES.items():
        for measure, printed in zip(
            ("internal communication", "external communication"), groups, strict=True
        ):
            for rate, published in zip(RATES, printed or (), strict=False):
                slopes = _rate_slopes(runs, joint, measure, delay, rate)
                # The scale is of all sizes: where the linear part begins must not make it wider.
                drawn = line(_of(runs, measure, delay, rate), measure, joint)
                scale = flat_scale(drawn) if slopes else 0.0
                what = f"{measure}, slope per peer at {rate} messages/s in all, {delay}"
                why = _why_rate(_linear(_of(runs, measure, delay, rate), joint), measure, joint, published)
                rows.append(number(PAPER, what, published, slopes, why, scale))
    return rows


def _why_rate(runs: Runs, measure: str, joint: Joint, published: float) -> str:
    """Explains how small the slope is relative to its quantity."""
    drawn = line(runs, measure, joint)
    if len(drawn) < 2:
        return ""
    (first, low), (last, high) = drawn[0], drawn[-1]
    printed = published * (last - first)
    share = 100 * abs(high - low - printed) / low if low else 0.0
    return (
        f"from {first:g} to {last:g} peers ours changes by {high - low:+.1f} of {low:,.0f} bytes, with the "
        f"printed slope by {printed:+.1f}: {share:.1f} % of the bytes apart; we do not know why"
    )


def _rate_claims(runs: Runs, joint: Joint) -> list[ScoreRow]:
    """What the paper concludes from the slopes at fixed rates."""
    rows = []
    short, middle, long = DELAYS
    for measure, printed in RATE_RATIOS.items():
        limited = {rate: _rate_slopes(runs, joint, measure, short, rate) for rate in RATES}
        rows.append(_narrow(measure, limited))
        what = f"{measure}: slope at 12.5 messages/s a peer over those at fixed rates, {short}"
        rows.append(
            number(
                PAPER,
                what,
                printed,
                _over(runs, joint, measure, short),
                _why_over(runs, joint, measure, short),
            )
        )
        what = f"{measure}: slope at 12.5 messages/s a peer over those at fixed rates, {middle}"
        published = RATE_RATIOS_LONG[measure]
        rows.append(
            number(
                PAPER,
                what,
                published,
                _over(runs, joint, measure, middle),
                _why_over(runs, joint, measure, middle),
            )
        )
    return [*rows, _not_linear(runs, joint, long), *_passive_rows(runs, joint)]


def _not_linear(runs: Runs, joint: Joint, delay: str) -> ScoreRow:
    measure = "external communication"
    usual = _slopes(_of(runs, measure, delay), measure, joint)
    reached, shown = [], []
    for rate in RATES:
        at = _of(runs, measure, delay, rate)
        before, last = (_slopes(_between(at, low, low + 100), measure, joint) for low in (200, 300))
        reached.append(is_linear(before, last, usual))
        if before and last:
            shown.append(f"{fmean(before):.2f} and {fmean(last):.2f} at {rate}/s")
    statement = f"the linear part is not reached in the external group at fixed rates, {delay}"
    text = f"slopes from 200 to 300 and from 300 to 400 peers: {', '.join(shown)}"
    without = f"; {fmean(usual):.2f} without a limit" if usual else ""
    holds = all_hold([opposite(each) for each in reached])
    return claim(PAPER, statement, holds, text + without, len(_of(runs, measure, delay, RATES[0])))


def _between(runs: Runs, least: float, most: float) -> Runs:
    return runs.where(lambda setting: least <= size(setting) <= most)


def is_linear(before: Sequence[float], last: Sequence[float], usual: Sequence[float]) -> Holds:
    """Whether a line has reached its second, linear part: it rises as before, and less than half as steeply
    as without a limit on messages, as it does in the first part.

    >>> is_linear([0.1, 0.1], [0.1, 0.1], [3.0, 3.0]), is_linear([3.0, 3.0], [3.0, 3.0], [3.0, 3.0])
    (True, False)
    """
    return all_hold([within([before, last], MATCH), is_less(last, [slope / 2 for slope in usual])])


def _narrow(measure: str, limited: dict[int, list[float]]) -> ScoreRow:
    statement = f"{measure}: slopes at fixed rates differ by less than 5 %, 0–50 ms"
    if not all(limited.values()):
        return claim(PAPER, statement, None, "", 0)
    count = len(limited[RATES[0]])
    shown = ", ".join(f"{fmean(slopes):.4f} at {rate}/s" for rate, slopes in limited.items())
    printed = "the printed ones differ by 5.0 % (internal) and 7.3 % (external)"
    return claim(PAPER, statement, within(list(limited.values()), WIDEST_GAP), shown, count, printed)


def within(samples: Sequence[Sequence[float]], share: float) -> Holds:
    """Whether samples with the same seeds differ by less than a share, each from each.

    >>> within([[100, 101], [100, 101]], 0.05), within([[100, 101], [112, 113]], 0.05)
    (True, False)
    """
    parts = []
    for one, other in combinations(samples, 2):
        pairs = list(zip(one, other, strict=False))
        parts.append(is_less([a for a, _ in pairs], [b * (1 + share) for _, b in pairs]))
        parts.append(is_less([b for _, b in pairs], [a * (1 + share) for a, _ in pairs]))
    return all_hold(parts)


def _over(runs: Runs, joint: Joint, measure: str, delay: str) -> list[float]:
    """The usual slope over the mean of those at fixed rates, for each seed."""
    usual = _slopes(_of(runs, measure, delay), measure, joint)
    limited = [_rate_slopes(runs, joint, measure, delay, rate) for rate in RATES]
    means = [fmean(each) for each in zip(*limited, strict=False)]
    return [one / other for one, other in zip(usual, means, strict=False) if other]


def _why_over(runs: Runs, joint: Joint, measure: str, delay: str) -> str:
    limited = [_rate_slopes(runs, joint, measure, delay, rate) for rate in RATES]
    if not all(limited):
        return ""
    shown = ", ".join(f"{fmean(slopes):.4f}" for slopes in limited)
    rates = ", ".join(map(str, RATES))
    return (
        f"it is divided by the mean of slopes that have rows of their own: {shown} bytes a peer at {rates} "
        "messages/s"
    )


def _passive_rows(runs: Runs, joint: Joint) -> list[ScoreRow]:
    """300 peers of which 200 only receive, compared with 100 peers that all send."""
    rows = []
    peers, active = PASSIVE
    silent = runs.where(lambda setting: len(setting.silent) > 1, protocol="freescale")
    for measure in ("internal communication", "external communication"):
        alone = _at(_of(runs, measure, "50–250 ms"), measure, joint, active)
        among = [value(done, measure, joint) for done in silent.finished]
        statement = f"{measure}: {peers - active} passive receivers do not increase it (within 10 %)"
        ratios = [one / other for one, other in zip(among, alone, strict=False) if other]
        if not ratios:
            rows.append(claim(PAPER, statement, None, "", 0))
            continue
        mean, low, high = interval(ratios)
        parts = [is_less([0.9] * len(ratios), ratios), is_less(ratios, [1.1] * len(ratios))]
        shown = f"×{mean:.3f} ({low:.3f} to {high:.3f}) of that of {active} peers"
        rows.append(claim(PAPER, statement, all_hold(parts), shown, len(ratios)))
    return rows


def _claims(runs: Runs, joint: Joint) -> list[ScoreRow]:
    rows = []
    names = ("internal communication", "external communication", "IDR communication", "DS communication")
    for delay in DELAYS:
        found = [_largest(_of(runs, name, delay), name, joint) for name in names]
        steps = [is_less(one, other) for one, other in pairwise(found)]
        shown = " < ".join(f"{fmean(values):,.0f}" for values in found if values)
        statement = f"internal < external < IDR < DS communication, {delay}"
        holds = None if not all(found) else all_hold(steps)
        rows.append(claim(PAPER, statement, holds, shown, len(found[0]), _WHY_DS))
    return rows
