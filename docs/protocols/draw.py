"""Draws the diagrams of these pages: `python docs/protocols/draw.py` writes images/*.svg.

The schedules are played on the real protocols, and the diagrams show what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from play import play
from schedules import STORIES

from antecede.report.schedule_diagram import draw_schedule

IMAGES = Path(__file__).parent / "images"


def drawings() -> Iterator[tuple[str, str]]:
    """The name and the SVG of every diagram."""
    for name, story in STORIES.items():
        label = f"A space-time diagram of {name}; the page describes what happens in it"
        yield name, draw_schedule(play(story), label) + "\n"


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, drawing in drawings():
        (IMAGES / f"{name}.svg").write_text(drawing, encoding="utf-8")
