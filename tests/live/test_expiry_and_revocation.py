"""Tokens and certificates that were valid when a connection was made, and expired or were revoked since."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, run, until

import antecede
from antecede.live.group import Group
from antecede.live.security import keys
from antecede.live.security.identity import issue, read_claims

GROUP = "room"


def make(folder: Path) -> Path:
    keys.make_keys(folder, GROUP, ["ana", "bo", "sue"], ["phone"], 30, {}, ["sue"])
    return folder


@contextlib.asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[tuple[Group, Group]]:
    """Ana, whom Bo calls; with certificates."""
    async with antecede.join(GROUP, me="ana", listen=":0", peers=["bo"], keys=folder / "ana") as ana:
        there = [f"ana@{ana.address}"]
        async with antecede.join(GROUP, me="bo", peers=there, keys=folder / "bo") as bo:
            yield ana, bo


@contextlib.asynccontextmanager
async def sue_and_phone(folder: Path) -> AsyncIterator[tuple[Group, Group]]:
    common: Any = {"protocol": "freescale"}
    async with antecede.join(
        GROUP, me="sue", web=":0", listen=":0", peers=["phone behind sue"], keys=folder / "sue", **common
    ) as sue:
        peers = [f"sue@{sue.web_address}"]
        async with antecede.join(
            GROUP, me="phone", behind="sue", peers=peers, keys=folder / "phone", **common
        ) as phone:
            yield sue, phone


def test_a_connection_does_not_outlive_its_token(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    key = (folder / "token.key").read_bytes()

    def write_token(seconds: float) -> None:
        (folder / "phone" / "token").write_text(issue(key, GROUP, "phone", int(time.time() + seconds), "1"))

    async def test() -> None:
        write_token(4)
        async with sue_and_phone(folder) as (sue, phone):
            at_sue, at_phone = Ear(sue), Ear(phone)
            await phone.broadcast("while it is valid")
            await at_sue.has(1)
            await until(lambda: "its token expired" in at_sue.texts("refused"))
            await until(lambda: "sue refuses phone: its token expired" in at_phone.texts("refused"))
            await until(lambda: not sue.connected)
            # A new token is noticed without a restart.
            write_token(60)
            await phone.broadcast("again")
            await at_sue.has(2)

    run(test())


def test_revoking_a_name_ends_its_connection_and_refuses_new_ones(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")

    async def test() -> None:
        async with servers(folder) as (ana, bo):
            at_ana, at_bo = Ear(ana), Ear(bo)
            await until(lambda: ana.connected and bo.connected)
            keys.revoke(folder, "bo")
            await until(lambda: not ana.connected)
            await until(lambda: at_ana.texts("refused").count("bo was revoked") >= 2)  # it calls again
            assert "ana refuses bo: bo was revoked" in at_bo.texts("refused")
            assert at_bo.texts("lost") == ["it refuses this member: bo was revoked"]

    run(test())


@pytest.mark.parametrize("kind", ["certificate", "token"])
def test_a_certificate_or_token_is_revoked_alone(tmp_path: Path, kind: str) -> None:
    """Its holder reconnects with a new one, without any restart."""
    folder = make(tmp_path / "k")
    name = "bo" if kind == "certificate" else "phone"

    def number() -> str:
        if kind == "token":
            return read_claims((folder / "phone" / "token").read_text().strip()).id
        lines = [line.split() for line in (folder / "issued").read_text().splitlines()]
        return [line[2] for line in lines if line[:2] == ["bo", "certificate"]][-1]

    async def test() -> None:
        pair = servers if kind == "certificate" else sue_and_phone
        async with pair(folder) as (server, caller):
            ear = Ear(server)
            await until(lambda: server.connected and caller.connected)
            keys.revoke(folder, number())
            await until(lambda: f"its {kind} was revoked" in ear.texts("refused"))
            await until(lambda: not server.connected)
            keys.renew(folder, name, 30)
            await until(lambda: server.connected and caller.connected)
            await caller.broadcast("back")
            await ear.has(1)

    run(test())


def test_a_bad_line_in_the_list_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make(tmp_path / "k")

    async def test() -> None:
        async with servers(folder) as (ana, bo):
            await until(lambda: ana.connected and bo.connected)
            (folder / "ana" / "revoked").write_text("# lost last week\nnot a name\nbo\n")
            await until(lambda: not ana.connected)

    with caplog.at_level(logging.WARNING, "antecede.live"):
        run(test())
    assert f"{folder / 'ana' / 'revoked'}, line 2: not a name, a serial number or a token's id" in caplog.text


def test_messages_broadcast_before_a_revocation_still_reach_every_member(tmp_path: Path) -> None:
    """Otherwise revoking one member would partition the others, whose messages depend on its own."""
    folder = tmp_path / "k"
    keys.make_keys(folder, GROUP, ["ana", "bo", "cy"], [], 30, {}, [])

    async def test() -> None:
        async with antecede.join(GROUP, me="cy", listen=":0", peers=["ana", "bo"], keys=folder / "cy") as cy:
            at_cy, there = Ear(cy), f"cy@{cy.address}"
            async with antecede.join(GROUP, me="bo", peers=[there, "ana"], keys=folder / "bo") as bo:
                await bo.broadcast("before")
                await until(lambda: at_cy.bodies("bo"))
                keys.revoke(folder, "bo")
                await until(lambda: not cy.connected)
            async with antecede.join(GROUP, me="ana", peers=[there, "bo"], keys=folder / "ana") as ana:
                at_ana = Ear(ana)
                await cy.broadcast("after")
                await until(lambda: at_ana.bodies("cy"))
                assert [*at_ana.bodies("bo"), *at_ana.bodies("cy")] == ["before", "after"]
                assert ana.connected == ("cy",)

    run(test())


def test_a_member_whose_signing_certificate_is_revoked_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    lines = [line.split() for line in (folder / "issued").read_text().splitlines()]
    (number,) = [line[2] for line in lines if line[:2] == ["bo", "signing-certificate"]]
    keys.revoke(folder, number)

    async def test() -> None:
        async with servers(folder) as (ana, _):
            ear = Ear(ana)
            await until(lambda: "its signing certificate was revoked" in ear.texts("refused"))

    run(test())


def test_a_phone_and_its_super_peer_share_a_secret(tmp_path: Path) -> None:
    """Phones once had no token in this case, and were refused for ever."""
    secret = tmp_path / "room.secret"
    keys.new_secret(secret)

    async def test() -> None:
        common: Any = {"protocol": "freescale", "secret": secret}
        async with antecede.join(
            GROUP, me="sue", listen=":0", web=":0", peers=["phone behind sue", "ext"], **common
        ) as sue:
            assert str(sue.web_address).startswith("wss://")
            there = [f"sue@{sue.web_address}", "ext"]
            outside = [f"sue@{sue.address}", "phone behind sue"]
            async with (
                antecede.join(GROUP, me="phone", behind="sue", peers=there, **common) as phone,
                antecede.join(GROUP, me="ext", peers=outside, **common) as ext,
            ):
                await phone.broadcast("from the phone")
                assert (await anext(ext)).body == "from the phone"
                await ext.broadcast("from outside")
                async for message in phone:
                    if message.origin == "ext":
                        assert message.body == "from outside"
                        break

    run(test())


def test_a_phone_with_another_secret_is_refused(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        keys.new_secret(tmp_path / name)

    async def test() -> None:
        common: Any = {"protocol": "freescale"}
        async with antecede.join(
            GROUP,
            me="sue",
            listen=":0",
            web=":0",
            peers=["phone behind sue"],
            secret=tmp_path / "ours",
            **common,
        ) as sue:
            there = [f"sue@{sue.web_address}"]
            async with antecede.join(
                GROUP, me="phone", behind="sue", peers=there, secret=tmp_path / "theirs", **common
            ) as phone:
                ear = Ear(phone)
                await until(lambda: any("certificate verify failed" in text for text in ear.texts("refused")))
                assert not sue.connected

    run(test())
