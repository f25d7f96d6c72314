"""Grids of scenarios: every combination of some fields' values, with the other fields fixed.

[run]                 # fields of a scenario that are the same in every run
seconds = 2
delay = "1-100ms"

[grid]                # fields with a list of values; every combination is a run
protocol = ["timestamp", "mbcp"]
peers = [5, 10, 20]
seed = [1, 2, 3]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from antecede.errors import InputError
from antecede.sim.scenario import Scenario, scenario

MAX_RUNS = 100_000
_LISTS = ("faults", "probes")
"""Fields whose value in one run is a list."""


def expand(run: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]) -> list[Scenario]:
    """The scenarios of a grid, in the order in which values are listed."""
    for field, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(f"grid: {field} takes a list of values, got {values!r}")
        if field in _LISTS and any(isinstance(value, str) for value in values):
            raise InputError(
                f"grid: {field} takes a list of lists, one for each run, as in {field} = [[], {list(values)}]"
            )
        if field in run:
            raise InputError(f"grid: {field} is in [run] and in [grid]; keep one")
    size = 1
    for values in grid.values():
        size *= len(values)
    if not 1 <= size <= MAX_RUNS:
        raise InputError(f"grid: it has {size:,} runs; from 1 to {MAX_RUNS:,} are allowed")
    scenarios = [
        scenario(**run, **dict(zip(grid, values, strict=True))) for values in product(*grid.values())
    ]
    if len({each.key() for each in scenarios}) < len(scenarios):
        raise InputError("grid: a value is listed twice, so two runs would be the same")
    return scenarios


def read_grid(file: Path) -> list[Scenario]:
    """Read a grid from a TOML file."""
    try:
        with file.open("rb") as stream:
            content = tomllib.load(stream)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not TOML: {error}") from error
    unknown = sorted(content.keys() - {"run", "grid"})
    if unknown:
        raise InputError(f"{file}: no section '{unknown[0]}'; there are [run] and [grid]")
    if not all(isinstance(section, dict) for section in content.values()):
        raise InputError(f"{file}: run and grid are sections: [run], [grid]")
    try:
        return expand(content.get("run", {}), content.get("grid", {}))
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
