"""One connection to each partner, with a channel for each group that both are in.

A frame of the connection consists of a channel number and a frame of that group, as the group alone would
send it. The side that opens a channel names the group. Channels opened by the calling process have even
numbers.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antecede.live.security.identity import Proof
from antecede.live.transport.frames import MAX_BYTES
from antecede.live.transport.wires import Wire
from antecede.protocols.base import RemoteError

_MAX_WAITING = 64
"""Frames of a channel that may wait to be read; beyond that the connection is not read further."""
_MAX_CHANNELS = 4_096
_MAX_HELLO = 1 << 10


class ProcessGreeting(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """The first frame in each direction: the sender's name, its listening address, and its current life."""

    name: str
    at: str
    life: bytes


class Data(msgspec.Struct, frozen=True, array_like=True, tag=91):
    channel: int
    frame: bytes


class Open(msgspec.Struct, frozen=True, array_like=True, tag=92):
    channel: int
    group: str


class Close(msgspec.Struct, frozen=True, array_like=True, tag=93):
    channel: int


_encode = msgspec.msgpack.Encoder().encode
_frames: msgspec.msgpack.Decoder[ProcessGreeting | Data | Open | Close] = msgspec.msgpack.Decoder(
    ProcessGreeting | Data | Open | Close
)


class ChannelWire:
    """The frames of one group, as if it had a connection of its own."""

    def __init__(self, trunk: Trunk, number: int) -> None:
        self._trunk, self._number = trunk, number
        self.max_bytes = MAX_BYTES
        self.proof: Proof | None = None
        self._frames: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_closed = False

    def info(self, what: str) -> Any:
        return self._trunk.wire.info(what)

    async def read(self) -> bytes:
        while not self._frames:
            if self._is_closed:
                raise ConnectionResetError("the other side closed the connection")
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        if len(self._frames) < _MAX_WAITING:
            self._has_room.set()
        if len(frame) > self.max_bytes:
            raise RemoteError(f"a frame of {len(frame)} bytes; the longest is {self.max_bytes}")
        return frame

    async def write(self, frames: list[bytes]) -> None:
        if self._is_closed:
            raise ConnectionResetError("the connection was closed")
        await self._trunk.wire.write([_encode(Data(self._number, frame)) for frame in frames])

    async def finish(self) -> None:
        self.abort()  # frames written before this are received first

    def abort(self) -> None:
        if not self._is_closed:
            self._trunk.end(self._number)
            self.closed()

    # Called by the connection

    async def received(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._changed.set()
        if len(self._frames) >= _MAX_WAITING:
            self._has_room.clear()
            await self._has_room.wait()

    def closed(self) -> None:
        self._is_closed = True
        self._changed.set()
        self._has_room.set()


class Trunk:
    """A connection to another process. `accept` is called with each channel that the other side opens."""

    def __init__(
        self, wire: Wire, hello: ProcessGreeting, dialled: bool, accept: Callable[[ChannelWire, str], None]
    ) -> None:
        self.wire, self.hello, self.dialled, self._accept = wire, hello, dialled, accept
        self._channels: dict[int, ChannelWire] = {}
        self._next = 0 if dialled else 1
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed = False

    def open(self, group: str) -> tuple[ChannelWire, bytes]:
        """A new channel, and the frame that opens it at the other end."""
        number, self._next = self._next, self._next + 2
        channel = self._channels[number] = ChannelWire(self, number)
        return channel, _encode(Open(number, group))

    def end(self, number: int) -> None:
        if self._channels.pop(number, None) is not None and not self.is_closed:
            task = asyncio.create_task(self._write_close(number))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _write_close(self, number: int) -> None:
        try:
            await self.wire.write([_encode(Close(number))])
        except (OSError, RuntimeError):
            self.close()

    async def run(self) -> None:
        """Serve the connection until it ends."""
        try:
            while True:
                match self._decode(await self.wire.read()):
                    case Data(channel=number, frame=frame):
                        if (channel := self._channels.get(number)) is not None:
                            await channel.received(frame)
                    case Open(channel=number, group=group):
                        if number % 2 == self._next % 2 or len(self._channels) >= _MAX_CHANNELS:
                            raise RemoteError("it opens a channel that it may not open")
                        channel = self._channels[number] = ChannelWire(self, number)
                        self._accept(channel, group)
                    case Close(channel=number):
                        if (channel := self._channels.pop(number, None)) is not None:
                            channel.closed()
                    case ProcessGreeting():
                        raise RemoteError("it says hello twice")
        finally:
            self.close()

    @staticmethod
    def _decode(data: bytes) -> ProcessGreeting | Data | Open | Close:
        return decode(data)

    def close(self) -> None:
        self.is_closed = True
        self.wire.abort()
        for channel in self._channels.values():
            channel.closed()
        self._channels.clear()


def decode(data: bytes) -> ProcessGreeting | Data | Open | Close:
    try:
        return _frames.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a frame between processes in several groups: {error}") from error


class Trunks:
    """The connections of one process, by the other side's listening address. `dial` makes one. `check` raises
    a `RemoteError` if the other end may not have the name it claims. `accept` is called with each channel
    that another process opens, and `ended` with the reason why a connection has ended, if known."""

    def __init__(
        self,
        name: str,
        dial: Callable[[str], Awaitable[Wire]],
        check: Callable[[Wire, str], object],
        accept: Callable[[ChannelWire, str], None],
        ended: Callable[[str, Exception], None],
    ) -> None:
        self._name, self._dial, self._check = name, dial, check
        self._accept, self._ended = accept, ended
        self.at = ""
        """The address at which this process listens."""
        self._life = secrets.token_bytes(8)
        self._by_place: dict[str, Trunk] = {}
        self._trunks: set[Trunk] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        return len(self._trunks)

    async def open(self, where: str, group: str) -> ChannelWire:
        """A channel to the process that listens at an address."""
        async with self._turns.setdefault(where, asyncio.Lock()):
            trunk = self._by_place.get(where)
            if trunk is None or trunk.is_closed:
                trunk = await self._call(where)
        channel, frame = trunk.open(group)
        await trunk.wire.write([frame])
        return channel

    async def _call(self, where: str) -> Trunk:
        wire = await self._dial(where)
        try:
            await wire.write([_encode(self._hello())])
            hello = await self._read_hello(wire)
            self._check(wire, hello.name)
        except BaseException:
            wire.abort()
            raise
        trunk = Trunk(wire, hello, True, self._accept)
        place = hello.at or where
        self._use(place, trunk)
        chosen = self._by_place[place]
        if chosen is trunk:
            self._spawn(self._run(trunk))
        else:  # the other process has called meanwhile
            self._trunks.discard(trunk)
            trunk.close()
        self._by_place[where] = chosen  # others may know the same address by another name
        return chosen

    async def accept(self, wire: Wire) -> Trunk:
        """Accept a call from another process."""
        hello = await self._read_hello(wire)
        self._check(wire, hello.name)
        await wire.write([_encode(self._hello())])
        trunk = Trunk(wire, hello, False, self._accept)
        self._use(hello.at, trunk)
        return trunk

    def _use(self, place: str, trunk: Trunk) -> None:
        """Of two connections to one process, keep the one made by the lesser name."""
        self._trunks.add(trunk)
        if not place:
            return
        before = self._by_place.get(place)
        if before is not None and not before.is_closed and before.hello.life == trunk.hello.life:
            if trunk.dialled != (self._name < trunk.hello.name):
                return  # the side that made it closes it
            before.close()
        self._by_place[place] = trunk

    async def serve(self, trunk: Trunk) -> None:
        await self._run(trunk)

    async def _run(self, trunk: Trunk) -> None:
        try:
            await trunk.run()
        except (OSError, RemoteError) as error:
            if isinstance(error, RemoteError):
                self._ended(trunk.hello.name, error)
        finally:
            self._trunks.discard(trunk)
            for place in [each for each, one in self._by_place.items() if one is trunk]:
                del self._by_place[place]

    def _hello(self) -> ProcessGreeting:
        return ProcessGreeting(self._name, self.at, self._life)

    @staticmethod
    async def _read_hello(wire: Wire) -> ProcessGreeting:
        wire.max_bytes = _MAX_HELLO
        hello = decode(await wire.read())
        if not isinstance(hello, ProcessGreeting):
            raise RemoteError("its first frame is not a hello: it is in one group alone")
        wire.max_bytes = MAX_BYTES + 64
        return hello

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for trunk in list(self._trunks):
            trunk.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
