"""Reads logs of events with vector clocks, as GoVector writes them and ShiViz draws them.

An event is the n-th of its host, where n is the host's own entry in the clock. Its parents are the host's
previous event, and the events of other hosts whose entries the clock has gained since. An event that another
of these already covers is not a parent; what remains are the sends of messages. Where a host's lines
contradict its clock, the clock decides, as in ShiViz, because threads that log at the same time swap lines.
Such lines are counted.

A log may hold several executions. As in ShiViz, a regular expression separates them, whose group `trace` is
the label of the one that follows; without it, lines such as `=== name ===`, as in ShiViz's own examples. The
hosts of each are its own: they are called `label/host`.

A file that is made for ShiViz begins with its own two expressions, a line each: that of an event, and that
between executions, which may be empty. GoVector's tool writes them.
"""

from __future__ import annotations

import re
import signal
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.foreign.dependency_writer import NodeCollector
from antecede.trace.foreign.open_files import read_whole, text_encoding

LOG_FORMATS = {
    "GoVector": r"^(?<host>\S*) (?<clock>\{.*\})[ \t]*\n(?<event>.*)",
    "GoVector for TSViz": r"^(?<timestamp>\d+) (?<host>\S*) (?<clock>\{.*\})[ \t]*\n(?<event>.*)",
    "event first": r"^(?<event>.*)\n(?<host>\S*) (?<clock>\{.*\})[ \t]*$",
    "akka": r"^(?:\[[^\]\n]*\] )*\[akka://[^\]\n]*/(?<host>[^\]/\s]+)\] (?<clock>\{[^}\n]*\})(?<event>.*)",
    "TLA+": r"^/\\ Host = (?<host>.*)\n/\\ Clock = \"(?<clock>.*)\"",
    "one line": r"^(?<host>\S*) (?<clock>\{[^}\n]*\}) (?<event>.*)",
}
"""Known formats as regular expressions; without --regex, the one that fits a log best is used."""

DELIMITER = r"^=== (?<trace>.*) ===$"
"""What separates executions in ShiViz's own examples."""
_OPTION = "--regex"
_HEADER = re.compile(r"(?=.*\(\?P?<host>)(?=.*\(\?P?<clock>)(?P<event>.*)\n(?P<delimiter>.*)(?:\n|$)")
_SAMPLE_CHARACTERS = 1 << 20
_MAX_ENTRY = 2**63
_clock = msgspec.json.Decoder(dict[str, int])


_MAX_PATTERN = 4_096
"""The most characters of a regular expression: the compiler recurses, and the possible depth depends on the
interpreter."""
_DEADLINE_SECONDS = 20.0
"""Seconds for the search for one event; a regular expression that backtracks may search for ever."""


class _LoggedEvent(NamedTuple):
    line: int
    host: str
    clock: dict[str, int]
    begin: int
    end: int
    """Where the event's text begins and ends in that of the execution."""


class _Execution(NamedTuple):
    """The text of one execution, the number of its first line, the prefix of its hosts' names, and the line
    end used in the file."""

    text: str
    line: int
    prefix: str
    line_end: str


def compile_expression(form: str, option: str) -> re.Pattern[str]:
    """A regular expression as ShiViz takes it: JavaScript's (?<name>…) or Python's (?P<name>…)."""
    if len(form) > _MAX_PATTERN:
        raise InputError(
            f"{option} is not a valid regular expression: {len(form):,} characters long,"
            f" at most {_MAX_PATTERN:,} are accepted"
        )
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", form), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"{option} is not a valid regular expression: {error}") from error


def compile_pattern(form: str, option: str = _OPTION) -> re.Pattern[str]:
    """The pattern of an event, with groups for its host and its clock."""
    pattern = compile_expression(form, option)
    for name in ("host", "clock"):
        if name not in pattern.groupindex:
            raise InputError(
                f"{option} has no group (?<{name}>…); it needs host and clock, and may have event"
            )
    return pattern


def find_with_deadline(
    pattern: re.Pattern[str], text: str, seconds: float = _DEADLINE_SECONDS, option: str = _OPTION
) -> Iterator[re.Match[str]]:
    """All matches; an error, which names the option or the place of the pattern, if one takes longer.

    Only a signal can interrupt a search, and only in the main thread; elsewhere there is no deadline.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield from pattern.finditer(text)
        return
    line = 1

    def stop(*_: object) -> None:
        raise InputError(
            f"{option} takes more than {seconds:g} s to find an event from line {line} on; write it so that "
            r"there is one way to match a line, as in '^(?<host>\S+) (?<clock>{[^}]*})'"
        )

    matches, done = pattern.finditer(text), 0
    before = signal.signal(signal.SIGALRM, stop)
    try:
        while True:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            match = next(matches, None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if match is None:
                return
            yield match
            line += text.count("\n", done, match.end())
            done = match.end()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read_shiviz(
    path: Path,
    into: NodeCollector,
    regex: str | None = None,
    max_bytes: int | None = None,
    delimiter: str | None = None,
    encoding: str = "",
) -> int:
    """A log of events with vector clocks; without a regular expression, its own, or the known form that fits.

    `delimiter` is the regular expression between executions, empty for none. Returns how many of them have
    events. Bytes that are no text are in the text of events as `surrogateescape` has them.
    """
    data = read_whole(path, max_bytes)
    marked = text_encoding(data[:4])
    if marked == "utf-8" and not encoding and b"\0" in data[:4096]:
        raise InputError(f"{path} is not text in UTF-8")
    chosen = encoding if encoding and marked == "utf-8" else marked
    try:
        text = data.decode(chosen, errors="surrogateescape").removeprefix("\ufeff")
    except UnicodeError as error:
        raise InputError(f"{path} is not text in {chosen}: {error}") from error
    del data
    line_end = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    text = text.replace("\r\n", "\n")
    own, begin = "", 0
    if regex is None and (header := _HEADER.match(text)):
        own, begin = f"^{header['event']}$", header.end()
        between = f"^{header['delimiter'].strip()}$"
        if between != "^$" and delimiter is None:
            separator = compile_expression(between, f"{path}, line 2,")
            found = next(find_with_deadline(separator, text[begin:], option=f"{path}, line 2,"), None)
            # A delimiter that separates nothing is more likely the first line of the log.
            delimiter, begin = (between, begin) if found else (None, header.start("delimiter"))
    chosen_delimiter = DELIMITER if delimiter is None else delimiter
    executions = list(_executions(text, begin, chosen_delimiter, path, line_end))
    del text
    pattern = compile_pattern(regex) if regex else _best_pattern(executions, path, own)
    found_events = 0
    for execution in executions:
        events = list(_events(pattern, execution, into))
        found_events += bool(events)
        _add_events(events, execution, into)
    if not found_events:
        raise InputError(f"{path}: no line of it has a host and a clock in the form of {pattern.pattern}")
    return found_events


def is_shiviz(text: str) -> bool:
    """Whether a log that begins like this has events with vector clocks, in its own or a known form."""
    return _HEADER.match(text) is not None or any(
        _decode_clock(match["host"], match["clock"])
        for form in LOG_FORMATS.values()
        for match in find_with_deadline(compile_pattern(form), text)
    )


def _executions(text: str, begin: int, delimiter: str, path: Path, line_end: str) -> Iterator[_Execution]:
    """The executions of a log. Without a label, they have numbers; a single one needs neither."""
    separator = compile_expression(delimiter, "--delimiter") if delimiter else None
    line, text = 1 + text.count("\n", 0, begin), text[begin:]
    matches = [each for each in find_with_deadline(separator, text) if each[0]] if separator else []
    if not matches:
        yield _Execution(text, line, "", line_end)
        return
    labelled = separator is not None and "trace" in separator.groupindex
    labels: set[str] = set()
    begin, prefix = 0, ""
    for number, match in enumerate([*matches, None], start=1):
        end = match.start() if match else len(text)
        yield _Execution(text[begin:end], line, prefix, line_end)
        if match:
            label = _shown(match["trace"] or "" if labelled else "") or str(number)
            if label in labels:
                raise InputError(f"{path} has two executions called {brief(label)}; their names must differ")
            labels.add(label)
            end = match.end() + text.startswith("\n", match.end())
            line += text.count("\n", begin, end)
            begin, prefix = end, f"{label}/"


def _best_pattern(executions: list[_Execution], path: Path, own: str) -> re.Pattern[str]:
    """The format that matches the most events in the first executions, each taken by itself, since separators
    are not events. `own` is the format that the file itself declares."""
    heads, size = [], 0
    for execution in executions:
        heads.append(execution.text[: _end_of_lines(execution.text, _SAMPLE_CHARACTERS, 2)])
        size += len(heads[-1])
        if size > _SAMPLE_CHARACTERS:
            break
    best, most = None, (0, 0)
    first_line = f"{path}, line 1,"
    for form in [own, *LOG_FORMATS.values()] if own else LOG_FORMATS.values():
        option = first_line if form == own else _OPTION
        pattern = compile_pattern(form, option)
        found = [match for head in heads for match in find_with_deadline(pattern, head, option=option)]
        clocks = [match for match in found if _decode_clock(match["host"], match["clock"])]
        events, covered = len(clocks), sum(match.end() - match.start() for match in clocks)
        if (events, covered) > most:
            best, most = pattern, (events, covered)
    if best is None:
        raise InputError(
            f"{path} is in none of the known forms ({', '.join(LOG_FORMATS)}); convert it, with "
            "its own form: antecede import shiviz LOG --out FOLDER --regex "
            r"'(?<host>\S*) (?<clock>{.*})\n(?<event>.*)'"
        )
    return best


def _end_of_lines(text: str, place: int, lines: int) -> int:
    """Where the next `lines` lines after a place end, or the text does."""
    for _ in range(lines):
        place = text.find("\n", place) + 1
        if not place:
            return len(text)
    return place


def _decode_clock(host: str | None, text: str | None) -> dict[str, int] | None:
    """A host's clock; None if it is none."""
    if host is None or text is None:
        return None
    try:
        clock = _decode_json_clock(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    if any(not 0 <= entry < _MAX_ENTRY for entry in clock.values()) or not clock.get(host):
        return None
    return clock


def _decode_json_clock(text: str) -> dict[str, int]:
    """A clock in JSON, or as TLA+ prints one: with a backslash before each quote."""
    try:
        return _clock.decode(text)
    except msgspec.DecodeError:
        if '\\"' not in text:
            raise
        return _clock.decode(text.replace('\\"', '"'))


def _events(pattern: re.Pattern[str], execution: _Execution, into: NodeCollector) -> Iterator[_LoggedEvent]:
    text, done, line = execution.text, 0, execution.line
    for match in find_with_deadline(pattern, text):
        _count_unmatched(text[done : match.start()], line, into)
        line += text.count("\n", done, match.start())
        here = line + text.count("\n", match.start(), match.start("clock"))
        host, clock = match["host"], _decode_clock(match["host"], match["clock"])
        if clock is None:
            into.bad(
                "events whose clock cannot be read or lacks its host, left out",
                _shown(f"line {here}: {host} {match['clock']}"),
            )
        else:
            yield _LoggedEvent(here, host, clock, match.start(), match.end())
        line += text.count("\n", match.start(), match.end())
        done = match.end()
    _count_unmatched(text[done:], line, into)


def _count_unmatched(text: str, line: int, into: NodeCollector) -> None:
    for number, each in enumerate(text.split("\n"), start=line):
        if each.strip():
            into.bad("lines without a clock, left out", f"line {number}: {_shown(each.strip())}")


def _shown(text: str) -> str:
    """Text of a file in a form safe for names and messages."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _add_events(events: list[_LoggedEvent], execution: _Execution, into: NodeCollector) -> None:
    prefix = execution.prefix
    hosts: dict[str, dict[int, _LoggedEvent]] = {}
    last: dict[str, int] = {}
    for each in events:
        own = each.clock[each.host]
        mine = hosts.setdefault(each.host, {})
        if own in mine:
            where = f"line {each.line}: {each.host} {own}, as in line {mine[own].line}"
            into.bad("events that repeat a clock, left out", where)
            continue
        if own < last.get(each.host, 0):
            where = f"line {each.line}: {each.host} {own} after {last[each.host]}"
            into.bad("events logged after a later one of their host, put where their clocks say", where)
        mine[own] = each
        last[each.host] = own
    logged = {host: sorted(mine) for host, mine in hosts.items()}
    for host, numbers in logged.items():
        known: dict[str, int] = {}
        before = 0
        for own in numbers:
            each = hosts[host][own]
            if own != before + 1:
                what = "places where a host's own clock skips, taken as they are"
                into.bad(what, f"line {each.line}: {host} {own} after {before}")
            parents = [f"{host}:{before}"] if before else []
            parents += _gained_parents(each, known, logged, hosts, into)
            named = [f"{prefix}{parent}" for parent in parents]
            text = execution.text[each.begin : each.end].replace("\n", execution.line_end)
            into.add(f"{prefix}{host}:{own}", f"{prefix}{host}", own, named, f"line {each.line}", text)
            before = own


def _gained_parents(
    event: _LoggedEvent,
    known: dict[str, int],
    logged: dict[str, list[int]],
    hosts: dict[str, dict[int, _LoggedEvent]],
    into: NodeCollector,
) -> list[str]:
    """The events of other hosts that this clock covers and the host's earlier clocks did not."""
    for host, entry in known.items():
        if event.clock.get(host, 0) < entry:
            where = f"line {event.line}: {event.host} {event.clock[event.host]} on {brief(host)}"
            into.bad("clocks that forget what the host knew before", where)
            break
    gained: dict[str, int] = {}
    for host, entry in event.clock.items():
        if host == event.host or entry <= known.get(host, 0):
            continue
        numbers = logged.get(host, [])
        place = bisect_right(numbers, entry) - 1
        if place < 0 or numbers[place] != entry:
            where = f"line {event.line}: {brief(host)} {entry}"
            into.bad("entries of events that are not in the log, taken as the last one before", where)
        if place >= 0 and numbers[place] > known.get(host, 0):
            gained[host] = numbers[place]
        known[host] = entry
    covered_by_others: set[str] = set()
    for host, number in gained.items():
        clock = hosts[host][number].clock
        fewer, more = (clock, gained) if len(clock) < len(gained) else (gained, clock)
        both = (other for other in fewer if other != host and other in more)
        covered_by_others.update(other for other in both if clock[other] >= gained[other])
    return [f"{host}:{number}" for host, number in gained.items() if host not in covered_by_others]
