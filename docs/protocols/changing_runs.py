"""The runs of changing groups on these pages: a member joins, and a member is removed.

They are played on the real members. `python docs/protocols/changing_runs.py` writes
images/changing/*.svg, and the steps on the pages of the protocols, each between its markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from antecede.check.changing.describe import DescribedOverlapWorld, DescribedWorld, described_world
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
    "timestamp-diff": "timestamp",
    "depseq": "depseq",
    "vcube": "vcube",
    "vcube-agg": "vcube",
    "pc": "pc",
    "freescale": "freescale",
    "hcg": "hcg",
    "basic": "hcg",
    "multigroup": "multigroup",
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
LOCAL_JOIN: list[ScheduleEvent] = [
    ("broadcast", 1, -1),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("attach", 4, 0),
    ("transmit", 4, 0),
    ("transmit", 0, 4),
    ("broadcast", 4, -1),
]
"""A phone, or a local process, p4 joins at p0."""
UNRELATED_JOIN: list[ScheduleEvent] = [
    ("attach", 4, 0),
    ("transmit", 4, 0),
    ("transmit", 0, 4),
    ("broadcast", 4, -1),
    ("transmit", 4, 0),
    ("deliver", 0, -1),
    ("transmit", 0, 2),
    ("deliver", 2, -1),
    ("broadcast", 1, -1),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("broadcast", 4, -1),
    ("transmit", 4, 0),
    ("deliver", 0, -1),
    ("transmit", 0, 2),
]
"""p4 joins at p0. Its second message is sent before it knows of p1's, which p0 has delivered. (With `hcg`
too, its first message follows everything that its gateway had.)"""
LOCAL_REMOVAL: list[ScheduleEvent] = [
    ("attach", 4, 2),
    ("transmit", 4, 2),
    ("transmit", 2, 4),
    ("broadcast", 4, -1),
    ("transmit", 4, 2),
    ("transmit", 2, 1),
    ("crash", 2, 0),
    ("remove", 0, 2),
    ("orphan", 4, -1),
    ("return", 4, 0),
]
"""The member that admitted p4 crashes, with its last messages in flight, and p4 returns."""
OVERLAP_JOIN: list[ScheduleEvent] = [
    ("broadcast", 1, -1),
    ("broadcast", 0, -1),
    ("transmit", 0, 2),
    ("deliver", 2, -1),
    ("join", 4, 2),
    ("transmit", 4, 2),
    ("transmit", 2, 4),
]
OVERLAP_REMOVAL: list[ScheduleEvent] = [
    ("broadcast", 1, -1),
    ("broadcast", 0, -1),
    ("transmit", 0, 2),
    ("crash", 0, 0),
    ("remove", 2, 0),
    ("remove", 3, 1),
]
OVERLAPS = {
    "join": [(0, "a"), (0, "b"), (1, "a"), (2, "b"), (2, "a")],
    "removal": [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b")],
}
"""The process and the group of each member."""
_SITES = ("freescale", "hcg", "basic")


def begin(protocol: str, run: str) -> list[ScheduleEvent]:
    if protocol == "multigroup":
        return OVERLAP_JOIN if run == "join" else OVERLAP_REMOVAL
    if (protocol, run) == ("basic", "join"):
        return UNRELATED_JOIN
    if protocol in _SITES:
        return LOCAL_JOIN if run == "join" else LOCAL_REMOVAL
    if run == "join":
        return JOIN
    return FORWARDED if protocol.startswith("vcube") else REMOVAL


def create_world(protocol: str, run: str) -> DescribedWorld:
    if protocol != "multigroup":
        return described_world(CHANGING[protocol], FOUNDERS, SIZE)

    class Overlap(DescribedOverlapWorld):
        def layout(self) -> list[tuple[int, str]]:
            return OVERLAPS[run]

    joins = run == "join"
    return Overlap(CHANGING[protocol], len(OVERLAPS[run]) - joins, len(OVERLAPS[run]))


RUNS = ("join", "removal")


def play(protocol: str, run: str) -> DescribedWorld:
    """The beginning is given; then all packets arrive, the first link's first."""
    world = create_world(protocol, run)
    for event in begin(protocol, run):
        if not world.apply(event) and event[0] != "transmit":
            raise ValueError(f"{event} cannot happen")
    while _go_on(world):
        pass
    world.finish()
    return world


def _go_on(world: DescribedWorld) -> bool:
    """Deliver whatever can be delivered, or let a packet arrive."""
    for address in [each.me for each in world.members if world.is_active(each.me)]:
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
