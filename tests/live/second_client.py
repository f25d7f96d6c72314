"""A phone of a `freescale` group, written from docs/wire.md alone: it shares no code with the library.

    members = ["sue", "phone behind sue", "ext"]
    async with Phone("ws://127.0.0.1:8000", "room", members, "phone", "sue") as phone:
        await phone.broadcast("hello")
        async for origin, seq, body in phone:
            print(origin, seq, body)

It keeps all in memory: once closed, it must not come back under its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Self
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

GREETING, REFUSAL, PACKETS, GOT, AGAIN, HAVE, _, _, BEAT, CERTIFICATES, _, PAUSE = range(12)
UP, DOWN, ECHO, _, ACK = range(6, 11)
BEAT_SECONDS, LOST_SECONDS, ACK_EVERY, MAX_BYTES = 3, 12, 32, 1 << 24
RETRY_SECONDS = 0.1, 0.2, 0.5, 1.0, 2.0

NAMED = {0xC0: None, 0xC2: False, 0xC3: True}
LENGTHS = {
    0xC4: (bytes, 1),
    0xC5: (bytes, 2),
    0xC6: (bytes, 4),
    0xD9: (str, 1),
    0xDA: (str, 2),
    0xDB: (str, 4),
}
LENGTHS |= {0xDC: (list, 2), 0xDD: (list, 4), 0xDE: (dict, 2), 0xDF: (dict, 4)}


def pack(value: Any) -> bytes:
    """A value as msgpack, in its shortest form."""
    match value:
        case None | bool():
            return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
        case int():
            return _head(value, 0, 128, 0xCC, 0)
        case bytes():
            return _head(len(value), 0, 0, 0xC4, 0) + value
        case str():
            return _head(len(value.encode()), 0xA0, 32, 0xD9, 0) + value.encode()
        case list():
            return _head(len(value), 0x90, 16, 0xDB, 1) + b"".join(map(pack, value))
        case dict():
            parts = (part for item in value.items() for part in item)
            return _head(len(value), 0x80, 16, 0xDD, 1) + b"".join(map(pack, parts))
    raise TypeError(f"{value!r} is not part of the wire format")


def _head(number: int, short: int, below: int, long: int, least: int) -> bytes:
    if 0 <= number < below:
        return bytes([short | number])
    size = next(size for size in range(least, 4) if number < 256 ** (1 << size))
    return bytes([long + size]) + number.to_bytes(1 << size, "big")


def unpack(data: bytes) -> Any:
    value, end = _unpack(data, 0)
    if end != len(data):
        raise ValueError("there are bytes after the end")
    return value


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    (tag,), at = _take(data, at, 1)
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 256), at
    if tag in NAMED:
        return NAMED[tag], at
    if 0xCC <= tag <= 0xD3:
        raw, at = _take(data, at, 1 << (tag & 3))
        return int.from_bytes(raw, "big", signed=tag >= 0xD0), at
    kind: type
    if tag < 0xC0:
        kind, length = ((dict, list)[tag >> 4 & 1], tag & 15) if tag < 0xA0 else (str, tag & 31)
    elif tag in LENGTHS:
        kind, size = LENGTHS[tag]
        raw, at = _take(data, at, size)
        length = int.from_bytes(raw, "big")
    else:
        raise ValueError(f"{tag:#x} is not part of the wire format")
    if kind in (bytes, str):
        raw, at = _take(data, at, length)
        return (raw.decode() if kind is str else raw), at
    values = []
    for _ in range(length if kind is list else 2 * length):
        value, at = _unpack(data, at)
        values.append(value)
    return (values if kind is list else dict(zip(values[::2], values[1::2], strict=True))), at


def _take(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise ValueError("it ends too early")
    return data[at : at + length], at + length


def chained(before: bytes, packet: bytes) -> bytes:
    return sha256(before + sha256(packet).digest()).digest()[:16]


def bits(numbers: Iterable[int]) -> list[Any]:
    """A set of numbers as it travels."""
    first = min(numbers, default=0)
    field = sum(1 << (number - first) for number in set(numbers))
    return [first, field.to_bytes((field.bit_length() + 7) // 8, "little")]


def unbits(first: int, field: bytes) -> set[int]:
    return {first + i for i in range(8 * len(field)) if field[i // 8] >> i % 8 & 1}


def ranked(members: Iterable[str]) -> list[str]:
    """`name` and `name behind super`, in the order of ranks."""
    behind = {name: boss for name, _, boss in (line.partition(" behind ") for line in members)}
    bosses = sorted(set(behind.values()) - {""})
    inside = [f"{name} behind {boss}" for boss in bosses for name in sorted(behind) if behind[name] == boss]
    return bosses + inside + sorted(name for name in behind if not behind[name] and name not in bosses)


class Refused(Exception):  # noqa: N818
    """The super peer refuses this phone, or this phone refuses it; the message says why."""


class Phone:
    """An internal peer behind the super peer `relay`, which is at `url`; `members` in any order."""

    def __init__(
        self,
        url: str,
        group: str,
        members: Iterable[str],
        me: str,
        relay: str,
        token: str = "",
        ssl: ssl.SSLContext | None = None,
        sign: Callable[[bytes], bytes] | None = None,
        certificate: bytes = b"",
    ) -> None:
        self._sign, self._certificate = sign, certificate
        self._url, self._group, self._me, self._relay, self._token, self._ssl = (
            url,
            group,
            me,
            relay,
            token,
            ssl,
        )
        self._lines = ranked(members)
        self._names = [line.partition(" behind ")[0] for line in self._lines]
        self._rank = self._names.index(me)
        # The link: unconfirmed packets, numbered from _safe + 1, and the count of packets received.
        self._lives, self._known = [[secrets.token_hex(8), 0]], list[Any]()
        self._attempts = 0
        self._unsafe: list[bytes] = []
        self._sent_chain, self._got_chain = [bytes(16)], bytes(16)  # of confirmed packets, and after them
        self._chains: dict[int, bytes] = {}
        self._safe = self._sent = self._got = self._said_got = 0
        self._is_paused = False
        # The page's D is all up to _solid, and _beyond; its C is _causes, with what the numbers stand for.
        self._count = self._solid = self._unreported = self._mine = 0
        self._after_own = False
        self._beyond: set[int] = set()
        self._causes: dict[int, tuple[int, int]] = {}
        self._held: dict[int, tuple[bytes, int, int, int, set[int]]] = {}
        self._row: dict[int, int] = {}
        self._work, self._news = asyncio.Event(), asyncio.Event()
        self._failure: Exception | None = None
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    # Broadcast and delivery

    async def broadcast(self, body: bytes | str) -> int:
        """Broadcast a body; returns its sequence number at this origin."""
        if self._failure:
            raise self._failure
        kind, data = (1, body.encode()) if isinstance(body, str) else (0, body)
        payload = pack([kind, self._after_own, dict(sorted(self._causes.values())), data])
        self._count += 1
        before = self._chains.get(self._rank, bytes(32))
        self._count_message(self._rank, self._count, payload)
        payload += self._sealed(before)
        self._send([UP, payload, self._rank, self._count, bits(self._causes), self._solid])
        self._causes, self._after_own, self._mine, self._unreported = {}, True, 0, 0
        return self._count

    def _sealed(self, before: bytes) -> bytes:
        """A signature over what its last message adds to the chain."""
        if self._sign is None:
            return b""
        said = [b"antecede messages", self._rank, self._count, self._count, before, self._chains[self._rank]]
        return before + self._signed(said) + b"\1"

    def _signed(self, said: list[Any]) -> bytes:
        assert self._sign is not None
        return self._sign(self._group.encode() + b"\0" + pack(said))

    def _count_message(self, origin: int, seq: int, payload: bytes) -> None:
        before = self._chains.get(origin, bytes(32))
        self._chains[origin] = sha256(before + payload).digest()
        self._row[origin] = seq

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, int, Any]:
        while True:
            for number, (payload, origin, seq, last, causes) in self._held.items():
                if all(map(self._has, causes | {last})):
                    del self._held[number]
                    return self._deliver(number, payload, origin, seq, causes | {last})
            if self._failure:
                raise self._failure
            self._news.clear()
            await self._news.wait()

    def _has(self, number: int) -> bool:
        return number <= self._solid or number in self._beyond

    def _add(self, number: int) -> None:
        self._beyond.add(number)
        while self._solid + 1 in self._beyond:
            self._solid += 1
            self._beyond.remove(self._solid)

    def _deliver(
        self, number: int, payload: bytes, origin: int, seq: int, past: set[int]
    ) -> tuple[str, int, Any]:
        if self._sign is not None:
            payload = payload[:-97] if payload[-1] else payload[:-1]
        self._add(number)
        self._causes = {each: what for each, what in self._causes.items() if each not in past}
        self._causes[number] = origin, seq
        self._after_own = self._after_own and (not self._mine or self._mine not in past)
        self._count_message(origin, seq, payload)
        self._unreported += 1
        if self._unreported == ACK_EVERY:
            self._send([ACK, self._count, self._solid, bits(self._causes)])
            self._unreported = 0
        self._work.set()
        kind, _, _, body = unpack(payload)[:4]
        return self._names[origin], seq, [bytes, bytes.decode, json.loads][kind](body)

    def _packet(self, tag: int, *rest: Any) -> None:
        if tag == ECHO:
            seq, number = rest[:2]
            self._add(number)
            if seq == self._count:
                self._mine = number
        elif tag == DOWN:
            payload, origin, seq, number, last, causes = rest[:6]
            if not self._has(number):
                self._held[number] = payload, origin, seq, last, unbits(*causes)
        self._news.set()

    # The link

    def _send(self, packet: list[Any]) -> None:
        self._unsafe.append(pack(packet))
        self._sent_chain.append(chained(self._sent_chain[-1], self._unsafe[-1]))
        self._work.set()

    async def _run(self) -> None:
        tries = 0
        try:
            while True:
                before = self.connections
                with contextlib.suppress(OSError, WebSocketException):
                    await self._connect()
                tries = 0 if self.connections > before else tries + 1
                await asyncio.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
        except Exception as error:
            self._failure = error
            self._news.set()

    async def _connect(self) -> None:
        try:
            connecting = connect(self._url, ssl=self._ssl, max_size=MAX_BYTES, proxy=None)
            async with asyncio.timeout(LOST_SECONDS):
                socket = await connecting
        except ssl.SSLCertVerificationError as error:
            raise Refused(str(error)) from error
        try:
            await self._greet(socket)
            self.connections += 1
            tasks = [asyncio.create_task(self._hear(socket)), asyncio.create_task(self._speak(socket))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                done.pop().result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await socket.close()

    async def _greet(self, socket: ClientConnection) -> None:
        if not self._is_certified(socket):  # and so must not see the token
            raise Refused(f"its certificate is not for {self._relay} of group {self._group!r}")
        mine = [self._group, "freescale", self._lines]
        self._attempts += 1
        rest = [
            self._lives,
            self._known,
            self._attempts,
            self._got,
            self._got_chain,
            self._sign is not None,
            self._token,
        ]
        await socket.send(pack([GREETING, 5, *mine, self._me, self._relay, *rest]))
        answer = await self._next(socket)
        if answer[0] == REFUSAL:
            raise Refused(answer[1])
        version, *theirs, me, you, lives, known, _, got, chain = answer[1:12]
        reason = None
        if answer[0] != GREETING or version != 5 or theirs != mine or (me, you) != (self._relay, self._me):
            reason = f"{answer} is not what {self._me} expects of {self._relay}"
        elif known not in ([], self._lives) or (self._known and self._known[-1] not in lives):
            reason = "one of us has forgotten the other"
        elif not self._safe <= got <= self._safe + len(self._unsafe):
            reason = f"it has {got}, of {self._safe} confirmed and {len(self._unsafe)} more"
        elif chain != self._sent_chain[got - self._safe]:
            reason = f"it has other packets up to {got} than were sent"
        if reason:
            await socket.send(pack([REFUSAL, reason]))
            raise Refused(reason)
        self._known, self._said_got = lives, self._got
        self._confirmed(got)
        self._sent, self._is_paused = got, False

    def _is_certified(self, socket: ClientConnection) -> bool:
        if self._ssl is None:
            return True
        certificate = socket.transport.get_extra_info("ssl_object").getpeercert()
        uri = f"antecede:{quote(self._group, safe='')}/{quote(self._relay, safe='')}"
        return ("URI", uri) in certificate.get("subjectAltName", ())

    def _confirmed(self, number: int) -> None:
        del self._unsafe[: max(number - self._safe, 0)], self._sent_chain[: max(number - self._safe, 0)]
        self._safe = max(number, self._safe)

    async def _next(self, socket: ClientConnection) -> Any:
        async with asyncio.timeout(LOST_SECONDS):
            data = await socket.recv(decode=False)
        return unpack(data)

    async def _hear(self, socket: ClientConnection) -> None:
        while True:
            tag, *rest = await self._next(socket)
            if tag == REFUSAL:
                raise Refused(rest[0])
            if tag == PACKETS:
                for number, body in enumerate(rest[1], rest[0]):
                    if number == self._got + 1:
                        self._got += 1
                        if body[0] == 0xC1:  # all have its messages: only its hash
                            self._got_chain = body[1:]
                            continue
                        self._got_chain = chained(self._got_chain, body)
                        self._packet(*unpack(body))
                if rest[0] > self._got + 1:
                    await socket.send(pack([AGAIN, self._got]))
                self._work.set()
            elif tag == GOT:
                self._confirmed(rest[0])
            elif tag == PAUSE:
                self._is_paused = True
            elif tag == AGAIN:
                self._is_paused, self._sent = False, max(rest[0], self._safe)
                self._work.set()

    async def _speak(self, socket: ClientConnection) -> None:
        reported: dict[int, int] = {}
        if self._certificate:
            await socket.send(pack([CERTIFICATES, [self._certificate]]))
        while True:
            self._work.clear()
            unsent = self._unsafe[self._sent - self._safe :][:100]
            if unsent and not self._is_paused:
                first, self._sent = self._sent + 1, self._sent + len(unsent)
                await socket.send(pack([PACKETS, first, unsent, self._sent_chain[first - 1 - self._safe]]))
                self._work.set()
            if self._got > self._said_got:
                self._said_got = self._got
                await socket.send(pack([GOT, self._got, self._got_chain]))
            if changed := {
                origin: count
                for origin, count in self._row.items()
                if reported.get(origin) != count or self._sign is not None
            }:
                row = {origin: [count, self._chains[origin][:8]] for origin, count in sorted(changed.items())}
                said = [b"antecede progress", self._rank, [[origin, *each] for origin, each in row.items()]]
                signature = self._signed(said) if self._sign else b""
                if changed != reported:
                    await socket.send(pack([HAVE, [[self._rank, row, signature]]]))
                reported |= changed
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._work.wait()
            except TimeoutError:
                await socket.send(pack([BEAT]))
