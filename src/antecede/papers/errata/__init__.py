"""Rules of the papers that fail, each with the smallest run that shows it.

`docs/protocols/errata.py` finds these runs with `antecede check`, and writes the drawings and `runs.json`.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

ErratumKind = Literal["printed", "read", "needed"]
"""What fails: a rule as printed; a rule in one possible reading; or the protocol without a necessary rule."""
RUNS = "runs.json"


class SmallestRun(msgspec.Struct, frozen=True):
    """The smallest run in which a rule fails."""

    paper: str
    name: str
    rule: str
    kind: ErratumKind
    fails_by: str
    messages: int
    processes: int
    steps: int
    text: list[str]
    """The steps, a column for each process; what is wrong at the end; what the message carried."""
    corrected: str = ""
    """What the protocol does instead of a rule as printed."""

    @property
    def command(self) -> str:
        """A command that finds the run again, in a clone of the repository."""
        return f"./dev python docs/protocols/errata.py {self.name}"

    @property
    def drawing(self) -> str:
        """The diagram as a data address, for an image of a page."""
        drawn = files(__name__).joinpath(f"{self.name}.svg").read_bytes()
        return f"data:image/svg+xml;base64,{b64encode(drawn).decode()}"


@cache
def smallest_runs() -> tuple[SmallestRun, ...]:
    """All of them, in the order of the papers."""
    written = files(__name__).joinpath(RUNS).read_bytes()
    return msgspec.json.decode(written, type=tuple[SmallestRun, ...])


def runs_of(paper: str, kind: ErratumKind) -> list[SmallestRun]:
    return [run for run in smallest_runs() if run.paper == paper and run.kind == kind]
