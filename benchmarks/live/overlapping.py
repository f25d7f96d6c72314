"""A ring of groups that overlap, as real processes on this machine: each is in two groups, and they are
killed with `kill -9` one after the other. The oracle judges what their applications were given.

    ./dev python benchmarks/live/overlapping.py --save           # the ring, and one group of everybody
    ./dev python benchmarks/live/overlapping.py --groups 1       # one of them

In addition, each process counts what it sends: control information of messages, and all bytes that it writes
to its connections, including heartbeats, acknowledgements and resends after a kill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from antecede.live.overlapping.group_core import GroupCore
from antecede.live.transport.frames import add_lengths
from antecede.live.transport.wires import TcpWire
from antecede.live.trial import ring, ring_worker
from antecede.protocols.base import Effects

_RESULTS = Path(__file__).parent / "overlapping.json"
_COUNTS = struct.Struct("<4Q")


class Counts:
    """The counts of what one incarnation of a process has sent, in a file that survives a kill."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.messages = self.copies = self.packets = self.wire = 0

    def save(self) -> None:
        os.pwrite(self._file, _COUNTS.pack(self.messages, self.copies, self.packets, self.wire), 0)


def work() -> None:
    """A process of the trial that counts."""
    folder, me, _ = sys.argv[1:]
    counts = Counts(Path(folder) / f"{me}.{os.getpid()}.counts")
    write, carry_out = TcpWire.write, GroupCore._carry_out

    async def counted_write(wire: TcpWire, frames: list[bytes]) -> None:
        counts.wire += len(add_lengths(frames))
        counts.save()
        await write(wire, frames)

    def counted_carry_out(core: GroupCore, mine: int, effects: Effects) -> None:
        if effects.message is not None and not core.is_replaying:
            for send in effects.sends:
                counts.messages += 1
                counts.copies += len(send.to)
                counts.packets += len(core.kind.encode(send.packet))
            counts.save()
        carry_out(core, mine, effects)

    for owner, name, function in (
        (TcpWire, "write", counted_write),
        (GroupCore, "_carry_out", counted_carry_out),
    ):
        setattr(owner, name, function)
    ring_worker.main()


def measure(options: argparse.Namespace, groups: int, folder: Path) -> dict[str, Any]:
    plan = ring.RingPlan(
        size=options.processes,
        groups=groups,
        messages=options.messages,
        seconds=options.seconds,
        payload=options.bytes,
        kills=options.kills,
        sync=False,
        seed=options.seed,
        patience=options.patience,
    )
    program = (sys.executable, __file__)
    result, _ = asyncio.run(ring.run(plan, folder, lambda *_: None, program))
    files = [file.read_bytes() for file in folder.glob("*.counts")]
    sums = [sum(column) for column in zip(*(_COUNTS.unpack(each) for each in files if each), strict=True)]
    messages, copies, packets, wire = sums
    verdict = result.verdict
    control = packets / messages - options.bytes
    found = {
        "processes": options.processes,
        "groups": len(plan.members()),
        "seconds": round(result.seconds, 1),
        "kills": result.kills,
        "messages": verdict.messages if verdict else 0,
        "deliveries": verdict.deliveries if verdict else 0,
        "redelivered": sum(each.redelivered for each in result.members),
        "unaccepted": result.unaccepted,
        "faults": result.faults,
        "verdict": verdict.counts() if verdict else None,
        "bytes of a body": options.bytes,
        "copies of a message": round(copies / messages, 2),
        "control bytes of a copy": round(control, 1),
        "control bytes of all copies of a message": round(control * copies / messages),
        "wire bytes a message": round(wire / messages),
    }
    print(json.dumps(found, indent=1), flush=True)
    return found


def main() -> None:
    if len(sys.argv) == 4 and not sys.argv[1].startswith("-"):
        work()
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--groups", type=int, nargs="+", default=[6, 1])
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long the broadcasting takes")
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    found = []
    for groups in options.groups:
        with tempfile.TemporaryDirectory() as temporary:
            found.append(measure(options, groups, (options.folder or Path(temporary)) / f"of-{groups}"))
    if options.save:
        _RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    if any(each["faults"] for each in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
