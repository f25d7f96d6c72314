"""Networks for trials that can be partitioned: network namespaces, or connections that members drop.

In a namespace, a partition is real: packets vanish without notice. Each worker is in a namespace of its own,
connected by a virtual cable to one of two switches; to partition the network, cables are moved. That needs
Linux, `ip`, and root rights. Without them, workers drop their connections to the other side and refuse new
ones.
"""

from __future__ import annotations

import abc
import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable

from antecede.errors import InputError

_FIRST_PORT = 7000
_NETWORK = "10.77"
_NAME = re.compile(r"antecede(\d+)-\w+")
"""The name of a namespace, with the id of the process that created it."""
_IP = shutil.which("ip") or ""


class TrialNetwork(abc.ABC):
    """The network in which workers listen."""

    @abc.abstractmethod
    def place(self, name: str) -> tuple[str, str]:
        """The address at which a worker listens, and its namespace."""

    @abc.abstractmethod
    def release(self, name: str) -> None:
        """A worker is gone for good: release its resources."""

    def divide(self, apart: Iterable[str]) -> None:
        """Separate these workers from the others."""
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    @abc.abstractmethod
    def close(self) -> None:
        """Remove everything that was created."""

    @property
    def can_divide(self) -> bool:
        """Whether the network itself can be partitioned."""
        return False


class Loopback(TrialNetwork):
    """All workers at free ports of 127.0.0.1."""

    def place(self, name: str) -> tuple[str, str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{free.getsockname()[1]}", ""

    def release(self, name: str) -> None:
        pass

    def close(self) -> None:
        pass


class Namespaces(TrialNetwork):
    """A namespace for each concurrent worker, and one with two switches."""

    def __init__(self, slots: int) -> None:
        self._prefix = f"antecede{os.getpid()}"
        self._free = list(range(1, slots + 1))
        self._slots: dict[str, int] = {}
        self._apart: list[int] = []
        self._port = _FIRST_PORT
        self._switch = f"{self._prefix}-switch"
        self._made: list[str] = []
        try:
            remove_abandoned()
            self._make(slots)
        except BaseException:
            self.close()
            raise

    def _make(self, slots: int) -> None:
        self._add(self._switch)
        on = ["-n", self._switch]
        for bridge in ("here", "apart"):
            _ip(*on, "link", "add", bridge, "type", "bridge", "forward_delay", "0")
            _ip(*on, "link", "set", bridge, "up")
        for slot in range(1, slots + 1):
            name = self._namespace(slot)
            self._add(name)
            _ip(*on, "link", "add", f"cable{slot}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip(*on, "link", "set", f"cable{slot}", "master", "here", "up")
            _ip("-n", name, "addr", "add", f"{_host(slot)}/16", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def _add(self, name: str) -> None:
        _ip("netns", "add", name)
        self._made.append(name)

    def _namespace(self, slot: int) -> str:
        return f"{self._prefix}-{slot}"

    @property
    def can_divide(self) -> bool:
        return True

    def place(self, name: str) -> tuple[str, str]:
        if name not in self._slots:
            self._slots[name] = self._free.pop(0)
        self._port += 1
        slot = self._slots[name]
        return f"{_host(slot)}:{self._port}", self._namespace(slot)

    def release(self, name: str) -> None:
        self._free.append(self._slots.pop(name))

    def divide(self, apart: Iterable[str]) -> None:
        self._apart = [self._slots[name] for name in apart]
        self._move("apart")

    def heal(self) -> None:
        self._move("here")
        self._apart = []

    def _move(self, bridge: str) -> None:
        for slot in self._apart:
            _ip("-n", self._switch, "link", "set", f"cable{slot}", "master", bridge)

    def close(self) -> None:
        for name in self._made:
            with contextlib.suppress(InputError):
                _ip("netns", "del", name)


def _host(slot: int) -> str:
    return f"{_NETWORK}.{slot // 256}.{slot % 256}"


def remove_abandoned() -> None:
    """Remove the namespaces of trials that were killed."""
    for name in _ip("netns", "list").split():
        found = _NAME.fullmatch(name)
        if found is not None and not _is_running(int(found[1])):
            with contextlib.suppress(InputError):  # another trial may have removed it meanwhile
                _ip("netns", "del", name)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _ip(*arguments: str) -> str:
    done = subprocess.run([_IP, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise InputError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def create_network(slots: int) -> TrialNetwork:
    """Namespaces where they can be created; otherwise loopback."""
    if not _IP or os.geteuid() != 0:
        return Loopback()
    try:
        return Namespaces(slots)
    except InputError:
        return Loopback()
