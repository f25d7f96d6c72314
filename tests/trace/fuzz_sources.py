"""A fuzzer of the logs of other programs: spans, topics, graphs, histories of transactions, and lake tables.

    python tests/trace/fuzz_sources.py SECONDS [SEED] [TARGET]

As `fuzz_importers.py`, with its machinery.
"""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

from fuzz_importers import main, parquet

from antecede.errors import InputError
from antecede.sources import PRESETS, find_source, read_source
from antecede.sources.recognise import recognise
from antecede.sources.tables import write_dependency_table
from antecede.sources.unpack import copy_for_readers
from antecede.trace.bad_rows import BadRows
from antecede.transactions.formats import read_history

SAMPLES = Path(__file__).parent.parent / "sources" / "samples"
HISTORIES = Path(__file__).parent.parent / "transactions" / "samples"
JEPSEN = b"""\
{:process :nemesis, :type :info, :f :start, :value nil, :index 0}
{:process 0, :type :invoke, :f :txn, :value [[:w :x 1]], :index 1, :time 10}
{:process 0, :type :ok, :f :txn, :value [[:w :x 1]], :index 2, :time 20}
#jepsen.history.Op{:process 1, :type :invoke, :f :txn, :value [[:r :x nil]]}
#jepsen.history.Op{:process 1, :type :ok, :f :txn, :value [[:r :x 1]]}
{:process 3, :type :info, :f :txn, :value [[:w :x 8] [:r :y nil]], :error :timeout}
"""
DELTA = b"""\
{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"a","format":{"provider":"parquet","options":{}},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"node\\",\\"type\\":\\"string\\",\\"nullable\\":true,\\"metadata\\":{}}]}","partitionColumns":[],"configuration":{},"createdTime":1}}
{"add":{"path":"part.parquet","partitionValues":{},"size":400,"modificationTime":1,"dataChange":true}}
"""
ICEBERG = b"""\
{"format-version":1,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","location":".","last-updated-ms":1,
"last-column-id":1,"schema":{"type":"struct","fields":[{"id":1,"name":"node","required":false,"type":"string"}]},
"partition-spec":[],"properties":{},"current-snapshot-id":-1,"snapshots":[]}"""
WHOLE = ("git",)
"""Presets that read a folder of another program's own."""


def field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes, up to 127 of them."""
    return bytes([number << 3 | 2, len(content)]) + content


def otlp_protobuf() -> list[bytes]:
    span = field(1, bytes(range(16))) + field(2, b"12345678") + field(4, b"87654321") + field(5, b"GET")
    span += b"\x39" + struct.pack("<Q", 1_700_000_000_000_000_000) + field(13, field(1, bytes(16)))
    service = field(1, field(1, b"service.name") + field(2, field(1, b"shop")))
    request = b"\x0a" + bytes([2 + len(service) + 4 + len(span)])
    request += field(1, service) + field(2, field(2, span))
    return [request, struct.pack(">I", len(request)) + request, bytes([len(request)]) + request]


def bincode() -> bytes:
    """A history as dbcop writes it: two sessions with a transaction each."""
    texts = b"".join(struct.pack("<Q", len(text)) + text for text in (b"a", b"b", b"c"))
    transaction = struct.pack("<QQ", 1, 1) + struct.pack("<BQQB", 1, 0, 5, 1) + b"\x01"
    return struct.pack("<5Q", 0, 2, 1, 2, 2) + texts + struct.pack("<Q", 2) + transaction * 2


def cobra() -> bytes:
    written = struct.pack(">cqqq", b"W", 7, 1, -7) + struct.pack(">cqqqq", b"R", 1, 7, 1, -7)
    return struct.pack(">cq", b"S", 1) + written + struct.pack(">cq", b"C", 1)


def seeds() -> dict[str, list[bytes]]:
    samples = {file.name: file.read_bytes() for file in sorted(SAMPLES.iterdir())}
    spans = b"TraceId,SpanId,ParentSpanId,ServiceName,Timestamp\nt,a,,shop,2024-01-01 00:00:00\nt,b,a,web,2\n"
    named: dict[str, list[bytes]] = {
        "otlp": [samples["otlp.json"], *otlp_protobuf()],
        "jaeger": [samples["jaeger.json"]],
        "jaeger-spans": [b'{"traceID":"t","spanID":"a","process":{"serviceName":"s"},"startTime":1}\n'],
        "otel-table": [spans, parquet([{"TraceId": "t", "SpanId": "a", "ParentSpanId": "", "Timestamp": 1}])],
        "debezium": [samples["debezium.jsonl"]],
        "kafka": [samples["kcat.jsonl"], samples["orders.console.txt"]],
        "matrix": [samples["matrix.json"]],
        "dependencies": [samples["dependencies.csv"]],
        "graph": [samples["graph.jsonl"]],
        "editing": [b'{"txns":[{"parents":[],"agent":0},{"parents":[0],"agent":"bo"},{"agent":1}]}'],
        "shiviz": [
            b'ana {"ana":1}\nsend\nbo {"ana":1,"bo":1}\nreceive\n',
            b"(?<event>.*)\\n(?<host>\\S*)\n\nx\na\n",
        ],
    }
    assert named.keys() == PRESETS.keys() - set(WHOLE)
    everything = {f"source.{name}": [*inputs, gzip.compress(inputs[0])] for name, inputs in named.items()}
    everything["recognised"] = [data for inputs in named.values() for data in inputs]
    histories = [file.read_bytes() for file in sorted(HISTORIES.iterdir())]
    json_history = (
        b'{"info":"a","data":[[{"events":[{"Write":{"variable":1,"version":5}}],"committed":true}]]}'
    )
    everything |= {
        "history.plume": histories,
        "history.awdit": [b"w 0 0\nw 1 0\n=====\nw 0 1\n-----\nr 1 0\n=====\nr 0 1\n"],
        "history.dbcop": [
            bincode(),
            json_history,
            b'[[{"events":[["w",1,5],["r",1,null]],"committed":true}]]',
        ],
        "history.cobra": [cobra()],
        "history.jepsen": [JEPSEN, b'[{"process":0,"type":"ok","f":"txn","value":[["w","x",1]]}]'],
        "delta": [DELTA.replace(b"400", str(len(PART)).encode())],
        "iceberg": [ICEBERG],
    }
    return everything


def read(target: str, data: bytes, folder: Path) -> None:
    """Feed one input to one reader."""
    kind, _, name = target.partition(".")
    file = folder / "input"
    if kind in ("delta", "iceberg"):
        read_lake_table(kind, data, folder)
        return
    file.write_bytes(data)
    if kind == "history":
        read_history(file, name)
        return
    recognise(data[:4096])
    source = find_source(str(file), name or None)
    if source is None:
        raise InputError("not recognised")
    bad = BadRows(str(file), strict=data[-1:] == b"!")
    for _ in read_source(source, bad):
        pass
    write_dependency_table(source, folder / "out", BadRows(str(file), strict=False))


def read_lake_table(kind: str, data: bytes, folder: Path) -> None:
    table, copy = folder / "_meta" / "table", folder / "out"
    table.mkdir(parents=True)
    copy.mkdir()
    (table / "part.parquet").write_bytes(PART)
    if kind == "delta":
        (table / "_delta_log").mkdir()
        (table / "_delta_log" / f"{0:020}.json").write_bytes(data)
    else:
        (table / "metadata").mkdir()
        (table / "metadata" / "v1.metadata.json").write_bytes(data)
    try:
        copy_for_readers(table, copy)
    finally:
        shutil.rmtree(table)


PART = parquet([{"node": "a"}])

if __name__ == "__main__":
    main(seeds(), read)
