"""antecede explore: a page on which a run can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Columns, Json, MaxBytes, RunName, RunPerFile, Strict, folder
from antecede.cli.source_input import trace_at
from antecede.errors import InputError, require
from antecede.temporary_folders import temporary_folder
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.explore.index import Written
    from antecede.trace.bad_rows import BadRows


def explore(
    trace: Annotated[
        str,
        typer.Argument(help="A trace as for audit, up to tens of millions of rows; or the output of --out."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder,
            metavar="PAGE.html|FOLDER",
            help="Write the explorer instead of serving it: one page that needs no server, for up to about a "
            "million events, or a folder for any server of files.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port on this machine; by default any that is free.")
    ] = 0,
    columns: Columns = None,
    run_per_file: RunPerFile = False,
    strict: Strict = False,
    run: RunName = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Explore a run in the browser: lanes, arrows, violations, the causal past and future of any message.

    The page is served to this machine alone until Ctrl-C, or written with --out; it loads nothing from
    elsewhere. The page Looking at a run of the documentation has pictures.
    """
    require("antecede.trace", "sim")
    from antecede.explore.page import is_complete, write, write_folder
    from antecede.trace.bad_rows import BadRows

    if out is None and is_complete(Path(trace)):
        _serve(Path(trace), port)
        return
    named = Path(trace).name or trace
    trace = trace_at(trace, columns, max_bytes)
    bad = BadRows(trace, strict)
    if out is not None:
        with _readable(trace, columns, bad, run_per_file) as (ours, progress):
            written = write(ours, named, run, out, progress)
        _print_written(written, out, bad, as_json)
        return
    if as_json:
        raise InputError("--json is for --out; without it the explorer is served and nothing is written")
    with temporary_folder("explore") as place:
        served = place / "explorer"
        with _readable(trace, columns, bad, run_per_file) as (ours, progress):
            written = write_folder(ours, named, run, served, progress)
        _print_written(written, None, bad, as_json)
        _serve(served, port)


@contextmanager
def _readable(
    trace: str, columns: list[str] | None, bad: BadRows, run_per_file: bool
) -> Iterator[tuple[Path, Callable[[str, int, int], None]]]:
    from antecede.trace.foreign.mapped_trace import mapped_trace

    with (
        show.progress() as progress,
        mapped_trace(trace, columns or [], progress, bad, run_per_file) as ours,
    ):
        yield Path(ours), progress


def _print_written(written: Written, out: Path | None, bad: BadRows, as_json: bool) -> None:
    if as_json:
        read = {"bad_rows": bad.rows, "bad": bad.kinds, "notes": bad.notes}
        show.json({"out": str(out), **written._asdict(), **read})
        return
    show.bad_rows(bad.kinds)
    show.notes(bad.notes)
    show.line(
        f"{count_of(written.messages, 'message')}, {written.deliveries:,} "
        f"deliver{'y' if written.deliveries == 1 else 'ies'} at {count_of(written.lanes, 'process')}: "
        + (written.note or (count_of(written.faults, "violation") if written.faults else "no violation"))
    )
    if out is not None:
        show.line(f"Explorer: {out}")


def _serve(place: Path, port: int) -> None:
    from antecede.explore.server import open_server

    server, address = open_server(place, port)
    show.line(f"Open {address} (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass  # the usual end
    finally:
        server.server_close()
