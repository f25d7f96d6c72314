"""Makes traces as a release writes them, with what it says about each.

    cd tests/trace/old_traces && PYTHONPATH=SOURCES-OR-WHEEL python make_old_traces.py NAME.zip

Each trace is a folder that the release's own `simulate` wrote. In `faulty`, one process then has one message
late and another one never. `NAME/expected.json` has the release's own audit of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_SMALL = ("--peers", "4", "--seconds", "1", "--rate", "4", "--seed", "3")
_COMMAND = (sys.executable, "-c", "from antecede.cli.main import main; main()")


def antecede(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def spoil(trace: Path) -> None:
    """In one process the first delivery of another's message is last, and its second is lost."""
    (part,) = trace.glob("part-*.parquet")
    table = pq.read_table(part)
    rows: list[dict[str, Any]] = table.to_pylist()
    victim = max(rows, key=lambda row: row["index"])["process"]
    own = sorted((row for row in rows if row["process"] == victim), key=lambda row: row["index"])
    deliveries = [row for row in own if row["kind"] == "deliver"]
    first, lost = deliveries[0], deliveries[1]
    own = [row for row in own if row is not first and row is not lost] + [first]
    for index, row in enumerate(own, 1):
        row["index"] = index
    rows = [row for row in rows if row["process"] != victim] + own
    pq.write_table(table.from_pylist(rows, schema=table.schema), part)


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        antecede("simulate", *_SMALL, "--out", str(folder / "clean"))
        antecede("simulate", *_SMALL, "--out", str(folder / "faulty"))
        spoil(folder / "faulty")
        if "--churn" in antecede("simulate", "--help"):
            changes = ("--churn", "join:300ms", "--churn", "leave:600ms:2")
            antecede("simulate", *_SMALL, *changes, "--out", str(folder / "changing"))
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for trace in sorted(folder.iterdir()):
                said = json.loads(antecede("audit", str(trace), "--json", codes=(0, 1)))
                counts = {key: value for key, value in said.items() if isinstance(value, int)}
                packed.writestr(f"{trace.name}/expected.json", json.dumps(counts, indent=1))
                for file in sorted(trace.rglob("*")):
                    if file.is_file():
                        packed.write(file, f"{trace.name}/trace/{file.relative_to(trace)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
