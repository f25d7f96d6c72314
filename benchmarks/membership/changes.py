"""How many message delays a join and a removal take, by the size of the group.

Every packet takes 20 ms, so times are numbers of delays. A process joins while one member sends; the time is
from its request to its welcome, and to its first delivery after that. A member that is down is removed; the
time is from the moment the last survivor learns of the removal to the moment the last one has closed its
stream. (A member that is alive returns at once, and takes part in its own removal.)
Usage: changes.py [size ...]; writes changes.json.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from antecede.sim import scenario, simulate

DELAY_MS = 20
PROTOCOLS = ("mbcp", "vcube", "pc")


def measure(protocol: str, size: int) -> dict[str, Any]:
    start = time.process_time()
    common = {"protocol": protocol, "peers": size, "senders": 1, "delay": f"{DELAY_MS}ms", "rate": 20}
    # No reports during this time: neither a join nor a removal needs any.
    common |= {"detector": "none,report=10m", "payload": 10}
    joined = simulate(scenario(**common, seconds=0.5, churn=["join:100ms:1"])).metrics.measured
    row: dict[str, Any] = {
        "protocol": protocol,
        "members": size,
        "join to welcome, delays": joined["join_welcome_max_ms"] / DELAY_MS,
        "join to first delivery, delays": round(joined["join_first_delivery_max_ms"] / DELAY_MS, 1),
        "join packets": joined["join_packets"],
        "join bytes": joined["join_bytes"],
    }
    last = size - 1
    removed = simulate(
        scenario(**common, seconds=0.5, faults=[f"crash:20ms:{last}"], churn=[f"remove:100ms:{last}:1"])
    ).metrics.measured
    row["removal after all have heard, delays"] = removed["removal_after_heard_max_ms"] / DELAY_MS
    row["removal packets"] = removed["removal_packets"]
    row["removal bytes"] = removed["removal_bytes"]
    return row | {"cpu seconds": round(time.process_time() - start, 1)}


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [10, 100, 1000]
    file = Path(__file__).with_name("changes.json")
    rows = [
        each
        for each in (json.loads(file.read_text()) if file.exists() else [])
        if each["members"] not in sizes
    ]
    for size in sizes:
        for protocol in PROTOCOLS:
            rows.append(measure(protocol, size))
            print(rows[-1], flush=True)
            file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
