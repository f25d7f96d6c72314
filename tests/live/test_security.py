"""Strangers are refused: certificates, tokens and shared secrets, and the reported reasons."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from live_groups import be_impostors, until

import antecede
from antecede.errors import InputError
from antecede.live.group import Group
from antecede.live.security import identity, keys
from antecede.live.security.identity import Identity, Security
from antecede.live.settings import Settings
from antecede.protocols.base import RemoteError

GROUP = "the room"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of a group, and some that are invalid for it."""
    made = tmp_path_factory.mktemp("keys")
    keys.make_keys(
        made / "right", GROUP, ["ana", "bo", "sue"], ["phone"], 30, {"sue": ["sue.example", "::1"]}, ["sue"]
    )
    keys.make_keys(made / "old", GROUP, [], [], 30, {}, [])
    keys.make_keys(made / "other authority", GROUP, ["bo"], ["phone"], 30, {}, [])
    # The same authority: one whose time is over, and one for another group.
    for name, group, days in (("expired", GROUP, -0.5), ("elsewhere", "another room", 30)):
        (made / name).mkdir()
        for file in ("authority.key", "ca.pem", "token.key"):
            (made / name / file).write_bytes((made / "right" / file).read_bytes())
        keys.make_keys(made / name, group, ["bo"], ["phone"], days, {}, [])
    (made / "old").rename(made / "nothing")
    return made


async def refused_at(*groups: Group, words: str = "") -> str:
    """The first refusal containing these words, at any of the groups."""

    async def at(group: Group) -> str:
        async for notice in group.events():
            if notice.kind == "refused" and words in notice.text:
                return notice.text
        raise AssertionError("the group ended")

    tasks = [asyncio.create_task(at(group)) for group in groups]
    async with asyncio.timeout(20):
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    return done.pop().result()


@pytest.mark.parametrize(
    ("bo_keys", "reason"),
    [
        (None, "it speaks without encryption, and this member has keys"),
        ("other authority/bo", "certificate verify failed: self-signed certificate in certificate chain"),
        ("expired/bo", "certificate verify failed: certificate has expired"),
        ("elsewhere/bo", "it claims to be bo; its certificate is for bo of group 'another room'"),
        ("right/ana", "it claims to be bo; its certificate is for ana of group 'the room'"),
    ],
)
def test_a_member_that_cannot_prove_its_name_is_refused_and_logged(
    folder: Path,
    bo_keys: str | None,
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_impostors(monkeypatch)

    async def test() -> None:
        mine = folder / "right" / "ana"
        async with antecede.join(GROUP, me="ana", listen=":0", peers=["bo"], keys=mine) as ana:
            bo_options: Any = {"keys": folder / bo_keys} if bo_keys else {}
            async with antecede.join(GROUP, me="bo", peers=[f"ana@{ana.address}"], **bo_options) as bo:
                await refused_at(ana, bo, words=reason)
                assert bo.connected == ana.connected == ()
                # Members with valid keys are not affected.
            good = folder / "right" / "bo"
            async with antecede.join(GROUP, me="bo", peers=[f"ana@{ana.address}"], keys=good) as bo:
                await bo.broadcast("it is me")
                assert (await anext(ana)).body == "it is me"

    with caplog.at_level(logging.WARNING, "antecede.live"):
        asyncio.run(test())
    assert reason in caplog.text


def test_a_stranger_claiming_a_member_s_name_is_not_reported_as_that_member_s_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise anybody could make a healthy member look refused."""
    be_impostors(monkeypatch)

    async def test() -> None:
        mine = folder / "right"
        async with antecede.join(GROUP, me="ana", listen=":0", peers=["bo"], keys=mine / "ana") as ana:
            there = [f"ana@{ana.address}"]
            async with antecede.join(GROUP, me="bo", peers=there, keys=mine / "bo") as bo:
                await until(lambda: ana.connected and bo.connected)
                wrong = folder / "elsewhere" / "bo"
                refusal = asyncio.create_task(refused_at(ana, words="another room"))
                async with antecede.join(GROUP, me="bo", peers=there, keys=wrong):
                    await refusal
                assert ana.problems() == []
                assert ana.connected == ("bo",)

    asyncio.run(test())


def test_a_member_without_keys_refuses_tls_with_a_reason(folder: Path) -> None:
    async def test() -> None:
        async with antecede.join(GROUP, me="ana", listen=":0", peers=["bo"]) as ana:
            refusal = asyncio.create_task(refused_at(ana))
            mine = folder / "right" / "bo"
            async with antecede.join(GROUP, me="bo", peers=[f"ana@{ana.address}"], keys=mine):
                async with asyncio.timeout(20):
                    assert await refusal == "it speaks TLS, and this member has no keys"

    asyncio.run(test())


@pytest.mark.parametrize(
    ("phone_keys", "reason"),
    [
        ("right/phone", None),
        ("expired/phone", "its token expired 12 h ago"),
        ("elsewhere/phone", "its token is for phone of group 'another room'"),
        ("other authority/phone", None),
        ("stolen", "it claims to be phone; its token is for mobile"),
        ("forged", "its token was not signed for this group"),
        ("garbled", "its token is not a token"),
    ],
)
def test_a_phone_shows_a_token(
    folder: Path, tmp_path: Path, phone_keys: str, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impostors(monkeypatch)
    mine = folder / phone_keys
    if not mine.exists():
        mine = tmp_path / "phone"
        mine.mkdir()
        for file in ("ca.pem", "sign.key", "sign.pem"):
            (mine / file).write_bytes((folder / "right" / "phone" / file).read_bytes())
        key = (folder / "right" / "token.key").read_bytes()
        soon = int(time.time()) + 60
        tokens = {
            "stolen": identity.issue(key, GROUP, "mobile", soon, "1"),
            "forged": identity.issue(b"a guess", GROUP, "phone", soon, "2"),
            "garbled": "ä.ö",
        }
        (mine / "token").write_text(tokens[phone_keys])

    async def test() -> None:
        common: Any = {"protocol": "freescale"}
        sue_peers = ["ana", "phone behind sue"]
        async with antecede.join(
            GROUP, me="sue", listen=":0", web=":0", peers=sue_peers, keys=folder / "right" / "sue", **common
        ) as sue:
            refusal = asyncio.create_task(refused_at(sue))
            assert str(sue.web_address).startswith("wss://")
            async with antecede.join(
                GROUP, me="phone", behind="sue", peers=[f"sue@{sue.web_address}", "ana"], keys=mine, **common
            ) as phone:
                async with asyncio.timeout(20):
                    if reason is not None:
                        assert reason in await refusal
                    elif phone_keys == "right/phone":
                        await phone.broadcast("hello")
                        assert (await anext(sue)).body == "hello"
                    else:  # the phone does not trust that super peer
                        assert "certificate verify failed" in await refused_at(phone)
                assert bool(sue.connected) == (phone_keys == "right/phone")
            refusal.cancel()

    asyncio.run(test())


def test_a_shared_secret_is_enough_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        keys.new_secret(tmp_path / name)

    async def test() -> None:
        async with antecede.join(
            GROUP, me="ana", listen=":0", peers=["bo", "cy"], secret=tmp_path / "ours"
        ) as ana:
            there = [f"ana@{ana.address}", "cy"]
            async with antecede.join(GROUP, me="bo", peers=there, secret=tmp_path / "ours") as bo:
                await until(lambda: bo.connected == ("ana",))
                there = [f"ana@{ana.address}", "bo"]
                async with antecede.join(GROUP, me="cy", peers=there, secret=tmp_path / "theirs") as cy:
                    await refused_at(cy, words="certificate verify failed")
                    await refused_at(ana, words="it disconnected before it had shown a certificate")

    asyncio.run(test())


def test_keys_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    """They are made from the secret at every start, in a folder of their own while OpenSSL reads them."""
    keys.new_secret(tmp_path / "ours")
    (tmp_path / "tmp").mkdir()
    kill_at_keys = (
        "import os, signal\n"
        "from antecede.live.security import identity\n"
        "from antecede.live.settings import Settings\n"
        "identity._load = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"identity.Security(Settings(group={GROUP!r}, me='ana', secret='ours'))\n"
    )
    for script, left in ((kill_at_keys, 1), (kill_at_keys.replace("identity._load", "_"), 0)):
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            check=not left,
            timeout=60,
        )
        assert len(list((tmp_path / "tmp").iterdir())) == left


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listen": "0.0.0.0:7000"}, "listen: 0.0.0.0:7000 is open to others and nothing is encrypted"),
        ({"web": "[::]:7000"}, "web: [::]:7000 is open to others"),
        (
            {"peers": ["bo@bo.example:7000"]},
            "peers: bo at bo.example:7000 would be reached without",
        ),
        ({"keys": "nowhere"}, "keys: nowhere has no ca.pem"),
        ({"secret": "nowhere"}, "secret: nowhere: No such file"),
        ({"keys": "a", "secret": "b"}, "keys and secret: give only one of them"),
    ],
)
def test_insecure_or_invalid_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        Security(Settings.create(group=GROUP, me="ana", **given))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("me", "keys_of", "why"),
    [
        ("ana", "right/bo", r"bo/certificate.pem is for bo of group 'the room', and this is ana of group"),
        ("bo", "elsewhere/bo", "bo/certificate.pem is for bo of group 'another room', and this is bo"),
        ("tim", "right/phone", "phone/sign.pem is for phone of group 'the room', and this is tim"),
    ],
)
def test_keys_of_another_member_or_group_are_refused_at_once(
    folder: Path, me: str, keys_of: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        Security(Settings.create(group=GROUP, me=me, peers=["sue"], keys=folder / keys_of))


def test_a_phone_with_a_token_calls_only_where_tokens_are_checked(folder: Path) -> None:
    def check(**given: Any) -> None:
        Security(Settings.create(group=GROUP, me="phone", keys=folder / "right" / "phone", **given))

    why = (
        "phone has a token and no certificate, so sue lets it in only at its `web`; write sue@wss://host:port"
    )
    for place in ("sue@:7000", "sue@ws://127.0.0.1:8000"):
        with pytest.raises(InputError, match=f"super_peers: {why}"):
            check(super_peers=[place])
        with pytest.raises(InputError, match=f"peers: {why}"):
            check(behind="sue", peers=[place, "ana"])
    check(super_peers=["sue@wss://127.0.0.1:8000"])
    check(behind="sue", peers=["sue@wss://127.0.0.1:8000", "ana@:7000"])


def test_insecure_links_beyond_this_machine_must_be_asked_for() -> None:
    for given in (
        {"listen": "0.0.0.0:7000", "insecure": True},
        {"listen": "localhost:7000"},
        {"listen": "[::1]:1"},
    ):
        assert not Security(Settings.create(group=GROUP, me="ana", **given)).is_on


def test_the_former_name_of_insecure_works_for_one_release() -> None:
    with pytest.warns(DeprecationWarning, match="insecure"):
        settings = Settings.create(group=GROUP, me="ana", listen="0.0.0.0:7000", plain=True)
    assert settings.insecure


def test_tokens_expire_and_cannot_be_altered() -> None:
    token = identity.issue(b"key", GROUP, "phone", 1000, "3")
    assert identity.verify_token(b"key", token, 999).identity == Identity(GROUP, "phone")
    with pytest.raises(RemoteError, match="expired 5 s ago"):
        identity.verify_token(b"key", token, 1005)
    for place in range(len(token)):
        altered = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(RemoteError):
            identity.verify_token(b"key", altered, 999)


def test_keys_are_added_and_never_replaced(tmp_path: Path) -> None:
    first = keys.make_keys(tmp_path, GROUP, ["ana"], [], 30, {}, [])
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert [each.name for each in first] == ["ana"]
    assert [each.name for each in keys.make_keys(tmp_path, GROUP, ["ana", "bo"], [], 30, {}, [])] == ["bo"]
    before.pop(tmp_path / "issued")  # lists what was issued since
    assert all(file.read_bytes() == data for file, data in before.items())
    secret = [file for file in tmp_path.rglob("*") if file.name in ("key.pem", "authority.key", "token.key")]
    assert {oct(file.stat().st_mode & 0o777) for file in secret} == {"0o600"}


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "antecede", "keys", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_keys_command_creates_folders_and_refuses_invalid_requests(tmp_path: Path) -> None:
    made = run("k", "ana", "--super", "sue", "--phone", "phone", "--host", "sue=sue.example", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert 'keys = "k/ana"' in made.stdout
    assert (tmp_path / "k" / "phone" / "token").exists()
    assert "ana: its keys are unchanged" in run("k", "ana", cwd=tmp_path).stdout
    other = run("k", "dana", "ana", "--group", "hall", cwd=tmp_path)
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr.startswith(
        "error: k/ana has keys for group 'room', not 'hall'; write --group room, or "
    )
    assert not (tmp_path / "k" / "dana").exists()
    assert "phone: its keys are unchanged" in run("k", "--phone", "phone", cwd=tmp_path).stdout
    before = (tmp_path / "k" / "phone" / "token").read_bytes()
    assert "phone: renewed" in run("k", "--renew", "phone", "--days", "3", cwd=tmp_path).stdout
    assert (tmp_path / "k" / "phone" / "token").read_bytes() != before
    assert "phone: revoked in k/revoked" in run("k", "--revoke", "phone", cwd=tmp_path).stdout
    assert (tmp_path / "k" / "ana" / "revoked").read_text() == "phone\n"
    with pytest.raises(InputError, match="name the folder of one member"):
        Security(Settings.create(group=GROUP, me="ana", keys=tmp_path / "k"))
    assert run("room.secret", "--secret", cwd=tmp_path).returncode == 0
    for wrong in (
        ["room.secret", "--secret"],
        ["k"],
        ["k", "../ana"],
        ["k", "ana", "--host", "bo=x"],
        ["k", "bo", "--days", "-1"],
        ["k", "bo", "--days", "826"],
        ["k", "bo", "--days", "nan"],
        ["k", "bo", "--host", "bo="],
        ["k", "--renew", "nobody"],
        ["k", "--revoke", "nobody"],
        ["k", "bo", "--revoke", "ana"],
        ["nowhere", "--revoke", "ana"],
    ):
        refused = run(*wrong, cwd=tmp_path)
        assert refused.returncode == 2, refused.stdout
        assert "Traceback" not in refused.stderr
