"""antecede node, chat and cluster: live groups from the command line."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Json, folder
from antecede.errors import InputError, require
from antecede.live.settings import check_name
from antecede.units import SECOND, duration, span

if TYPE_CHECKING:
    from antecede.live.settings import Settings
    from antecede.live.trial.cluster import Outcome, Plan

Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="[CONFIG]", help="A TOML file with these settings and others, as keys; see docs/live.md."
    ),
]
GroupName = Annotated[str | None, typer.Option("--group", help="The group's name.")]
Me = Annotated[str | None, typer.Option(help="This member's name.")]
Peer = Annotated[
    list[str] | None,
    typer.Option(
        help="Another member, as bo@host:7000, as sue@ws://host:8000 or as 'phone behind sue'. "
        "May be repeated; every member is named."
    ),
]
Protocol = Annotated[
    str | None, typer.Option(help="mbcp for a mesh, freescale with super peers, vcube-agg, flooding, pc …")
]
Behind = Annotated[str | None, typer.Option(help="The super peer that this member is behind.")]
Listen = Annotated[
    str | None, typer.Option(help="host:port for those who call; :port for this machine only.")
]
Web = Annotated[str | None, typer.Option(help="The same for WebSockets, at a super peer.")]
Store = Annotated[
    str | None,
    typer.Option(help="The file that keeps what was accepted; without it a member cannot come back."),
]
Keys = Annotated[str | None, typer.Option(help="This member's folder of keys, as antecede keys makes it.")]
Secret = Annotated[
    str | None, typer.Option(help="The file of a shared key, as antecede keys --secret makes it.")
]
Trace = Annotated[str | None, typer.Option(help="A folder for a trace of what happens, for antecede audit.")]


def _settings(config: Path | None, **given: object) -> Settings:
    from antecede.live.settings import Settings

    named = {name: value for name, value in given.items() if value not in (None, [])}
    if config is None:
        if "me" not in named:
            raise typer.BadParameter("give a CONFIG file, or --group, --me and --peer")
        return Settings.of(**{"group": "room", **named})
    if named:
        import msgspec

        return Settings.of(**{**msgspec.structs.asdict(Settings.load(config)), **named})
    return Settings.load(config)


def node(
    config: Config = None,
    group: GroupName = None,
    me: Me = None,
    peer: Peer = None,
    protocol: Protocol = None,
    behind: Behind = None,
    listen: Listen = None,
    web: Web = None,
    store: Store = None,
    keys: Keys = None,
    secret: Secret = None,
    trace: Trace = None,
    metrics: Annotated[
        str | None, typer.Option(help="host:port for Prometheus: /metrics, and /health.")
    ] = None,
    say: Annotated[
        bool, typer.Option("--say", help="Send each line of standard input as a message.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: messages, and the log.")] = False,
    log: Annotated[bool, typer.Option("--log/--no-log", help="Tell on standard error what links do.")] = True,
) -> None:
    """Be a member of a live group: print what is delivered, until Ctrl-C.

    A super peer that serves phones and says nothing itself is such a node.
    """
    from antecede.cli.live_node import Lines, run

    settings = _settings(
        config, group=group, me=me, peers=peer, protocol=protocol, behind=behind, listen=listen, web=web,
        store=store, keys=keys, secret=secret, trace=trace, metrics=metrics,
    )  # fmt: skip
    if log:
        # Its own log and nobody else's: libraries below have much to say, too.
        told, ours = logging.StreamHandler(), logging.getLogger("antecede.live")
        told.setFormatter(Lines(settings.group, settings.me, as_json))
        ours.addHandler(told)
        ours.setLevel(logging.INFO)
    asyncio.run(run(settings, say, as_json))


def chat(
    config: Config = None,
    group: GroupName = None,
    me: Me = None,
    peer: Peer = None,
    protocol: Protocol = None,
    behind: Behind = None,
    listen: Listen = None,
    web: Web = None,
    store: Store = None,
    keys: Keys = None,
    secret: Secret = None,
    trace: Trace = None,
) -> None:
    """Talk in a terminal. An answer never comes before what it answers; what must wait is shown as such.

    In one terminal: antecede chat --me ana --listen :7000 --peer bo@127.0.0.1:7001 --store ana.db

    In another: antecede chat --me bo --listen :7001 --peer ana@127.0.0.1:7000 --store bo.db
    """
    from antecede.cli.live_chat import run

    require("prompt_toolkit", "live")
    settings = _settings(
        config, group=group, me=me, peers=peer, protocol=protocol, behind=behind, listen=listen, web=web,
        store=store, keys=keys, secret=secret, trace=trace,
    )  # fmt: skip
    logging.getLogger("antecede.live").setLevel(logging.CRITICAL)
    asyncio.run(run(settings))


def keys(
    where: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where folders of keys go, one for each member.")
    ],
    servers: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Members that get a certificate.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The group they are for, and for no other.")] = "room",
    super_: Annotated[
        list[str] | None,
        typer.Option(
            "--super", help="A super peer: it gets a certificate, and checks tokens. May be repeated."
        ),
    ] = None,
    phone: Annotated[
        list[str] | None,
        typer.Option(help="A member behind a super peer: it gets a token. May be repeated."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST", help="A host that browsers know a super peer by. May be repeated."),
    ] = None,
    days: Annotated[float, typer.Option(help="How long certificates and tokens are good.")] = 365.0,
    secret: Annotated[
        bool, typer.Option("--secret", help="Instead, make FOLDER a file with a key that all share.")
    ] = False,
) -> None:
    """Make a small authority and keys for a group's members: encrypted links, and nobody else gets in.

    antecede keys keys ana bo --super sue --phone phone; then keys = "keys/ana" for ana, and so on.
    Each member needs its own folder and no other; authority.key stays with you. Run again, it adds members
    and leaves certificates that are there; tokens are made anew.
    """
    making = require("antecede.live.security.keys", "live")
    if secret:
        if servers or super_ or phone or host:
            raise typer.BadParameter("--secret makes one file for everybody; it takes no names")
        making.new_secret(where)
        show.out.print(f'a shared key is in {where}; give it to every member: secret = "{where}"')
        return
    servers = servers or []
    if not (servers or super_ or phone):
        raise typer.BadParameter(
            "name the members that get a certificate, such as: antecede keys keys ana bo"
        )
    servers = [*servers, *(super_ or [])]
    if phone and not super_ and not list(where.glob("*/token.key")):
        raise typer.BadParameter("--phone: name the super peer that it is behind, with --super")
    hosts: dict[str, list[str]] = {}
    for each in host or []:
        name, equals, place = each.partition("=")
        if not equals or name not in (servers or []):
            raise typer.BadParameter(f"--host {each}: write NAME=HOST with the name of a member")
        hosts.setdefault(name, []).append(place)
    if days <= 0:
        raise typer.BadParameter(f"--days {days:g}: what is made would have expired already")
    for name in [*(servers or []), *(phone or [])]:
        check_name(name)
    made = making.make(where, group, servers, phone or [], days, hosts, super_ or [])
    for each in made:
        what = "token" if (each / "token").exists() else "certificate"
        show.out.print(f'{each.name}: {what}; keys = "{each}"', soft_wrap=True)
    for name in servers or []:
        if where / name not in made:
            kept = f"{name}: its certificate is left as it is; for a new one, take {where / name} away first"
            show.out.print(kept, soft_wrap=True)


def cluster(
    size: Annotated[int, typer.Argument(min=2, max=200, metavar="N", help="How many processes.")],
    protocol: Annotated[str, typer.Option(help="Which protocol; antecede protocols lists them.")] = "mbcp",
    messages: Annotated[int, typer.Option(min=1, help="How many messages are sent, by all together.")] = 1000,
    seconds: Annotated[str, typer.Option(help="How long the sending is to take, about.")] = "20s",
    payload: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes in a message.")] = 100,
    delay: Annotated[str, typer.Option(help="How slow links are, from one to another time.")] = "0-0ms",
    loss: Annotated[float, typer.Option(min=0, max=0.5, help="The share of frames that vanish.")] = 0.0,
    kill_every: Annotated[
        str | None, typer.Option(help="Kill a process (SIGKILL) so often, and start it again.")
    ] = None,
    cut_every: Annotated[
        str | None, typer.Option(help="How long a connection lasts, on average, before it breaks.")
    ] = None,
    super_peers: Annotated[
        int | None, typer.Option(min=0, help="Of freescale: how many super peers.")
    ] = None,
    internal: Annotated[
        int | None, typer.Option(min=0, help="Of freescale: how many peers behind each, over WebSocket.")
    ] = None,
    sync: Annotated[
        bool, typer.Option("--sync/--no-sync", help="Wait for the disk, or for the operating system only.")
    ] = True,
    seed: Annotated[int, typer.Option(help="For delays, losses, kills and cuts.")] = 0,
    trace: Annotated[
        Path | None, typer.Option(parser=folder, metavar="FOLDER", help="Keep the trace there.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Where the trace is audited: auto, local or spark.")] = "auto",
    as_json: Json = False,
) -> None:
    """Start N real processes on this machine, treat them badly, and see that nothing is lost.

    Exit code 0 only if every accepted message was delivered at every member, once and after its causes.
    """
    from antecede.live.trial.cluster import Plan

    require("antecede.trace.writer", "sim")
    if protocol == "freescale":
        super_peers = max(1, size // 6) if super_peers is None else super_peers
        internal = max(0, min(3, size // max(super_peers, 1) - 1)) if internal is None else internal
    elif super_peers or internal:
        raise typer.BadParameter(f"--super-peers and --internal are for freescale, not for {protocol}")
    if engine not in ("auto", "local", "spark"):
        raise typer.BadParameter(f"no engine '{engine}'; there are auto, local and spark")
    low, high = span(delay)
    plan = Plan(
        size=size,
        protocol=protocol,
        messages=messages,
        seconds=duration(seconds) / SECOND,
        payload=payload,
        delay=f"{low}ns-{high}ns",
        loss=loss,
        kill_every=duration(kill_every) / SECOND if kill_every else None,
        cut_every=cut_every,
        super_peers=super_peers or 0,
        internal=internal or 0,
        sync=sync,
        seed=seed,
    )
    if trace is not None and trace.exists() and any(trace.iterdir()):
        raise InputError(f"{trace} has something in it; a trace goes into a folder of its own")
    with tempfile.TemporaryDirectory(prefix="antecede-cluster-") as work:
        ok = _run_cluster(plan, Path(work), trace or Path(work) / "trace", engine, as_json)
    raise typer.Exit(0 if ok else 1)


def load(
    size: Annotated[int, typer.Argument(min=2, max=64, metavar="N", help="How many processes.")] = 4,
    protocol: Annotated[str, typer.Option(help="Which protocol; antecede protocols lists them.")] = "mbcp",
    messages: Annotated[
        int, typer.Option(min=1, help="How many are sent, by all senders together.")
    ] = 100_000,
    payload: Annotated[int, typer.Option("--bytes", min=8, max=1_000_000, help="Bytes in a message.")] = 100,
    senders: Annotated[
        int | None, typer.Option(min=1, help="How many members send; by default all do.")
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages a second of all senders; 0 is full speed.")
    ] = 0.0,
    durable: Annotated[
        bool, typer.Option("--store/--no-store", help="With a store that survives, or in memory.")
    ] = True,
    sync: Annotated[
        bool, typer.Option("--sync/--no-sync", help="Wait for the disk, or for the operating system only.")
    ] = True,
    as_json: Json = False,
) -> None:
    """How many messages a second, and how late? Starts N real processes on this machine and drives them.

    Latency is from when a message was due, so that at a --rate a pause counts for all who waited through it.
    """
    from antecede.live.trial.cluster import Plan
    from antecede.live.trial.load import drive

    senders = size if senders is None else senders
    if senders > size:
        raise typer.BadParameter(f"--senders {senders}: there are {size} members")
    plan = Plan(size=size, protocol=protocol, messages=messages, payload=payload, sync=sync)
    with tempfile.TemporaryDirectory(prefix="antecede-load-") as work, show.err.status("starting") as status:
        done = asyncio.run(drive(plan, Path(work), rate, senders, durable, status.update))
    if as_json:
        show.json(done)
        return
    how = "in memory" if not durable else "on disk" if sync else "in the operating system"
    title = f"{size} processes, {protocol}, {messages:,} messages of {payload} bytes, kept {how}"
    rows = [
        ["deliveries a second at each member", f"{done.deliveries_a_second:,.0f}"],
        ["latency, half of them below", f"{done.p50_ms:,.1f} ms"],
        ["latency, 99 % of them below", f"{done.p99_ms:,.1f} ms"],
        ["latency, the longest", f"{done.most_ms:,.1f} ms"],
        ["bytes on the wire besides the body, a delivery", f"{done.control_bytes:,.1f}"],
        ["processor seconds of all members", f"{done.cpu_seconds:,.1f}"],
        ["memory of the largest member", f"{done.memory_mb:,.0f} MB"],
    ]
    show.table(title, ["", ""], rows)


def _run_cluster(plan: Plan, work: Path, trace: Path, engine: str, as_json: bool) -> bool:
    from antecede.audit.run import audit_path
    from antecede.live.trial import cluster as trial

    with show.progress() as progress:

        def told(done: int, due: int, kills: int) -> None:
            progress(f"deliveries: {kills} killed", done, due)

        outcome = asyncio.run(trial.run(plan, work / "members", trace, told))
        audited = audit_path(str(trace), engine, 10, None, progress)
    clean = audited.verdict.clean
    ok = clean and not outcome.faults
    if as_json:
        show.json({**trial.summary(outcome), "ok": ok, "audit": {"clean": clean, "engine": audited.engine}})
        return ok
    _show_cluster(plan, outcome)
    where = "on Spark" if audited.engine == "spark" else "in this process"
    verdict = audited.verdict
    if clean:
        show.out.print(
            f"[green]clean[/]: {verdict.deliveries:,} deliveries of {verdict.messages:,} messages, each once "
            f"and after its causes (the trace, judged {where})"
        )
    else:
        show.out.print("[red]not clean[/]: the trace has violations; antecede audit --trace says which")
    return ok


def _show_cluster(plan: Plan, outcome: Outcome) -> None:
    rows = [
        [
            each.name,
            each.kind,
            f"{each.accepted:,}",
            f"{each.delivered:,}",
            f"{each.again:,}",
            f"{each.kills:,}",
        ]
        for each in outcome.members
    ]
    title = f"{plan.size} processes, {plan.protocol}, {outcome.seconds:.0f} s"
    show.table(title, ["member", "", "accepted", "delivered", "again", "killed"], rows, left=2)
    for fault in outcome.faults[:20]:
        show.out.print(f"[red]fault[/]: {fault}", soft_wrap=True)
    if len(outcome.faults) > 20:
        show.out.print(f"and {len(outcome.faults) - 20:,} more faults")
    if not outcome.faults:
        show.out.print(
            f"[green]complete[/]: every accepted message is at every member (their own accounts), "
            f"{outcome.kills} kills, stores of {outcome.store_bytes / 1e6:.1f} MB"
        )
