"""Paper 000's Figures 4 to 9, and control information on our wire."""

from __future__ import annotations

import msgspec

from antecede.papers.paper import Figure, Runs, wire_figure
from antecede.papers.paper_000.runs import DELAYS, RATES, select, size
from antecede.papers.paper_000.scores import AT, LARGEST_PUBLISHED, MEASURES, line
from antecede.papers.readings import Joint


def figures(runs: Runs, joint: Joint) -> list[Figure]:
    charts = []
    for place, delay in enumerate(DELAYS):
        for part, names in (
            (
                "a",
                ("internal communication", "external communication", "IDR communication", "DS communication"),
            ),
            ("b", ("internal storage", "external storage", "IDR storage")),
        ):
            lines = {
                name.split()[0]: line(select(runs, MEASURES[name][0], delay), name, joint) for name in names
            }
            largest = float(LARGEST_PUBLISHED[place])
            printed = {name.split()[0]: [(largest, float(AT[name][place]))] for name in names}
            kind = names[0].split()[1]
            title = f"{kind.capitalize()} overhead, delays of {delay}"
            charts.append(Figure(f"{4 + place}{part}", title, "peers", "bytes", lines, printed))
    for place, delay in enumerate(DELAYS):
        for part, name in (("a", "internal communication"), ("b", "external communication")):
            lines = {
                f"{rate}/s": line(select(runs, "freescale", delay, rate), name, joint)
                for rate in RATES
                if len(select(runs, "freescale", delay, rate))
            }
            lines["12.5/s per peer"] = line(select(runs, "freescale", delay), name, joint)
            title = f"{name.capitalize()} at a fixed total rate, delays of {delay}"
            charts.append(Figure(f"{7 + place}{part}", title, "peers", "bytes", lines))
    return charts + _wire(runs, joint)


def _wire(runs: Runs, joint: Joint) -> list[Figure]:
    """Two charts, so that every line has a colour of its own."""
    charts = []
    for part, whose in (("a", "internal and external"), ("b", "IDR and DS")):
        both = {}
        for group in whose.split(" and "):
            measure = f"{group} communication"
            there, figure = select(runs, MEASURES[measure][0], "50–250 ms"), MEASURES[measure][1]
            on_wire = there.line(figure.replace("paper", "wire"), size)
            both[group] = line(there, measure, joint), on_wire
        for chart in wire_figure(both):
            title, note = f"{chart.title}, {whose}, delays of 50–250 ms", chart.note
            if "DS" in both and joint["DS"] == "home":
                note += (
                    " DS is counted with its super peer's numbers, as judged; our wire does not carry them."
                )
            charts.append(msgspec.structs.replace(chart, number=f"bytes {part}", title=title, note=note))
    return charts
