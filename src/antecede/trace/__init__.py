"""Traces on disk: the event schema, its validator, its reader and its writer.

    from antecede.trace import explain_message, read_trace
    table = read_trace("trace/")                      # validated rows as a pyarrow.Table
    explain_message("trace/", "ana:3").deliveries     # where a message was held, for how long and for what

- `schema`: the columns, and `Meta`, the contents of a trace folder's `meta.json`
- `validate`: what a valid row is, and how an invalid one is reported
- `reader`, `writer`: Parquet, JSON lines and CSV in; Parquet out
- `execution_from_rows`: the execution that the oracle judges
- `explain`: what waited where, for how long and for what
- `dependencies`: tables of dependencies without deliveries
- `foreign`: logs and tables of other programs

Names are imported when they are first used, and Arrow with them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from antecede.errors import require
from antecede.lazy_names import lazy_names

if find_spec("pyarrow") is None:
    require("pyarrow", "sim")

if TYPE_CHECKING:
    from antecede.trace.explain import Explanation, RunEvents, Wait, explain_message
    from antecede.trace.reader import read_batches, read_metas, read_run, read_trace, trace_files
    from antecede.trace.schema import FIELDS, KINDS, REQUIRED, SCHEMA, VERSION, Meta
    from antecede.trace.validate import check_run
    from antecede.trace.writer import TraceWriter

__all__ = [
    "FIELDS",
    "KINDS",
    "REQUIRED",
    "SCHEMA",
    "VERSION",
    "Explanation",
    "Meta",
    "RunEvents",
    "TraceWriter",
    "Wait",
    "check_run",
    "explain_message",
    "read_batches",
    "read_metas",
    "read_run",
    "read_trace",
    "trace_files",
]

_MODULES = {
    **dict.fromkeys(("FIELDS", "KINDS", "REQUIRED", "SCHEMA", "VERSION", "Meta"), "antecede.trace.schema"),
    **dict.fromkeys(("Explanation", "RunEvents", "Wait", "explain_message"), "antecede.trace.explain"),
    **dict.fromkeys(
        ("read_batches", "read_metas", "read_run", "read_trace", "trace_files"), "antecede.trace.reader"
    ),
    "TraceWriter": "antecede.trace.writer",
    "check_run": "antecede.trace.validate",
}

if not TYPE_CHECKING:  # a type checker must refuse names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
