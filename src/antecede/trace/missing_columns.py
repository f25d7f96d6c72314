"""The error for a table that lacks columns of a trace: the --map option to use, or another command."""

from __future__ import annotations

from collections.abc import Sequence

from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.schema import REQUIRED

_LIKELY = {
    "process": ("process", "host", "proc", "peer", "member", "replica", "service", "actor", "who", "node"),
    "kind": ("kind", "type", "event", "event_type", "action", "what", "op"),
    "message": ("message", "msg", "message_id", "msg_id", "msgid", "mid", "id"),
    "index": ("index", "idx", "position", "n"),
}
"""Names that other programs use for our columns, likeliest first."""
_IDS = ("id", "event_id", "node", "commit", "uuid", "key", "hash")
_PARENTS = (
    *("parents", "parent", "parent_id", "deps", "dependencies", "depends_on", "causes", "cause", "follows"),
    *("after", "answers", "in_reply_to", "reply_to", "prev", "previous"),
)
_OTHERS = (
    "audit, graph, advise and order recognise other formats, or have them named with --preset (antecede "
    "sources lists them)"
)


def missing_columns(names: Sequence[str], where: str) -> InputError:
    """Why a table with these columns is not a trace, and what to do."""
    if {"node", "parents"} <= {*names} and "kind" not in names:
        return InputError(
            f"{where} says what depends on what, but not who delivered what and in which order, so no "
            "delivery can be judged; antecede graph shows what it does say"
        )
    if "run" in names or {"origin", "seq"} <= {*names}:
        missing = [name for name in REQUIRED if name not in names]
        columns = "column" if len(missing) == 1 else "columns"
        return InputError(
            f"{where} has no {columns} {', '.join(missing)}; a trace needs {', '.join(REQUIRED)}, or --map "
            f"for columns with other names; {_OTHERS}"
        )
    has = f"{where} has the {'column' if len(names) == 1 else 'columns'} {brief(', '.join(names))}"
    row, parents = _first(_IDS, names), _first(_PARENTS, names)
    if row and parents and _first(_LIKELY["kind"], names) is None:
        return InputError(
            f"{has}, and none that says which rows are sends and deliveries. If {parents} names what a row "
            f"depends on, antecede order --id {row} --deps {parents} puts them in order, and antecede "
            f"graph --map node={row},process=…,parents={parents} shows the dependencies; {_OTHERS}"
        )
    found = {ours: _first(likely, names) for ours, likely in _LIKELY.items()}
    shown = [
        f"{ours}={theirs or '…'}"
        for ours, theirs in found.items()
        if theirs != ours and (theirs is not None or ours != "index")
    ]
    return InputError(
        f"{has}; say with --map which of them are the process, the kind (send or deliver) and the message's "
        f"id, as in --map {','.join(shown) or 'message=message'}; {_OTHERS}"
    )


def _first(likely: Sequence[str], names: Sequence[str]) -> str | None:
    """The likeliest of these names that exists, in the table's own spelling."""
    spelled = {name.lower(): name for name in reversed(names)}
    return next((spelled[name] for name in likely if name in spelled), None)
