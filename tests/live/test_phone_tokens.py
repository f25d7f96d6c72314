"""Phones of groups that change prove who they are with tokens, which expire, are revoked and renewed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from live_groups import be_impostors, run, until
from phone_rooms import PhoneRoom, phone_room

from antecede.live.changing.phone_group import CutOffError
from antecede.live.security import keys
from antecede.live.security.identity import issue, read_claims

SERVERS = ["ana", "bo", "cy"]


def make(folder: Path) -> Path:
    keys.make_keys(folder, "room", SERVERS, ["pia", "tim"], 30, {}, SERVERS)
    return folder


async def start_phones(room: PhoneRoom, folder: Path) -> None:
    for name in ("pia", "tim"):
        await room.start_phone(name, keys=folder / name)


def test_a_revoked_phone_is_refused_and_delays_no_member(tmp_path: Path) -> None:
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder) as room:
            await start_phones(room, folder)
            pia, tim = room.phone("pia"), room.phone("tim")
            await pia.broadcast("before")
            await room.agree({"before"}, *SERVERS, "pia", "tim")
            keys.revoke(folder, "pia")
            await until(lambda: pia.is_cut_off, "it is cut off")
            await until(lambda: room.phones_of("ana") == {"tim": True}, "it is expelled")
            await tim.broadcast("after")
            await room.agree({"before", "after"}, *SERVERS, "tim")
            with pytest.raises(CutOffError, match="pia was revoked"):
                await pia.broadcast("stolen", timeout=6.0)
            assert room.boards["pia"].bodies == ["before"]
            assert room.boards["tim"].bodies == ["before", "after"]

    run(test())


def test_a_token_is_revoked_alone_and_a_new_one_is_read_without_a_restart(tmp_path: Path) -> None:
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder) as room:
            await start_phones(room, folder)
            pia = room.phone("pia")
            keys.revoke(folder, read_claims((folder / "pia" / "token").read_text().strip()).id)
            await until(lambda: pia.is_cut_off, "it is cut off")
            keys.renew(folder, "pia", 30)
            await pia.broadcast("again")
            await room.agree({"again"}, *SERVERS, "pia", "tim")

    run(test())


def test_a_connection_does_not_outlive_its_token(tmp_path: Path) -> None:
    folder = make(tmp_path / "keys")
    key = (folder / "token.key").read_bytes()

    def write_token(seconds: float) -> None:
        (folder / "pia" / "token").write_text(issue(key, "room", "pia", int(time.time() + seconds), "1"))

    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder) as room:
            write_token(4)
            pia = await room.start_phone("pia", keys=folder / "pia")
            await until(lambda: pia.is_cut_off, "its token has expired")
            write_token(60)
            await pia.broadcast("again")
            await room.agree({"again"}, *SERVERS, "pia")

    run(test())


def test_a_phone_cannot_use_another_name_nor_a_member_join_by_websocket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impostors(monkeypatch)
    folder = make(tmp_path / "keys")

    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder) as room:
            refused: list[str] = []
            room.listen("ana", refused)
            for wrong in ("tim", "ana"):
                starting = room.start_phone(wrong + "x", "ana", keys=folder / "pia", store=None)
                await room.fails(starting)
            await until(lambda: any("claims to be timx and is pia" in text for text in refused), "refusal")

    run(test())


def test_phones_may_share_a_secret_with_their_super_peers(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    keys.new_secret(secret)

    async def test() -> None:
        async with phone_room(tmp_path, is_secure=True, secret=secret) as room:
            pia = await room.start_phone("pia", secret=secret)
            await pia.broadcast("secret")
            await room.agree({"secret"}, *SERVERS, "pia")

    run(test())
