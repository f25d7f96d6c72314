"""A fuzzer of whatever comes from a network: mutated test vectors into every decoder and into live members.

    python tests/live/fuzz_decoders.py SECONDS [SEED]

Only a `RemoteError` may come out. Prints how many inputs were tried, and how many were taken for good.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from antecede.live.core import Core
from antecede.live.envelope import opened, unwrap
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


def mutated(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Bytes turned, cut, repeated, crossed with another's, or made up."""
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        place = chance.randrange(len(data) + 1)
        how = chance.randrange(7)
        if how == 0:
            data = data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        elif how == 1:
            data = data[:place]
        elif how == 2:
            data = data[:place] + data[place : place + 8] * chance.randrange(1, 50) + data[place:]
        elif how == 3:
            other = chance.choice(others)
            data = data[:place] + other[chance.randrange(len(other)) :]
        elif how == 4:
            data = data[:place] + bytes([chance.choice([0xCF, 0xD3, 0xC6, 0xDD, 0xDF, 0xDB])]) + data[place:]
        elif how == 5:
            data = data[:place] + b"\x91" * chance.randrange(1, 3000) + data[place:]
        else:
            data = chance.randbytes(chance.randrange(1, 40))
    return data


def members() -> list[Core]:
    """One of each protocol, and each kind of member in a free-scale network."""
    names = [Member("ana"), Member("bo"), Member("cy"), Member("dee")]
    cores = [Core(Roster.of(name, names).make("bo"), logged=False) for name in LIVE if name != "freescale"]
    behind = [Member("ana"), Member("bo", behind="sue"), Member("cy", behind="sue"), Member("sue")]
    network = Roster.of("freescale", behind)
    return cores + [Core(network.make(name), logged=False) for name in ("ana", "bo", "sue")]


def fuzz(seconds: float, seed: int) -> Counter[str]:
    chance, others = random.Random(seed), seeds()
    cores = members()
    tried: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutated(chance.choice(others), chance, others)
        tried["inputs"] += 1
        opened(unwrap(data))
        try:
            frame = frames.decode(data)
            tried["good frames"] += 1
            core = chance.choice(cores)
            link = chance.choice(core.partners)
            if isinstance(frame, frames.Have):
                core.progress.learn(link, frame.rows)
            elif isinstance(frame, frames.Want):
                core.progress.found(frame.spans)
        except RemoteError:
            pass
        for core in chance.sample(cores, 3):
            link = chance.choice(core.partners)
            try:
                if chance.random() < 0.3:
                    core.on_repair(data, tried["inputs"])
                else:
                    core.receive(link, core.seen[link] + 1, data, tried["inputs"])
                tried["good packets"] += 1
                while core.pop(tried["inputs"]) is not None:
                    core.hand.clear()
            except RemoteError:
                tried["refused packets"] += 1
        try:
            identity.checked(b"key", data.decode("latin-1"), 0)
        except RemoteError:
            tried["refused tokens"] += 1
        if tried["inputs"] % 20_000 == 0:
            cores = members()
    return tried


if __name__ == "__main__":
    print(dict(fuzz(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
