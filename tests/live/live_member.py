"""A member in a process of its own, which tests kill.

    python live_member.py SETTINGS BODIES [times N] [take N] [ack] [most BYTES]

It broadcasts the bodies, so many times, and prints `accepted SEQ` for each; takes N messages, prints each,
and leaves the last one unacked unless it is to `ack`; then it waits. With `most` no file of its own may
become
longer than so many bytes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from typing import Any

import antecede
from antecede.errors import AntecedeError


def _number(does: list[str], word: str, otherwise: int) -> int:
    return int(does[does.index(word) + 1]) if word in does else otherwise


async def main(settings: dict[str, Any], bodies: list[Any], does: list[str]) -> None:
    group = await antecede.join(**settings)
    if most := _number(does, "most", 0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        for body in bodies * _number(does, "times", 1):
            print("accepted", (await group.broadcast(body)).seq, flush=True)
    except AntecedeError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    if "take" in does:
        for _ in range(_number(does, "take", 0)):
            message = await anext(group)
            print("took", message.id, "again" if message.redelivered else "first", flush=True)
        if "ack" in does:
            group.ack(message)
            print("acked", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]))
