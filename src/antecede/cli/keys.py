"""antecede keys: a small certificate authority for one group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from antecede.cli import show
from antecede.errors import require


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """Whom keys are made for."""

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
    days: Annotated[float, typer.Option(help="Days until certificates and tokens expire.")] = 365.0

    @property
    def certified(self) -> list[str]:
        """Members that get a certificate."""
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
        if self.days <= 0:
            raise typer.BadParameter(f"--days {self.days:g}: the keys would have expired already")
        for name in [*self.certified, *(self.phone or [])]:
            validate_name(name)

    def hosts(self) -> dict[str, list[str]]:
        """Host names by super peer."""
        hosts: dict[str, list[str]] = {}
        for option in self.host or []:
            name, equals, host = option.partition("=")
            if not equals or name not in self.certified:
                raise typer.BadParameter(f"--host {option}: write NAME=HOST with the name of a member")
            hosts.setdefault(name, []).append(host)
        return hosts


def keys(
    options: KeyOptions,
    secret: Annotated[
        bool, typer.Option("--secret", help="Instead, write one shared secret to the file FOLDER.")
    ] = False,
) -> None:
    """Create keys for a group: encrypted links between authenticated members.

    Example: antecede keys keys ana bo --super sue --phone phone; ana then sets keys = "keys/ana".

    Give each member only its own folder, and keep authority.key yourself.

    A repeated call adds members. It renews tokens and leaves certificates unchanged.
    """
    security = require("antecede.live.security.keys", "live")
    target = options.folder
    if secret:
        if options.certified or options.phone or options.host:
            raise typer.BadParameter("--secret makes one file for all members; it takes no names")
        security.new_secret(target)
        show.out.print(f'a shared secret is in {target}; give it to every member: secret = "{target}"')
        return
    options.check()
    phones, super_peers = options.phone or [], options.super_ or []
    created = security.make_keys(
        target, options.group, options.certified, phones, options.days, options.hosts(), super_peers
    )
    for folder in created:
        kind = "token" if (folder / "token").exists() else "certificate"
        show.out.print(f'{folder.name}: {kind}; keys = "{folder}"', soft_wrap=True)
    for name in options.certified:
        if target / name not in created:
            line = f"{name}: its certificate is unchanged; for a new one, remove {target / name} first"
            show.out.print(line, soft_wrap=True)
