"""Random logs written to files as people have them, and a verdict on each straight from the definitions.

A log has processes, messages under its own ids, and every kind of fault; it is written to one or several
files of
CSV, JSON lines and Parquet, with quoting, byte-order marks, encodings, bad rows, rows to skip, times in every
form, partitions, and with or without an index. `brute_force` judges the log itself, not the files, and shares
no code with Antecede. `compare` runs `antecede audit` on the files.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.main import get_command

from antecede.cli.main import app
from antecede.errors import InputError

Event = tuple[str, str]
"""A kind, send or deliver, and the id of a message."""
Log = dict[str, list[Event]]
"""Each process's events in its own order."""

_NAMES = [
    "ana",
    "ben",
    'c"d',
    "e,f",
    "g\nh",
    "שרת",
    "👨‍👩‍👧",
    "001",
    "01",
    "1",
    "x y",
    "é",
    "-",
    "null",
    "NaN",
]  # fmt: skip
_IDS = ["m", "001", "1", "01", "a,b", 'q"q', "l\nm", "é", "ردّ", "1.0", "true", "x:y:1", "ana:1", " s"]


# The verdict by brute force.


@dataclass
class BruteForce:
    """The faults of one run, by the definitions."""

    counts: Counter[str] = field(default_factory=Counter)
    missing: set[tuple[str, str]] = field(default_factory=set)
    duplicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    orphans: set[tuple[str, str]] = field(default_factory=set)
    impossible: set[tuple[str, str]] = field(default_factory=set)
    roots: dict[tuple[str, str], tuple[bool, int]] = field(default_factory=dict)
    """By process and missing cause: whether the cause was delivered late, and how many deliveries depended on
    it."""


def brute_force(log: Log) -> BruteForce:
    """Judge one run: by reachability in the graph of all events, computed anew for every question."""
    found = BruteForce()
    sender = {name: process for process, events in log.items() for kind, name in events if kind == "send"}
    explicit = {name for process, events in log.items() for kind, name in events
                if kind == "deliver" and sender.get(name) == process}  # fmt: skip
    kept: dict[str, list[Event]] = {}
    for process, events in log.items():
        has: set[str] = set()
        kept[process] = []
        for kind, name in events:
            if kind == "deliver":
                found.counts["deliveries"] += 1
                if name in has:
                    found.duplicates[process, name] += 1
                    continue
                has.add(name)
                if name not in sender:
                    found.orphans.add((process, name))
                    continue
            elif name not in explicit:
                has.add(name)
            kept[process].append((kind, name))
    deliveries = [(process, at) for process, events in kept.items()
                  for at, (kind, _) in enumerate(events) if kind == "deliver"]  # fmt: skip
    found.impossible = {
        (process, name)
        for process, at in deliveries
        for name in [kept[process][at][1]]
        if _send(kept, name) in _after(kept, (process, at), set())
    }
    _find_lacking(found, kept, sender, explicit)
    found.counts.update(
        messages=len(sender),
        processes=len(log),
        missing=len(found.missing),
        duplicates=found.duplicates.total(),
        orphans=len(found.orphans),
        impossible=len(found.impossible),
    )
    return found


def _find_lacking(found: BruteForce, kept: Log, sender: dict[str, str], explicit: set[str]) -> None:
    """Causes each process never delivered, and causes it lacked when it delivered an effect."""
    causes = {name: _causes(kept, name, found.impossible) for name in sender}
    for process, events in kept.items():
        ever = {name for kind, name in events if kind == "deliver" or name not in explicit}
        found.missing |= {(process, name) for name in sender.keys() - ever}
        so_far: set[str] = set()
        for kind, name in events:
            lacking = causes[name] - so_far if kind == "deliver" else set()
            if lacking:
                late = lacking & ever
                found.counts["causal_violations"] += 1
                found.counts["causal_late_deliveries"] += bool(late)
                found.counts["causal_pairs_late"] += len(late)
                found.counts["causal_pairs_never"] += len(lacking - ever)
                found.counts["fifo_violations"] += any(sender[each] == sender[name] for each in lacking)
            for cause in lacking:
                _, needed = found.roots.get((process, cause), (False, 0))
                found.roots[process, cause] = cause in ever, needed + 1
            if kind == "deliver" or name not in explicit:
                so_far.add(name)


def _send(kept: Log, name: str) -> tuple[str, int]:
    return next((process, events.index(("send", name))) for process, events in kept.items()
                if ("send", name) in events)  # fmt: skip


def _after(kept: Log, event: tuple[str, int], impossible: set[tuple[str, str]]) -> set[tuple[str, int]]:
    """The successors of an event: the next of its process, and the deliveries of the message it sends."""
    reached: set[tuple[str, int]] = set()
    waiting = [event]
    while waiting:
        process, at = waiting.pop()
        following = [(process, at + 1)] if at + 1 < len(kept[process]) else []
        kind, name = kept[process][at]
        if kind == "send":
            following += [(other, events.index(("deliver", name))) for other, events in kept.items()
                          if ("deliver", name) in events and (other, name) not in impossible]  # fmt: skip
        waiting += [each for each in following if each not in reached]
        reached.update(following)
    return reached


def _causes(kept: Log, name: str, impossible: set[tuple[str, str]]) -> set[str]:
    send = _send(kept, name)
    return {
        cause
        for process, events in kept.items()
        for at, (kind, cause) in enumerate(events)
        if kind == "send" and cause != name and send in _after(kept, (process, at), impossible)
    }


# Random logs.


def random_log(source: Random) -> Log:
    """Processes that send and deliver mostly in order, with faults added afterwards."""
    names = source.sample(_NAMES, source.randint(2, 5))
    ids = source.sample(_IDS, source.randint(1, 8))
    delivers_own = source.random() < 0.3
    log: Log = {name: [] for name in names}
    due: dict[str, list[str]] = {name: [] for name in names}
    unsent = list(ids)
    for _ in range(source.randint(4, 60)):
        process = source.choice(names)
        if unsent and source.random() < 0.3:
            message = unsent.pop()
            log[process].append(("send", message))
            for other in names:
                if other != process or delivers_own:
                    due[other].append(message)
        elif due[process]:
            place = source.randrange(len(due[process])) if source.random() < 0.2 else 0
            log[process].append(("deliver", due[process].pop(place)))
    for process in names:
        if source.random() < 0.7:
            log[process] += [("deliver", message) for message in due[process]]
    for _ in range(source.choice((0, 0, 1, 2, 3))):
        _spoil(source, source.choice(list(log.values())), ids)
    return {name: events for name, events in log.items() if events}


def _spoil(source: Random, events: list[Event], ids: list[str]) -> None:
    deliveries = [each for each in events if each[0] == "deliver"]
    anywhere = source.randint(0, len(events))
    match source.randrange(4):
        case 0 if deliveries:
            events.remove(source.choice(deliveries))
        case 1:
            events.insert(anywhere, ("deliver", source.choice(ids)))
        case 2 if deliveries:
            moved = source.choice(deliveries)
            events.remove(moved)
            events.insert(min(anywhere, len(events)), moved)
        case 3:
            events.insert(anywhere, ("deliver", "ghost"))


# Files.


@dataclass
class Written:
    """The files written and the options that read them."""

    arguments: list[str]
    bad_rows: int = 0
    skipped: int = 0
    rows: int = 0


def write_files(source: Random, logs: dict[str, Log], folder: Path) -> Written:
    """Write the runs to files; several runs are told apart by a column or by one file each."""
    words = source.choice([{"send": "send", "deliver": "deliver"}, {"send": "PUB", "deliver": "SUB got"}])
    names = source.choice([("process", "kind", "id"), ("host", "what", 'the "id"')])
    has_index, run_per_file = source.random() < 0.5, len(logs) > 1 and source.random() < 0.5
    timed = source.choice(["none", "iso", "seconds", "mixed"])
    done = Written(["--map", f"process={names[0]},kind={names[1]},message={names[2]},kind.skip=TICK"])
    done.arguments += ["--map", "time=at"] if timed != "none" else []
    if words["send"] != "send":
        done.arguments += ["--map", "kind.send=PUB,kind.deliver=SUB got"]
    done.arguments += ["--run-per-file"] if run_per_file else []
    rows: dict[str, list[dict[str, Any]]] = {}
    for run, log in logs.items():
        for row in _interleaved(source, log):
            kind = row.pop("kind")
            fields = {names[0]: row["process"], names[1]: words[kind], names[2]: row["message"]}
            fields |= {"n": row["index"]} if has_index else {}
            fields |= {"at": _time(source, timed, row["index"])} if timed != "none" else {}
            fields |= {"which": run} if len(logs) > 1 and not run_per_file else {}
            rows.setdefault(run if run_per_file else "", []).append(fields)
    done.arguments += ["--map", "index=n"] if has_index else []
    done.arguments += ["--map", "run=which"] if len(logs) > 1 and not run_per_file else []
    for run, mine in rows.items():
        if has_index:
            source.shuffle(mine)
        files = 1 if run_per_file else source.choice((1, 1, 2, 3, 11))
        partitioned = not run_per_file and source.random() < 0.3
        for number, part in enumerate(_parts(source, mine, files, names[0], has_index)):
            if part:
                place = folder / f"date=2024-05-{number + 1:02}" if partitioned else folder
                _write(source, place / f"{run or 'log'}-{number}", part, done, names)
    return done


def _interleaved(source: Random, log: Log) -> list[dict[str, Any]]:
    """The rows of all processes interleaved, each process in its own order."""
    turns = [process for process, events in log.items() for _ in events]
    source.shuffle(turns)
    at: Counter[str] = Counter()
    rows = []
    for process in turns:
        kind, message = log[process][at[process]]
        rows.append({"process": process, "kind": kind, "message": message, "index": at[process]})
        at[process] += 1
    return rows


def _parts(
    source: Random, rows: list[dict[str, Any]], files: int, process: str, has_index: bool
) -> list[list[dict[str, Any]]]:
    """The rows in several files: one for each host, or one part after the other."""
    if files > 1 and source.random() < 0.5:
        hosts = list(dict.fromkeys(row[process] for row in rows))
        return [[row for row in rows if row[process] == host] for host in hosts]
    ends = sorted(source.randint(0, len(rows)) for _ in range(files - 1))
    parts = [rows[low:high] for low, high in zip([0, *ends], [*ends, len(rows)], strict=True)]
    if has_index:
        source.shuffle(parts)
    return parts


def _time(source: Random, form: str, index: int) -> Any:
    if form == "mixed":
        form = source.choice(["iso", "seconds", "nanoseconds", "bad", "empty"])
    values = {
        "iso": f"2024-05-01T12:{index:02}:00{source.choice(['', 'Z', '.25+02:00'])}",
        "seconds": f"{1714564800 + index}.5",
        "nanoseconds": str((1714564800 + index) * 10**9),
        "bad": "noon",
        "empty": None,
    }
    return values[form]


def _write(
    source: Random, stem: Path, rows: list[dict[str, Any]], done: Written, names: tuple[str, str, str]
) -> None:
    """One file, with rows that cannot be read or are to be skipped among the others."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    kind = source.choice(["csv", "jsonl", "parquet"])
    rows = list(rows)
    for _ in range(source.choice((0, 0, 0, 1, 2))):
        other = dict(source.choice(rows))
        if source.random() < 0.5:
            other[names[1]] = "TICK"
            done.skipped += 1
        else:
            other[source.choice((names[0], names[2]))] = None
            done.bad_rows += 1
        rows.insert(source.randint(0, len(rows)), other)
    done.rows += len(rows)
    columns = list(rows[0])
    source.shuffle(columns)
    rows = [{name: row[name] for name in columns} for row in rows]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), f"{stem}.parquet")
    elif kind == "csv":
        _write_csv(source, Path(f"{stem}.csv"), columns, rows, done)
    else:
        lines = [json.dumps(row, ensure_ascii=source.random() < 0.5) for row in rows]
        for _ in range(source.choice((0, 0, 1))):
            lines.insert(source.randint(1, len(lines)), source.choice(["{", "[1]", "no JSON"]))
            done.bad_rows += 1
            done.rows += 1
        text = source.choice(["\n", "\r\n", "\n\n"]).join(lines)
        mark = "\ufeff" if source.random() < 0.3 else ""
        Path(f"{stem}.jsonl").write_text(mark + text, encoding="utf-8", newline="")


def _write_csv(
    source: Random, file: Path, columns: list[str], rows: list[dict[str, Any]], done: Written
) -> None:
    text = io.StringIO(newline="")
    dialect = source.choice(["excel", "unix"])
    writer = csv.writer(text, dialect, lineterminator=source.choice(["\n", "\r\n"]))
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if value is None else value for value in row.values()])
        if source.random() < 0.03:
            writer.writerow(["too", "few"] if len(columns) != 2 else ["one"])
            done.bad_rows += 1
            done.rows += 1
    encoding = source.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"])
    file.write_bytes(text.getvalue().encode(encoding))


# The comparison.


@cache
def _antecede() -> Any:
    """The command, built once: that takes longer than an audit."""
    return get_command(app)


_COUNTS = (
    "processes", "messages", "deliveries", "missing", "duplicates", "orphans", "impossible",
    "causal_violations", "causal_late_deliveries", "causal_pairs_late", "causal_pairs_never",
    "fifo_violations",
)  # fmt: skip


def compare(seed: int, folder: Path) -> Counter[str]:
    """Write a random log, audit the files and raise on any difference from brute force; returns what
    occurred."""
    source = Random(seed)
    logs = {f"run{number}": random_log(source) for number in range(source.choice((1, 1, 1, 2)))}
    logs = {run: log for run, log in logs.items() if any(kind == "deliver" for _, kind in _kinds(log))}
    if not logs:
        return Counter(empty=1)
    written = write_files(source, logs, folder)
    arguments = ["audit", str(folder), *written.arguments, "--limit", "1000", "--json"]
    shown = io.StringIO()
    try:
        with redirect_stdout(shown):
            _antecede().main(arguments, standalone_mode=False)
        found = json.loads(shown.getvalue())
    except (InputError, ValueError) as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    expected = [brute_force(log) for log in logs.values()]
    counts = sum((each.counts for each in expected), Counter())
    wrong = {name: (found[name], counts[name]) for name in _COUNTS if found[name] != counts[name]}
    if wrong or found["runs"] != len(logs):
        raise AssertionError(f"seed {seed}: {wrong} (found, expected), {found['runs']} runs")
    _compare_lists(seed, found, expected)
    lineage = found["lineage"]
    read = (lineage["rows_read"], lineage["rows_skipped"])
    if read != (written.rows, written.bad_rows + written.skipped):
        raise AssertionError(f"seed {seed}: read {read}, written {written}")
    return Counter({name: 1 for name in _COUNTS if counts[name]} | {"clean": int(found["clean"])})


def _kinds(log: Log) -> list[tuple[str, str]]:
    return [(name, kind) for name, events in log.items() for kind, _ in events]


def _compare_lists(seed: int, found: dict[str, Any], expected: list[BruteForce]) -> None:
    """Every fault is listed, with its consequences, and violations by their roots."""
    listed: Counter[tuple[Any, ...]] = Counter(
        (each["kind"], each["process"], each["message"], each["consequences"]) for each in found["faults"]
    )
    wanted: Counter[tuple[Any, ...]] = Counter()
    roots: Counter[tuple[Any, ...]] = Counter()
    for run in expected:
        needed = {key: count for key, (late, count) in run.roots.items() if not late}
        wanted.update(("missing", *key, needed.get(key, 0)) for key in run.missing)
        wanted.update(("duplicate", *key, times) for key, times in run.duplicates.items())
        wanted.update(("orphan", *key, 1 + run.duplicates[key]) for key in run.orphans)
        wanted.update(("impossible", *key, 1) for key in run.impossible)
        roots.update((*key, late, count) for key, (late, count) in run.roots.items())
    if listed != wanted:
        raise AssertionError(f"seed {seed}: listed {listed - wanted}, not listed {wanted - listed}")
    shown = Counter(
        (each["process"], each["cause"], each["late"], each["consequences"]) for each in found["violations"]
    )
    if shown != roots:
        raise AssertionError(f"seed {seed}: roots {shown - roots}, not found {roots - shown}")
