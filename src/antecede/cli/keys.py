"""antecede keys: a small certificate authority for one group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from antecede.cli import show
from antecede.errors import require

_MAX_DAYS = 825
"""Apple's limit for certificates of a private authority; Chromium and Firefox have none for those."""


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """The members for which keys are made."""

    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the keys of all members.")]
    servers: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Members that get a certificate.")
    ] = None
    group: Annotated[str, typer.Option("--group", help="The only group that the keys are valid for.")] = (
        "room"
    )
    super_: Annotated[
        list[str] | None,
        typer.Option("--super", help="A super peer: gets a certificate and checks tokens. May be repeated."),
    ] = None
    phone: Annotated[
        list[str] | None,
        typer.Option(help="A member behind a super peer: gets a token. May be repeated."),
    ] = None
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST", help="A super peer's host name for browsers. May be repeated."),
    ] = None
    days: Annotated[float, typer.Option(help="Days until certificates and tokens expire; 825 at most.")] = (
        365.0
    )

    @property
    def certified(self) -> list[str]:
        """The members that get a certificate."""
        return [*(self.servers or []), *(self.super_ or [])]

    def check(self) -> None:
        """Raise if these keys cannot be made."""
        from antecede.live.settings import validate_name

        if not (self.certified or self.phone):
            raise typer.BadParameter(
                "name the members that get a certificate, as in: antecede keys keys ana bo"
            )
        if self.phone and not self.super_ and not list(self.folder.glob("*/token.key")):
            raise typer.BadParameter("--phone: name its super peer with --super")
        self.check_days()
        for name in [*self.certified, *(self.phone or [])]:
            validate_name(name)

    def check_days(self) -> None:
        """Raise if such certificates would not be accepted."""
        if self.days <= 0:
            raise typer.BadParameter(f"--days {self.days:g}: the keys would have expired already")
        if not self.days <= _MAX_DAYS:
            raise typer.BadParameter(
                f"--days {self.days:g}: browsers refuse certificates that are valid for over {_MAX_DAYS} days"
            )

    def hosts(self) -> dict[str, list[str]]:
        """Host names by super peer."""
        hosts: dict[str, list[str]] = {}
        for option in self.host or []:
            name, equals, host = option.partition("=")
            if not equals or not host or name not in self.certified:
                raise typer.BadParameter(f"--host {option}: write NAME=HOST with the name of a member")
            hosts.setdefault(name, []).append(host)
        return hosts


@dataclass(frozen=True, kw_only=True)
class KeyChanges:
    """What to do instead of adding members."""

    secret: Annotated[
        bool, typer.Option("--secret", help="Write one shared secret to the file FOLDER instead.")
    ] = False
    renew: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Reissue this member's certificates and token. If its name was revoked, it gets "
            "new keys too, and its old ones stay revoked. May be repeated.",
        ),
    ] = None
    revoke: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Add a name, a certificate's serial number or a token's id to the file `revoked` of every "
            "member; FOLDER/issued lists them. May be repeated.",
        ),
    ] = None


def keys(options: KeyOptions, changes: KeyChanges) -> None:
    """Create keys for a group, for encrypted links between authenticated members.

    Example: antecede keys keys ana bo --super sue --phone phone; ana then sets keys = "keys/ana".

    Give each member only its own folder, and keep authority.key yourself.

    A repeated call adds members and leaves existing files unchanged; --renew issues new certificates,
    --revoke revokes them.
    """
    security = require("antecede.live.security.keys", "live")
    target = options.folder
    names = options.certified or options.phone or options.host
    if sum(map(bool, (changes.secret, changes.renew, changes.revoke, names))) > 1:
        raise typer.BadParameter(
            "give names of members, --secret, --renew or --revoke: each is a call of its own"
        )
    if changes.secret:
        security.new_secret(target)
        show.line(f'a shared secret is in {target}; give it to every member: secret = "{target}"')
    elif changes.renew:
        options.check_days()
        for name in changes.renew:
            security.renew(target, name, options.days)
            show.line(f"{name}: renewed; copy {target / name} to this member")
    elif changes.revoke:
        for entry in changes.revoke:
            files = security.revoke(target, entry)
        show.line(
            f"{', '.join(changes.revoke)}: revoked in {files[0]}; copy this into every member's folder of "
            "keys, where a running member notices it"
        )
    else:
        _add_members(security, options)


def _add_members(security: ModuleType, options: KeyOptions) -> None:
    options.check()
    target, phones, super_peers = options.folder, options.phone or [], options.super_ or []
    created = security.make_keys(
        target, options.group, options.certified, phones, options.days, options.hosts(), super_peers
    )
    for folder in created:
        kind = "token" if (folder / "token").exists() else "certificate"
        show.line(f'{folder.name}: {kind}; keys = "{folder}"')
    for name in [*options.certified, *phones]:
        if target / name not in created:
            line = f"{name}: its keys are unchanged; for new ones: antecede keys {target} --renew {name}"
            show.line(line)
