"""What end-to-end encryption costs: CPU and bytes of a message, and of a new epoch with many readers.

Messages: three founders and one that has joined, all in one process over TLS, without stores; each broadcasts
in turn, with and without encryption, in turns. Epochs: one sender's key for as many readers as there are, as
it travels with the first message after somebody has left.

    .venv/bin/python benchmarks/live/encryption.py
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import tempfile
import time
from pathlib import Path

from changing_signing import BODY, MESSAGES, NAMES, ROUNDS, free_ports, read

import antecede
from antecede.live.changing.secret_messages import EncryptedBody, Offer, Reader, encode, encode_offer
from antecede.live.group import Group
from antecede.live.security import group_keys, keys

READERS = (10, 50, 200)


async def measure(folder: Path, encrypt: bool) -> float:
    """CPU seconds for all messages."""
    ports = dict(zip(NAMES[:3], free_ports(3), strict=True))
    founders = [f"{name}@127.0.0.1:{port}" for name, port in ports.items()]
    joining = [
        antecede.join(
            "room", me=name, founders=founders, listen=f":{ports[name]}", keys=folder / name, encrypt=encrypt
        )
        for name in NAMES[:3]
    ]
    groups: list[Group] = list(await asyncio.gather(*joining))
    groups.append(
        await antecede.join(
            "room", me="dana", contact=founders[:1], listen=":0", keys=folder / "dana", encrypt=encrypt
        )
    )
    reading = [asyncio.create_task(read(group)) for group in groups]
    while any(len(group.connected) < 3 for group in groups):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)  # The keys are announced.
    start = time.process_time()
    for number in range(MESSAGES):
        await groups[number % len(groups)].broadcast(BODY)
    await asyncio.gather(*reading)
    used = time.process_time() - start
    for group in groups:
        await group.aclose()
    return used


def measure_epoch(readers: int, certificate: bytes) -> None:
    """The key of an epoch for this many readers: bytes in the message, and CPU time at both ends."""
    holders = [group_keys.ReaderKeys(group_keys.new_seed()) for _ in range(readers)]
    public = {each.id: each.decryption_key for each in holders}
    chain = group_keys.new_chain()
    start = time.process_time()
    ephemeral, wrapped = group_keys.wrap(dict.fromkeys(public, chain), public, b"context")
    sending = time.process_time() - start
    start = time.process_time()
    for each in holders:
        if each.unwrap(ephemeral, wrapped[each.id], b"context") != chain:
            raise SystemExit("a reader cannot read")
    receiving = (time.process_time() - start) / readers

    def body(keys: dict[bytes, bytes]) -> int:
        content = bytes(len(BODY) + 40)
        return len(encode(EncryptedBody(bytes(16), bytes(16), 0, ephemeral, keys, [], content, bytes(64))))

    known = [
        Reader(
            f"phone{number}",
            certificate,
            each.decryption_key,
            each.signing_key,
            1 << 62,
            1 << 62,
            1,
            bytes(64),
        )
        for number, each in enumerate(holders)
    ]
    offer = len(encode_offer(Offer(known, {}, [], False, False, [])))
    print(
        f"{readers} readers: {body(wrapped) - body({}):,} bytes, {1e3 * sending:.1f} ms to send, "
        f"{1e3 * receiving:.2f} ms to receive; a newcomer is told {offer:,} bytes"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys.make_keys(folder, "room", NAMES, [], 30, {}, [])
        used: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(ROUNDS):
            for encrypt in (False, True):
                used[encrypt].append(asyncio.run(measure(folder, encrypt)))
    without, encrypted = (1e6 * statistics.median(used[each]) / MESSAGES for each in (False, True))
    print(f"CPU a message, 4 members: {without:,.0f} µs without, {encrypted:,.0f} µs with encryption")
    empty = len(encode(EncryptedBody(bytes(16), bytes(16), 0, b"", {}, [], bytes(16 + 12), bytes(64))))
    print(f"{empty} bytes more a message")
    for readers in READERS:
        measure_epoch(readers, secrets.token_bytes(560))


if __name__ == "__main__":
    main()
