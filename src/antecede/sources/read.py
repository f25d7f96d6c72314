"""Opens a source: finds its files and its preset, and reads them as a dependency log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from antecede.errors import InputError
from antecede.sources.catalogue import PRESETS, find_preset
from antecede.sources.debezium import read_debezium
from antecede.sources.dependency_log import Extractor
from antecede.sources.fields import quoted_name
from antecede.sources.imported import READERS as READERS_OF_WHOLE_LOGS
from antecede.sources.imported import is_repository, read_imported, refuse_several
from antecede.sources.jaeger import read_jaeger
from antecede.sources.kafka import read_kafka
from antecede.sources.otlp import read_otlp
from antecede.sources.preset import Preset
from antecede.sources.recognise import names_in_header, recognise_file, same_format
from antecede.sources.records import HEAD_BYTES, SourceRecord, container, inner_records, read_records
from antecede.trace.bad_rows import BadRows
from antecede.trace.copies import original_of
from antecede.trace.dependencies import DISTINCTIVE, TABLE_INFO, dependency_file, refuse_impossible_rows
from antecede.trace.foreign.dependency_writer import read_table_info
from antecede.trace.foreign.open_files import read_head, streaming_limit
from antecede.trace.reader import open_any_parquet
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
    """The user's name for it, if `path` is a copy."""

    @property
    def name(self) -> str:
        return self.called or str(self.path)

    def name_of(self, file: Path) -> str:
        """The user's name for a file of the source, if the file is a copy or in a folder of copies."""
        if file == self.path:
            return self.name
        original = original_of(file)
        if original == file and Path(self.name) != self.path:
            original = Path(self.name) / file.relative_to(self.path)
        return str(original)

    @property
    def file_names(self) -> dict[str, str]:
        """The user's names for all files, by path."""
        return {str(file): self.name_of(file) for file in self.files}


def find_source(path: str, preset: str | None = None) -> Source | None:
    """The source at a path, by the named preset or by its content; None if it matches none."""
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
        if chosen == PRESETS["dependencies"] and local.is_file():
            _refuse_missing_columns(local, local, {})
        return Source(local, files, chosen)
    if not path or not local.exists() or _is_ours(local):
        return None
    if table := _dependency_table(local):
        _refuse_missing_columns(table, local, {})
        return Source(local, [table], PRESETS["dependencies"])
    if is_repository(local):
        return Source(local, [local], PRESETS["git"])
    files = _files(local)
    recognised = recognise_file(local) if local.is_file() else same_format(files[:_MAX_COMPARED])
    if recognised is None:
        return None
    refuse_several(files, recognised.reader)
    return Source(local, files, recognised)


def read_as(source: Source, encoding: str, separator: str) -> Source:
    """The source in another encoding or with another separator; empty if the user has named none.

    Either is refused where it would have no effect.
    """
    reader = source.preset.reader
    kinds = set() if reader == "git" else {container(read_head(file, HEAD_BYTES)) for file in source.files}
    in_text = reader not in ("git", "editing") and "parquet" not in kinds
    if encoding and (not in_text or (reader == "otlp" and "table" in kinds)):
        raise InputError(f"--encoding is for text, and {source.name} is not read as text")
    if separator and (kinds != {"table"} or reader not in ("records", "kafka", "debezium")):
        raise InputError(f"--separator is for tables in text, and {source.name} is none")
    named = {"encoding": encoding, "separator": separator}
    changed = {name: value for name, value in named.items() if value}
    return source._replace(preset=msgspec.structs.replace(source.preset, **changed))


def mapped_dependencies(path: str, names: Mapping[str, str]) -> Source:
    """A table of dependencies whose columns have other names: `names` maps our names to theirs."""
    local = Path(path.removeprefix("file://"))
    if "://" in path.removeprefix("file://"):
        raise InputError(f"{path}: --map is for local files; copy it here first")
    files = _files(local)
    if not files:
        raise InputError(f"{local} does not exist" if not local.exists() else f"{local} holds no file")
    _refuse_missing_columns(files[0], local, names)
    path_of = {ours: quoted_name(theirs) for ours, theirs in names.items() if ours != "encoding"}
    preset = PRESETS["dependencies"]
    return Source(
        local,
        files,
        msgspec.structs.replace(
            preset,
            id=[f"{{{path_of.get('node', 'node')}}}"],
            process=[f"{{{path_of.get('process', 'process')}}}"],
            causes=[f"{{{path_of.get('parents', 'parents')}[]}}"],
            seq=[f"{{{path_of.get('seq', 'seq')}}}"],
            encoding=names.get("encoding", ""),
        ),
    )


def _refuse_missing_columns(table: Path, path: Path, names: Mapping[str, str]) -> None:
    """Refuse a table of dependencies that lacks a column, by the user's name for it."""
    head = read_head(table, HEAD_BYTES)
    if container(head) == "json":
        return
    if container(head) == "parquet":
        refuse_impossible_rows(table, open_any_parquet(table).metadata.num_rows)
    bad = BadRows(str(path), strict=False)
    try:
        first = next(read_records(table, bad, names.get("encoding", "")), None)
    except UnicodeError as error:
        raise _not_text(table, error) from error
    found = names_in_header(head) if first is None else first.value
    wanted = [names.get(name, name) for name in ("node", "process", "parents")]
    wanted += [names["seq"]] if "seq" in names else []
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]}; its header needs {','.join(wanted)}{bad.first_example()}"
        )


def _not_text(file: Path, error: UnicodeError) -> InputError:
    return InputError(f"{file} is not text in the encoding of its first bytes: {error}")


def _is_ours(path: Path) -> bool:
    """Whether it is a trace that Antecede has written: these need no recognition."""
    return path.is_dir() and (path / META).exists()


def _dependency_table(local: Path) -> Path | None:
    """The dependency table at a path."""
    if local.is_file() and local.suffix == ".csv":
        return local if DISTINCTIVE.issubset(names_in_header(read_head(local, HEAD_BYTES))) else None
    try:
        return dependency_file(local)
    except InputError:  # It is none, or damaged: its reader reports that.
        return None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    files: list[Path] = []
    for parent, folders, names in os.walk(path, onerror=_refuse_folder):
        refuse_table_folder(Path(parent), folders)
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files += [Path(parent) / name for name in names if not name.startswith((".", "_"))]
    return sorted(file for file in files if file.is_file() and file.stat().st_size)


def _refuse_folder(error: OSError) -> None:
    raise InputError(f"you may not read {error.filename}; ask for permission, or take it out") from error


def read_source(
    source: Source,
    bad: BadRows,
    carried: Mapping[str, pa.DataType] | None = None,
    max_bytes: int | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Iterator[pa.Table]:
    """The dependency log of a source, in batches; `bad` counts what cannot be read.

    `carried`: columns of what the records carry, by their names in `CARRIED`.
    """
    extractor = Extractor(source.preset, bad, carried)
    bad.reads(source.files)
    bad.unit = "row" if source.preset.record_name == "row" else "record"
    if (source.path / TABLE_INFO).is_file():
        bad.executions = read_table_info(source.path).runs
    for number, file in enumerate(source.files):
        limit = max_bytes
        if max_bytes is None and source.preset.reader not in READERS_OF_WHOLE_LOGS:
            limit = streaming_limit(file)
        progress("reading", number, len(source.files))
        before = bad.rows_not_taken
        try:
            records = _records(file, source.preset, bad, limit, bool(carried))
            for table in extractor.batches(records, source.name_of(file)):
                bad.count(file, table.num_rows + bad.rows_not_taken - before)
                yield table
                # Columns that the consumer drops from the table have been counted with it.
                before = bad.rows_not_taken
        except UnicodeError as error:
            raise _not_text(file, error) from error
        bad.count(file, bad.rows_not_taken - before)
        bad.finish(file)


def _records(
    file: Path, preset: Preset, bad: BadRows, max_bytes: int | None, with_text: bool
) -> Iterator[SourceRecord]:
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
        return read_imported(preset.reader, file, bad, max_bytes, with_text, encoding)
    records = read_records(file, bad, encoding, preset.separator, max_bytes)
    return inner_records(records, preset.records, bad, file, with_text)
