"""antecede console: a page on which a live group is watched."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from antecede.cli import show
from antecede.errors import InputError

if TYPE_CHECKING:
    from antecede.console.sources import MemberSource

ConsoleFlag = Annotated[
    bool, typer.Option("--console", help="Serve a page to this machine that shows the state of the group.")
]


def console(
    config: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[CONFIG]…",
            help="The TOML files of members that run on this machine. They are asked through their stores, "
            "so nothing has to be set up.",
        ),
    ] = None,
    connect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A member elsewhere, by its setting metrics; it needs a console_token. May be repeated.",
        ),
    ] = None,
    token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For --connect: the file that console_token names.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port on this machine; by default any that is free.")
    ] = 0,
) -> None:
    """Watch a live group in the browser: its members, held messages and their missing causes, changes.

    Example: antecede console ana.toml bo.toml; antecede console --connect 127.0.0.1:9100 --token token

    One member is enough to see the group as that one sees it; with all of them the page knows who has what.
    The page is served to this machine alone until Ctrl-C, behind a token in the address that is printed. It
    shows the names of members and messages, and no bodies. antecede node, cluster and simulate have
    --console too. The page on the console in the documentation has pictures.
    """
    sources = [*map(_of_config, config or []), *_connected(connect or [], token)]
    if not sources:
        raise typer.BadParameter("name the CONFIG file of a member, or --connect HOST:PORT")
    with contextlib.suppress(KeyboardInterrupt), serving(lambda: sources, port):
        wait_for_interrupt()


@contextmanager
def serving(
    find_sources: Callable[[], list[MemberSource]],
    port: int = 0,
    hides_silent: bool = False,
    clock: Callable[[], float] = time.time,
) -> Iterator[None]:
    """Serve the console, and print its address."""
    from antecede.console.server import console as serve

    with serve(find_sources, port, hides_silent, clock) as address:
        show.err.print(f"Open {address}", markup=False, soft_wrap=True)
        yield


def wait_for_interrupt() -> NoReturn:
    """Wait for Ctrl-C by polling: a signal delivered to another thread does not wake this one."""
    never = threading.Event()
    while True:
        never.wait(1.0)


def _of_config(config: Path) -> MemberSource:
    from antecede.console.sources import HttpSource, StoreSource
    from antecede.live.operations.metrics import read_token
    from antecede.live.settings import Settings, address

    settings = Settings.load(config)
    name = f"{settings.me} ({config})"
    if settings.store is not None:
        return StoreSource(settings.store, name)
    if settings.metrics is not None and settings.console_token is not None:
        return HttpSource(*address(settings.metrics, "metrics"), read_token(settings.console_token))
    raise InputError(f"{config}: it names no store, nor metrics and a console_token, so it cannot be asked")


def _connected(connect: list[str], token: Path | None) -> list[MemberSource]:
    from antecede.console.sources import HttpSource
    from antecede.live.operations.metrics import read_token
    from antecede.live.settings import address

    if not connect:
        return []
    if token is None:
        raise typer.BadParameter(
            "--connect needs --token FILE, the file that the member's console_token names"
        )
    shown = read_token(str(token))
    return [HttpSource(*address(each, "--connect"), shown) for each in connect]


def stores_below(folder: Path, pattern: str) -> list[MemberSource]:
    """The members of a trial, by their stores; new ones appear while it runs."""
    from antecede.console.sources import StoreSource

    return [
        StoreSource(str(each.parent), str(each.parent)) for each in sorted(folder.glob(f"{pattern}/control"))
    ]
