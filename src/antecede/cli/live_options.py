"""The options of a live member, shared by antecede node and antecede chat."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from antecede.live.settings import Settings

_DEFAULT_GROUP = "room"


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """How a member takes part in a group: a configuration file, and options that override it."""

    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]",
            help="A TOML file with these settings and more; see Live groups in the documentation.",
        ),
    ] = None
    group: Annotated[str | None, typer.Option("--group", help="The group's name.")] = None
    me: Annotated[str | None, typer.Option(help="This member's name.")] = None
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another member, as bo@host:7000, sue@ws://host:8000 or 'phone behind sue'. "
            "Repeat for every other member."
        ),
    ] = None
    founder: Annotated[
        list[str] | None,
        typer.Option(
            help="A first member of a group whose members come and go, as bo@host:7000. "
            "Repeat for all of them, including this one."
        ),
    ] = None
    contact: Annotated[
        list[str] | None,
        typer.Option(
            help="A member of such a group, as ana@host:7000, to ask for admission. May be repeated."
        ),
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(help="mbcp for a mesh, freescale with super peers, vcube-agg, flooding, pc …"),
    ] = None
    behind: Annotated[str | None, typer.Option(help="The super peer that this member connects to.")] = None
    listen: Annotated[
        str | None, typer.Option(help="host:port to accept members on; :port for this machine only.")
    ] = None
    advertise: Annotated[
        str | None,
        typer.Option(help="host:port at which other members reach this one, if it differs from --listen."),
    ] = None
    web: Annotated[str | None, typer.Option(help="host:port to accept WebSockets on, at a super peer.")] = (
        None
    )
    store: Annotated[
        str | None,
        typer.Option(help="Folder for accepted messages; without it a member cannot be restarted."),
    ] = None
    keys: Annotated[str | None, typer.Option(help="This member's folder of keys, from antecede keys.")] = None
    secret: Annotated[
        str | None, typer.Option(help="File with a shared secret, from antecede keys --secret.")
    ] = None
    trace: Annotated[
        str | None, typer.Option(help="Folder for a trace of this member, for antecede audit.")
    ] = None

    def settings(self, **more: Any) -> Settings:
        """The configuration file's settings, if there is one, overridden by the options that are set."""
        import msgspec

        from antecede.live.settings import Settings

        options = asdict(self) | more
        config = options.pop("config")
        options["peers"], options["founders"] = options.pop("peer"), options.pop("founder")
        options = {name: value for name, value in options.items() if value not in (None, [])}
        if config is not None:
            loaded = Settings.load(config)
            return Settings.create(**{**msgspec.structs.asdict(loaded), **options}) if options else loaded
        if "me" not in options:
            raise typer.BadParameter("give a CONFIG file, or --group, --me and --peer")
        return Settings.create(**{"group": _DEFAULT_GROUP, **options})
