"""Random logs in files of other programs, and what `antecede` should find in them.

A log is records with ids, processes, causes and faults. It is written in one of the formats that are
recognised, into one or more files, compressed or not, in several encodings, with rows that cannot be read.
`expected` judges the log itself, by the definitions, and shares no code with Antecede. What records carry
must come out as it was written, and what cannot be read, too. As a program, this tries as many logs as are
asked for:

    python tests/sources/random_logs.py --logs 20000
"""

from __future__ import annotations

import argparse
import base64
import bz2
import csv
import gzip
import io
import json
import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from antecede.audit.dependency_log import judge_dependency_log
from antecede.sources import find_source, read_source
from antecede.sources.read import read_as
from antecede.trace.bad_rows import BadRows

TRACE = "ab" * 16


class Logged(NamedTuple):
    """A record; its time is in milliseconds."""

    id: str
    process: str
    seq: int
    causes: list[str]
    time: int
    payload: str


NAMES = ["a", "01", "1", "001", "é", "日本", 'q"', "n:m", "-7"]
_LATIN_NAMES = [name for name in NAMES if name != "日本"]
_PIECES = [
    "a",
    "007",
    "é",
    '"',
    ",",
    ";",
    "\n",
    " ",
    "",
    "1.10",
    "\\",
    "\r\n",
    "\t",
    "\u2028",
    "🙂",
    "{",
    "]",
]
_LATIN_PIECES = [piece for piece in _PIECES if piece not in ("\u2028", "🙂")]


class Written(NamedTuple):
    """A file's text or bytes, and the payload `order` should emit for each record; None: its JSON, by
    value."""

    data: str | bytes
    payloads: list[str | None]


def as_graph_lines(log: list[Logged]) -> Written:
    lines = [json.dumps(row, ensure_ascii=len(log) % 2 == 0) for row in _graph(log)]
    return Written("\n".join(lines) + "\n", [*lines])


def as_graph_array(log: list[Logged]) -> Written:
    return Written(json.dumps(_graph(log), indent=1), [None] * len(log))


def _graph(log: list[Logged]) -> list[dict[str, Any]]:
    return [{"id": r.id, "process": r.process, "parents": r.causes, "text": r.payload} for r in log]


def as_csv(log: list[Logged], separator: str = ",") -> Written:
    end = "\r\n" if len(log) % 2 else "\n"

    def line(values: list[Any]) -> str:
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=separator, lineterminator=end).writerow(values)
        return out.getvalue().removesuffix(end)

    rows = [line([r.id, r.process, r.seq, " ".join(r.causes), r.payload]) for r in log]
    return Written(end.join([line(["node", "process", "seq", "parents", "text"]), *rows, ""]), [*rows])


def as_tsv(log: list[Logged]) -> Written:
    return as_csv(log, "\t")


def as_parquet(log: list[Logged]) -> Written:
    rows = [{"node": r.id, "process": r.process, "seq": r.seq, "parents": r.causes} for r in log]
    kinds = [("node", pa.string()), ("process", pa.string()), ("seq", pa.int64())]
    schema = pa.schema([*kinds, ("parents", pa.list_(pa.string()))])
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), out)
    return Written(out.getvalue(), [None] * len(log))


def as_kcat(log: list[Logged]) -> Written:
    rows = [
        {
            "topic": r.process,
            "partition": 0,
            "offset": r.seq,
            "ts": r.time,
            "headers": ["ce_id", r.id, "unrelated", r.payload]
            + (["causation_id", r.causes[0]] if r.causes else []),
            "payload": r.payload,
        }
        for r in log
    ]
    return Written("".join(json.dumps(row) + "\n" for row in rows), [r.payload for r in log])


def _number(name: str) -> str:
    return base64.b16encode(name.encode()).decode().lower().rjust(16, "0")


def _parent_and_links(r: Logged) -> tuple[str, list[str]]:
    parent, *links = [*r.causes, ""] if len(r.causes) % 2 else ["", *r.causes]
    return parent, [each for each in links if each]


def _resource_spans(log: list[Logged]) -> list[dict[str, Any]]:
    found = []
    for r in log:
        parent, links = _parent_and_links(r)
        span = {
            "traceId": TRACE,
            "spanId": _number(r.id),
            "parentSpanId": _number(parent) if parent else "",
            "links": [{"traceId": TRACE, "spanId": _number(each)} for each in links],
            "startTimeUnixNano": str(r.time * 1_000_000),
            "name": r.payload,
        }
        attributes = [{"key": "service.name", "value": {"stringValue": r.process}}]
        found.append({"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]})
    return found


def as_otlp(log: list[Logged]) -> Written:
    document = json.dumps({"resourceSpans": _resource_spans(log)}, indent=2 if len(log) % 2 else None)
    return Written(document, [None] * len(log))


def as_otlp_lines(log: list[Logged]) -> Written:
    lines = [json.dumps({"resourceSpans": [each]}) for each in _resource_spans(log)]
    return Written("\n".join(lines) + "\n", [None] * len(log))


def as_otlp_protobuf(log: list[Logged]) -> Written:
    """One request, or several after their lengths, as the collector's file exporter writes them."""
    requests, payloads = [], []
    for r in log:
        parent, links = _parent_and_links(r)
        span = _field(1, bytes.fromhex(TRACE)) + _field(2, bytes.fromhex(_number(r.id)))
        span += _field(4, bytes.fromhex(_number(parent))) if parent else b""
        span += _field(5, r.payload.encode()) + b"\x39" + struct.pack("<Q", r.time * 1_000_000)
        for each in links:
            span += _field(13, _field(1, bytes.fromhex(TRACE)) + _field(2, bytes.fromhex(_number(each))))
        service = _field(1, b"service.name") + _field(2, _field(1, r.process.encode()))
        requests.append(_field(1, _field(1, _field(1, service)) + _field(2, _field(2, span))))
        payloads.append(base64.b64encode(span).decode())
    if len(log) % 2:
        return Written(b"".join(requests), [*payloads])
    return Written(b"".join(struct.pack(">I", len(each)) + each for each in requests), [*payloads])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    done = b""
    while value > 127:
        done, value = done + bytes([value & 127 | 128]), value >> 7
    return done + bytes([value])


def as_jaeger(log: list[Logged]) -> Written:
    spans = [
        {
            "traceID": "t",
            "spanID": r.id,
            "references": [{"traceID": "t", "spanID": each} for each in r.causes],
            "startTime": r.time * 1000,
            "operationName": r.payload,
            "processID": r.process,
        }
        for r in log
    ]
    processes = {r.process: {"serviceName": r.process, "tags": []} for r in log}
    data = [{"traceID": "t", "spans": spans, "processes": processes}]
    return Written(json.dumps({"data": data}), [None] * len(log))


class Form(NamedTuple):
    """How a log is written, which preset reads it, and what it has besides ids, processes and causes."""

    write: Callable[[list[Logged]], Written]
    preset: str
    has: set[str]
    bad_rows: tuple[str, ...] = ()
    """Lines that cannot be read."""


_BAD_JSON = ("{", "[1]", "no JSON", '{"a": }', '"x"')
_BAD_CSV = ("x", "a,b;c\td", '"x"y,b,c,d,e')
FORMS = {
    "JSON lines": Form(as_graph_lines, "graph", set(), _BAD_JSON),
    "a JSON array": Form(as_graph_array, "graph", set()),
    "CSV": Form(as_csv, "dependencies", {"seq"}, _BAD_CSV),
    "TSV": Form(as_tsv, "dependencies", {"seq"}, _BAD_CSV),
    "Parquet": Form(as_parquet, "dependencies", {"seq"}),
    "kcat": Form(as_kcat, "kafka", {"seq", "time", "one cause"}, _BAD_JSON),
    "OTLP": Form(as_otlp, "otlp", {"time"}),
    "OTLP lines": Form(as_otlp_lines, "otlp", {"time"}, _BAD_JSON),
    "OTLP protobuf": Form(as_otlp_protobuf, "otlp", {"time"}),
    "Jaeger": Form(as_jaeger, "jaeger", {"time"}),
}


def expected(log: list[Logged], has: set[str]) -> dict[str, Any]:
    """The verdict, by the definitions."""
    first: dict[str, Logged] = {}
    for r in log:
        first.setdefault(r.id, r._replace(causes=r.causes[:1] if "one cause" in has else r.causes))
    pairs = {(c, r.id) for r in first.values() for c in r.causes if c in first}
    reach = set(pairs)
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    on_cycle = {a for a, b in reach if a == b}
    around = {(a, b) for a, b in pairs if (b, a) in reach}
    causal = pairs - around
    while more := {(a, d) for a, b in causal for c, d in causal if b == c} - causal:
        causal |= more
    early = {
        b
        for a, b in causal
        if "seq" in has and first[a].process == first[b].process and first[b].seq < first[a].seq
    }
    skewed = sum("time" in has and first[b].time < first[a].time for a, b in pairs)
    missing = [c for r in first.values() for c in r.causes if c not in first]
    return {
        "records": len(first),
        "processes": len({r.process for r in first.values()}),
        "missing_ids": len(set(missing)),
        "missing_causes": len(missing),
        "duplicate_records": len(log) - len(first),
        "records_on_cycles": len(on_cycle),
        "effects_before_causes": len(early),
        "skewed_pairs": skewed,
    }


def random_log(rng: random.Random, latin: bool) -> list[Logged]:
    names = _LATIN_NAMES if latin else NAMES
    pieces = _LATIN_PIECES if latin else _PIECES
    return [
        Logged(
            id=rng.choice(names),
            process=rng.choice(["p", "q;r", "ß"]),
            seq=rng.randrange(6),
            causes=rng.sample(names, rng.choice((0, 1, 1, 2, 3))),
            time=rng.randrange(6),
            payload="".join(rng.choices(pieces, k=rng.randrange(6))),
        )
        for _ in range(rng.randrange(1, 10))
    ]


def try_log(seed: int, folder: Path) -> list[str]:
    """Write a random log, judge its files and raise on any difference; returns what the log contained."""
    rng = random.Random(seed)
    name = rng.choice([*FORMS])
    form = FORMS[name]
    encoding = rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"])
    log = random_log(rng, encoding == "latin-1")
    parts = _parts(rng, log)
    binary = isinstance(form.write(log).data, bytes)
    encoding = "utf-8" if binary else encoding
    payloads: list[str | None] = []
    unreadable: list[bytes] = []
    packed = "" if name == "Parquet" else rng.choice(["", "", ".gz", ".bz2", ".zst"])
    texts = []
    for number, part in enumerate(parts):
        data, kept = form.write(part)
        payloads += kept
        if isinstance(data, str):
            # JSON in another encoding is one document, of which nothing is read after a fault.
            if form.bad_rows and (encoding.startswith("utf-8") or name in ("CSV", "TSV")):
                data, bad_rows = _with_bad_rows(rng, form, data, kept)
                unreadable += bad_rows
            texts.append(data)
            data = data.encode(encoding)
        (folder / f"part-{number}{packed}").write_bytes(_compress(data, packed))
    path = folder if len(parts) > 1 or rng.random() < 0.5 else folder / f"part-0{packed}"
    source = find_source(str(path))
    assert source is not None, "it is not recognised"
    assert source.preset.name == form.preset, source.preset.name
    source = read_as(source, "latin-1" if encoding == "latin-1" else "", "")
    bad, found_bad = BadRows(str(path), strict=False), list[bytes]()
    bad.quarantine = lambda _file, _why, text: found_bad.append(text)
    tables = list(read_source(source, bad, {"payload": pa.string()}))
    found = judge_dependency_log(iter(tables))
    verdict = {name: getattr(found, name) for name in expected(log, form.has)}
    assert verdict == expected(log, form.has), (verdict, expected(log, form.has))
    assert found_bad == unreadable, (found_bad, unreadable)
    read = sum(file.rows or 0 for file in bad.files_read())
    assert read == len(log) + len(unreadable), (read, len(log), unreadable)
    kept_payloads = [value for table in tables for value in table.column("payload").to_pylist()]
    _compare_payloads(kept_payloads, payloads, "".join(texts), log)
    seen = [name, encoding, packed or "not compressed", f"{len(parts)} files"]
    return seen + ["bad rows"] * bool(unreadable) + [each for each, count in verdict.items() if count]


def _parts(rng: random.Random, log: list[Logged]) -> list[list[Logged]]:
    """The log in one file, or in several one after the other."""
    ends = sorted(rng.sample(range(1, len(log)), min(len(log) - 1, rng.choice((0, 0, 1, 2)))))
    return [log[low:high] for low, high in zip([0, *ends], [*ends, len(log)], strict=True)]


def _compress(data: bytes, packed: str) -> bytes:
    pack: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": zstandard.compress,
    }
    return pack[packed](data) if packed else data


def _with_bad_rows(
    rng: random.Random, form: Form, data: str, kept: list[str | None]
) -> tuple[str, list[bytes]]:
    """The text of a file with lines in it that cannot be read, and those."""
    end, lines = "\n", data.split("\n")[:-1]
    if form.preset == "dependencies":  # rows may have line ends within them
        header, end, _ = data.partition("\r\n" if len(kept) % 2 else "\n")
        lines = [header, *map(str, kept)]
    # The first line says what a file is.
    placed = [(line, False) for line in lines]
    for _ in range(rng.choice((0, 0, 1, 2))):
        placed.insert(rng.randint(1, len(placed)), (rng.choice(form.bad_rows), True))
    return "".join(line + end for line, _ in placed), [line.encode() for line, is_bad in placed if is_bad]


def _compare_payloads(
    found: list[str | None], wanted: list[str | None], text: str, log: list[Logged]
) -> None:
    """As it is written in its document, where it is no line of its own; of Parquet, by value."""
    assert len(found) == len(wanted), (len(found), len(wanted))
    for value, want, logged in zip(found, wanted, log, strict=True):
        if want is not None:
            assert value == want, (value, want)
            continue
        assert value is not None
        assert not text or value in text, value
        record = json.loads(value)
        carried = {"text", "name", "operationName"} & record.keys()
        assert all(record[each] == logged.payload for each in carried), (record, logged.payload)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=1_000_000, metavar="SEED", help="not those of the tests")
    asked = parser.parse_args()
    begin, seen = time.process_time(), Counter[str]()
    for number, seed in enumerate(range(asked.first, asked.first + asked.logs), start=1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                seen.update(try_log(seed, Path(folder)))
            except Exception as error:
                raise SystemExit(f"log {seed}: {type(error).__name__}: {error}") from error
        if number % 1000 == 0 or number == asked.logs:
            print(f"{number:,} equal, {time.process_time() - begin:.0f} CPU s", flush=True)
    print(json.dumps(dict(seen.most_common()), ensure_ascii=False))


if __name__ == "__main__":
    main()
