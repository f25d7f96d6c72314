"""A stranger in a separate process: opens connections as fast as it can and sends nothing or garbage.

Usage: flood.py HOST PORT RATE SECONDS SAYS SOURCES, where SAYS is hex and SOURCES is how many addresses of
127.66.0.0/16 it calls from, or 0 for 127.0.0.1. Prints a line when it has begun, and how many it opened.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import time
from collections import deque

HELD = 900
"""Connections that are kept open; for one more, the oldest is closed."""


def main() -> None:
    host, port, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    says, sources = bytes.fromhex(sys.argv[5]), int(sys.argv[6])
    held: deque[socket.socket] = deque()
    opened, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        if opened >= passed * rate:
            time.sleep(0.001)
            continue
        held.append(call(host, port, says, sources))
        opened += 1
        if opened == 1:
            print("begun", flush=True)
        if len(held) > HELD:
            held.popleft().close()
    print(opened, flush=True)


def call(host: str, port: int, says: bytes, sources: int) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    if sources:
        number = random.randrange(sources)
        made.bind((f"127.66.{number // 250}.{1 + number % 250}", 0))
    # Not waited for: a flood does not depend on how fast it is answered.
    with contextlib.suppress(OSError):
        made.connect((host, port))
    if says:
        with contextlib.suppress(OSError):
            made.send(says)
    return made


if __name__ == "__main__":
    main()
