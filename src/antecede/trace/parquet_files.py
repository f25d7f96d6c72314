"""Opens Parquet files: written for their owner only, with a checksum per page, which every reader verifies.

Traces and tables name people and hold what they sent, so other users of the machine must not read them,
whatever the umask is. A checksum (CRC-32 of each page, as the Parquet format defines it) costs nothing to
speak of and turns a flipped bit in the data into an error. Files without checksums are read as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antecede.durability import create_private
from antecede.errors import InputError


def parquet_writer(path: Path, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    """A writer of a new file, or over an old one."""
    create_private(path)
    return pq.ParquetWriter(path, schema, **{"compression": "zstd", "write_page_checksum": True, **options})


def write_parquet(table: pa.Table, path: Path, row_group_size: int | None = None) -> None:
    """Write a whole table."""
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size)


_MAX_RATIO = 1000
_ANY_RATIO_BYTES = 64 << 20
_MAX_TEXT = 1 << 30


def refuse_oversized(opened: pq.ParquetFile, path: Path) -> None:
    """Refuse a file whose pages, by its footer, are far larger than the file.

    A footer that lies gets past this; then a page may still take 2 GiB, the most that the format allows.
    """
    size, footer = path.stat().st_size, opened.metadata
    # The sizes of single columns are not checked: where these are damaged, Arrow ends the whole process.
    declared = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    if declared > max(_ANY_RATIO_BYTES, _MAX_RATIO * size):
        raise InputError(
            f"{path} has {size:,} bytes and would decompress to {declared:,}; such a Parquet file is not read"
        )


def text_columns_of(opened: pq.ParquetFile) -> list[str]:
    """The columns of text, which are best read as dictionaries, so that a long name is stored once."""
    return [
        field.name
        for field in opened.schema_arrow
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]


def refuse_long_text(batch: pa.RecordBatch, path: Path) -> None:
    """Refuse dictionaries of text that would fill the memory once each row has its own copy."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_dictionary(column.type) and len(column.dictionary):
            lengths = pc.binary_length(column.dictionary)
            longest = pc.max(lengths).as_py() or 0
            if longest * len(column) > _MAX_TEXT and pc.sum(lengths.take(column.indices)).as_py() > _MAX_TEXT:
                raise InputError(
                    f"{path}, column {name}: {len(column):,} rows of it have more than {_MAX_TEXT:,} bytes "
                    f"of text, the longest {longest:,}; names are shorter"
                )


def parquet_file(path: Path, read_dictionary: Sequence[str] | None = None) -> pq.ParquetFile:
    """An open file; Arrow's own errors say what is wrong with it."""
    return pq.ParquetFile(path, read_dictionary=read_dictionary, page_checksum_verification=True)
