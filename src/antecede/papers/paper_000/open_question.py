"""Paper 000's open question: several super peers and internal groups."""

from __future__ import annotations

from antecede.papers.paper import Figure, Runs, Scale
from antecede.sim.scenario import Scenario, scenario

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
