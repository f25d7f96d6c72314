"""Presets: the reader of a format, and where its records have the fields of a dependency log.

A preset is data. `to_toml` prints it, `load_preset` reads it back from a file that a user has changed.
"""

from __future__ import annotations

import codecs
import itertools
import json
from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.sources.fields import Template, parse_path
from antecede.trace.times import UNITS

READERS = {
    "records": "JSON lines, JSON, CSV, TSV or Parquet: a record is an object or a row",
    "otlp": "OpenTelemetry's export requests as JSON or protobuf: a record is a span",
    "jaeger": "Jaeger's JSON: a record is a span",
    "kafka": "dumps of Kafka records: JSON of kcat, Connect or Spark, Parquet, text of the console consumer",
    "shiviz": "logs of events with vector clocks, as GoVector and ShiViz have them: a record is an event",
    "editing": "editing traces: a record is a transaction, with `parents` by their places",
    "git": "a repository: a record is a commit",
    "debezium": "change events and transaction markers, as they are or within a dump of Kafka",
}
"""The input of each reader, and what its records are."""
_RECORD_NAMES = {"otlp": "span", "jaeger": "span", "editing": "transaction", "git": "commit"}
"""What is numbered by readers whose records are not rows, lines or elements of their file."""
_MAX_FILE = 1 << 16
_SEPARATORS = (",", "\t", ";", "|", " ")


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A format: its reader, and templates (see `fields`) of the parts of a record.

    Of several templates, the first whose values all exist is used; for causes, all of them are.
    """

    name: str
    title: str
    reader: str
    id: list[str]
    process: list[str]
    causes: list[str] = []
    seq: list[str] = []
    """The position in the process's own order: an offset, a sequence number."""
    time: list[str] = []
    time_unit: str = "ns"
    """The unit of numeric times: ns, us, ms or s. Text may also be ISO 8601."""
    kind: list[str] = []
    payload: list[str] = []
    """Without one, the record as it is in the file."""
    no_cause: list[str] = []
    """Values in the paths of a cause that mean no cause, such as an id of zeros."""
    encoding: str = ""
    """The encoding of text that is neither UTF-8 nor has a byte order mark."""
    separator: str = ""
    """The separator of text tables; by default the one most frequent in the header."""
    records: list[str] = []
    """For the reader `records`: paths of the lists that hold the records, where a document has several."""
    recognised_by: list[list[str]] = []
    """Paths that a record of the format has; one of several lists."""

    @property
    def record_name(self) -> str:
        """What the number of a record counts: rows of its file, or spans, commits and so on."""
        return _RECORD_NAMES.get(self.reader, "row")


_NOTES = {
    "reader": "one of " + ", ".join(READERS),
    "id": "the first of these templates whose paths all have a value",
    "causes": "all of these: [] is every element of a list",
    "seq": "the place in the process's own order",
    "time_unit": "of times that are numbers: ns, us, ms or s; text may be ISO 8601",
    "payload": "without one, the record as it is in the file",
    "no_cause": "values of a cause's paths that mean none, such as an id of zeros",
    "encoding": "of text that is neither UTF-8 nor has a byte order mark, such as latin-1",
    "separator": "of tables in text; by default the one that the header has most",
    "records": 'paths of the lists that hold the records, where a document has several: ["items"]',
    "recognised_by": "paths that records of this format have; one of several lists",
}


def to_toml(preset: Preset) -> str:
    """The preset as TOML with comments, for a user to change and save."""
    lines = []
    for name in preset.__struct_fields__:
        if note := _NOTES.get(name):
            lines.append(f"# {note}")
        lines.append(f"{name} = {_toml(getattr(preset, name))}")
    return "\n".join(lines) + "\n"


def _toml(value: str | list[str] | list[list[str]]) -> str:
    if isinstance(value, str):
        # TOML's basic strings are those of JSON, apart from DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if value and isinstance(value[0], list):
        return "[\n" + "".join(f"    {_toml(each)},\n" for each in value) + "]"
    return f"[{', '.join(_toml(each) for each in value)}]"


def load_preset(file: Path) -> Preset:
    """A preset that a user has saved."""
    if not file.is_file():
        raise InputError(f"{file} is not a file")
    with file.open("rb") as stream:
        data = stream.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise InputError(f"{file} has more than {_MAX_FILE:,} bytes; a preset is shorter")
    try:
        preset = msgspec.toml.decode(data.removeprefix(codecs.BOM_UTF8), type=Preset)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{file} is not a preset: {error}; antecede sources NAME > FILE writes one to start with"
        ) from error
    try:
        check_preset(preset)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return preset


def check_preset(preset: Preset) -> None:
    """Refuse a preset whose fields cannot be used; the message names the field."""
    if preset.reader not in READERS:
        raise InputError(f"reader: there is no '{preset.reader}'; there are {', '.join(READERS)}")
    if preset.time_unit not in UNITS:
        raise InputError(f"time_unit: '{preset.time_unit}' is none of {', '.join(UNITS)}")
    if preset.separator and preset.separator not in _SEPARATORS:
        raise InputError("separator: it is one of ',', '\\t', ';', '|' and ' '")
    if preset.encoding:
        try:
            b"    ".decode(preset.encoding)
        except UnicodeError:  # It exists, and would not call this text.
            pass
        except (LookupError, ValueError) as error:
            raise InputError(f"encoding: there is no '{preset.encoding}'") from error
    for name in ("id", "process", "causes", "seq", "time", "kind", "payload"):
        for text in getattr(preset, name):
            try:
                Template(text)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
    for name in ("id", "process"):
        if not getattr(preset, name):
            raise InputError(f'{name}: it is needed, as in {name} = ["{{{name}}}"]')
    for name, paths in (("records", [preset.records]), ("recognised_by", preset.recognised_by)):
        for path in itertools.chain(*paths):
            try:
                parse_path(path)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
