"""Graphs in files: edge lists and GraphML, with a delay for each edge if the file gives one.

An edge list has a line for each link: two names and perhaps a delay, separated by blanks or commas; what
follows `#` is a comment. GraphML is read for its nodes and edges, and the edges' attribute `delay`. Links
work both ways, so a directed edge counts as a link. Files come from outside: sizes are limited, and a
document type, by which XML may grow without bound or name other files, is refused.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from antecede.errors import InputError
from antecede.overlay.shapes import Neighbours, neighbours, refuse_unconnected
from antecede.units import parse_duration

_MAX_BYTES = 64 << 20
_MAX_NODES = 100_000
_MAX_LINKS = 1_000_000
_MAX_PIECES = 100
"""Pieces in which the text of an element is read."""
_NUMBER = re.compile(r"[0-9]{1,9}")


class GraphFile(NamedTuple):
    """A connected graph."""

    names: list[str]
    """The names of the nodes, in their order: as GraphML lists them; in an edge list by number if all are
    numbers, otherwise by first appearance."""
    delays: dict[tuple[int, int], int | None]
    """The delay of each link, in nanoseconds, with the lower node first; None where the file has no delay."""

    @property
    def neighbours(self) -> Neighbours:
        return neighbours(len(self.names), self.delays)


def file_digest(file: Path) -> str:
    """A digest of a file's bytes, on which results depend."""
    return hashlib.sha256(_read(file)).hexdigest()


def read_graph(file: Path, unit: str | None = None) -> GraphFile:
    """Read a graph. Delays without a unit take `unit`."""
    data = _read(file)
    builder = _Builder(file, unit)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        _GraphmlReader(builder).read(data)
    else:
        _read_edge_list(builder, data)
    return builder.graph()


def _read(file: Path) -> bytes:
    try:
        if file.exists() and not file.is_file():
            raise InputError(f"{file} is not a file")
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # A name with a null character raises a ValueError.
        raise InputError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > _MAX_BYTES:
        raise InputError(f"{file} is larger than {_MAX_BYTES >> 20} MiB, too large for a graph")
    return data


class _Builder:
    """Collects nodes and links, and refuses invalid ones."""

    def __init__(self, file: Path, unit: str | None) -> None:
        self.file = file
        self._unit = unit
        self._nodes: dict[str, None] = {}
        self._links: dict[tuple[str, str], tuple[int | None, int]] = {}

    def refuse(self, line: int, why: str) -> InputError:
        return InputError(f"{self.file}, line {line}: {why}")

    def node(self, line: int, name: str) -> None:
        if not name:
            raise self.refuse(line, "a node has no name")
        self._nodes[name] = None
        if len(self._nodes) > _MAX_NODES:
            raise self.refuse(line, f"more than {_MAX_NODES:,} nodes")

    def link(self, line: int, one: str, other: str, delay: str | None) -> None:
        self.node(line, one)
        self.node(line, other)
        if one == other:
            raise self.refuse(line, f"{one[:40]} is linked to itself")
        try:
            duration = None if delay is None else parse_duration(delay, self._unit)
        except InputError as error:
            hint = "" if self._unit else ", or say unit=ms"
            raise self.refuse(line, f"the delay {str(error)[:120]}{hint}") from error
        low, high = sorted((one, other))
        known, before = self._links.setdefault((low, high), (duration, line))
        if known != duration:
            raise self.refuse(
                line, f"the link of {one[:40]} and {other[:40]} had another delay in line {before}"
            )
        if len(self._links) > _MAX_LINKS:
            raise self.refuse(line, f"more than {_MAX_LINKS:,} links")

    def sort_numbers(self) -> None:
        """Sort nodes by number, if their names are numbers."""
        if all(_NUMBER.fullmatch(name) for name in self._nodes):
            self._nodes = dict.fromkeys(sorted(self._nodes, key=lambda name: (int(name), name)))

    def graph(self) -> GraphFile:
        if not self._nodes:
            raise InputError(f"{self.file} has no nodes; write an edge list (two names a line) or GraphML")
        names = list(self._nodes)
        number = {name: place for place, name in enumerate(names)}
        delays: dict[tuple[int, int], int | None] = {}
        for (one, other), (delay, _) in self._links.items():
            low, high = sorted((number[one], number[other]))
            delays[low, high] = delay
        graph = GraphFile(names, delays)
        refuse_unconnected(graph.neighbours, str(self.file), names)
        return graph


def _read_edge_list(builder: _Builder, data: bytes) -> None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{builder.file} is not text: {error.reason}") from error
    for line, content in enumerate(text.splitlines(), 1):
        fields = content.partition("#")[0].replace(",", " ").split()
        if fields[2:] == ["{}"]:  # networkx writes an edge's attributes like this
            fields.pop()
        if not fields:
            continue
        if len(fields) not in (2, 3):
            raise builder.refuse(line, "a link is two names and perhaps a delay, as in: a b 5ms")
        builder.link(line, fields[0], fields[1], fields[2] if fields[2:] else None)
    builder.sort_numbers()


class _GraphmlReader:
    """Follows the elements of a GraphML file."""

    def __init__(self, builder: _Builder) -> None:
        self._builder = builder
        self._delay_keys: set[str] = set()
        self._edge: tuple[str, str] | None = None
        self._delay: str | None = None
        self._default: str | None = None
        """The delay of edges without one of their own."""
        self._in_delay_key = False
        self._text: list[str] | None = None
        """The text of an element with a delay, while the element is open."""
        self._graphs = 0
        parser = self._parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text

    def read(self, data: bytes) -> None:
        try:
            self._parser.Parse(data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise InputError(f"{self._builder.file} is not XML: {str(error)[:120]}") from error
        if not self._graphs:
            raise InputError(f"{self._builder.file} is XML, but not GraphML: it has no element graph")

    def _refuse_doctype(self, *_: object) -> None:
        raise self._refuse("a document type is not accepted: GraphML needs none")

    def _refuse(self, why: str) -> InputError:
        return self._builder.refuse(self._parser.CurrentLineNumber, why)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        match name.rpartition(" ")[2]:
            case "graph":
                self._graphs += 1
                if self._graphs > 1:
                    raise self._refuse("a second graph; one is expected")
            case "key" if attributes.get("attr.name") == "delay" and attributes.get("for") in ("edge", "all"):
                self._delay_keys.add(attributes.get("id", ""))
                self._in_delay_key = True
            case "default" if self._in_delay_key:
                self._text = []
            case "node":
                self._builder.node(line, attributes.get("id", ""))
            case "edge":
                self._edge = attributes.get("source", ""), attributes.get("target", "")
                self._delay = None
            case "hyperedge":
                raise self._refuse("a hyperedge; links have two ends")
            case "data" if self._edge and attributes.get("key") in self._delay_keys:
                self._text = []

    def _add_text(self, text: str) -> None:
        if self._text is not None and len(self._text) < _MAX_PIECES:
            self._text.append(text)

    def _end(self, name: str) -> None:
        match name.rpartition(" ")[2]:
            case "key":
                self._in_delay_key = False
            case "default" if self._text is not None:
                self._default, self._text = "".join(self._text), None
            case "data" if self._text is not None:
                self._delay, self._text = "".join(self._text), None
            case "edge" if self._edge:
                delay = self._default if self._delay is None else self._delay
                self._builder.link(self._parser.CurrentLineNumber, *self._edge, delay)
                self._edge = None
