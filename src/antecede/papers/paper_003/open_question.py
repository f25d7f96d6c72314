"""Paper 003's open question: the large groups that it discusses and does not measure.

“A large number possibly millions of processes … The vector clock can not be used for a large-scale group due
to the message length and computation overhead.” So: subgroups of fifty, with real-time, linear and vector
clocks in turn, up to thousands of processes in all, compared with B on the same subgroups and with one vector
clock for all.
"""

from __future__ import annotations

from statistics import fmean

from antecede.papers.paper import Figure, Runs, Scale
from antecede.papers.paper_003.runs import PAPER
from antecede.papers.scoreboard import ScoreRow, claim
from antecede.sim.scenario import Scenario, scenario

OPEN_QUESTION = (
    "“The vector clock can not be used for a large-scale group”, the paper says of millions of processes, "
    "and measures three. Here are thousands, in subgroups of fifty: the size of control information, and the "
    "delay of messages."
)
OPEN_SIZES: dict[Scale, list[int]] = {"quick": [100, 200], "full": [100, 500, 1000, 2000, 5000]}
_SUBGROUP = 50
_CLOCKS = ("rt", "lt", "vt")
_SENDERS = 100
_INSIDE, _BETWEEN, _VECTOR = "local_wire_bytes", "global_wire_bytes", "clocked_wire_bytes"


def open_grid(scale: Scale) -> list[Scenario]:
    """A hundred broadcasts in a second; links within a subgroup take up to 1 ms, others 50 to 150."""
    return [
        scenario(
            protocol=protocol, peers=peers, seed=seed, senders=_SENDERS, workload="once", seconds=1,
            payload=0, delay="50-150ms", probes=("costs",),
            **(_subgroups(peers) if protocol != "timestamp" else {}),
        )
        for peers in OPEN_SIZES[scale]
        for protocol in ("hcg", "basic", "timestamp")
        for seed in ((1,) if scale == "quick" else (1, 2, 3))
    ]  # fmt: skip


def _subgroups(peers: int) -> dict[str, object]:
    kinds = [_CLOCKS[place % len(_CLOCKS)] for place in range(peers // _SUBGROUP)]
    return {"layout": {"subgroups": [f"{kind}:{_SUBGROUP}" for kind in kinds]}, "local_delay": "0-1ms"}


def open_score(runs: Runs) -> list[ScoreRow]:
    sizes = sorted(runs.by(lambda setting: setting.peers))
    inside, between, vector = (
        [fmean(sized.values(figure)) for size in sizes if len(sized := runs.where(peers=size, protocol=name))]
        for name, figure in (("hcg", _INSIDE), ("hcg", _BETWEEN), ("timestamp", _VECTOR))
    )
    statements = (
        "a vector clock's message grows with the group",
        "HCG's message inside a subgroup does not grow with the group",
        "HCG's message between gateways has less than a tenth of a vector clock's bytes",
    )
    if len(sizes) < 2 or not len(sizes) == len(inside) == len(vector):
        return [claim(PAPER, text, None, "", 0, own=True) for text in statements]
    last, most = sizes[-2], sizes[-1]
    hold = (
        vector[-1] / vector[0] > 0.8 * most / sizes[0],
        inside[-1] < 1.2 * inside[-2],
        between[-1] < vector[-1] / 10,
    )
    shown = (
        f"{vector[0]:.0f} bytes for {sizes[0]:,} processes, {vector[-1]:,.0f} for {most:,}",
        f"{inside[-2]:.1f} bytes for {last:,} processes, {inside[-1]:.1f} for {most:,}",
        f"{between[-1]:.0f} bytes for {most // _SUBGROUP} subgroups, {vector[-1]:,.0f} for {most:,}",
    )
    return [claim(PAPER, *each, len(runs), own=True) for each in zip(statements, hold, shown, strict=True)]


def open_figures(runs: Runs) -> list[Figure]:
    def lines(
        figure: str, protocols: dict[str, str], scale: float = 1.0
    ) -> dict[str, list[tuple[float, float]]]:
        return {
            name: [
                (size, fmean(sized.values(figure)) / scale)
                for size, sized in sorted(
                    runs.where(protocol=protocol).by(lambda setting: setting.peers).items()
                )
            ]
            for name, protocol in protocols.items()
        }

    parts = {
        f"{name}, {kind}": line
        for kind, figure in (("inside", _INSIDE), ("between gateways", _BETWEEN))
        for name, line in lines(figure, {"HCG": "hcg", "B": "basic"}).items()
    }
    clocked = lines(_VECTOR, {"one vector clock": "timestamp"})
    delays = lines("latency_mean_ns", {"HCG": "hcg", "B": "basic", "one vector clock": "timestamp"}, 1e6)
    axis = "processes"
    return [
        Figure(
            "open a", "Control information of a packet, in subgroups of 50", axis, "bytes", parts,
            note="Within a subgroup it depends on the subgroup, between gateways on the number of gateways.",
        ),
        Figure("open b", "The same, compared with one vector clock for all", axis, "bytes", parts | clocked),
        Figure(
            "open c", "Mean delay", axis, "ms", delays,
            note="Members of another subgroup are one far link and two near links away.",
        ),
    ]  # fmt: skip
