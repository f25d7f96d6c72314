"""Protocols in any language: a program that reads requests and writes replies, one JSON document a line.

The program is stateless: each request contains the member's state, and the reply its next state. So members
can be saved, restored and copied without the program's help, which checking needs.

    {"op": "describe"}                              {"name": "mine", "fifo": false}
    {"op": "new", "me": 0, "size": 3}               {"state": …}
    {"op": "broadcast", "state": …, "payload": "…", "now": 0, "group": null}
                                                    {"state": …, "sends": [SEND, …], "message": [0, 1]}
    {"op": "receive", "state": …, "link": 1, "packet": …, "now": 0}
                                                    {"state": …, "sends": [SEND, …]}
    {"op": "deliver", "state": …, "now": 0}         {"state": …, "delivery": DELIVERY or null}
    {"op": "wake", "state": …, "now": 0}            {"state": …, "sends": [SEND, …]}
    {"op": "waiting", "state": …}                   {"waiting": [{"message": [0, 1], "cause": [2, 1]}, …]}

SEND is {"to": [1, 2], "packet": …, "messages": [[0, 1]]}, DELIVERY is {"message": [0, 1], "payload": "…"}.
States and packets are any JSON. Payloads are text in base64. `wake` and `waiting` are asked only of a program
that names them in the `ops` of its description. A reply to a broadcast, a receipt or a wake-up may have
`wake_at`. A reply {"error": "…"} refuses what was received. Whatever else the program writes goes to standard
error.
"""

from __future__ import annotations

import base64
import contextlib
import os
import selectors
import shlex
import subprocess
from functools import cache
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.protocols.base import (
    Delivery,
    Effects,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)

PREFIX = "exec:"
_SECONDS = 60.0
"""How long a reply may take."""
_MAX_REPLY = 1 << 24


class ProgramPacket(Packet, frozen=True, array_like=True):
    """A packet as the program represents it: any JSON."""

    document: bytes
    messages: list[tuple[int, int]]

    def message_ids(self) -> tuple[MessageId, ...]:
        return tuple(MessageId(*each) for each in self.messages)


class _Described(msgspec.Struct, frozen=True):
    name: str
    fifo: bool = False
    ops: list[str] = []


class _Send(msgspec.Struct, frozen=True):
    to: list[int]
    packet: msgspec.Raw
    messages: list[tuple[int, int]] = []


class _Delivered(msgspec.Struct, frozen=True):
    message: tuple[int, int]
    payload: str


class _Wait(msgspec.Struct, frozen=True):
    message: tuple[int, int]
    cause: tuple[int, int] | None = None


class _Reply(msgspec.Struct, frozen=True):
    state: msgspec.Raw = msgspec.Raw(b"null")
    sends: list[_Send] = []
    message: tuple[int, int] | None = None
    wake_at: int | None = None
    delivery: _Delivered | None = None
    waiting: list[_Wait] = []
    error: str | None = None


class RunningProgram:
    """A program that is running, or will be when it is first asked."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: dict[str, Any]) -> bytes:
        """The reply to a request, as received."""
        process = self._started()
        if process.stdin is None or process.stdout is None:
            raise InputError(f"{self._command} has no standard input and output")
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(process) from None
        return self._read_line(process, process.stdout.fileno())

    def _started(self) -> subprocess.Popen[bytes]:
        # Not the program of a process that this one was forked from: both would read each other's replies.
        if self._process is None or self._owner != os.getpid():
            try:
                words = shlex.split(self._command)
                if not words:
                    raise ValueError("exec: is followed by a command")
                self._process = subprocess.Popen(  # noqa: S603 - the user has named it
                    words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
                )
            except (OSError, ValueError) as error:
                raise InputError(f"cannot start '{self._command}': {error}") from error
            self._owner = os.getpid()
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes], stream: int) -> bytes:
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(_SECONDS):
                    raise InputError(f"'{self._command}' has not replied for {_SECONDS:g} seconds")
                part = os.read(stream, 1 << 16)
                if not part:
                    raise self._ended(process)
                line += part
                if len(line) > _MAX_REPLY:
                    raise InputError(f"'{self._command}' has written a reply of over {_MAX_REPLY:,} bytes")
        return bytes(line)

    def _ended(self, process: subprocess.Popen[bytes]) -> InputError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        self._process = None
        return InputError(f"'{self._command}' has ended with exit code {process.returncode}")


class ProgramMember(Protocol):
    """A member whose protocol is a program; `protocol_of_program` makes a class for each program."""

    summary: ClassVar[str] = "what its program says"
    control: ClassVar[str] = "unknown"
    packets: ClassVar[Any] = ProgramPacket
    program: ClassVar[RunningProgram]
    ops: ClassVar[frozenset[str]] = frozenset()

    state: bytes = b"null"
    """JSON, with sorted keys."""

    @classmethod
    def group(cls, size: int) -> list[Self]:
        members = [cls(me, size) for me in range(size)]
        for member in members:
            member._ask({"op": "new", "me": member.me, "size": size})
        return members

    def _ask(self, request: dict[str, Any]) -> _Reply:
        try:
            reply = msgspec.json.decode(self.program.ask(request), type=_Reply)
            if reply.error is None and request["op"] != "waiting":
                self.state = msgspec.json.encode(msgspec.json.decode(reply.state), order="sorted")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LocalError(f"{self.name}: a reply to {request['op']} that is not right: {error}") from error
        return reply

    def _effects(self, request: dict[str, Any]) -> Effects:
        reply = self._ask(request | {"state": msgspec.Raw(self.state)})
        if reply.error is not None:
            raise RemoteError(reply.error)
        sends = tuple(
            Send(tuple(send.to), ProgramPacket(bytes(send.packet), send.messages)) for send in reply.sends
        )
        message = None if reply.message is None else MessageId(*reply.message)
        return Effects(sends, reply.wake_at, message)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        body = base64.b64encode(payload).decode()
        return self._effects({"op": "broadcast", "payload": body, "now": now, "group": group})

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, ProgramPacket):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        document = msgspec.Raw(packet.document)
        return self._effects({"op": "receive", "link": link, "packet": document, "now": now})

    def deliver(self, now: int) -> Delivery | None:
        reply = self._ask({"op": "deliver", "state": msgspec.Raw(self.state), "now": now})
        if reply.delivery is None:
            return None
        try:
            payload = base64.b64decode(reply.delivery.payload, validate=True)
        except ValueError as error:
            raise LocalError(f"{self.name}: a payload that is not base64: {error}") from error
        return Delivery(MessageId(*reply.delivery.message), payload)

    def wake(self, now: int) -> Effects:
        return self._effects({"op": "wake", "now": now}) if "wake" in self.ops else Effects()

    def waiting(self) -> list[Waiting]:
        if "waiting" not in self.ops:
            return []
        reply = self._ask({"op": "waiting", "state": msgspec.Raw(self.state)})
        return [
            Waiting(MessageId(*each.message), None if each.cause is None else MessageId(*each.cause))
            for each in reply.waiting
        ]

    def paper_bytes(self, packet: Packet) -> int:
        return self.control_bytes(packet)


@cache
def protocol_of_program(command: str) -> type[Protocol]:
    """The protocol that a program implements."""
    program = RunningProgram(command)
    try:
        described = msgspec.json.decode(program.ask({"op": "describe"}), type=_Described)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"'{command}' does not describe a protocol: {error}") from error
    return _create_class(described, program)


def _create_class(described: _Described, program: RunningProgram) -> type[Protocol]:
    class ProtocolOfProgram(ProgramMember):
        name: ClassVar[str] = described.name
        links: ClassVar[LinkRequirements] = LinkRequirements(fifo=described.fifo)

    ProtocolOfProgram.program = program
    ProtocolOfProgram.ops = frozenset(described.ops)
    return ProtocolOfProgram
