"""Files of events into causal order: as a batch, or as a stream of the files that appear in a folder.

Small batches are ordered in this process (`local`), large ones and streams on Spark (`files_on_spark`). Both
give the same rows in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from antecede.causal_order.columns import ColumnError
from antecede.causal_order.event_files import EventFiles, files_of_stream, find_event_files
from antecede.causal_order.local import order_locally
from antecede.causal_order.local_files import estimate_rows, local_bytes
from antecede.causal_order.request import (
    CHECKPOINT,
    OUTCOME,
    HeldRow,
    NeedsSparkError,
    OrderRequest,
    OrderResult,
    Progress,
    has_finished_batch,
)
from antecede.causal_order.rules import RowCounts
from antecede.engine_choice import ORDER, check_engine, wants_spark
from antecede.errors import InputError, MissingExtraError, require
from antecede.trace.bad_rows import BadRows

_UNREADABLE_IN_PATHS = re.compile(r"""[\s%"<>\[\]{}|\\^`?#]""")
"""What Spark's state reader escapes in paths, and then takes for part of the name."""


def order_files(
    path: str,
    out: Path,
    request: OrderRequest,
    engine: str = "auto",
    master: str | None = None,
    progress: Progress = lambda *_: None,
    bad: BadRows | None = None,
) -> OrderResult:
    """Order the existing files, into Parquet below `out`, partitioned by outcome.

    `bad` counts the rows of each file.
    """
    bad = bad or BadRows(path, strict=False)
    request.validate()
    check_engine(engine)
    events = find_event_files(path)
    bad.reads(events.files)
    request.refuse_unused(events.format)
    _refuse_inside(events, out)
    if _is_in_use(out):
        raise InputError(f"{out} is not empty; choose another folder, or clear it")
    with _command_words(path):
        bytes_here = partial(local_bytes, events, request.merges)
        if not wants_spark(engine, master, lambda: estimate_rows(events), ORDER, bytes_here):
            try:
                return _counted(order_locally(events, out, request, progress, bad), bad)
            except NeedsSparkError as reason:
                _require_spark(reason, engine)
        require("antecede.spark", "spark")
        from antecede.causal_order.files_on_spark import order_batch

        return _counted(order_batch(events, out, request, master, progress, bad), bad)


def _counted(result: OrderResult, bad: BadRows) -> OrderResult:
    """Count unreadable rows, unless those of the copied source have already been counted."""
    if not bad.rows_quarantined:
        what = "rows that cannot be read, quarantined"
        bad.add_all(what, result.unreadable_examples, result.unreadable, left_out=False)
    return result


def order_stream_of_files(
    path: str,
    out: Path,
    request: OrderRequest,
    once: bool = False,
    checkpoint: Path | None = None,
    engine: str = "auto",
    master: str | None = None,
    progress: Progress = lambda *_: None,
    bad: BadRows | None = None,
) -> OrderResult:
    """Order the files in a folder and those that appear, until Ctrl-C; with `once`, only the existing files.

    Run again with the same folders, it continues where it stopped. `bad` records which files were read.
    """
    request.validate()
    check_engine(engine)
    if engine == "local":
        raise InputError("--stream needs Spark; leave out --engine local")
    events = find_event_files(path)
    request.refuse_unused(events.format)
    if not events.path.is_dir():
        raise InputError(f"{path} is a file; a stream reads files that appear in a folder")
    _refuse_inside(events, out)
    checkpoint = checkpoint or out / CHECKPOINT
    _refuse_foreign_checkpoint(out, checkpoint)
    require("antecede.spark", "spark")
    from antecede.causal_order.files_on_spark import order_stream

    with _command_words(path):
        result = order_stream(events, out, request, once, checkpoint, master, progress)
    if bad is not None:
        bad.reads(files_of_stream(checkpoint), counted=False)
    return result


def held_by_stream(
    path: Path, limit: int, master: str | None = None, progress: Progress = lambda *_: None
) -> tuple[RowCounts, list[HeldRow]]:
    """The counts of a stream, and the rows it holds, longest first, by its folder or its checkpoint."""
    if not path.is_dir():
        raise InputError(
            f"{path} is not a folder; give the folder that a stream writes to, or its checkpoint"
        )
    checkpoint = path / CHECKPOINT if (path / CHECKPOINT).is_dir() else path
    if not has_finished_batch(checkpoint):
        if any(path.glob(f"{OUTCOME}=*")) and not (path / "_spark_metadata").exists():
            raise InputError(
                f"{path} was not written by a stream; a batch puts held rows in {path}/{OUTCOME}=held"
            )
        raise InputError(
            f"{path} has no checkpoint with a finished batch; give the folder of a stream, or its checkpoint"
        )
    require("antecede.spark", "spark")
    from antecede.causal_order.files_on_spark import inspect_stream

    return inspect_stream(checkpoint, limit, master, progress)


def _require_spark(reason: NeedsSparkError, engine: str) -> None:
    if engine == "local":
        raise InputError(f"{reason}: only Spark orders that; leave out --engine local") from reason
    try:
        require("pyspark", "spark")
    except MissingExtraError as error:
        raise MissingExtraError(f"{reason}: only Spark orders that, and {error}") from reason


@contextmanager
def _command_words(path: str) -> Iterator[None]:
    """Errors name the file, and options of the command, where the functions below name arguments."""
    try:
        yield
    except ColumnError as error:
        raise InputError(f"{path} {error.of_file}") from error
    except InputError as error:
        raise InputError(str(error).replace("pass check=False", "leave out --strict")) from error


def _is_in_use(folder: Path) -> bool:
    """Whether a folder contains anything other than remains of an interrupted job."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; results go into a folder")
    return any(file.name != "_temporary" for file in folder.iterdir())


def _refuse_inside(events: EventFiles, out: Path) -> None:
    """Refuse an output folder inside the input: results must not be read as events."""
    if events.path.is_dir() and out.resolve().is_relative_to(events.path.resolve()):
        raise InputError(
            f"{out} is in {events.path}, so results would be read as events; choose another folder"
        )


def _refuse_foreign_checkpoint(out: Path, checkpoint: Path) -> None:
    """A stream continues only with its own checkpoint: another would lose or repeat rows."""
    if odd := _UNREADABLE_IN_PATHS.search(str(checkpoint.resolve())):
        raise InputError(
            f"{checkpoint}: Spark cannot read the state of a stream where a path has {odd[0]!r} in it; give "
            "another place with --checkpoint"
        )
    begun, written = (checkpoint / "metadata").exists(), (out / "_spark_metadata").exists()
    if has_finished_batch(checkpoint) and not written:
        raise InputError(
            f"{checkpoint} is the checkpoint of a stream that wrote elsewhere than {out}; give its folder, "
            "or another checkpoint"
        )
    if _is_in_use(out) and not begun:
        raise InputError(
            f"{out} is not empty, and {checkpoint} is not the checkpoint of a stream that wrote it; choose "
            "another folder, or give its checkpoint"
        )
