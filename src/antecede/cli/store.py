"""antecede store: whether a member's store is intact, and what is in it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from antecede.cli import show
from antecede.cli.options import Json
from antecede.errors import InputError
from antecede.terminal import printable_json

if TYPE_CHECKING:
    from antecede.live.store.inspection import StoredMessage, StoreInspection

_SHOWN = 5
"""Messages of each kind that `show` prints."""


class StoreAction(StrEnum):
    """What is done with a store."""

    CHECK = "check"
    SHOW = "show"


def store(
    action: Annotated[
        StoreAction, typer.Argument(help="check: verify every record. show: print the contents.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The store of a member, a folder.")],
    messages: Annotated[
        bool, typer.Option("--messages", help="With show: print the messages as JSON lines.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="NAME:SEQ", help="With --messages: only those of NAME after SEQ.")
    ] = None,
    json: Json = False,
) -> None:
    """Check a member's store, or show its contents. This changes nothing, and the member may be running.

    Example: antecede store check ana-store; antecede store show ana-store --messages > messages.jsonl

    Exit codes of check: 0 intact, 1 damaged, 2 not a store. A store no longer has the messages that are
    known to be delivered everywhere.
    """
    from antecede.live.store.disk import FileDisk
    from antecede.live.store.inspection import StoreInspection

    if after is not None and not messages:
        raise typer.BadParameter("--after is for --messages")
    found = StoreInspection(FileDisk(path))
    if action is StoreAction.CHECK:
        _check(found, json)
    elif messages:
        _export(found, after)
    else:
        _show(found, json)


def _check(found: StoreInspection, as_json: bool) -> None:
    core = found.core()
    report = _summary(found)
    if as_json:
        show.json(report)
    elif not found.damages:
        noun = "record" if report["records"] == 1 else "records"
        show.line(
            f"{found.path}: intact; {report['records']:,} {noun}, {report['bytes']:,} bytes"
            + ("; the last write was interrupted, and was not acknowledged" if report["torn"] else "")
        )
    else:
        for damage in found.damages:
            where = f"record {damage.record}: " if damage.record else ""
            show.line(f"{found.path / damage.file}: {where}{damage.text}")
        accepted = len(list(found.accepted()))
        restored = "the member's state" if core is not None else "no state"
        show.line(
            f"{restored} and {accepted:,} messages that were accepted here can be saved: "
            f"antecede store show {found.path} --messages"
        )
    if found.damages:
        raise typer.Exit(1)


def _summary(found: StoreInspection) -> dict[str, Any]:
    contents = found.contents
    report: dict[str, Any] = {
        "path": str(found.path),
        "intact": not found.damages,
        "damages": [msgspec.to_builtins(damage) for damage in found.damages],
    }
    if contents is None:
        return {**report, "records": 0, "bytes": 0, "torn": False, "unverified": len(found.unverified)}
    return {
        **report,
        "records": 1 + len(contents.commits),
        "records_after_damage": len(contents.beyond),
        "bytes": found.size,
        "torn": contents.is_torn and not found.damages,
        "store": contents.checkpoint.store,
        **contents.checkpoint.identity,
    }


def _show(found: StoreInspection, as_json: bool) -> None:
    core = found.core()
    report = _summary(found)
    accepted = list(found.accepted())
    unacked: list[StoredMessage] = []
    if core is not None:
        report |= {
            "broadcast": core.broadcasts,
            "delivered": core.application.delivered,
            "acked": core.application.acked,
            "attempts": found.cursor.attempts,
            "unstable_bytes": found.unstable_bytes(core),
        }
        unacked = found.unacked(core)
    held = [message for message in unacked if message.held]
    unacked = [message for message in unacked if message.unacked]
    report |= {"accepted": len(accepted), "unacked": len(unacked)}
    if found.is_changing:
        report["held"] = len(held)
    if as_json:
        show.json(report)
        return
    for name, value in report.items():
        if name not in ("path", "damages"):
            text = ", ".join(value) if isinstance(value, list) else str(value)
            show.line(f"{name.replace('_', ' ')}: {text}")
    for damage in found.damages:
        show.line(f"{found.path / damage.file}: {damage.text}")
    shown = (
        ("accepted here, the last ones", accepted[-_SHOWN:]),
        ("unacknowledged, the next ones", unacked[:_SHOWN]),
        ("held for a cause, the first ones", held[:_SHOWN]),
    )
    for title, last in shown:
        if last:
            show.line(f"{title}:")
        for message in last:
            show.line(f"  {message.origin}:{message.seq}  {message.body!r}")


def _export(found: StoreInspection, after: str | None) -> None:
    core = found.core()
    messages = [*found.accepted(), *(found.unacked(core) if core is not None else ())]
    name, seq = _parse_id(after) if after is not None else ("", 0)
    for message in messages:
        if after is None or (message.origin == name and (message.seq is None or message.seq > seq)):
            print(printable_json(msgspec.json.encode(message).decode()))


def _parse_id(text: str) -> tuple[str, int]:
    name, _, seq = text.rpartition(":")
    if not name or not seq.isascii() or not seq.isdigit():
        raise InputError(f"--after: '{text}' is not the id of a message; write NAME:SEQ, such as ana:17")
    return name, int(seq)
