"""How long the first run on a new machine takes: `./dev python benchmarks/engine/coldstart.py`.

Wall-clock seconds of `antecede simulate` with each kernel, first with an empty cache of machine code and then
with a full one, each in a process of its own; and of `import antecede`. Writes coldstart.json beside this
file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from results import machine, print_table
from rich.console import Console

from antecede.protocols.catalog import PROTOCOLS

_SHORT = ("--peers", "8", "--seconds", "0.1", "--metrics-only")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of what does not compile")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "coldstart.json")
    asked = parser.parse_args()
    python = {
        name: median(_seconds(("-c", code)) for _ in range(asked.repeats))
        for name, code in (("python", "pass"), ("import antecede", "import antecede"))
    }
    kernels = {name: _kernel(*which, asked.repeats) for name, which in _kernels().items()}
    found = {"machine": machine(), "python": python, "kernels": kernels}
    asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    console = Console(width=110, highlight=False)
    print_table(console, ("", "seconds"), [(name, f"{took:.2f}") for name, took in python.items()])
    rows = [(name, f"{took['first']:.1f}", f"{took['later']:.2f}") for name, took in kernels.items()]
    print_table(console, ("antecede simulate with the kernel of", "first, seconds", "later"), rows)


def _kernels() -> dict[str, tuple[str, str]]:
    """A protocol and an engine for each, by the kernel's name."""
    event = {kind.declared_kernel(): (name, "event") for name, kind in reversed(PROTOCOLS.items())}
    del event[""]
    return {"recurrence": ("timestamp", "recurrence"), **dict(sorted(event.items()))}


def _kernel(protocol: str, engine: str, repeats: int) -> dict[str, float]:
    command = ("-m", "antecede", "simulate", "--protocol", protocol, "--engine", engine, *_SHORT)
    with tempfile.TemporaryDirectory() as folder:
        first = _seconds(command, NUMBA_CACHE_DIR=folder)
        return {
            "first": first,
            "later": median(_seconds(command, NUMBA_CACHE_DIR=folder) for _ in range(repeats)),
        }


def _seconds(arguments: Sequence[str], **environment: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
