"""What an absent member may cost the others: up to `limit`, and with `park` more, in their stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_groups import PATIENCE, run, until
from rooms import room

LIMIT = 20_000
OPTIONS: dict[str, Any] = {"limit": LIMIT, "heartbeat": "200ms", "suspect_after": "1s"}
BODY = "x" * 3_000


def test_broadcast_waits_at_the_limit_for_a_member_that_is_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", **OPTIONS) as group:
            ana = group.groups["ana"]
            await group.stop("cy")
            with pytest.raises(TimeoutError):
                for number in range(20):
                    await ana.broadcast(f"{number} {BODY}", timeout=3.0)
            assert ana.unstable_bytes < 2 * LIMIT
            await until(lambda: {"away", "full"} == {each.kind for each in ana.problems()}, "both are said")
            assert all(each.member == "cy" for each in ana.problems())
            await group.start("cy", **OPTIONS)
            await ana.broadcast("there is room again", timeout=PATIENCE)
            await group.agree_on_last("there is room again")

    run(test())


def test_with_park_broadcasts_continue_while_a_member_is_away(tmp_path: Path) -> None:
    options = {**OPTIONS, "park": 10 * LIMIT}

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", **options) as group:
            ana = group.groups["ana"]
            await group.stop("cy")
            for number in range(20):
                await ana.broadcast(f"{number} {BODY}", timeout=PATIENCE)
            assert ana.unstable_bytes > 2 * LIMIT
            await until(lambda: "parked" in group.kinds("ana", "cy"), "it is said")
            (problem,) = ana.problems()
            assert problem.kind == "away"
            assert "up to 200,000 are kept in the store for it" in problem.text
            await group.stop("ana")
            group.next_board = group.boards["ana"]
            ana = await group.start("ana", **options)  # they are in its store
            with pytest.raises(TimeoutError):
                for number in range(100):
                    await ana.broadcast(f"more {number} {BODY}", timeout=3.0)
            assert 10 * LIMIT < ana.unstable_bytes < 12 * LIMIT
            await group.start("cy", **options)
            await ana.broadcast("there is room again", timeout=PATIENCE)
            await until(lambda: "unparked" in group.kinds("ana", "cy"), "that is said, too")
            await group.agree_on_last("there is room again")

    run(test())
