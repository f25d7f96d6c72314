"""The simulation itself: no violations, exact replay, and every planted bug is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vopr import world
from vopr.faults import KINDS
from vopr.planted import BUGS, planted
from vopr.world import execute

_KIND = {
    "hash-not-checked": "fork",
    "repair-reply-unverified": "liar",
    "signature-not-checked": "liar",
    "counts-believed": "liar",
    "checksum-not-checked": "corrupt",
}
"""Executions in which a bug shows; honest ones for the others."""
_MAX_SEEDS = 3_000


@pytest.fixture(autouse=True)
def short_times() -> Iterator[None]:
    with world.short_times():
        yield


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_no_execution_breaks_a_promise(kind: str) -> None:
    results = [execute(seed, kind=kind) for seed in range(40)]
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert sum(result.deliveries for result in results) > 2_000


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_a_seed_replays_exactly(kind: str) -> None:
    first, second = (execute(17, is_told=True, kind=kind) for _ in range(2))
    assert len(first.story) > 20
    assert first == second == execute(17, is_told=True, kind=kind)
    assert execute(17, kind=kind).deliveries == first.deliveries


def test_a_seed_replays_exactly_in_another_process() -> None:
    """Whatever the order of its sets of strings is."""
    tests = Path(__file__).parent.parent
    path = os.pathsep.join([str(tests), *sys.path])
    stories = [
        subprocess.run(
            [sys.executable, "-m", "vopr", "--seed", "8"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert stories[0] == stories[1]
    assert "\n".join(execute(8, is_told=True).story) + "\n" == stories[0]


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    kind = _KIND.get(bug, "honest")
    with planted(bug):
        found = next(seed for seed in range(_MAX_SEEDS) if execute(seed, kind=kind).violation)
    assert execute(found, kind=kind).violation is None
