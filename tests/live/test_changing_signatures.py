"""Groups that change sign what they broadcast, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest
from live_groups import PATIENCE, be_impostors, run, until
from rooms import Room, room

import antecede
from antecede.live.changing.group import DynamicGroup
from antecede.live.changing.seals import message_value
from antecede.live.envelope import wrap
from antecede.live.seals import Seals
from antecede.live.security import keys
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.sealing import add_seal, split_seal
from antecede.protocols.flat import DependencyPacket

SERVERS = ["ana", "bo", "cy", "dana"]


def make(folder: Path) -> Path:
    keys.make_keys(folder, "room", SERVERS, [], 30, {}, [])
    return folder


async def start(created: Room, folder: Path, *names: str, **options: Any) -> None:
    await asyncio.gather(*(created.start(name, keys=folder / name, **options) for name in names))


def core_of(created: Room, name: str) -> Any:
    group = created.groups[name]
    assert isinstance(group, DynamicGroup)
    return group._core


@pytest.mark.parametrize("by", ["keys", "secret"])
def test_members_that_sign_join_leave_restart_and_return(tmp_path: Path, by: str) -> None:
    folder = make(tmp_path / "keys")
    secret = tmp_path / "secret"
    secret.write_text("a secret that nobody can guess")
    secret.chmod(0o600)
    options: dict[str, dict[str, Any]] = {
        name: {"keys": folder / name} if by == "keys" else {"secret": secret} for name in SERVERS
    }

    async def test() -> None:
        async with room(tmp_path) as created:
            await asyncio.gather(*(created.start(name, **options[name]) for name in SERVERS[:3]))
            await created.start("dana", **options["dana"])
            await created.have_view(*SERVERS)
            await created.groups["dana"].broadcast("from dana")
            await created.agree_on_last("from dana")
            await created.stop("dana")
            await created.groups["bo"].broadcast("while dana is away")
            await created.start("dana", **options["dana"])
            await created.groups["ana"].remove("dana")  # wrongly: it is alive
            await until(lambda: created.kinds("bo", "dana")[-1:] == ["joined"], "it has returned")
            await created.groups["dana"].broadcast("back")
            others = [created.boards[name].bodies for name in SERVERS[:3]]
            await until(lambda: all("back" in bodies for bodies in others), "it is heard")
            await created.groups["dana"].leave(timeout=PATIENCE)
            del created.groups["dana"]
            await created.have_view(*SERVERS[:3])
            assert all(core_of(created, name).sealing.is_on for name in SERVERS[:3])
            assert not any(core_of(created, name).sealing.liars for name in SERVERS[:3])
            bo = core_of(created, "bo")
            await until(lambda: bo.sealing.latest.keys() <= bo.member.view, "what is gone is forgotten")

    run(test())


def test_members_that_do_not_all_sign_refuse_each_other(tmp_path: Path) -> None:
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with room(tmp_path) as created:
            await start(created, folder, *SERVERS[:3])
            refused: list[str] = []
            created.listen("ana", refused)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.5):
                    await created.start("dana", keys=folder / "dana", sign=False)
            assert "dana" not in created.groups
            assert "ana requires that messages are signed, and it does not sign: set `sign` alike" in refused

    run(test())


def test_keys_of_another_group_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impostors(monkeypatch)
    folder = make(tmp_path / "keys")
    caplog.set_level(logging.INFO, "antecede.live")

    async def test() -> None:
        async with room(tmp_path) as created:
            await start(created, folder, *SERVERS[:3])
            joining = antecede.join("other", me="dana", contact=created.founders[0], keys=folder / "dana")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await joining
            assert "its certificate is for group 'room', not 'other'" in caplog.text

    run(test())


def test_keys_are_renewed_and_revoked_while_the_group_runs(tmp_path: Path) -> None:
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with room(tmp_path) as created:
            await start(created, folder, *SERVERS[:3])
            await start(created, folder, "dana")
            await created.have_view(*SERVERS)
            ana = created.groups["ana"]
            assert isinstance(ana, DynamicGroup)
            before = ana._security.signing_certificate
            keys.renew(folder, "ana", 30)
            await until(lambda: ana._security.signing_certificate != before, "the files are read again")
            await created.groups["ana"].broadcast("with a new certificate")
            await created.agree_on_last("with a new certificate")
            keys.revoke(folder, "dana")
            for name in SERVERS[:3]:
                await until(lambda: "dana" not in str(created.groups[name].connected), "it is cut off")  # noqa: B023
            await created.groups["bo"].remove("dana")
            await created.have_view(*SERVERS[:3])
            with contextlib.suppress(TimeoutError):
                await created.groups["dana"].broadcast("stolen", timeout=1.0)
            await created.groups["cy"].broadcast("without dana")
            honest = [created.boards[name].bodies for name in SERVERS[:3]]
            await until(lambda: all("without dana" in bodies for bodies in honest), "the others go on")
            assert not any("stolen" in bodies for bodies in honest)
            assert all(created.groups[name].view.names == SERVERS[:3] for name in SERVERS[:3])

    run(test())


def test_a_member_that_was_revoked_and_removed_returns_with_new_keys_without_a_restart(
    tmp_path: Path,
) -> None:
    """It presents its new signing certificate before signing anything with it."""
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with room(tmp_path) as created:
            await start(created, folder, *SERVERS[:3])
            await start(created, folder, "dana")
            await created.have_view(*SERVERS)
            keys.revoke(folder, "dana")
            for name in SERVERS[:3]:
                await until(lambda: "dana" not in str(created.groups[name].connected), "it is cut off")  # noqa: B023
            await created.groups["bo"].remove("dana")
            await created.have_view(*SERVERS[:3])
            keys.renew(folder, "dana", 30)
            await created.have_view(*SERVERS)
            await created.groups["dana"].broadcast("with new keys")
            await created.agree_on_last("with new keys")

    run(test())


def test_a_member_that_sends_two_messages_under_one_id_is_reported_and_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with room(tmp_path) as created:
            await start(created, folder, *SERVERS[:3])
            await created.have_view(*SERVERS[:3])
            lie_to(core_of(created, "cy"), "bo")
            await created.groups["cy"].broadcast("this")
            honest = {name: created.boards[name].bodies for name in ("ana", "bo")}
            await until(lambda: honest == {"ana": ["this"], "bo": ["that"]}, str(honest))
            for name in ("ana", "bo"):
                await until(lambda: reported(created, name, "cy") == {"forked"}, "it is reported")  # noqa: B023
                await until(lambda: "cy" not in created.groups[name].connected, "it is refused")  # noqa: B023
            await created.groups["ana"].broadcast("without cy")
            await until(lambda: "without cy" in honest["bo"], "the others go on")
            await created.groups["ana"].remove("cy")
            await created.have_view("ana", "bo")

    run(test())


def reported(created: Room, at: str, who: str) -> set[str]:
    """The problems with a member, except that it is away."""
    return {str(each.kind) for each in created.groups[at].problems() if each.member == who} - {"away"}


def lie_to(core: Any, victim: str) -> None:
    """From now on, send this member different messages under the same ids."""
    enqueue = core.enqueue

    def enqueue_other(link: int, data: bytes) -> None:
        packet = ChangingMbcp.decode(data)
        if isinstance(packet, DependencyPacket) and core.partner_name(link) == victim:
            data = ChangingMbcp.encode(replace(core, packet))
        enqueue(link, data)

    core.enqueue = enqueue_other


def replace(core: Any, packet: DependencyPacket) -> DependencyPacket:
    _, seal = split_seal(packet.payload)
    payload, previous = b"\x00" + wrap("that", False, None), seal[:32]
    value = message_value(previous, payload, packet.causes)
    statement = Seals(core.signatures).sign(packet.origin, packet.seq, packet.seq, previous, value)
    sealed = add_seal(payload, previous + statement.signature)
    return DependencyPacket(sealed, packet.origin, packet.seq, packet.causes)
