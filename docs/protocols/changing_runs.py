"""The runs of changing groups on these pages: somebody joins, and somebody is removed.

They are played on the real members. `python docs/protocols/changing_runs.py` writes
images/changing/*.svg, and the steps on the pages of the protocols, each between its markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from antecede.check.changing.describe import DescribedWorld
from antecede.check.changing.world import ScheduleEvent
from antecede.check.schedule import listed
from antecede.membership.catalog import CHANGING
from antecede.report.schedule_diagram import draw_schedule

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "changing"
FOUNDERS, SIZE = 3, 4
PAGES = {
    "mbcp": "mbcp",
    "timestamp": "timestamp",
    "depseq": "depseq",
    "vcube": "vcube",
    "pc": "pc",
}
"""The page of each protocol that is drawn."""

JOIN: list[ScheduleEvent] = [
    ("broadcast", 1, -1),
    ("join", 3, 0),
    ("transmit", 3, 0),
    ("transmit", 0, 3),
    ("transmit", 0, 3),
    ("broadcast", 3, -1),
]
REMOVAL: list[ScheduleEvent] = [
    ("broadcast", 2, -1),
    ("transmit", 2, 1),
    ("crash", 2, 0),
    ("remove", 0, 2),
]
FORWARDED: list[ScheduleEvent] = [
    ("broadcast", 2, -1),
    ("transmit", 2, 0),
    ("crash", 2, 0),
    ("remove", 1, 2),
]
"""As above, where p0 forwards the message of p2 to p1."""


def begin(protocol: str, run: str) -> list[ScheduleEvent]:
    if run == "join":
        return JOIN
    return FORWARDED if protocol == "vcube" else REMOVAL


RUNS = ("join", "removal")


def play(protocol: str, run: str) -> DescribedWorld:
    """The beginning is given; then all packets arrive, the first link's first."""
    world = DescribedWorld(CHANGING[protocol], FOUNDERS, SIZE)
    for event in begin(protocol, run):
        if not world.apply(event) and event[0] != "transmit":
            raise ValueError(f"{event} cannot happen")
    while _go_on(world):
        pass
    world.finish()
    return world


def _go_on(world: DescribedWorld) -> bool:
    """Deliver whatever can be delivered, or let a packet arrive."""
    for address in world.active():
        if world.apply(("deliver", address, -1)):
            return True
    living = [link for link in sorted(world.open_links()) if link[1] not in world.crashed]
    return bool(living) and world.apply(("transmit", *living[0]))


def drawings() -> Iterator[tuple[str, str]]:
    """The name and the SVG of every diagram."""
    for protocol in PAGES:
        for run in RUNS:
            label = f"A {run} in a group of {protocol}; its steps are listed on the page"
            yield f"{protocol}-{run}", draw_schedule(play(protocol, run).drawn, label) + "\n"


def markers(protocol: str, run: str) -> tuple[str, str]:
    return f"<!-- begin {protocol}-{run}: changing_runs.py -->", f"<!-- end {protocol}-{run} -->"


def steps(protocol: str, run: str) -> str:
    """The steps of a run, as they stand on the page."""
    world = play(protocol, run)
    lines = [
        f"![{protocol}: a {run}](images/changing/{protocol}-{run}.svg)",
        "",
        f"<details><summary>The {len(world.steps)} steps</summary>",
        "",
        "```",
        *listed(world.steps),
        "```",
        "",
        "</details>",
    ]
    return "\n".join(lines)


def with_runs(page: str, protocol: str) -> str:
    """A page with its runs as they are now."""
    for run in RUNS:
        begin, end = markers(protocol, run)
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the page of {protocol} lacks the markers of its {run}")
        page = f"{before}{begin}\n\n{steps(protocol, run)}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, drawing in drawings():
        (IMAGES / f"{name}.svg").write_text(drawing, encoding="utf-8")
    for protocol, page in PAGES.items():
        path = HERE / f"{page}.md"
        path.write_text(with_runs(path.read_text(encoding="utf-8"), protocol), encoding="utf-8")
