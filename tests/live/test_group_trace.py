"""The guarantees of a member's trace: it is complete, and its failures never stop the member."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from live_groups import Ear, lines, process, run, until

import antecede
from antecede.audit.run import audit_path
from antecede.errors import InputError
from antecede.live.group import Group
from antecede.live.operations.trace import NodeTrace
from antecede.trace import writer


def ana(folder: Path, **options: Any) -> dict[str, Any]:
    """Ana has a store and is dialled by Bo."""
    return {"group": "room", "me": "ana", "peers": ["bo"], "store": str(folder / "ana.db"), **options}


def bo(folder: Path, at: Group | str, **options: Any) -> dict[str, Any]:
    where = at if isinstance(at, str) else at.address
    return {"group": "room", "me": "bo", "peers": [f"ana@{where}"], "store": str(folder / "bo.db"), **options}


@pytest.mark.parametrize("stored", [False, True])
def test_an_unwritable_trace_is_reported_and_does_not_stop_the_member(
    tmp_path: Path, stored: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And when it can be written again, nothing is missing."""
    monkeypatch.setattr("antecede.live.operations.trace._PART_SECONDS", 0.0)
    folder, aside = tmp_path / "trace" / "ana", tmp_path / "aside"
    store: Any = {"store": tmp_path / "ana.db"} if stored else {}

    async def test() -> None:
        async with antecede.join("room", me="ana", trace=tmp_path / "trace", peers=["bo"], **store) as first:
            ear = Ear(first, listens=False)
            await first.broadcast("recorded")
            await until(lambda: list(folder.glob("*.parquet")))
            folder.rename(aside)
            await first.broadcast("not recorded yet")
            await until(lambda: ear.texts("trace"))
            assert "cannot be written" in ear.texts("trace")[0]
            await first.broadcast("nor this")
            aside.rename(folder)
            await until(lambda: len(ear.texts("trace")) > 1)
            assert ear.texts("trace")[1] == "the trace is written again"
            await first.broadcast("the last")

    run(test())
    assert sum(record.levelname == "WARNING" for record in caplog.records) >= 2
    rows = read_rows(folder)
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for part in sorted(folder.glob("*.parquet")) for row in pq.read_table(part).to_pylist()]


def test_a_full_trace_disk_drops_old_rows_and_reports_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antecede.live.operations.trace._PART_SECONDS", 0.0)
    monkeypatch.setattr("antecede.live.trace_rows.MAX_ROWS", 50)
    folder, aside = tmp_path / "trace" / "ana", tmp_path / "aside"

    async def test() -> None:
        where: Any = {"me": "ana", "peers": ["bo"], "trace": tmp_path / "trace", "store": tmp_path / "ana.db"}
        async with antecede.join("room", **where) as first:
            await first.broadcast("recorded")
            await until(lambda: list(folder.glob("*.parquet")) and not first._core.trace.rows)
            folder.rename(aside)
            for _ in range(100):
                await first.broadcast("word")
            assert len(first._core.trace.rows) <= 50
            aside.rename(folder)
        async with antecede.join("room", **where) as first:
            await first.broadcast("the last")

    run(test())
    indices = [row["index"] for row in read_rows(folder)]
    (missing,) = json.loads((folder / "_meta/meta.json").read_text())["parameters"]["missing"]
    assert indices[0] == 0
    assert missing == [1, indices[1] - 1]
    audited = subprocess.run(
        [sys.executable, "-m", "antecede", "audit", str(tmp_path / "trace")], capture_output=True, text=True
    )
    assert f"{missing[1]} rows are missing" in audited.stdout
    assert indices[1:] == list(range(missing[1] + 1, 102))


def test_a_hanging_trace_disk_does_not_stop_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antecede.live.operations.trace._PART_SECONDS", 0.0)
    monkeypatch.setattr("antecede.live.driver._TRACE_PATIENCE", 0.05)
    monkeypatch.setattr("antecede.live.driver.MAX_ROWS", 50)
    monkeypatch.setattr("antecede.live.trace_rows.MAX_ROWS", 50)
    began, may = threading.Event(), threading.Event()
    write = NodeTrace._write

    def hang(self: NodeTrace, *arguments: Any) -> None:
        began.set()
        may.wait(20)
        write(self, *arguments)

    async def test() -> None:
        monkeypatch.setattr(NodeTrace, "_write", hang)
        where: Any = {"me": "ana", "peers": ["bo"], "trace": tmp_path / "trace", "store": tmp_path / "ana.db"}
        async with antecede.join("room", **where) as first:
            ear = Ear(first, listens=False)
            await first.broadcast("word")
            await until(began.is_set)
            for _ in range(60):
                await first.broadcast("word")
            assert len(first._core.trace.rows) <= 50
            assert ear.texts("trace") == ["the trace is not written: its disk does not answer"]
            may.set()
            await until(lambda: len(ear.texts("trace")) == 2)

    run(test())
    assert read_rows(tmp_path / "trace" / "ana")[-1]["index"] == 60


def test_the_last_deliveries_reach_the_trace_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antecede.live.operations.trace._PART_SECONDS", 0.0)

    async def test() -> None:
        async with (
            antecede.join(**ana(tmp_path, listen=":0")) as first,
            antecede.join(**bo(tmp_path, first, trace=tmp_path / "trace")) as second,
        ):
            await first.broadcast("the last word")
            assert (await anext(second)).body == "the last word"
            folder = tmp_path / "trace" / "bo"
            await until(lambda: "deliver" in {row["kind"] for row in read_rows(folder)})
            indices = [row["index"] for row in read_rows(folder)]
            assert indices == list(range(len(indices)))

    run(test())


def test_a_trace_part_gets_its_name_only_after_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could leave an empty part, or lose a name that was not synced."""
    happened: list[str] = []

    def watched(what: str, function: Any) -> Any:
        def call(path: Path, *more: Any) -> Any:
            happened.append(f"{what} {path.name}")
            return function(path, *more)

        return call

    for name in ("sync_file", "sync_folder"):
        monkeypatch.setattr(writer, name, watched(name, getattr(writer, name)))
    monkeypatch.setattr(Path, "rename", watched("rename", Path.rename))

    async def test() -> None:
        async with antecede.join("room", me="ana", trace=tmp_path, peers=["bo"]) as first:
            await first.broadcast("word")

    run(test())
    part = ".part-00000.parquet.writing"
    assert happened[-3:] == [f"sync_file {part}", f"rename {part}", "sync_folder ana"]


def _flipped(data: bytes) -> bytes:
    """A bit of a value, which only the page's checksum can notice."""
    place = data.index(b"room")
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"PAR1", lambda data: data[:-20], _flipped])
def test_a_damaged_last_part_of_a_trace_is_written_again(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "trace" / "ana"
    where: Any = {"me": "ana", "peers": ["bo"], "trace": tmp_path / "trace", "store": tmp_path / "ana.db"}

    async def test() -> None:
        for count in (3, 2, 4):
            async with antecede.join("room", **where) as first:
                for _ in range(count):
                    await first.broadcast("word")
        last = max(folder.glob("part-*"))
        last.write_bytes(damage(last.read_bytes()))
        async with antecede.join("room", **where) as first:
            await first.broadcast("word")

    run(test())
    assert [row["index"] for row in read_rows(folder)] == list(range(10))
    assert "part-00002.parquet is damaged" in caplog.text


def test_only_the_owner_can_read_a_trace(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", trace=tmp_path / "trace", peers=["bo"]) as first:
            await first.broadcast("private")

    before = os.umask(0)
    try:
        run(test())
    finally:
        os.umask(before)
    trace = tmp_path / "trace" / "ana"
    files = [file for file in trace.rglob("*") if file.is_file()]
    assert len(files) == 2
    assert stat.S_IMODE((trace / "_meta").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_the_trace_of_another_store_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        where: Any = {"me": "ana", "peers": ["bo"], "trace": tmp_path / "trace"}
        async with antecede.join("room", **where, store=tmp_path / "ana.db") as first:
            await first.broadcast("word")
        with pytest.raises(InputError, match="another store; name another folder, or remove this one"):
            await antecede.join("room", **where, store=tmp_path / "another.db")

    run(test())


def test_the_trace_of_a_member_that_was_killed_is_complete(tmp_path: Path) -> None:
    async def test() -> None:
        trace = tmp_path / "trace"
        async with antecede.join(**ana(tmp_path, listen=":0", trace=str(trace))) as first:
            at_ana = Ear(first)
            for round_ in range(3):
                for _ in range(10):
                    await first.broadcast("hello")
                words = ["yes"] * 5
                async with process(
                    bo(tmp_path, first, trace=str(trace), own=False), "take", "9", broadcast=words
                ) as made:
                    await lines(made, 5 + 9)
                    made.kill()
                await at_ana.has(5 * round_ + 5)
            async with antecede.join(**bo(tmp_path, first, trace=str(trace))) as second:
                at_bo = Ear(second)
                await until(lambda: second.delivered() == first.delivered() == {"ana": 30, "bo": 15})
                assert at_bo.messages[0].redelivered
        verdict = audit_path(str(trace), "local", 10, None).verdict
        assert verdict.clean
        assert (verdict.messages, verdict.deliveries) == (45, 45)

    run(test())
