"""A fuzzer of stores: damaged files, and files with valid checksums but impossible content.

    python tests/live/fuzz_stores.py SECONDS [SEED]

Each store is opened, restored, checked and shown; only an `InputError` may come out. What can be opened
although bytes were changed must contain the same as before. Prints the number of stores by outcome.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from core_group import LIVE, Group, roster
from fuzz_decoders import mutated
from memory_disk import MemoryDisk

from antecede.errors import InputError
from antecede.live.core import Core
from antecede.live.recovery import restore
from antecede.live.settings import Roster
from antecede.live.store.inspection import StoreInspection
from antecede.live.store.journal import Journal
from antecede.live.store.records import (
    MAGIC,
    Link,
    decode_checkpoint,
    encode_record,
    read_record,
)
from antecede.live.versions import FIXED_STORE

_PREFIX = MAGIC % FIXED_STORE


def stores(folder: Path) -> list[tuple[Roster, str, dict[str, object], MemoryDisk]]:
    """One of each protocol: with a checkpoint, a log, unacknowledged messages and unstable ones."""
    found = list[tuple[Roster, str, dict[str, object], MemoryDisk]]()
    for protocol in LIVE:
        members = roster(protocol, 3, layout=1)
        group = Group(members, folder, own=True)
        for turn in range(8):
            for peer in group.peers:
                group.broadcast(peer.rank, padding=turn)
                peer.flush(checkpoint=turn == 4)
            for way in group.ways():
                group.carry(*way)
            for peer in group.peers:
                peer.flush()
                peer.take(turn)
        for peer in group.peers:
            name = members.names[peer.rank]
            identity: dict[str, object] = {
                "member": name,
                "protocol": members.protocol.name,
                "members": members.lines,
            }
            found.append((members, name, identity, renamed(peer.disk.killed(), identity)))
    return found


def renamed(disk: MemoryDisk, identity: dict[str, object]) -> MemoryDisk:
    """The same store with an identity as groups write it."""
    with Journal(disk, {}, sync=False) as journal:
        journal._identity = identity
        checkpoint = journal.contents().checkpoint.checkpoint
        records = list(journal.records())
        journal.write([], checkpoint)
        for record in records:
            journal.write([record])
    return disk


def with_right_checksums(disk: MemoryDisk, rng: random.Random, others: list[bytes]) -> None:
    """Change bodies of records and make their checksums right."""
    name = max(each for each in disk.files if each.startswith("checkpoint"))
    log = name.replace("checkpoint", "log")
    checkpoint = read_record(memoryview(disk.read(name)), len(_PREFIX), b"")
    assert checkpoint is not None
    body = bytes(checkpoint.body)
    key = decode_checkpoint(body).key
    change = rng.randrange(3)
    if change == 0:
        body = mutated(body, rng, others)
    link = Link(checkpoint.link.number - 1, checkpoint.previous)
    data, link = encode_record(link, b"", msgspec.Raw(body), _PREFIX)
    view, start, records = memoryview(disk.read(log)), 0, bytearray()
    while (record := read_record(view, start, key)) is not None:
        start, body = record.end, bytes(record.body)
        if change and rng.randrange(3) == 0:
            body = mutated(body, rng, others)
        encoded, link = encode_record(link, key, msgspec.Raw(body))
        records += encoded
    disk.write(name, data)
    disk.write(log, records)


def damage(disk: MemoryDisk, rng: random.Random, others: list[bytes]) -> None:
    name = rng.choice([each for each in disk.files if each != "lock"])
    disk.write(name, mutated(disk.read(name) or b"x", rng, others))


def opened(members: Roster, name: str, identity: dict[str, object], disk: MemoryDisk) -> tuple[object, ...]:
    with Journal(disk, identity, sync=False) as journal:
        core = Core(members.create_protocol(name), own=True)
        restore(core, journal)
        while core.deliver_next(1):
            pass
        return core.broadcasts, core.application.delivered, core.application.acked


def inspect(disk: MemoryDisk) -> None:
    found = StoreInspection(disk)
    core = found.core()
    list(found.accepted())
    if core is not None:
        list(found.unacked(core))


def run(seconds: float, seed: int) -> Counter[str]:
    rng, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        whole = [(*each, opened(*each[:3], each[3].killed())) for each in stores(Path(folder))]
        others = [
            bytes(file.content) for *_, disk, _ in whole for file in disk.files.values() if file.content
        ]
        end = time.monotonic() + seconds
        while time.monotonic() < end or not counts["refused"]:
            members, name, identity, disk, before = rng.choice(whole)
            disk = disk.killed()
            is_damaged = rng.random() < 0.5
            (damage if is_damaged else with_right_checksums)(disk, rng, others)
            try:
                inspect(disk.killed())
            except InputError:
                counts["not a store"] += 1
            try:
                after = opened(members, name, identity, disk)
            except InputError:
                counts["refused"] += 1
            else:
                counts["opened"] += 1
                assert not is_damaged or after == before
    return counts


if __name__ == "__main__":
    print(dict(run(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
