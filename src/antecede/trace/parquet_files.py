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
import pyarrow.parquet as pq

from antecede.durability import create_private


def parquet_writer(path: Path, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    """A writer of a new file, or over an old one."""
    create_private(path)
    return pq.ParquetWriter(path, schema, **{"compression": "zstd", "write_page_checksum": True, **options})


def write_parquet(table: pa.Table, path: Path, row_group_size: int | None = None) -> None:
    """Write a whole table."""
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size)


def parquet_file(path: Path, read_dictionary: Sequence[str] | None = None) -> pq.ParquetFile:
    """An open file; Arrow's own errors say what is wrong with it."""
    return pq.ParquetFile(path, read_dictionary=read_dictionary, page_checksum_verification=True)
