"""The protocols available in live groups with changing membership."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from driven_cores import Driven, exchange
from live_groups import PATIENCE, run, until
from rooms import room

import antecede
from antecede.audit.run import audit_path
from antecede.errors import InputError
from antecede.live.changing import attempts
from antecede.live.changing.contact import Contact
from antecede.live.changing.events import Founded
from antecede.live.changing.protocols import LIVE, WITH_PHONES
from antecede.live.trial.ports import free_ports
from antecede.membership.catalog import ChangingVcube
from antecede.protocols.base import Protocol

ALIKE = sorted(LIVE.keys() - WITH_PHONES.keys())
NAMES = ["ana", "bo", "cy", "dana"]


def tree() -> dict[str, Driven]:
    """Four founders: what ana broadcasts goes to bo and cy, and from cy to dana."""
    contacts = [Contact(name) for name in NAMES]
    members = {name: Driven(name, kind=ChangingVcube) for name in NAMES}
    for member in members.values():
        member.step(Founded(contacts, 0))
    assert list(members["ana"].core.member.order.routes.values()) == [1, 2]
    return members


def received(member: Driven) -> int:
    return member.core.application.delivered


def test_messages_waiting_at_a_suspected_tree_node_are_rerouted_even_after_a_restart() -> None:
    members = tree()
    ana, bo, cy, dana = members.values()
    ana.core.broadcast(b"while cy is down", 0)
    ana.carry_out()
    exchange(ana, bo, dana)
    assert (received(bo), received(dana)) == (1, 0)
    ana = ana.restarted()
    ana.core.route_around({2}, 0)
    ana.carry_out()
    exchange(ana, bo, dana)
    assert received(dana) == 1
    # Its route is restored by a restart, or the replayed packets would differ.
    ana = ana.restarted()
    assert ana.core.member.order.suspected == {2}
    ana.core.broadcast(b"not through cy", 0)
    ana.carry_out()
    exchange(ana, bo, dana)
    assert received(dana) == 2
    # A wrong suspicion costs one packet, and no message is delivered twice.
    exchange(ana, bo, cy, dana)
    ana.core.route_around((), 0)
    ana.core.broadcast(b"through cy", 0)
    ana.carry_out()
    exchange(ana, bo, dana)
    assert received(dana) == 2
    exchange(ana, bo, cy, dana)
    assert [received(each) for each in (ana, bo, cy, dana)] == [3, 3, 3, 3]
    assert all(each.restarted().state() == each.state() for each in (ana, bo, cy, dana))


def test_messages_for_a_fully_suspected_branch_go_to_its_first_member_found_alive() -> None:
    ana, bo, _, dana = tree().values()
    ana.core.route_around({2, 3}, 0)
    ana.core.broadcast(b"to nobody who listens", 0)
    ana.carry_out()
    exchange(ana, bo, dana)
    assert received(dana) == 0
    ana.core.route_around({2}, 0)
    ana.carry_out()
    exchange(ana, bo, dana)
    assert received(dana) == 1


def test_protocols_without_routes_log_no_suspicions() -> None:
    ana = Driven("ana")
    ana.step(Founded([Contact("ana"), Contact("bo")], 0))
    ana.core.route_around({1}, 0)
    assert not ana.core.has_ready


def test_a_crash_inside_a_tree_delays_others_only_briefly(tmp_path: Path) -> None:
    """Over sockets, with the adaptive time-out."""

    async def test() -> None:
        options: dict[str, Any] = {"protocol": "vcube", "heartbeat": "200ms"}
        async with room(tmp_path, *NAMES, **options) as group:
            ana = group.groups["ana"]
            await until(lambda: all(each.connected for each in ana.view), "connections")
            await group.stop("cy")
            await ana.broadcast("before anybody knows")
            await until(lambda: ana.view.members["cy"].suspected, "the suspicion")
            await ana.broadcast("not through cy")
            expected = {"before anybody knows", "not through cy"}
            await group.agree(expected, "ana", "bo", "dana")
            assert ana._core.member.order.suspected == {2}
            await group.start("cy", **options)
            await group.agree(expected, *NAMES)
            await until(lambda: not ana._core.member.order.suspected, "trust")

    run(test())


@pytest.mark.parametrize("protocol", ALIKE)
def test_members_join_leave_return_and_are_removed_with_every_protocol(tmp_path: Path, protocol: str) -> None:
    options: dict[str, Any] = {"protocol": protocol, "trace": tmp_path / "trace"}

    async def test() -> None:
        async with room(tmp_path / "stores", *NAMES, **options) as group:
            for name in NAMES:
                await group.groups[name].broadcast(f"from {name}")
            eve = await group.start("eve", **options)
            await eve.broadcast("from eve")
            await group.agree_on_last("from eve")
            await group.stop("bo")
            await group.groups["ana"].broadcast("while bo is away")
            await group.start("bo", **options)
            await group.groups["dana"].remove("cy")  # which returns
            await until(lambda: group.groups["cy"].me != "cy" and group.groups["cy"].state == "open", "cy")
            await group.groups["cy"].broadcast("cy is back")
            await eve.leave(timeout=PATIENCE)
            del group.groups["eve"], group.boards["eve"]
            await group.have_view(*NAMES)
            await group.groups["bo"].broadcast("the end")
            del group.boards["bo"]  # which has what came before its restart elsewhere
            await group.agree_on_last("the end")
            assert len(group.boards["ana"].bodies) == len(NAMES) + 4
            for name in NAMES:
                await group.groups[name].drain(timeout=PATIENCE)

    run(test())
    audited = audit_path(str(tmp_path / "trace"), "local", 10, None)
    assert audited.verdict.clean, (audited.verdict, audited.findings, audited.faults)


@pytest.mark.parametrize("protocol", ALIKE)
def test_a_message_names_its_immediate_causes_with_every_protocol(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", protocol=protocol, store=None, reads=False) as group:
            ana, bo, cy = (group.groups[name] for name in ("ana", "bo", "cy"))
            first = await ana.broadcast("first")
            second = await ana.broadcast("second")
            messages = aiter(bo)
            seen = [await anext(messages), await anext(messages)]
            assert [each.causes for each in seen] == [(), (first,)]
            reply = await bo.broadcast("reply")
            own = await anext(messages)
            assert (own.id, own.causes) == (reply, (second,))
            await bo.broadcast("once more")
            at_cy = aiter(cy)
            causes = {(each := await anext(at_cy)).body: each.causes for _ in range(4)}
            assert causes == {"first": (), "second": (first,), "reply": (second,), "once more": (reply,)}

    run(test())


def test_another_protocol_is_refused_with_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_REFUSED_SECONDS", 0.5)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", protocol="vcube") as group:
            reason = "dana cannot join: ana refuses dana: it uses protocol pc, ana uses vcube: set `pro"
            with pytest.raises(InputError, match=reason):
                await group.start("dana", protocol="pc")
            assert group.groups["ana"].view.names == ["ana", "bo", "cy"]
            await group.stop("bo")
            with pytest.raises(InputError, match="is the store of another protocol: vcube, not mbcp"):
                await group.start("bo", protocol="mbcp")

    run(test())
    sentence = "it uses protocol pc, ana uses vcube: set `protocol` alike"
    assert f"ana refuses dana: {sentence}" in caplog.text
    assert f"refused dana: {sentence}" in caplog.text


def test_founders_with_different_protocols_do_not_begin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        ports = free_ports(2)
        founders = [f"{name}@127.0.0.1:{port}" for name, port in zip(("ana", "bo"), ports, strict=True)]
        joining = [
            antecede.join("room", me=me, founders=founders, listen=f":{port}", protocol=protocol)
            for me, port, protocol in (("ana", ports[0], "vcube"), ("bo", ports[1], "mbcp"))
        ]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5), asyncio.TaskGroup() as tasks:
                for each in joining:
                    tasks.create_task(each._start())
        for each in joining:
            await each._group.aclose()

    run(test())
    assert (
        "the group begins when most founders are there; bo refuses ana: it uses protocol vcube" in caplog.text
    )


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("flooding", "write pc"),
        ("multigroup", "several groups at once"),
        ("causalcast", "no protocol 'causalcast'"),
    ],
)
def test_protocols_unavailable_in_changing_groups_are_refused(protocol: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        antecede.join("room", me="ana", founders=["ana"], protocol=protocol)


def test_protocols_without_phones_refuse_them() -> None:
    with pytest.raises(InputError, match="a phone's group has protocol freescale, hcg or basic, not vcube"):
        antecede.join("room", me="pia", super_peers=["ana@127.0.0.1:7000"], protocol="vcube")


def test_no_changing_group_protocol_uses_timers() -> None:
    """Members of such groups have no timers but their reports; a protocol that did would need them here."""
    for kind in LIVE.values():
        assert kind.wake is Protocol.wake
