"""A fuzzer of network input: mutated test vectors into every decoder and into live members.

    python tests/live/fuzz_decoders.py SECONDS [SEED]

Only a `RemoteError` may come out. Prints how many inputs were tried and how many were accepted.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from antecede.live.core import Core
from antecede.live.envelope import decode_body, unwrap
from antecede.live.events import PacketReceived, ProgressReceived, RepairReceived
from antecede.live.security import identity
from antecede.live.settings import Member, Roster
from antecede.live.transport import frames
from antecede.protocols.base import RemoteError
from antecede.protocols.catalog import PROTOCOLS

VECTORS = Path(__file__).parent.parent.parent / "docs" / "wire-vectors.json"
LIVE = [name for name in PROTOCOLS if name not in ("hcg", "basic", "multigroup")]


def seeds() -> list[bytes]:
    found = json.loads(VECTORS.read_text("utf-8"))
    return [bytes.fromhex(each["hex"]) for kind in ("frames", "packets", "payloads") for each in found[kind]]


def mutated(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Bytes flipped, cut, repeated, spliced with another input, or random."""
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(7)
        if how == 0:
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        elif how == 1:
            data = data[:place]
        elif how == 2:
            data = data[:place] + data[place : place + 8] * rng.randrange(1, 50) + data[place:]
        elif how == 3:
            other = rng.choice(others)
            data = data[:place] + other[rng.randrange(len(other)) :]
        elif how == 4:
            data = data[:place] + bytes([rng.choice([0xCF, 0xD3, 0xC6, 0xDD, 0xDF, 0xDB])]) + data[place:]
        elif how == 5:
            data = data[:place] + b"\x91" * rng.randrange(1, 3000) + data[place:]
        else:
            data = rng.randbytes(rng.randrange(1, 40))
    return data


def members() -> list[Core]:
    """One of each protocol, and each kind of member in a free-scale network."""
    names = [Member("ana"), Member("bo"), Member("cy"), Member("dee")]
    cores = [
        Core(Roster.create(name, names).create_protocol("bo"), durable=False)
        for name in LIVE
        if name != "freescale"
    ]
    behind = [Member("ana"), Member("bo", behind="sue"), Member("cy", behind="sue"), Member("sue")]
    network = Roster.create("freescale", behind)
    return cores + [Core(network.create_protocol(name), durable=False) for name in ("ana", "bo", "sue")]


def fuzz(seconds: float, seed: int, inputs: int = sys.maxsize) -> Counter[str]:
    """Fuzz for so many seconds, or until so many inputs were tried."""
    rng, others = random.Random(seed), seeds()
    cores = members()
    tried: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while tried["inputs"] < inputs and time.monotonic() < end:
        data = mutated(rng.choice(others), rng, others)
        tried["inputs"] += 1
        decode_body(unwrap(data))
        try:
            frame = frames.decode(data)
            tried["good frames"] += 1
            core = rng.choice(cores)
            link = rng.choice(core.partners)
            everything = [(origin, 1, 1 << 62) for origin in range(core.size)]
            if isinstance(frame, frames.Progress):
                core.step(ProgressReceived(link, frame.rows))
            elif isinstance(frame, frames.RepairRequest):
                core.repair.validate(frame.spans)
                core.repair.reply(frame.spans)
        except RemoteError:
            pass
        for core in rng.sample(cores, 3):
            link = rng.choice(core.partners)
            everything = [(origin, 1, 1 << 62) for origin in range(core.size)]
            try:
                if rng.random() < 0.3:
                    core.step(RepairReceived(link, data, tried["inputs"], everything))
                else:
                    core.step(PacketReceived(link, core.received[link] + 1, data, tried["inputs"]))
                tried["good packets"] += 1
                while core.deliver_next(tried["inputs"]):
                    core.application.unacked.clear()
                core.advance(core.ready())
            except RemoteError:
                tried["refused packets"] += 1
        try:
            identity.verify_token(b"key", data.decode("latin-1"), 0)
        except RemoteError:
            tried["refused tokens"] += 1
        if tried["inputs"] % 20_000 == 0:
            cores = members()
    return tried


if __name__ == "__main__":
    print(dict(fuzz(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
