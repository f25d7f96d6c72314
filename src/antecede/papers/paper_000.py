"""Paper 000: communication and storage overhead in a free-scale network, compared with IDR and DS.

An internal and an external group of equal size are joined by a super peer that sends no messages of its own.
Every peer sends every 70 to 90 ms. IDR is `mbcp` on all peers with a relay in place of the super peer; DS is
`depseq` on the external group alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from antecede.papers.paper import Figure, Paper, Reading, Runs, Scale, wire_figure
from antecede.papers.scoreboard import ScoreRow, claim, number, slope
from antecede.sim.scenario import Scenario, scenario

PAPER = "000"
DELAYS = {"0–50 ms": "normal:0-50ms", "50–250 ms": "normal:50-250ms", "50–550 ms": "normal:50-550ms"}
_WARMUP = {"0–50 ms": 0.5, "50–250 ms": 1.0, "50–550 ms": 2.0}
_MEASURED: dict[Scale, float] = {"quick": 2.0, "full": 5.0}
"""Seconds after the warm-up."""
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
RATE_SIZES: dict[Scale, list[int]] = {"quick": [], "full": [100, 150, 200]}
"""The paper gives the slope of the linear part, which begins at 100 to 200 peers."""

PROTOCOLS = ("freescale", "mbcp", "depseq")
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

_WHY_IDR = (
    "with a relay that adds one delay each way; the paper says only that the super peer retransmits, and the "
    "shorter the delays, the more that matters"
)
_WHY_DS = (
    "under causal delivery a peer's delivered messages are one interval, 8 bytes; the paper's excess over 4 "
    "bytes per peer would follow if intervals of the super peers' numbers were stored too"
)
_WHY_RATIO = "the ratio still changes with the size"
_WHY_RATE = "a small slope, from three sizes where the linear part only begins"


def _run(
    protocol: str, peers: int, delay: str, seed: int, scale: Scale, interval: str = "normal:70-90ms"
) -> Scenario:
    """A run with `peers` peers, half of them in the internal group."""
    half = peers // 2
    fields: dict[str, object] = {
        "protocol": protocol, "seed": seed, "workload": "drawn", "interval": interval, "payload": 0,
        "seconds": _WARMUP[delay] + _MEASURED[scale], "warmup": _WARMUP[delay], "probes": ("costs",),
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


def grid(scale: Scale) -> list[Scenario]:
    seeds = (1, 2) if scale == "quick" else (1, 2, 3, 4, 5)
    runs = [
        _run(protocol, peers, delay, seed, scale)
        for delay, sizes in SIZES[scale].items()
        for peers in sizes
        for protocol in PROTOCOLS
        for seed in seeds
    ]
    runs += [
        _run("freescale", peers, delay, seed, scale, interval_of(rate, peers))
        for delay in DELAYS
        for rate in RATES
        for peers in RATE_SIZES[scale]
        for seed in seeds
    ]
    return runs


def _of(runs: Runs, measure: str, delay: str, rate: int | None = None) -> Runs:
    protocol, _ = MEASURES[measure]

    def belongs(setting: Scenario) -> bool:
        text = setting.network.delay if setting.network is not None else setting.delay  # type: ignore[union-attr]
        interval = "normal:70-90ms" if rate is None else interval_of(rate, round(size(setting)))
        return text == DELAYS[delay] and setting.interval == interval

    return runs.where(belongs, protocol=protocol)


def _slopes(runs: Runs, measure: str) -> list[float]:
    """The slope over sizes for each seed, where there is more than one size."""
    by_seed = runs.by(lambda setting: setting.seed).values()
    lines = [each.line(MEASURES[measure][1], size) for each in by_seed]
    return [slope(line) for line in lines if len(line) > 1]


def score(runs: Runs) -> list[ScoreRow]:
    rows = []
    for place, delay in enumerate(DELAYS):
        largest = LARGEST_PUBLISHED[place]
        for measure, printed in SLOPES.items():
            what = f"{measure}, slope per peer, {delay}"
            slopes = _slopes(_of(runs, measure, delay), measure)
            rows.append(number(PAPER, what, printed[place], slopes, _why(measure)))
        for measure, at in AT.items():
            there = _of(runs, measure, delay).where(lambda setting, n=largest: size(setting) == n)  # type: ignore[misc]
            values = there.values(MEASURES[measure][1])
            what = f"{measure} at {largest} peers, {delay}, bytes"
            rows.append(number(PAPER, what, at[place], values, _why(measure)))
        rows += _ratios(runs, delay, place)
    rows += _rate_rows(runs)
    rows += _claims(runs)
    return rows


def _ratios(runs: Runs, delay: str, place: int) -> list[ScoreRow]:
    """Printed for the largest size; ours are for the largest size that was run."""
    rows = []
    for (above, below), printed in RATIOS.items():
        tops, bottoms = (_largest(_of(runs, measure, delay), measure) for measure in (above, below))
        ratios = [top / bottom for top, bottom in zip(tops, bottoms, strict=False) if bottom]
        what = f"{above} over {below}, {delay}"
        why = _why(above) if _largest_size(runs) >= LARGEST_PUBLISHED[place] else _WHY_RATIO
        rows.append(number(PAPER, what, printed[place], ratios, why))
    return rows


def _why(measure: str) -> str:
    return {"DS": _WHY_DS, "IDR": _WHY_IDR}.get(measure.split()[0], "at the sizes that were run")


def _largest_size(runs: Runs) -> float:
    return max((size(run.scenario) for run in runs.finished), default=0.0)


def _largest(runs: Runs, measure: str) -> list[float]:
    by_size = runs.by(size)
    return by_size[max(by_size)].values(MEASURES[measure][1]) if by_size else []


def _rate_rows(runs: Runs) -> list[ScoreRow]:
    rows = []
    for delay, groups in RATE_SLOPES.items():
        for measure, printed in zip(
            ("internal communication", "external communication"), groups, strict=True
        ):
            for rate, value in zip(RATES, printed or (), strict=False):
                slopes = _slopes(_of(runs, measure, delay, rate), measure)
                what = f"{measure}, slope per peer at {rate} messages/s in all, {delay}"
                rows.append(number(PAPER, what, value, slopes, _WHY_RATE))
    return rows


def _claims(runs: Runs) -> list[ScoreRow]:
    rows = []
    for delay in DELAYS:
        names = ("internal communication", "external communication", "IDR communication", "DS communication")
        means = [_mean(_largest(_of(runs, name, delay), name)) for name in names]
        holds = None if None in means else means == sorted(means, key=lambda mean: mean or 0.0)
        shown = " < ".join(f"{mean:,.0f}" for mean in means if mean is not None)
        statement = f"internal < external < IDR < DS communication, {delay}"
        rows.append(claim(PAPER, statement, holds, shown, len(_of(runs, names[0], delay)), _WHY_DS))
    return rows


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def figures(runs: Runs) -> list[Figure]:
    charts = []
    for place, delay in enumerate(DELAYS):
        for part, names in (
            (
                "a",
                ("internal communication", "external communication", "IDR communication", "DS communication"),
            ),
            ("b", ("internal storage", "external storage", "IDR storage")),
        ):
            lines = {name.split()[0]: _of(runs, name, delay).line(MEASURES[name][1], size) for name in names}
            largest = float(LARGEST_PUBLISHED[place])
            printed = {name.split()[0]: [(largest, float(AT[name][place]))] for name in names}
            kind = names[0].split()[1]
            title = f"{kind.capitalize()} overhead, delays of {delay}"
            charts.append(Figure(f"{4 + place}{part}", title, "peers", "bytes", lines, printed))
    for place, delay in enumerate(DELAYS):
        for part, name in (("a", "internal communication"), ("b", "external communication")):
            lines = {
                f"{rate}/s": _of(runs, name, delay, rate).line(MEASURES[name][1], size)
                for rate in RATES
                if len(_of(runs, name, delay, rate))
            }
            lines["12.5/s per peer"] = _of(runs, name, delay).line(MEASURES[name][1], size)
            title = f"{name.capitalize()} at a fixed total rate, delays of {delay}"
            charts.append(Figure(f"{7 + place}{part}", title, "peers", "bytes", lines))
    return charts + _wire(runs)


def _wire(runs: Runs) -> list[Figure]:
    both = {}
    for measure in (name for name in MEASURES if name.endswith("communication")):
        there, figure = _of(runs, measure, "50–250 ms"), MEASURES[measure][1]
        both[measure.split()[0]] = there.line(figure, size), there.line(figure.replace("paper", "wire"), size)
    return wire_figure(both)


READINGS = [
    Reading(
        "“variance equal to one fourth of the interval”",
        "standard deviation a quarter of the interval",
        "the paper's own example, N(80, 5) for 70–90 ms, and its figures",
    ),
    Reading("bytes of a pair and of a clock entry", "4 + 4 and 4", "not printed; the usual sizes"),
    Reading(
        "bytes of a bit vector",
        "bits from the first to the last that is set; for RV and VTx from the first that is cleared",
        "section 3.1.2 says which bits must be stored",
    ),
    Reading("identities, SN, Last and offsets", "not counted", "the figures start near zero"),
    Reading("when storage is measured", "every 50 ms after a warm-up, averaged over peers", "“on average”"),
    Reading(
        "the form of the protocol",
        "the paper's own (I as bits)",
        "its figures include I; our form is smaller",
    ),
    Reading(
        "the super peer in IDR", "a relay: two delays to and from internal peers", "it “only retransmits”"
    ),
    Reading("DS", "the external group alone, one peer each", "“only the external group is considered”"),
]


# The open question: several super peers and internal groups

OPEN_PEERS: dict[Scale, int] = {"quick": 24, "full": 96}
OPEN_SUPERS = (1, 2, 3, 4, 6)


def open_grid(scale: Scale) -> list[Scenario]:
    """Half the peers internal, divided among more and more super peers, in both forms of the protocol."""
    peers = OPEN_PEERS[scale]
    return [
        scenario(
            protocol="freescale", peers=peers + supers, seed=seed, workload="drawn",
            interval="normal:70-90ms", delay="normal:50-250ms", seconds=2.5, warmup=1.0,
            probes=("costs",), payload=0,
            layout={"inside": [peers // 2 // supers] * supers, "form": form}, silent=tuple(range(supers)),
        )
        for supers in OPEN_SUPERS
        for form in ("paper", "corrected")
        for seed in ((1,) if scale == "quick" else (1, 2, 3))
    ]  # fmt: skip


def open_figures(runs: Runs) -> list[Figure]:
    """How overhead grows with the number of super peers."""

    def supers(setting: Scenario) -> float:
        return len((setting.layout or {})["inside"])

    def lines(figure: str) -> dict[str, list[tuple[float, float]]]:
        forms = runs.by(lambda setting: (setting.layout or {})["form"])
        return {f"{form} form": by_form.line(figure, supers) for form, by_form in forms.items()}

    axes = ("super peers", "bytes per message")
    outside = "In the external group, each super peer that a message names adds a row of bits."
    wire = "Everything but the payload counts, including identities, sequence numbers and framing."
    inside = "Each internal group has its own numbering: messages in flight decide, not the number of groups."
    return [
        Figure("open a", "External group", *axes, lines("across_paper_bytes"), note=outside),
        Figure("open b", "Internal groups", *axes, lines("down_paper_bytes"), note=inside),
        Figure("open c", "External group, on our wire", *axes, lines("across_wire_bytes"), note=wire),
        Figure("open d", "Internal groups, on our wire", *axes, lines("down_wire_bytes"), note=wire),
    ]


STUDY = Paper(
    PAPER,
    "Free-scale networks: internal, external and super peers",
    grid,
    score,
    figures,
    READINGS,
    "Several super peers and internal groups: how does overhead grow?",
    open_grid,
    open_figures=open_figures,
)
