"""A restored or copied store is detected, and honest members raise no alarm."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, Relay, run, until
from stores import SOCKET

import antecede
from antecede.live.core import Core
from antecede.live.events import Life, Opened
from antecede.live.group import Group
from antecede.live.lineage import MAX_LIVES, forked_at, is_earlier
from antecede.live.settings import Roster, Settings
from antecede.live.transport.greeter import Greeter, StaleGreetingError
from antecede.live.transport.outbox import ForkError


def ana(folder: Path, *peers: str, store: str = "ana.db") -> dict[str, Any]:
    peers = peers or ("bo",)
    return {"group": "room", "me": "ana", "peers": list(peers), "store": str(folder / store), "listen": ":0"}


def bo(folder: Path, at: Group) -> dict[str, Any]:
    store = str(folder / "bo.db")
    return {"group": "room", "me": "bo", "peers": [f"ana@{at.address}"], "store": store}


async def talk(folder: Path, words: list[str]) -> None:
    """Ana broadcasts some words, and Bo delivers them."""
    async with antecede.join(**ana(folder)) as first, antecede.join(**bo(folder, first)) as second:
        ear = Ear(second)
        for word in words:
            await first.broadcast(word)
        await until(lambda: ear.bodies("ana")[-len(words) :] == words)
        await first.drain()
        await ear.stop()


async def refused(ear: Ear, reason: str) -> None:
    await until(lambda: any(reason in text for text in ear.texts("refused")), reason)


@pytest.mark.parametrize("bo_restarts", [False, True])
def test_a_restored_store_is_refused_even_after_broadcasting_as_much_as_was_lost(
    tmp_path: Path, bo_restarts: bool
) -> None:
    async def test() -> None:
        await talk(tmp_path, ["one", "two"])
        shutil.copytree(tmp_path / "ana.db", tmp_path / "backup", ignore=SOCKET)
        await talk(tmp_path, ["three", "four"])
        shutil.rmtree(tmp_path / "ana.db")
        shutil.copytree(tmp_path / "backup", tmp_path / "ana.db")
        async with antecede.join(**ana(tmp_path)) as first:
            for word in ("drei", "vier"):
                await first.broadcast(word)
            for _ in range(2 if bo_restarts else 1):
                async with antecede.join(**bo(tmp_path, first)) as second:
                    at_ana, at_bo = Ear(first), Ear(second)
                    for ear in (at_ana, at_bo):
                        await refused(ear, "ana has an older store than before: its messages after ana:2")
                        await ear.stop()
                    assert at_bo.bodies("ana") == []

    run(test())


def test_members_that_have_met_different_copies_notice_each_other(tmp_path: Path) -> None:
    """Bo has met one Ana and Cleo the other: they have equally many of her messages, but different ones."""

    async def test() -> None:
        async with (
            antecede.join("room", me="cleo", peers=["ana", "bo"], listen=":0") as cleo,
            Relay(str(cleo.address)) as way,
            antecede.join("room", me="bo", peers=["ana", f"cleo@{way.address}"], listen=":0") as second,
        ):
            way.cut()
            at_bo, at_cleo = Ear(second), Ear(cleo)
            peers = f"bo@{second.address}", "cleo"
            async with antecede.join(**ana(tmp_path, *peers)) as first:
                await first.broadcast("the same")
                await until(lambda: at_bo.bodies() == ["the same"])
                shutil.copytree(tmp_path / "ana.db", tmp_path / "copy", ignore=SOCKET)
                await first.broadcast("for bo")
                await until(lambda: len(at_bo.bodies()) == 2)
            async with antecede.join(**ana(tmp_path, "bo", f"cleo@{cleo.address}", store="copy")) as other:
                await other.broadcast("for cleo")
                await until(lambda: len(at_cleo.bodies()) == 2)
            way.mend()
            await until(lambda: at_bo.texts("forked") and at_cleo.texts("forked"), "both notice")
            assert at_bo.texts("forked")[0].startswith("messages of ana after ana:")

    run(test())


def test_a_process_learns_that_another_runs_on_a_copy_of_its_store(tmp_path: Path) -> None:
    """Bo meets the second Ana, a later life of the first; the first is informed when it dials again."""

    async def test() -> None:
        async with antecede.join("room", me="bo", peers=["ana"], listen=":0") as second:
            at_bo = Ear(second)
            peer = f"bo@{second.address}"
            async with antecede.join(**ana(tmp_path, peer)) as first:
                at_first = Ear(first)
                await first.broadcast("the same")
                await until(lambda: at_bo.bodies() == ["the same"])
                shutil.copytree(tmp_path / "ana.db", tmp_path / "copy", ignore=SOCKET)
                async with antecede.join(**ana(tmp_path, peer, store="copy")) as other:
                    await until(lambda: "bo" in other.connected)
                    await refused(at_first, "ana was started again on this store or a copy of it")
                await at_first.stop()
            await at_bo.stop()

    run(test())


def test_ordinary_restarts_raise_no_alarm(tmp_path: Path) -> None:
    async def test() -> None:
        for number in range(5):
            await talk(tmp_path, [f"{number}"])

    run(test())


# Greetings


def greeter(me: str, life: str = "1") -> tuple[Core, Greeter]:
    settings = Settings.create(group="room", me=me, peers=[{"ana": "bo", "bo": "ana"}[me]])
    roster: Roster = settings.roster()
    core = Core(roster.create_protocol(me), durable=False)
    core.step(Opened(f"{me}{life}", 0))
    return core, Greeter(settings, roster, core)


def test_an_overtaken_greeting_is_late_but_not_a_fork() -> None:
    _, at_ana = greeter("ana")
    _, at_bo = greeter("bo")
    late, prompt = at_bo.compose(0), at_bo.compose(0)
    at_ana.check_resumable(1, prompt)
    at_ana.accept(1, prompt, 1)
    with pytest.raises(StaleGreetingError):
        at_ana.check_resumable(1, late)


def test_a_greeting_of_an_earlier_life_is_late_and_no_fork() -> None:
    _, at_ana = greeter("ana")
    core, at_bo = greeter("bo")
    late = at_bo.compose(0)
    core.step(Opened("bo2", 2))
    at_ana.accept(1, at_bo.compose(0), 1)
    with pytest.raises(StaleGreetingError):
        at_ana.check_resumable(1, late)


def test_acks_overtaking_a_greeting_of_the_same_life_are_not_a_fork() -> None:
    core, at_ana = greeter("ana")
    _, at_bo = greeter("bo")
    at_ana.accept(1, at_bo.compose(0), 1)
    behind = at_bo.compose(0)
    box = core.outboxes[1]
    box.extend(1, [b"packet"])
    box.ack(1, box.chain[1])
    at_ana.check_resumable(1, behind)
    _, restored = greeter("bo", "2")
    with pytest.raises(ForkError, match="bo has another store than before"):
        at_ana.check_resumable(1, restored.compose(0))


def lives(*names: str) -> list[Life]:
    return [Life(name, 10 * place) for place, name in enumerate(names)]


@pytest.mark.parametrize(
    ("lineage", "known", "common"),
    [
        ("abc", "abc", None),
        ("abc", "ab", None),
        ("abc", "", None),
        ("ab", "abc", 20),
        ("abd", "abc", 20),
        ("abdef", "ab", None),
        ("adef", "abc", 10),
        ("xyz", "abc", 0),
    ],
)
def test_the_point_where_two_lineages_diverge_is_found(lineage: str, known: str, common: int | None) -> None:
    assert forked_at(lives(*lineage), lives(*known)) == common


def test_truncated_lineages_are_not_compared() -> None:
    long = [Life(f"{number}", number) for number in range(MAX_LIVES)]
    assert forked_at(long, lives("a", "b")) is None
    assert is_earlier(long[:3], long)
    assert not is_earlier(long, long)
