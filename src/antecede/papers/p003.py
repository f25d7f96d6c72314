"""Paper 003: how many messages a gateway orders, HCG against the basic protocol B (section 5).

A real-time subgroup of a gateway and a local process, and a remote process. In every window the gateway
forwards one message a of the remote process and the local process sends one message b, each at any time in
[0, λ]; then nothing until all is over. a and b are ordered if the packet in which the gateway passes b on
names a. The remote process is no delay away, so that a is forwarded when it is sent.

In closed form: HCG orders a before b if b is sent δl or more after a, which is so in (1 − δl/λ)²/2 of all
windows; B if a is there when b comes out of the subgroup's order, δl after it was sent: 1 − (1 − δl/λ)²/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from antecede.papers.board import Figure, Paper, Reading, Row, Runs, Scale, claim, interval, number
from antecede.papers.p003_open import OPEN_QUESTION, PAPER, open_figures, open_grid, open_score
from antecede.sim.scenario import Scenario, scenario

LAMBDAS = (100, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
"""Figure 7's axis, in µs."""
FIGURE_7_DELAYS = (100, 1000)
FIGURE_8_LAMBDA = 30_000
FIGURE_8_DELAYS: dict[Scale, tuple[int, ...]] = {
    "quick": (100, 400, 700, 1000),
    "full": tuple(range(100, 1001, 100)),
}
COMMON = (30_000, 1000)
"""λ and δl where the text gives a value for both figures."""
PUBLISHED = {"7": 50.0, "8": 45.0}
WINDOWS: dict[Scale, int] = {"quick": 400, "full": 2000}
SEEDS: dict[Scale, tuple[int, ...]] = {"quick": (1, 2, 3, 4), "full": tuple(range(1, 11))}
PROTOCOLS = ("hcg", "basic")

_GATEWAY, _LOCAL, _REMOTE = range(3)
_FORWARDED = "p1_after_p2"
_OWN, _OWN_BACK = "p1_after_p0", "p0_after_p1"

_WHY_ABOUT = "the paper says “about”; ours is (1 − δl/λ)²/2"
_WHY_RATIO = (
    "read so the printed value does not follow from the model: B orders little more than HCG, because both "
    "orders of a and b are equally likely and few pairs are within δl"
)
_WHY_MEET = "the same λ and δl have two printed values; here it is one run"


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


def run(protocol: str, lam: int, delay: int, windows: int, seed: int, *, own: bool = False) -> Scenario:
    """So many windows; with `own`, a is a message of the gateway's own."""
    window = 2 * (lam + 2 * delay)
    return scenario(
        protocol=protocol, peers=3, layout={"subgroups": ["rt:2", "vt:1"]}, seed=seed, payload=0,
        delay="0us", local_delay=f"{delay}us", workload="windows", rate=1e6 / window, jitter=lam / window,
        seconds=windows * window / 1e6, silent=(_REMOTE if own else _GATEWAY,), probes=("named",),
    )  # fmt: skip


def lam_of(made: Scenario) -> float:
    return round(1e6 * made.jitter / made.rate)


def delay_of(made: Scenario) -> float:
    return float((made.local_delay or "0us").removesuffix("us"))


def grid(scale: Scale) -> list[Scenario]:
    points = {(lam, delay) for lam in LAMBDAS for delay in FIGURE_7_DELAYS}
    points |= {(FIGURE_8_LAMBDA, delay) for delay in FIGURE_8_DELAYS[scale]}
    windows = WINDOWS[scale]
    return [
        run(protocol, lam, delay, windows, seed, own=own)
        for lam, delay, own in [*((*point, False) for point in sorted(points)), (*COMMON, True)]
        for protocol in PROTOCOLS
        for seed in SEEDS[scale]
    ]


def _at(runs: Runs, protocol: str, lam: float, delay: float, *, own: bool = False) -> Runs:
    return runs.where(
        lambda made: (lam_of(made), delay_of(made)) == (lam, delay),
        protocol=protocol,
        silent=(_REMOTE if own else _GATEWAY,),
    )


def _percent(runs: Runs, name: str = _FORWARDED) -> list[float]:
    return [100 * value for value in runs.values(name)]


def _shares(runs: Runs, protocol: str, lam: float, delay: float) -> list[float]:
    """Of the pairs, those that are ordered; one value for each seed."""
    return _percent(_at(runs, protocol, lam, delay))


def _ratios(runs: Runs, lam: float, delay: float) -> list[float]:
    """HCG's share of B's, each seed against the same seed."""
    pairs = zip(_shares(runs, "hcg", lam, delay), _shares(runs, "basic", lam, delay), strict=False)
    return [100 * hcg / basic for hcg, basic in pairs if basic]


def _delays(runs: Runs) -> list[float]:
    """What was run of Figure 8."""
    return sorted(runs.where(lambda made: lam_of(made) == FIGURE_8_LAMBDA, silent=(_GATEWAY,)).by(delay_of))


def _along(values: Sequence[Sequence[float]]) -> list[float]:
    """Each seed's mean over what it was run for."""
    return [fmean(each) for each in zip(*values, strict=False)]


def score(runs: Runs) -> list[Row]:
    shares, ratios = _shares(runs, "hcg", *COMMON), _ratios(runs, *COMMON)
    along = [_shares(runs, "hcg", FIGURE_8_LAMBDA, delay) for delay in _delays(runs)]
    along_ratios = [_ratios(runs, FIGURE_8_LAMBDA, delay) for delay in _delays(runs)]
    own = _at(runs, "hcg", *COMMON, own=True)
    at = f"at λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    over = f"at λ = {FIGURE_8_LAMBDA:,} µs, over δl = 100–1000 µs"
    of_7, of_8 = PUBLISHED["7"], PUBLISHED["8"]
    rows = [
        number(PAPER, f"Figure 7: pairs ordered {at}, %", of_7, shares, _WHY_ABOUT),
        number(PAPER, f"Figure 8: pairs ordered {over}, %", of_8, _along(along), _WHY_ABOUT),
        number(PAPER, f"Figure 8: pairs ordered {at}, %", of_8, shares, _WHY_ABOUT),
        number(PAPER, f"Figure 7, a sent by the gateway itself: a before b {at}, %", of_7,
               _percent(own, _OWN), _WHY_ABOUT),
        number(PAPER, f"Figure 7, a sent by the gateway itself: b before a {at}, %", of_7,
               _percent(own, _OWN_BACK), _WHY_ABOUT),
        number(PAPER, f"Figure 7, read as HCG over B {at}, %", of_7, ratios, _WHY_RATIO),
        number(PAPER, f"Figure 8, read as HCG over B {over}, %", of_8, _along(along_ratios), _WHY_RATIO),
        number(PAPER, f"Figure 7, read as saved of B {at}, %", of_7, [100 - r for r in ratios], _WHY_RATIO),
        number(PAPER, f"Figure 8, read as saved of B {over}, %", of_8,
               [100 - r for r in _along(along_ratios)], _WHY_RATIO),
    ]  # fmt: skip
    return [*rows, _meet(shares), *_invariance(runs), *_frequency(runs), _fewer(runs), *_only_if(runs)]


def _meet(shares: Sequence[float]) -> Row:
    """Decided by what is printed alone; ours is there to be compared."""
    at = f"λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    says = f"Figures 7 and 8 agree where they meet, {at}: about 50 % and about 45 %"
    if not shares:
        return claim(PAPER, says, None, "", 0)
    mean, low, high = interval(shares)
    holds = PUBLISHED["7"] == PUBLISHED["8"]
    return claim(PAPER, says, holds, f"{mean:.1f} % ({low:.1f} to {high:.1f})", len(shares), _WHY_MEET)


def _invariance(runs: Runs) -> list[Row]:
    """Invariant is what ends within 10 % of where it began, as a number that matches would."""
    rows = []
    for what, values in (
        ("pairs ordered", {delay: _shares(runs, "hcg", FIGURE_8_LAMBDA, delay) for delay in _delays(runs)}),
        ("HCG over B", {delay: _ratios(runs, FIGURE_8_LAMBDA, delay) for delay in _delays(runs)}),
    ):
        says = f"Figure 8: invariant for δl (ends within 10 % of where it began), read as {what}"
        means = {delay: fmean(those) for delay, those in values.items() if those}
        if len(means) < 2:
            rows.append(claim(PAPER, says, None, "", 0))
            continue
        first, last = min(means), max(means)
        change = means[last] / means[first] - 1 if means[first] else 0.0
        shown = f"{means[first]:.1f} % at {first:g} µs, {means[last]:.1f} % at {last:g} µs: {change:+.1%}"
        count = sum(len(those) for those in values.values())
        rows.append(
            claim(PAPER, says, abs(change) <= 0.1, shown, count, "it falls slowly, as (1 − δl/λ)² does")
        )
    return rows


def _frequency(runs: Runs) -> list[Row]:
    rows = []
    for delay in FIGURE_7_DELAYS:
        says = (
            f"the more frequently a process sends, the fewer messages are causally ordered, δl = {delay:,} µs"
        )
        values = {lam: _shares(runs, "hcg", lam, delay) for lam in LAMBDAS}
        means = {lam: fmean(those) for lam, those in values.items() if those}
        ordered = list(means.values())
        holds = ordered == sorted(ordered) and ordered[0] < ordered[-1] if len(means) > 1 else None
        shown = ", ".join(f"{mean:.1f} % at {lam:,} µs" for lam, mean in means.items())
        count = sum(len(those) for those in values.values())
        rows.append(claim(PAPER, says, holds, shown, count, "the share does not rise with λ throughout"))
    return rows


def _fewer(runs: Runs) -> Row:
    """Section 6 says what section 5 is to show."""
    says = "HCG orders fewer messages than B, at every λ and δl"
    points = sorted({(lam_of(done.scenario), delay_of(done.scenario)) for done in runs.done})
    ratios = {point: fmean(those) for point in points if (those := _ratios(runs, *point))}
    if not ratios:
        return claim(PAPER, says, None, "", 0)
    most, least = min(ratios.values()), max(ratios.values())
    shown = f"{100 - least:.1f} to {100 - most:.1f} % fewer"
    common = ratios.get((float(COMMON[0]), float(COMMON[1])))
    if common is not None:
        shown += f"; {100 - common:.1f} % at λ = {COMMON[0]:,} µs, δl = {COMMON[1]:,} µs"
    count = len(runs.where(silent=(_GATEWAY,)))
    return claim(PAPER, says, least < 100, shown, count, "at some point B orders as few")


def _only_if(runs: Runs) -> list[Row]:
    """How much later b was sent than a, at the least, where a gateway orders a before b."""
    rows = []
    for protocol, says in (
        ("hcg", "HCG: a precedes b only if b.LT − a.LT > δj"),
        ("basic", "B: a precedes b if b reaches the gateway after a, even if b was sent first"),
    ):
        here = runs.where(protocol=protocol, silent=(_GATEWAY,))
        least = [
            (done.value(f"{_FORWARDED}_least_ns") - 1000 * delay_of(done.scenario), delay_of(done.scenario))
            for done in here.done
            if f"{_FORWARDED}_least_ns" in done.metrics.measured
        ]
        if not least:
            rows.append(claim(PAPER, says, None, "", 0))
            continue
        beyond, delay = min(least)
        if protocol == "hcg":
            holds, shown = beyond > 0, f"where the difference is δl and {beyond:,.0f} ns or more"
        else:
            early = -(beyond / 1000 + delay)
            holds, shown = early > 0, f"even where b was sent {early:,.0f} µs before a, δl = {delay:g} µs"
        rows.append(claim(PAPER, says, holds, shown, len(here), "ordered by another rule"))
    return rows


def figures(runs: Runs) -> list[Figure]:
    return [*_figure_7(runs), *_figure_8(runs)]


def _figure_7(runs: Runs) -> list[Figure]:
    shares: dict[str, list[tuple[float, float]]] = {}
    ratios: dict[str, list[tuple[float, float]]] = {}
    for delay in FIGURE_7_DELAYS:
        lams = [lam for lam in LAMBDAS if len(_at(runs, "hcg", lam, delay))]
        name = f"δl = {delay:,} µs"
        shares[f"HCG, {name}"] = [(math.log10(lam), fmean(_shares(runs, "hcg", lam, delay))) for lam in lams]
        shares[f"closed form, {name}"] = [(math.log10(lam), 100 * closed_form(lam, delay)) for lam in lams]
        both = [lam for lam in lams if _ratios(runs, lam, delay)]
        ratios[f"HCG over B, {name}"] = [(math.log10(lam), fmean(_ratios(runs, lam, delay))) for lam in both]
        ratios[f"closed form, {name}"] = [(math.log10(lam), _closed_ratio(lam, delay)) for lam in both]
    printed = [(math.log10(COMMON[0]), PUBLISHED["7"])]
    at = f"δl = {COMMON[1]:,} µs"
    x_label = "log₁₀ of λ in µs"
    return [
        Figure("7", "Pairs ordered by HCG", x_label, "% of pairs", shares, {f"HCG, {at}": printed}),
        Figure(
            "7, second reading", "What HCG orders of what B orders", x_label, "% of B", ratios,
            {f"HCG over B, {at}": printed},
            "The axis is called a ratio to B; of B, HCG orders more than is printed.",
        ),
    ]  # fmt: skip


def _figure_8(runs: Runs) -> list[Figure]:
    delays = _delays(runs)

    def line(protocol: str) -> list[tuple[float, float]]:
        points = ((delay, _shares(runs, protocol, FIGURE_8_LAMBDA, delay)) for delay in delays)
        return [(delay, fmean(those)) for delay, those in points if those]

    shares = {
        "HCG": line("hcg"),
        "HCG, closed form": [(delay, 100 * closed_form(FIGURE_8_LAMBDA, delay)) for delay in delays],
        "B": line("basic"),
        "B, closed form": [(delay, 100 * closed_form_basic(FIGURE_8_LAMBDA, delay)) for delay in delays],
    }
    both = [delay for delay in delays if _ratios(runs, FIGURE_8_LAMBDA, delay)]
    ratios = {
        "HCG over B": [(delay, fmean(_ratios(runs, FIGURE_8_LAMBDA, delay))) for delay in both],
        "closed form": [(delay, _closed_ratio(FIGURE_8_LAMBDA, delay)) for delay in both],
    }
    printed = [(delay, PUBLISHED["8"]) for delay in delays]
    title, x_label = f"λ = {FIGURE_8_LAMBDA:,} µs", "δl, µs"
    return [
        Figure(
            "8", f"Pairs ordered, {title}", x_label, "% of pairs", shares, {"HCG": printed},
            "Where the figures meet, at 1000 µs, Figure 7 is said to be about 50 %.",
        ),
        Figure(
            "8, second reading", f"What HCG orders of what B orders, {title}", x_label, "% of B", ratios,
            {"HCG over B": printed},
        ),
    ]  # fmt: skip


def _closed_ratio(lam: float, delay: float) -> float:
    return 100 * closed_form(lam, delay) / closed_form_basic(lam, delay)


READINGS = [
    Reading(
        "“reduction ratio of the messages causally ordered in HCG to B”",
        "the share of pairs that HCG orders; as a ratio to B, and as what is saved of B, besides",
        "the text reads the figure as “only about 50 % of messages … causally precede”, a share",
    ),
    Reading(
        "“sends randomly one message every λ time units”",
        "one a and one b in each window, each at any time in [0, λ]; windows far apart",
        "“0 ≤ λ ≤ 100” beside λ = 100: the time is drawn from that interval",
    ),
    Reading(
        "“a gateway process sends a message a”",
        "a is a message from another subgroup that the gateway forwards; its own besides, at one point",
        "that is what gateways are for; their own are numbered in the subgroup's order, by B too",
    ),
    Reading(
        "“|b.LT − a.LT| > δj”",
        "b.LT − a.LT > δj: a before b only",
        "with the absolute value b would also follow what was sent after it, and 93 % be ordered",
    ),
    Reading(
        "which of the two precedes",
        "a before b, as where the model is described; the other way besides",
        "the text on Figure 7 has it the other way round; the shares are equal",
    ),
    Reading(
        "δl, and what HCG compares with",
        "every local packet takes δl; a may precede b if b is sent δl and 1 ns after it or later",
        "the subgroup waits for its longest delay before it delivers",
    ),
    Reading(
        "B: “sent after receiving m1 in a gateway”",
        "a is named if the gateway has it when b's turn comes, δl and 1 ns after b was sent",
        "it is the gateway that sends b on",
    ),
    Reading("λ of Figure 7", "100 to 300,000 µs", "as the text says; nothing changes much beyond 30,000"),
    Reading("clock difference", "none", "section 5 does not mention it"),
    Reading(
        "“invariant”", "ends within 10 % of where it began", "the scoreboard's own measure of what matches"
    ),
    Reading(
        "where Figures 7 and 8 meet",
        "one point, scored against both printed values",
        "“about 50 %” and “about 45 %” are said of the same λ and δl",
    ),
]

STUDY = Paper(
    PAPER,
    "Subgroups with different clocks, joined by gateways",
    grid,
    score,
    figures,
    READINGS,
    OPEN_QUESTION,
    open_grid,
    open_score,
    open_figures,
)
