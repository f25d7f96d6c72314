"""A fuzzer of links, guided by coverage: sequences of frames and greetings into members of every protocol.

    python tests/live/fuzz_links.py SECONDS

Needs atheris, which finds new inputs by what they make the code do; without it mutations are random. Only a
`RemoteError` or a `ConnectionError` may come out. Every signature counts as valid, so that the code behind
verification is fuzzed too. Prints how many sequences and frames were tried.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz_decoders import LIVE, mutated, seeds

from antecede.live.core import Core
from antecede.live.events import Opened
from antecede.live.ready import send_and_advance
from antecede.live.settings import Settings
from antecede.live.transport.frames import Greeting, Packets, decode, encode
from antecede.live.transport.greeter import Greeter
from antecede.live.transport.links import Links
from antecede.protocols.base import RemoteError

_LENGTH = struct.Struct(">H")
_MESH = ["ana", "bo", "cy", "dee"]
_NETWORK = ["ana", "bo behind sue", "cy behind sue", "sue"]


class Credulous:
    """Signatures that are always right."""

    def __init__(self) -> None:
        self.certificates: list[bytes] = []

    def sign(self, statement: bytes) -> bytes:
        return bytes(64)

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        return b"its only key"

    def is_revoked(self, member: int, key: bytes) -> bool:
        return False

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """All are valid."""

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        return False


class Target:
    """A member, connected to all its partners."""

    def __init__(self, protocol: str, me: str, lines: list[str], signed: bool) -> None:
        others = [line for line in lines if line.split()[0] != me]
        behind = next((line.split()[2] for line in lines if line.startswith(f"{me} behind")), None)
        settings = Settings.create(group="room", me=me, peers=others, protocol=protocol, behind=behind)
        roster = settings.roster()
        signatures = Credulous() if signed else None
        self.core = Core(roster.create_protocol(me), durable=False, own=True, signatures=signatures)
        self.core.step(Opened("1", 0))
        self.greeter = Greeter(settings, roster, self.core)
        self.links = Links(self.core, Counter())
        for peer, link in self.links.by_peer.items():
            link.open(self.greeter.compose(peer), 0.0)

    def receive(self, peer: int, data: bytes, now: float) -> None:
        frame = decode(data)
        if isinstance(frame, Greeting):
            self.greeter.find_partner(frame, None)
            self.greeter.check_resumable(peer, frame)
            self.greeter.accept(peer, frame, 1)
        if isinstance(frame, Packets):  # else the frame is rejected early
            first = self.core.received[peer] + 1
            frame = Packets(first, frame.bodies, self.core.received_chain[peer])
        self.links.by_peer[peer].receive(frame, now, int(now * 1e9))

    def go_on(self, now: float) -> None:
        """What the member does unprompted."""
        self.core.broadcast("word", 0)
        send_and_advance(self.core, self.core.ready())
        self.links.gossip(int(now * 1e9), 0)
        for link in self.links.by_peer.values():
            for frame in link.take_frames(now):
                encode(frame)
        for _ in range(50):
            if self.core.next_delivery(1, acks=True) is None:
                break


def targets() -> list[Any]:
    """Constructors of one member of each protocol and role, with signatures and without."""
    found = [(name, "bo", _MESH) for name in LIVE if name != "freescale"]
    found += [("freescale", me, _NETWORK) for me in ("ana", "bo", "sue")]
    return [(*each, signed) for each in found for signed in (False, True)]


TARGETS = targets()
tried: Counter[str] = Counter()


def try_one(data: bytes) -> None:
    if len(data) < 4:
        return
    target = Target(*TARGETS[data[0] % len(TARGETS)])
    partners, rest, now = target.core.partners, data[1:], 0.0
    tried["sequences"] += 1
    if tried["sequences"] % 1_000 == 0:
        print(dict(tried), flush=True)  # atheris ends the process without letting us print
    while len(rest) > 3:
        peer = partners[rest[0] % len(partners)]
        (length,) = _LENGTH.unpack(rest[1:3])
        frame, rest = rest[3 : 3 + length], rest[3 + length :]
        now += 0.2
        tried["frames"] += 1
        with contextlib.suppress(RemoteError, ConnectionError):
            target.receive(peer, frame, now)
            tried["accepted"] += 1
        target.go_on(now)


def sequence(frames: list[bytes], rng: random.Random) -> bytes:
    parts = [bytes([rng.randrange(256)])]
    for frame in frames:
        parts += [bytes([rng.randrange(256)]), _LENGTH.pack(len(frame)), frame]
    return b"".join(parts)


def corpus(rng: random.Random) -> list[bytes]:
    frames = [data for data in seeds() if len(data) < 1 << 16]
    packets = [encode(Packets(1, [data], bytes(16))) for data in frames]
    return [sequence(rng.choices(frames + packets, k=rng.randrange(1, 5)), rng) for _ in range(400)]


def main() -> None:
    seconds, rng = float(sys.argv[1]), random.Random(1)
    start = corpus(rng)
    if importlib.util.find_spec("atheris") is None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try_one(mutated(rng.choice(start), rng, start))
        print(dict(tried))
        return
    atheris = importlib.import_module("atheris")
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(start):
            (Path(folder) / f"{number}").write_bytes(data)
        atheris.instrument_all()
        options = [f"-max_total_time={seconds:.0f}", "-max_len=4096", "-rss_limit_mb=2048", "-timeout=20"]
        atheris.Setup([sys.argv[0], *options, folder], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
