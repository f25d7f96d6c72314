"""Stores of earlier releases are opened by this one and resumed.

`old_stores/vN.zip` has stores of format N, of processes that were killed; `old_stores/make.py` says of which.
They are replayed by today's code, which must give the same packets as those that others have received.
"""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from live_groups import run
from memory_disk import MemoryDisk, MemoryFile

import antecede
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Reported
from antecede.live.changing.greeting import MemberGreeter, MemberGreeting
from antecede.live.changing.phone import PhoneCore
from antecede.live.changing.recovery import restore
from antecede.live.changing.super_peer import SuperPeerCore
from antecede.live.envelope import decode_body, unwrap
from antecede.live.events import Opened
from antecede.live.ready import send_and_advance
from antecede.live.store.journal import Journal
from antecede.live.store.records import MEMBERS_CHANGE
from antecede.live.transport.links import PartnerLink
from antecede.live.trial.ports import free_ports
from antecede.live.versions import CHANGING_STORE, CHANGING_WIRE
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.state import Phase

FOLDER = Path(__file__).parent / "old_stores"
ARCHIVES = sorted(FOLDER.glob("*.zip"))
SECOND = 1_000_000_000
NOW = 3_000_000_000 * SECOND
"""Later than anything in a store."""


def expected(archive: Path, group: str) -> dict[str, Any]:
    with zipfile.ZipFile(archive) as contents:
        found: dict[str, Any] = json.loads(contents.read(f"{group}/expected.json"))
    return found


def stored(archive: Path, group: str, name: str) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as contents:
        begin = f"{group}/{name}/"
        return {each[len(begin) :]: contents.read(each) for each in contents.namelist() if begin in each}


def disk_with(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.files = {name: MemoryFile(content) for name, content in files.items()}
    return disk.killed()


class Restarted:
    """A process that goes on from a store, without sockets; what is stored is written at once."""

    def __init__(self, group: str, name: str, disk: MemoryDisk, is_phone: bool = False) -> None:
        self.core = ChangingCore(ChangingMbcp, name)
        identity = {"group": "room", "member": name, "protocol": "mbcp", "members": MEMBERS_CHANGE}
        if group == "phones":
            self.core = (PhoneCore if is_phone else SuperPeerCore)(ChangingFreescale, name)
            identity["protocol"] = "freescale"
        self.disk = disk
        self.journal = Journal(disk, identity)
        restore(self.core, self.journal)
        self.greeter = MemberGreeter(self.core, "room")
        self.links: dict[int, PartnerLink] = {}
        self.partners: dict[int, tuple[Restarted, int]] = {}
        self.bodies: list[str] = []

    def go_on(self) -> None:
        self.core.step(Opened("life", NOW, max(CHANGING_WIRE)))
        self.commit()

    def commit(self) -> None:
        ready = self.core.ready(self.journal.checkpoint_is_due)
        self.journal.write(ready.records, ready.checkpoint)
        send_and_advance(cast("Any", self.core), ready)

    def read(self) -> None:
        while (delivery := self.core.next_delivery(NOW, acks=bool(self.bodies))) is not None:
            self.bodies.append(str(decode_body(unwrap(delivery.payload))))
            self.journal.cursor = self.core.application.cursor
            self.commit()
        self.commit()

    def sent(self) -> dict[int, tuple[int, bytes]]:
        """The last packet to each address, with its chain value, which covers all before it."""
        core = self.core
        return {core.links[link][1]: (box.last, box.chain[box.last]) for link, box in core.outboxes.items()}

    def call(self, other: Restarted) -> None:
        """Reconnect two processes that were connected before."""
        mine, theirs = self.core.address, other.core.address
        link = self.core.find_link(mine, theirs)
        call = self.greeter.call(mine, link, "")
        there = other._accept(call, None)
        answer = other.greeter.call(theirs, there, "")
        self.partners[self._accept(answer, call)] = other, there
        other.partners[there] = self, cast("int", link)

    def _accept(self, greeting: Any, called: MemberGreeting | None) -> int:
        link = self.greeter.find_link(greeting, NOW, called)
        self.greeter.check_resumable(link, greeting)
        self.greeter.accept(link, greeting, NOW)
        self.links[link] = PartnerLink(cast("Any", self.core), link, Counter())
        self.links[link].open(greeting, 0.0)
        self.commit()
        return link

    def transmit(self) -> bool:
        moved = False
        for link, (other, there) in self.partners.items():
            while frames := self.links[link].take_frames(0.0):
                for frame in frames:
                    other.links[there].receive(frame, 0.0, NOW)
                moved = True
                other.commit()
        self.read()
        return moved


def restart(archive: Path, group: str) -> dict[str, Restarted]:
    names = expected(archive, group)["delivered"]
    return {
        name: Restarted(group, name, disk_with(stored(archive, group, name)), name == "tom") for name in names
    }


def check_deliveries(archive: Path, group: str, later: dict[str, list[str]]) -> None:
    """Everything that was accepted is delivered at everyone, once, in the order of each sender."""
    before = expected(archive, group)
    for name, bodies in later.items():
        delivered = before["delivered"][name]
        if delivered[-1].endswith("!"):
            assert bodies[0] == delivered[-1], "what was not acknowledged comes again"
            bodies = bodies[1:]
        everything = [*delivered, *bodies]
        assert sorted(everything) == sorted(before["accepted"]), name
        for sender in {body.split()[0] for body in everything}:
            own = [int(re.sub(r"\D", "", body)) for body in everything if body.startswith(sender)]
            assert own == sorted(own), (name, sender)
        if group == "changing":
            assert everything.index("dana 2") < everything.index("ana 4!")


@pytest.mark.parametrize("group", ["changing", "phones"])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.stem)
def test_a_killed_group_of_an_earlier_version_resumes_under_this_one(archive: Path, group: str) -> None:
    members = restart(archive, group)
    for each in members.values():
        each.go_on()
        (checkpoint,) = [name for name in each.disk.files if name.startswith("checkpoint")]
        assert each.disk.read(checkpoint).startswith(b"antecede store %d\n" % CHANGING_STORE)
    everyone = list(members.values())
    for number, one in enumerate(everyone):
        for other in everyone[:number]:
            if one.core.find_link(one.core.address, other.core.address) is not None:
                one.call(other)
    for turn in range(6):
        while sum(each.transmit() for each in everyone):
            pass
        for each in everyone:
            if each.core.phase == Phase.MEMBER and not each.core.is_phone_core:
                each.core.step(Reported(NOW + turn * SECOND))
                each.commit()
    check_deliveries(archive, group, {name: each.bodies for name, each in members.items()})
    for each in everyone:
        if not each.core.is_phone_core:
            assert each.core.member.version == max(CHANGING_WIRE)
            assert not any(each.core.member.unstable.values())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.stem)
def test_a_migration_killed_at_any_disk_operation_is_completed_at_the_next_start(
    archive: Path,
) -> None:
    class KilledError(Exception):
        pass

    for group in ("changing", "phones"):
        for name, whole in restart(archive, group).items():
            sent, cursor = whole.sent(), whole.core.application.cursor
            files, survived = stored(archive, group, name), 0
            while True:
                disk, left = disk_with(files), [survived]

                def kill(*_: object, left: list[int] = left) -> None:
                    left[0] -= 1
                    if left[0] < 0:
                        raise KilledError

                disk.before = kill
                try:
                    Restarted(group, name, disk, name == "tom").go_on()
                except KilledError:
                    survived += 1
                else:
                    break
                after = Restarted(group, name, disk.killed(), name == "tom")
                assert (after.sent(), after.core.application.cursor) == (sent, cursor), (name, survived)
                after.go_on()
            assert survived > 5


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.stem)
def test_a_fixed_list_group_of_an_earlier_version_resumes(archive: Path, tmp_path: Path) -> None:
    before = expected(archive, "fixed")
    names = list(before["delivered"])
    for name in names:
        (tmp_path / name).mkdir()
        for file, content in stored(archive, "fixed", name).items():
            (tmp_path / name / file).write_bytes(content)
    places = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(3), strict=True)}

    async def read(name: str, bodies: list[str]) -> None:
        peers = [f"{other}@{at}" for other, at in places.items() if other != name]
        joining = antecede.join(
            "room", me=name, peers=peers, listen=places[name], store=tmp_path / name, sync=False
        )
        known = {each for each in before["delivered"][name] if not each.endswith("!")}
        async with joining as group:
            while known | set(bodies) != set(before["accepted"]):
                bodies.append((await anext(group)).body)
            await group.drain()

    async def test() -> None:
        later: dict[str, list[str]] = {name: [] for name in names}
        async with asyncio.timeout(30):
            await asyncio.gather(*(read(name, bodies) for name, bodies in later.items()))
        check_deliveries(archive, "fixed", later)

    run(test())
