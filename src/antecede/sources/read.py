"""Opens a source: finds its files and its preset, and reads them as a dependency log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from antecede.errors import InputError
from antecede.sources.catalogue import PRESETS, find_preset
from antecede.sources.debezium import read_debezium
from antecede.sources.dependency_log import Extractor
from antecede.sources.imported import READERS as READERS_OF_WHOLE_LOGS
from antecede.sources.imported import is_repository, read_imported, refuse_several
from antecede.sources.jaeger import read_jaeger
from antecede.sources.kafka import read_kafka
from antecede.sources.otlp import read_otlp
from antecede.sources.preset import Preset
from antecede.sources.recognise import recognise_file, same_format
from antecede.sources.records import SourceRecord, inner_records, read_records
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import dependency_file
from antecede.trace.foreign.open_files import streaming_limit
from antecede.trace.schema import META
from antecede.trace.table_folders import refuse_table_folder

_MAX_COMPARED = 100
"""Files of a folder whose formats are compared before they are read."""


class Source(NamedTuple):
    """Files of one format that together are one log."""

    path: Path
    files: list[Path]
    preset: Preset
    called: str = ""
    """What the user calls it, if `path` is a copy."""

    @property
    def name(self) -> str:
        return self.called or str(self.path)

    def name_of(self, file: Path) -> str:
        """A file of the source as the user knows it."""
        return self.name if file == self.path else str(file)


def find_source(path: str, preset: str | None = None) -> Source | None:
    """The source at a path, by the preset that is named or else recognised; None if it is none of those."""
    scheme, is_url, rest = path.partition("://")
    if is_url and scheme != "file":
        if preset is None:
            return None
        raise InputError(f"{path}: --preset is for local files; copy it here first")
    local = Path(rest if is_url else path)
    if preset is not None:
        chosen = find_preset(preset)
        files = [local] if chosen.reader == "git" and local.exists() else _files(local)
        if not files:
            raise InputError(f"{local} does not exist" if not local.exists() else f"{local} holds no file")
        refuse_several(files, chosen.reader)
        return Source(local, files, chosen)
    if not path or not local.exists() or _is_ours(local):
        return None
    if table := dependency_table(path):
        return Source(local, [table], PRESETS["dependencies"])
    if is_repository(local):
        return Source(local, [local], PRESETS["git"])
    files = _files(local)
    recognised = recognise_file(local) if local.is_file() else same_format(files[:_MAX_COMPARED])
    if recognised is None:
        return None
    refuse_several(files, recognised.reader)
    return Source(local, files, recognised)


def _is_ours(path: Path) -> bool:
    """Whether it is a trace that Antecede has written: these need no recognition."""
    return path.is_dir() and (path / META).exists()


def dependency_table(path: str) -> Path | None:
    """The dependency table at a path, for which graphs and advice have a reader of their own."""
    local = Path(path)
    if local.is_file() and local.suffix not in (".csv", ".parquet"):
        return None
    try:
        return dependency_file(local)
    except InputError:  # it is none, or damaged: whoever reads it says so
        return None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    files: list[Path] = []
    for parent, folders, names in os.walk(path):
        refuse_table_folder(Path(parent), folders)
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files += [Path(parent) / name for name in names if not name.startswith((".", "_"))]
    return sorted(file for file in files if file.is_file() and file.stat().st_size)


def read_source(
    source: Source,
    bad: BadRows,
    with_payload: bool = False,
    max_bytes: int | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Iterator[pa.Table]:
    """The dependency log of a source, in batches; `bad` counts what cannot be read."""
    extractor = Extractor(source.preset, bad, with_payload)
    bad.reads(source.files)
    for number, file in enumerate(source.files):
        limit = max_bytes
        if max_bytes is None and source.preset.reader not in READERS_OF_WHOLE_LOGS:
            limit = streaming_limit(file)
        progress("reading", number, len(source.files))
        skipped_before = bad.rows_skipped
        try:
            records = _records(file, source.preset, bad, limit)
            for table in extractor.batches(records, source.name_of(file)):
                bad.count(file, table.num_rows)
                yield table
        except UnicodeError as error:
            raise InputError(f"{file} is not text in the encoding of its first bytes: {error}") from error
        bad.count(file, bad.rows_skipped - skipped_before)
        bad.finish(file)


def _records(file: Path, preset: Preset, bad: BadRows, max_bytes: int | None) -> Iterator[SourceRecord]:
    encoding = preset.encoding
    if preset.reader == "otlp":
        return read_otlp(file, bad, encoding, max_bytes)
    if preset.reader == "jaeger":
        return read_jaeger(file, bad, encoding, max_bytes)
    if preset.reader == "kafka":
        return read_kafka(file, bad, encoding, preset.separator, max_bytes)
    if preset.reader == "debezium":
        return read_debezium(file, bad, encoding, preset.separator, max_bytes)
    if preset.reader in READERS_OF_WHOLE_LOGS:
        return read_imported(preset.reader, file, bad, max_bytes)
    return inner_records(read_records(file, bad, encoding, preset.separator, max_bytes), preset.records)
