"""Invalid settings are refused in one sentence naming the field, before anything is opened."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, Required, get_origin, get_type_hints

import msgspec
import pytest
from live_groups import run, until

import antecede
from antecede.errors import InputError
from antecede.live.joining import JoinOptions
from antecede.live.settings import Member, Settings

GOOD: dict[str, Any] = {"group": "room", "me": "ana", "peers": ["bo@127.0.0.1:7001"]}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"lissten": ":7000"}, "join: unknown setting lissten; did you mean listen?"),
        ({"listen": 7000}, 'listen: 7000 is a number; write a text, such as ":7000"'),
        ({"metrics": 9101}, 'metrics: 9101 is a number; write a text, such as ":9101"'),
        ({"me": 5}, 'me: 5 is a number; write a text, such as "ana"'),
        ({"own": "no"}, "own: 'no' is a text; write true or false"),
        ({"heartbeat": 3}, 'heartbeat: 3 is a number; write a text, such as "3s"'),
        ({"store": 3}, 'store: 3 is a number; write a text, such as "ana-store"'),
        ({"subgroups": 3}, "subgroups: 3 is a number; write a table"),
        ({"faults": {"loss": "much"}}, "faults.loss: it is a text; write a number"),
        ({"listen": "7000"}, "listen: '7000' is not an address; write host:port"),
        ({"listen": ":70000"}, "listen: ':70000' is not an address"),
        ({"web": "here"}, "web: 'here' is not an address"),
        ({"peers": ["bo@nowhere"]}, "peers: 'nowhere' is not an address"),
        ({"peers": ["bo@host:port"]}, "peers: 'host:port' is not an address"),
        ({"peers": [{"name": "bo", "at": "x"}]}, "peers: 'x' is not an address"),
        ({"peers": ["bo@ws://:80"]}, "peers: 'ws://:80' is not an address; write ws://host:port"),
        ({"peers": ["bo@ws://host:port"]}, "peers: 'ws://host:port' is not an address"),
        ({"peers": "bo"}, "peers"),
        ({"peers": 5}, "peers"),
        ({"peers": [5]}, 'peers[0]: it is a number; write a text or a table, such as "bo@host:7000"'),
        ({"peers": [{"nam": "bo"}]}, "peers"),
        ({"peers": [{"at": ":1"}]}, "peers[0]: `name` is missing"),
        ({"peers": ["bo", "bo@127.0.0.1:7001"]}, "peers: bo is listed twice"),
        ({"peers": ["ana"]}, "peers: ana is this member itself; list only the others"),
        ({"peers": ["b o"]}, "'b o' is not a name"),
        (
            {"peers": ["bo:7102"]},
            "'bo:7102' is not a name: a member has a name and an address; write bo@host:7102",
        ),
        ({"peers": ["10.0.0.1:7102"]}, "write NAME@10.0.0.1:7102"),
        ({"me": ""}, "'' is not a name"),
        ({"subgroups": {"ana": "vector"}}, "subgroups: only hcg and basic have them, not mbcp"),
        ({"protocol": "hcg", "subgroups": {"zoe": "vector"}}, "subgroups: zoe is not among the gateways"),
        ({"protocol": "hcg", "behind": "bo"}, "subgroups: which clock has that of bo"),
        ({"protocol": "hcg", "subgroups": {"bo": "atomic"}}, "its clock is real, linear or vector"),
        ({"protocol": "hcg", "subgroups": {"bo": "real"}}, "real time needs a longest_delay and a skew"),
        ({"protocol": "hcg", "subgroups": {"bo": "real 0 1ms"}}, "a longest_delay of 0 cannot be kept"),
        ({"protocol": "hcg", "subgroups": {"bo": "real fast 1ms"}}, "'fast' is not a duration"),
        ({"protocol": "hcg", "subgroups": {"bo": "linear 5ms 1ms"}}, "needs no longest_delay and no skew"),
        ({"protocol": "hcg", "subgroups": {"bo": "real 50ms"}}, "is not like vector, linear or real 50ms"),
        ({"protocol": "multigroup"}, "protocol: multigroup needs several groups at once"),
        ({"protocol": "nonsense"}, "nonsense"),
        ({"behind": "bo"}, "ana is behind bo, but only freescale has super peers; this is mbcp"),
        ({"behind": "sue", "protocol": "freescale"}, "ana is behind sue, who is not among the members"),
        ({"limit": -1}, "limit"),
        ({"limit": "much"}, "limit: 'much' is not a number of bytes; write one like 100MB or 2GiB"),
        ({"limit": 1.5}, 'limit: 1.5 is a number; write a whole number, such as "32MB"'),
        ({"park": "some"}, "park: 'some' is not a number of bytes"),
        (
            {"web": ":0"},
            "web: it is for phones, and only groups with protocol freescale, hcg or basic have them",
        ),
        ({"retain": "7d"}, "history, retain: they are for members of groups with founders or a contact"),
        ({"peers": [], "contact": "ana@:1"}, "contact: ana is this member itself; name another one"),
        ({"peers": [], "super_peers": ["ana@:1"]}, "super_peers: ana is this member itself"),
        ({"peers": [], "super_peers": ["bo"]}, "super_peers: where is bo? Write bo@host:port"),
        (
            {"peers": [], "founders": ["ana"], "snapshot": b"x"},
            "snapshot: it must be a function, and is of type",
        ),
        ({"peers": [], "contact": "bo@:1", "restore": "x"}, "restore: it must be a function"),
        ({"faults": {"delay": "soon"}}, "faults"),
        ({"faults": {"cut_every": "0s"}}, "faults"),
        ({"faults": {"loss": 2.0}}, "faults"),
        ({"cls": 1}, "cls"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(tmp_path: Path, wrong: dict[str, Any], text: str) -> None:
    async def test() -> None:
        with pytest.raises(InputError) as refused:
            async with antecede.join(**{**GOOD, **wrong}):
                pass
        assert text in str(refused.value)
        assert "\n" not in str(refused.value)

    run(test())


def test_a_group_is_joined_by_settings() -> None:
    async def test() -> None:
        mine = Settings.create(group="room", me="ana", listen=":0", peers=["bo"])
        async with antecede.join(mine) as ana:
            assert ana.settings is mine
            assert (ana.me, sorted(ana.members)) == ("ana", ["ana", "bo"])
            with pytest.raises(InputError, match="limit: a Settings says everything"):
                antecede.join(mine, limit=5)  # type: ignore[call-overload]
            there = Settings.create(group="room", me="bo", peers=[f"ana@{ana.address}"])
            bo = await antecede.join(there)
            await ana.broadcast("hello")
            async for message in bo:
                assert message.body == "hello"
                break
            await bo.aclose()

    run(test())


def test_the_keywords_of_join_are_the_settings() -> None:
    options = get_type_hints(JoinOptions, include_extras=True)
    former, functions = {"plain"}, {"snapshot", "restore"}
    assert {"group", *options} - former - functions == set(Settings.__struct_fields__)
    needed = {name for name, hint in options.items() if get_origin(hint) is Required}
    required = {field.name for field in msgspec.structs.fields(Settings) if field.required}
    assert {"group", *needed} == required


def test_an_unknown_key_in_a_settings_file_is_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "ana.toml"
    file.write_text('group = "room"\nme = "ana"\nlissten = ":7000"\n')
    with pytest.raises(
        InputError, match=r"ana\.toml: unknown setting lissten; did you mean listen\?"
    ) as refused:
        Settings.load(file)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__, "one traceback, not two"
    file.write_text('group = "room"\n')
    with pytest.raises(InputError, match=r"ana\.toml: .*`me`"):
        Settings.load(file)
    file.write_text("group = room")
    with pytest.raises(InputError, match=r"ana\.toml: .*; a text needs quotes, as in group = \"room\""):
        Settings.load(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"ana\.toml: not text"):
        Settings.load(file)
    with pytest.raises(InputError, match=r"eve\.toml: No such file"):
        Settings.load(tmp_path / "eve.toml")


def test_sizes_are_numbers_or_texts(tmp_path: Path) -> None:
    file = tmp_path / "ana.toml"
    file.write_text('group = "room"\nme = "ana"\nlimit = "32MB"\npark = "1GiB"\n')
    assert Settings.load(file) == Settings.create(group="room", me="ana", limit=32_000_000, park=1 << 30)

    async def test() -> None:
        async with antecede.connect(me="ana", limit="32MB") as node:
            assert node.settings.limit == 32_000_000

    run(test())


def test_a_member_that_can_never_be_connected_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", peers=["bo"]):
            pass

    run(test())
    assert caplog.messages == [
        "ana calls nobody, since its `peers` have no addresses, and nobody can call it: set `listen`, or "
        "write bo@host:port"
    ]


def test_a_settings_file_equals_keyword_settings(tmp_path: Path) -> None:
    file = tmp_path / "ana.toml"
    file.write_text(
        'group = "room"\nme = "ana"\nstore = "ana.db"\npeers = ["bo@127.0.0.1:7001", { name = "cleo" }]\n'
    )
    peers = ["bo@127.0.0.1:7001", Member("cleo")]
    same = Settings.create(group="room", me="ana", store=tmp_path / "ana.db", peers=peers)
    assert Settings.load(file) == same


def test_a_port_that_is_taken_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.socket() as taken, socket.socket() as chosen:
            for each in (taken, chosen):
                each.bind(("127.0.0.1", 0))
            taken.listen()
            at, free = (each.getsockname()[1] for each in (taken, chosen))
            chosen.close()
            mine = {**GOOD, "protocol": "freescale", "store": tmp_path / "ana.db"}
            with pytest.raises(InputError, match=rf"^listen: cannot listen at :{at}: "):
                await antecede.join(**mine, listen=f":{at}")
            with pytest.raises(InputError, match=rf"^web: cannot listen at :{at}: "):
                await antecede.join(**mine, listen=f":{free}", web=f":{at}")
            assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()][1:] == []
            async with antecede.join(**mine, listen=f":{free}") as ana:
                assert ana.address == f"127.0.0.1:{free}"

    run(test())


def test_an_unresolvable_peer_host_only_makes_that_member_absent() -> None:
    """A failed lookup may succeed later, so the member keeps dialling."""

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo@a..b:7000"], insecure=True) as ana:
            (connection,) = ana._connections.by_peer.values()
            for _ in range(2):
                connection.reason = ""
                await until(lambda: "not a host name" in connection.reason, "another call")

    run(test())
