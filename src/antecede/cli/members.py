"""antecede members: who is in a running group that changes, and how that is changed."""

from __future__ import annotations

import asyncio
import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antecede.cli import show
from antecede.cli.options import Json
from antecede.errors import InputError
from antecede.terminal import printable

if TYPE_CHECKING:
    from antecede.live.settings import Settings


class MembersAction(StrEnum):
    """The operation on the members."""

    LIST = "list"
    ADD = "add"
    REMOVE = "remove"
    LEAVE = "leave"


def members(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The TOML file of a member that runs on this machine.")
    ],
    action: Annotated[
        MembersAction,
        typer.Argument(
            help="list: show all members. add: print settings for a new one. remove: remove one "
            "that is gone. leave: let this member leave."
        ),
    ] = MembersAction.LIST,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The member to add or remove: a name or a label.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the members of a group that changes, prepare a new one, remove one, or let this one leave.

    Example: antecede members ana.toml; antecede members ana.toml remove bo

    The command asks the running member, through a socket in its store that only its owner can open. A
    removed member that is still alive returns by itself; to keep it out, revoke its keys.
    """
    from antecede.live.operations.control import ControlRequest, ask
    from antecede.live.settings import Settings

    settings = Settings.load(config)
    if settings.store is None:
        raise InputError(f"{config}: it names no store, and a member is asked through its store")
    if (name is None) != (action in (MembersAction.LIST, MembersAction.LEAVE)):
        raise typer.BadParameter("add and remove need a NAME; list and leave take none")
    if action is MembersAction.LEAVE:
        _leave(settings.store, as_json)
        return
    request = (
        ControlRequest("remove", name or "") if action is MembersAction.REMOVE else ControlRequest("list")
    )
    # A member of an earlier release does not report its protocol.
    reply = {"protocol": settings.protocol} | asyncio.run(ask(settings.store, request))
    if not reply["members"] and not as_json:
        raise InputError(
            f"{reply['me']} is not in the group yet: it waits for others, and its log says for whom"
        )
    if action is MembersAction.ADD:
        print(_settings_for(name or "", settings, reply), end="")
    elif as_json:
        show.json(reply)
    else:
        _print(reply)


def _leave(store: str, as_json: bool) -> None:
    from antecede.live.operations.control import ControlRequest, ask

    there = asyncio.run(ask(store, ControlRequest("list")))
    who = printable(f"{there['me']} of {there['group']}")
    show.err.print(
        f"{who} leaves when every member has all its messages; Ctrl-C ends only this command", markup=False
    )
    asyncio.run(ask(store, ControlRequest("leave"), seconds=None))
    if as_json:
        show.json({"group": there["group"], "left": there["me"]})
    else:
        show.line(f"{who} has left")


def _print(reply: dict[str, Any]) -> None:
    rows = [
        [each["label"], each["at"] or "-", _state(each, reply["me"]), _ago(each["since"])]
        for each in sorted(reply["members"], key=lambda each: str(each["label"]))
    ]
    title = f"{reply['group']} ({reply['protocol']}), as {reply['me']} sees it"
    show.table(title, ["member", "at", "state", "member for"], rows, left=4)
    for label in reply["removing"]:
        show.line(f"{label} is being removed")


def _state(member: dict[str, Any], me: str) -> str:
    if member["label"] == me:
        return "this one"
    if member["suspected"] is not None:
        return f"not heard for {_ago(member['suspected'])}"
    return "connected" if member["connected"] else "not connected"


def _ago(since: float | None) -> str:
    if since is None:
        return "the whole time"
    seconds = max(0, int(time.time() - since))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _settings_for(name: str, settings: Settings, reply: dict[str, Any]) -> str:
    """A TOML file for a newcomer. Admission depends on its certificate or the secret, not on this file."""
    from antecede.live.settings import Settings, validate_name

    validate_name(name)
    if "~" in name:
        raise InputError(f"'{name}' is not a name: ~ separates a name from its incarnation")
    if any(each["name"] == name for each in reply["members"]):
        raise InputError(f"{name} is a member already")
    contacts = [f"{each['name']}@{each['at']}" for each in reply["members"] if each["at"]]
    if not contacts:
        raise InputError("no member listens, so none could be asked for admission")
    values: dict[str, Any] = {"group": settings.group, "me": name, "contact": contacts}
    if reply["protocol"] != Settings(group="", me="").protocol:
        values["protocol"] = reply["protocol"]
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    lines.append(f"store = {json.dumps(f'{name}-store')}")
    lines.append('# listen = "HOST:7000"    # where the others reach it, if they are to call it')
    lines.append('# metrics = "127.0.0.1:9100"    # for Prometheus')
    if settings.keys is not None:
        lines.append(
            f"keys = {json.dumps(f'keys/{name}')}    # antecede keys keys {name} --group {settings.group}"
        )
    elif settings.secret is not None:
        lines.append('secret = "secret"    # a copy of the file that all members have')
    elif settings.insecure:
        lines.append("insecure = true")
    return "\n".join(lines) + "\n"
