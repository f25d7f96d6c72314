"""Traces of changing live groups, read by an audit."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from live_groups import PATIENCE, run, until
from rooms import Room, room

from antecede.audit.run import audit_path
from antecede.live.group import Group


async def talk(group: Room, draw: random.Random, names: list[str], count: int) -> None:
    for _ in range(count):
        await group.groups[draw.choice(names)].broadcast(draw.randrange(1 << 30))
        if draw.random() < 0.3:
            await asyncio.sleep(0.01)


def removed(group: Group) -> set[int]:
    found: set[int] = group._core.member.removals.removed
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_trace_with_joins_leaves_removals_returns_and_restarts_has_no_violation(
    tmp_path: Path, seed: int
) -> None:
    draw, trace = random.Random(seed), tmp_path / "trace"
    options: dict[str, Any] = {"trace": trace}

    async def test() -> None:
        async with room(tmp_path / "stores", "ana", "bo", "cy", **options) as group:
            founders = ["ana", "bo", "cy"]
            await talk(group, draw, founders, 20)
            dana = await group.start("dana", **options)
            await talk(group, draw, [*founders, "dana"], 30)
            await group.groups["ana"].remove("dana")
            await talk(group, draw, founders, 10)
            await until(lambda: dana.me in group.groups["bo"].view and dana.state == "open", "the return")
            await talk(group, draw, [*founders, "dana"], 20)
            await group.stop("cy")
            await talk(group, draw, ["ana", "dana"], 10)
            await group.start("cy", **options)
            # Whoever was removed counts against a quorum until it is forgotten.
            await until(lambda: not any(map(removed, group.groups.values())), "that it is forgotten")
            await group.stop("bo")
            shutil.rmtree(tmp_path / "stores" / "bo")
            await group.start("bo", **options)
            await talk(group, draw, [*founders, "dana"], 20)
            await dana.leave(timeout=PATIENCE)
            del group.groups["dana"]
            await talk(group, draw, founders, 10)
            for name in founders:
                await group.groups[name].drain(timeout=PATIENCE)

    run(test())
    audited = audit_path(str(trace), "local", 10, None)
    assert audited.verdict.clean, (audited.verdict, audited.findings, audited.faults)
    assert audited.verdict.messages >= 120
