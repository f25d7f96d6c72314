"""The names of measured costs are read by papers and users; renaming a class must not change them."""

from __future__ import annotations

import pytest

from antecede.sim.engines import simulate
from antecede.sim.scenario import scenario

KINDS = {
    "timestamp": ({"clocked"}, {"member"}),
    "timestamp-diff": ({"dependent"}, {"member"}),
    "mbcp": ({"dependent"}, {"member"}),
    "depseq": ({"sequenced"}, {"member"}),
    "multigroup": ({"grouped"}, {"member"}),
    "freescale": ({"up", "down", "echo", "across"}, {"internal", "external", "super"}),
    "flooding": ({"flooded"}, {"member"}),
    "pc": ({"flooded"}, {"member"}),
    "hcg": ({"local", "global", "ack"}, {"member"}),
    "basic": ({"local", "global"}, {"member"}),
    "vcube": ({"dependent"}, {"member"}),
    "vcube-agg": ({"bundle"}, {"member"}),
}
LAYOUTS: dict[str, object] = {
    "freescale": {"inside": [2, 1]},
    "hcg": {"subgroups": ["lt:3", "vt:3"]},
    "basic": {"subgroups": ["rt:3", "vt:3"]},
}


@pytest.mark.parametrize("protocol", KINDS)
def test_cost_metric_names_are_unchanged(protocol: str) -> None:
    layout = {"layout": LAYOUTS[protocol]} if protocol in LAYOUTS else {}
    given = scenario(protocol=protocol, peers=6, seconds=1, probes=("costs",), **layout)
    packets, members = KINDS[protocol]
    suffixes = ("packets", "paper_bytes", "wire_bytes")
    expected = {f"{kind}_{suffix}" for kind in packets for suffix in suffixes}
    expected |= {f"{member}_storage" for member in members}
    if protocol == "freescale":
        expected.add("down_last_paper_bytes")  # paper 000 sends that in every packet
    assert set(simulate(given, engine="reference").metrics.measured) == expected
