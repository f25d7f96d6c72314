"""Setting the computer's clock does not affect the group."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from live_groups import Ear, Relay, run, until

import antecede
from antecede.live.clock import MemberClock

HOUR = 3600 * 10**9


def set_clock(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    """The time of day changes; the monotonic clock does not."""
    nanoseconds, seconds = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + by)
    monkeypatch.setattr(time, "time", lambda: seconds() + by / 1e9)


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_missing_messages_are_repaired_after_a_clock_change(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    """Ana's message is lost between her and Cleo, and Cleo has noticed when the clock is set."""

    async def test() -> None:
        async with (
            antecede.join("room", me="cleo", listen=":0", peers=["ana", "bo"]) as cleo,
            Relay(str(cleo.address)) as relay,
            antecede.join("room", me="bo", listen=":0", peers=["ana", f"cleo@{cleo.address}"]) as bo,
            antecede.join("room", me="ana", peers=[f"bo@{bo.address}", f"cleo@{relay.address}"]) as ana,
        ):
            ear = Ear(cleo)
            await until(lambda: len(cleo.connected) == len(bo.connected) == 2)
            relay.stall()
            await ana.broadcast("shall we?")
            await anext(bo)
            await bo.broadcast("yes!")
            await until(lambda: cleo.waiting() and cleo.waiting()[0].holders == ("ana", "bo"))
            await asyncio.sleep(0.3)
            set_clock(monkeypatch, by)
            for held in cleo.waiting():
                assert time.time() - 10 < held.since <= time.time()
            await ear.has(2)
            assert ear.bodies() == ["shall we?", "yes!"]

    run(test())


def test_member_time_never_goes_back_across_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> None:
        async with antecede.join(
            "room", me="ana", peers=[], store=tmp_path / "store", trace=tmp_path / "trace"
        ) as ana:
            await ana.broadcast("hello")

    for by in (0, -HOUR, 2 * HOUR, -2 * HOUR):
        set_clock(monkeypatch, by)
        run(talk())
    parts = sorted((tmp_path / "trace" / "ana").glob("part-*.parquet"))
    times = [row["time"] for part in parts for row in pyarrow.parquet.read_table(part).to_pylist()]
    assert len(times) == 4
    assert times == sorted(times)
    assert times[2] - times[1] >= HOUR * 0.9


def test_a_clock_never_goes_back() -> None:
    clock = MemberClock()
    before = clock.now()
    assert abs(before - time.time_ns()) < 10**9
    clock.start_after(before + HOUR)
    later = clock.now()
    assert before + HOUR <= later < before + 2 * HOUR
    clock.start_after(before)
    assert clock.now() >= later
