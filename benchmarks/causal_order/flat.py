"""Does the state of a long causal_order stream stay the same size? flat.csv and flat.svg.

No cause is missing. Rows are generated a million at a time, for ten micro-batches, while the stream is idle,
and deleted when it has read them. The output is only counted. After each micro-batch the sizes of the state
store, the checkpoint, the JVM and the Python workers are recorded.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from peers import CHANGELOG, FILES, ROCKSDB, SCHEMA, Progress, causally, session, there_is_ours, with_state
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from workload import BLOCK, SHUFFLES, Histories, write

from antecede.report.charts import Series, line_chart
from antecede.report.page import alone

sys.path.insert(0, str(Path(__file__).parent.parent / "audit"))
from scale import report
from watched import family, proportional_bytes

Line = dict[str, float]
MAX_POINTS = 10
"""The points of a chart's line."""
PATIENCE = 600
"""Seconds that a micro-batch may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--millions", type=float, default=10)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--block", type=int, default=BLOCK, help="rows made at once, for ten micro-batches")
    parser.add_argument("--shuffle", choices=SHUFFLES, default="stream")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--retain", type=int, default=10, help="micro-batches that the checkpoint keeps")
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON", help="for causal_order")
    parser.add_argument("--numbers", action="store_true", help="ids that groups count, not opaque text")
    parser.add_argument("--peer", action="store_true", help="applyInPandasWithState instead of causal_order")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).parent)
    asked = parser.parse_args()
    if not (asked.peer or there_is_ours()):
        raise SystemExit("antecede.spark has no causal_order yet; --peer measures applyInPandasWithState")
    change = with_state if asked.peer else partial(causally, **asked.options)
    asked.out.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    name = "flat-numbers" if asked.numbers else "flat"
    with tempfile.TemporaryDirectory(prefix="antecede-order-") as folder:
        for line in measure(asked, change, Path(folder)):
            lines.append(line)
            # After each one, because the last is far off.
            keep(lines, asked.out / f"{name}.csv")
            report(
                f"{line['rows']:>12,.0f} rows  {line['rows_per_second']:>9,.0f} rows/s  "
                f"{line['state_rows']:>9,.0f} state rows  {line['state_bytes'] / 1e6:>7,.1f} MB of state  "
                f"{line['jvm_pss'] / 1e6:>6,.0f} MB JVM  {line['workers_pss'] / 1e6:>6,.0f} MB workers"
            )
    (asked.out / f"{name}.svg").write_text(chart(lines), encoding="utf-8")


def keep(lines: list[Line], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)


def measure(
    asked: argparse.Namespace, change: Callable[[DataFrame], DataFrame], folder: Path
) -> Iterator[Line]:
    """A line for each micro-batch."""
    source, checkpoint = folder / "source", folder / "checkpoint"
    source.mkdir()
    histories = Histories(asked.groups, asked.seed, asked.numbers)
    blocks = round(asked.millions * 1_000_000 / asked.block)
    schema = SCHEMA
    if asked.numbers:
        schema = SCHEMA.replace("event_id string", "event_id long").replace("array<string>", "array<long>")
    rows = came = 0
    with session(asked.cores) as spark:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        spark.conf.set(CHANGELOG, "true")
        spark.conf.set("spark.sql.shuffle.partitions", asked.cores)
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", asked.retain)
        given = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        # observe() counts the output, and the sink discards it.
        counted = change(given).observe("out", F.count(F.lit(1)).alias("rows"))
        query = counted.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
        try:
            for block in range(blocks):
                table = histories.block(asked.block // asked.groups, asked.shuffle)
                files = write(table, source, FILES, block * FILES)
                for done in awaited(query, block * FILES, FILES):
                    rows += done["numInputRows"]
                    came += done["observedMetrics"]["out"]["rows"]
                    counts = {"batch": done["batchId"], "rows": rows, "came_out": came}
                    yield counts | figures(done, checkpoint)
                for file in files:
                    file.unlink()
        finally:
            query.stop()
    if came != rows or rows != blocks * asked.block:
        raise SystemExit(f"{blocks * asked.block:,} rows were made, {rows:,} went in and {came:,} came out")


def awaited(query: StreamingQuery, first: int, batches: int) -> Iterator[Progress]:
    """The progress of a stream's next micro-batches, each as soon as it is done."""
    for batch in range(first, first + batches):
        until = time.monotonic() + PATIENCE
        while not (
            found := [each for each in query.recentProgress if each.batchId == batch and each.numInputRows]
        ):
            failed = query.exception()
            if failed is not None:
                raise failed
            if time.monotonic() > until:
                raise SystemExit(f"micro-batch {batch} takes more than {PATIENCE} seconds")
            time.sleep(0.05)
        yield json.loads(found[0].json)


def figures(done: Progress, checkpoint: Path) -> Line:
    """The sizes after a micro-batch."""
    operators: list[dict[str, Any]] = done["stateOperators"]
    custom: list[dict[str, int]] = [each["customMetrics"] for each in operators]
    seconds = done["durationMs"]["triggerExecution"] / 1e3
    line: Line = {
        "seconds": seconds,
        "rows_per_second": done["numInputRows"] / seconds,
        "state_rows": sum(each["numRowsTotal"] for each in operators),
        "state_bytes": sum(each["memoryUsedBytes"] for each in operators),
        "sst_bytes": sum(each.get("rocksdbSstFileSize", 0) for each in custom),
        "checkpoint_bytes": size(checkpoint / "state"),
    }
    for who, pids in processes().items():
        line[f"{who}_pss"] = sum(map(proportional_bytes, pids))
        line[f"{who}_rss"] = sum(map(resident_bytes, pids))
    return line


def processes() -> dict[str, list[int]]:
    """The JVM that this process started, and the Python workers that the JVM started."""
    found: dict[str, list[int]] = {"jvm": [], "workers": []}
    for pid in family(os.getpid())[1:]:
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue  # It has just ended.
        found["jvm" if name == "java" else "workers"].append(pid)
    return found


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def size(folder: Path) -> int:
    """Bytes in a folder from which another process deletes files at the same time."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except OSError:
                continue
    return total


def chart(lines: list[Line]) -> str:
    """Megabytes by rows."""
    shown = lines[:: -(-len(lines) // MAX_POINTS)]
    names = {
        "jvm_pss": "JVM", "workers_pss": "Python workers", "state_bytes": "state store's memory",
        "sst_bytes": "state store's files", "checkpoint_bytes": "checkpoint of the state",
    }  # fmt: skip
    series = [
        Series(name, [(line["rows"], line[column] / 1e6) for line in shown]) for column, name in names.items()
    ]
    label = f"Megabytes that a stream of {lines[-1]['rows']:,.0f} rows has, by the rows that it has read"
    return alone(line_chart(series, "rows", "megabytes", label))


if __name__ == "__main__":
    main()
