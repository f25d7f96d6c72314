"""The figures as a chart: a dot for each contestant, on a logarithmic scale, since the range is a
thousandfold."""

from __future__ import annotations

import math

from results import Results, Timed

from antecede.report.charts import compact
from antecede.report.svg import hover, tag, text

_LEFT, _PLOT, _RIGHT, _TOP, _ROW, _GAP = 190, 420, 60, 44, 22, 34
_STYLE = """
svg { --paper: #fff; --ink: #1c2330; --quiet: #667085; --rule: #e4e7ec; --ours: #0b66c3; --c: #d1480e; }
@media (prefers-color-scheme: dark) { svg { --paper: #12161d; --ink: #e6e9ef; --quiet: #98a2b3;
  --rule: #39424f; --ours: #6cb2ff; --c: #ff8a5c; } }
.paper { fill: var(--paper); } line { stroke: var(--rule); }
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--quiet); }
.head { fill: var(--ink); font-weight: 600; } circle { fill: var(--quiet); }
.Antecede circle, .Antecede text { fill: var(--ours); } .Antecede text { font-weight: 600; }
.C circle { fill: var(--c); }
"""


def draw(found: Results) -> str:
    """An SVG of its own."""
    rates = [each.rate for each in found.compared]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))

    def across(rate: float) -> float:
        return _LEFT + _PLOT * (math.log10(rate) - low) / max(1, high - low)

    body, y = [], float(_TOP)
    for peers in found.sizes():
        y += _GAP
        body.append(tag("text", text(f"{peers} peers"), class_="head", x=12, y=y))
        for each in sorted((one for one in found.compared if one.peers == peers), key=lambda one: one.rate):
            y += _ROW
            body.append(_row(each, across(each.rate), y))
    height = y + 24
    powers = [10.0**power for power in range(low, high + 1)]
    grid = [
        tag("line", x1=across(rate), x2=across(rate), y1=_TOP, y2=height - 12)
        + tag("text", text(compact(rate)), x=across(rate), y=_TOP - 6, text_anchor="middle")
        for rate in powers
    ]
    width = _LEFT + _PLOT + _RIGHT
    title = tag("text", text("Deliveries a CPU second, one thread"), class_="head", x=12, y=18)
    return tag(
        "svg", tag("style", _STYLE), tag("rect", class_="paper", width=width, height=height), title,
        *grid, *body,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height:g}", width=width, role="img",
        aria_label="Deliveries a CPU second of all engines and their rivals, by the number of peers",
    )  # fmt: skip


def _row(one: Timed, x: float, y: float) -> str:
    shown = f"{one.rate / 1e6:.3g} million"
    return tag(
        "g", hover(f"{one.name}, {one.peers} peers: {shown} deliveries a CPU second"),
        tag("text", text(one.name), x=_LEFT - 10, y=y + 4, text_anchor="end"),
        tag("line", x1=_LEFT, x2=x, y1=y, y2=y), tag("circle", cx=x, cy=y, r=4.5),
        tag("text", text(f"{one.rate / 1e6:.3g}M"), x=x + 9, y=y + 4),
        class_=one.name.partition(",")[0],
    )  # fmt: skip
