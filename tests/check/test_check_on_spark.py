"""An exploration on Spark gives the counts and the verdict of one process, and continues where it stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import broken_protocols
from antecede.check.bounds import Bounds
from antecede.check.explore import Exploration, ExplorationProgress
from antecede.check.group import CheckedGroup, CheckState
from antecede.check.on_spark import ExplorationPlan, explore_on_spark
from antecede.check.portable import PortableStates
from antecede.errors import InputError
from antecede.protocols.base import Protocol
from antecede.protocols.catalog import find_protocol

FAULTS = Bounds(peers=2, messages=1, duplicates=1, crashes=1)


def here(kind: type[Protocol], bounds: Bounds) -> ExplorationProgress:
    exploration = Exploration(CheckedGroup(kind, bounds))
    for _ in exploration.run(10**6):
        pass
    return exploration.progress


def on_spark(name: str, bounds: Bounds, folder: Path, most: int = 10**6) -> ExplorationProgress:
    progress = ExplorationProgress()
    plan = ExplorationPlan(name, bounds, order=True, symmetry=True)
    for progress in explore_on_spark(plan, folder, most):  # noqa: B007
        pass
    return progress


@pytest.mark.usefixtures("spark")
def test_an_exploration_on_spark_counts_as_one_process_and_resumes(tmp_path: Path) -> None:
    expected = here(find_protocol("mbcp"), FAULTS)
    folder = tmp_path / "exploration"
    stopped = on_spark("mbcp", FAULTS, folder, most=20)
    assert not stopped.is_complete
    shutil.rmtree(folder / "raw" / f"level={stopped.depth - 1}")  # as if its job had not finished
    assert on_spark("mbcp", FAULTS, folder) == expected
    with pytest.raises(InputError, match="another exploration"):
        on_spark("mbcp", Bounds(peers=2), folder)


@pytest.mark.usefixtures("spark")
def test_an_exploration_on_spark_finds_the_same_violation(tmp_path: Path) -> None:
    name = f"{broken_protocols.__name__}:MbcpWithoutFifo"
    bounds = Bounds(peers=2, messages=2, total=2)
    found = on_spark(name, bounds, tmp_path / "exploration")
    assert found.violation == here(find_protocol(name), bounds).violation


def test_encoded_states_decode_alike_for_another_worker() -> None:
    """What one process encodes, another decodes to the same state, though its numbers differ."""
    ours, theirs = (CheckedGroup(find_protocol("freescale"), FAULTS) for _ in range(2))
    sent, received = PortableStates(ours), PortableStates(theirs)
    level = [ours.initial]
    for _ in range(5):
        after = [ours.apply(state, event) for state in level for event in ours.events(state)]
        level = [state for state in after if isinstance(state, CheckState)]
    encoded = [sent.encode(state) for state in level]
    received.learn(reversed(list(sent.news())))
    assert [received.encode(received.decode(data)) for _, data in encoded] == encoded
