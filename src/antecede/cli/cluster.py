"""antecede cluster: real processes on this machine under faults, and whether any message is lost."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from antecede.cli import show
from antecede.cli.console import ConsoleFlag, serving, stores_below
from antecede.cli.options import Json, folder
from antecede.engine_choice import check_engine
from antecede.errors import InputError, require
from antecede.temporary_folders import temporary_folder
from antecede.units import SECOND, parse_duration, parse_range

if TYPE_CHECKING:
    from antecede.audit.run import AuditResult
    from antecede.live.trial.churn import ChurnPlan, ChurnResult
    from antecede.live.trial.cluster import ClusterResult, TrialPlan
    from antecede.live.trial.ring import RingPlan, RingResult

_SHOWN_FAULTS = 20


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The group to start, the messages to send and the faults to inject."""

    size: Annotated[int, typer.Argument(min=2, max=200, metavar="N", help="Processes to start.")]
    protocol: Annotated[str, typer.Option(help="The protocol; antecede protocols lists them.")] = "mbcp"
    messages: Annotated[int, typer.Option(min=1, help="Messages to send, by all members together.")] = 1000
    seconds: Annotated[str, typer.Option(help="Approximate duration of the sending.")] = "20s"
    payload: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes per message.")] = 100
    delay: Annotated[str, typer.Option(help="Range of the delay added to every link.")] = "0-0ms"
    loss: Annotated[float, typer.Option(min=0, max=0.5, help="Share of frames to drop.")] = 0.0
    kill_every: Annotated[
        str | None, typer.Option(help="Interval between SIGKILLs; a killed process is restarted.")
    ] = None
    churn: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            metavar="RATE",
            help="Members join, leave, are killed, removed, stopped and cut off, at most this many "
            "times a second.",
        ),
    ] = None
    cut_every: Annotated[str | None, typer.Option(help="Mean time between failures of a connection.")] = None
    super_peers: Annotated[
        int | None,
        typer.Option(min=0, help="For freescale: super peers; for hcg and basic: gateways."),
    ] = None
    internal: Annotated[
        int | None, typer.Option(min=0, help="For freescale: peers behind each super peer, over WebSocket.")
    ] = None
    levels: Annotated[
        int,
        typer.Option(
            min=1,
            max=8,
            help="For freescale: levels of super peers, with --internal behind each of the level above.",
        ),
    ] = 1
    sync: Annotated[
        bool, typer.Option("--sync/--no-sync", help="Wait for the disk, or for the operating system only.")
    ] = True
    seed: Annotated[int, typer.Option(help="Random seed of delays, losses, kills, cuts and --churn.")] = 0

    def churn_plan(self, rate: float) -> ChurnPlan:
        """Validate the options as a plan with members that come and go."""
        from antecede.live.changing.protocols import WITH_PHONES, live_kind
        from antecede.live.trial.churn import MIN_SIZE, ChurnPlan

        live_kind(self.protocol)
        others = {"--kill-every": self.kill_every, "--cut-every": self.cut_every, "--loss": self.loss}
        others |= {"--internal": self.internal}
        members = self.size
        if self.protocol in WITH_PHONES:
            half = max(MIN_SIZE, self.size // 2)
            members = min(half if self.super_peers is None else self.super_peers, self.size)
        else:
            others["--super-peers"] = self.super_peers
        others["--levels"] = self.levels > 1
        for name, value in others.items():
            if value:
                raise typer.BadParameter(
                    f"{name} is for groups with a fixed list of members, not for --churn"
                )
        if parse_range(self.delay) != (0, 0):
            raise typer.BadParameter("--churn is without --delay")
        if members < MIN_SIZE:
            raise typer.BadParameter(
                f"--churn needs at least {MIN_SIZE} members: the others must be a quorum"
            )
        return ChurnPlan(
            size=members,
            phones=self.size - members,
            rate=rate,
            protocol=self.protocol,
            seconds=parse_duration(self.seconds) / SECOND,
            messages=self.messages,
            payload=self.payload,
            sync=self.sync,
            seed=self.seed,
        )

    def ring_plan(self) -> RingPlan:
        """Validate the options as a plan of overlapping groups."""
        from antecede.live.trial.ring import RingPlan

        others = {"--loss": self.loss, "--super-peers": self.super_peers, "--internal": self.internal}
        others["--levels"] = self.levels > 1
        low, high = parse_range(self.delay)
        for name, value in others.items():
            if value:
                raise typer.BadParameter(f"{name} is for one group, and {self.protocol} is for several")
        return RingPlan(
            size=self.size,
            messages=self.messages,
            seconds=parse_duration(self.seconds) / SECOND,
            payload=self.payload,
            kill_every=parse_duration(self.kill_every) / SECOND if self.kill_every else None,
            cut_every=self.cut_every,
            delay=f"{low}ns-{high}ns",
            churn=self.churn,
            sync=self.sync,
            seed=self.seed,
        )

    def plan(self) -> TrialPlan:
        """Validate the options as a plan."""
        from antecede.live.subgroups.settings import LIVE as WITH_SUBGROUPS
        from antecede.live.trial.cluster import TrialPlan

        super_peers, internal = self.super_peers, self.internal
        if self.levels > 1 and self.protocol != "freescale":
            raise typer.BadParameter(f"--levels is for freescale, not for {self.protocol}")
        if self.levels > 1:
            super_peers = max(1, self.size // 8) if super_peers is None else super_peers
            internal = 2 if internal is None else internal
        elif self.protocol == "freescale":
            super_peers = max(1, self.size // 6) if super_peers is None else super_peers
            internal = max(0, min(3, self.size // max(super_peers, 1) - 1)) if internal is None else internal
        elif self.protocol in WITH_SUBGROUPS and not internal:
            super_peers = max(1, min(3, self.size // 2)) if super_peers is None else super_peers
        elif super_peers or internal:
            raise typer.BadParameter(
                f"--super-peers and --internal are for freescale, not for {self.protocol}"
            )
        low, high = parse_range(self.delay)
        return TrialPlan(
            size=self.size,
            protocol=self.protocol,
            messages=self.messages,
            seconds=parse_duration(self.seconds) / SECOND,
            payload=self.payload,
            delay=f"{low}ns-{high}ns",
            loss=self.loss,
            kill_every=parse_duration(self.kill_every) / SECOND if self.kill_every else None,
            cut_every=self.cut_every,
            super_peers=super_peers or 0,
            internal=internal or 0,
            levels=self.levels,
            sync=self.sync,
            seed=self.seed,
        )


def cluster(
    options: ClusterOptions,
    trace: Annotated[
        Path | None, typer.Option(parser=folder, metavar="FOLDER", help="Keep the trace in this folder.")
    ] = None,
    console: ConsoleFlag = False,
    engine: Annotated[str, typer.Option(help="Where to audit the trace: auto, local or spark.")] = "auto",
    as_json: Json = False,
) -> None:
    """Run N real processes under faults and check that no message is lost.

    Example: antecede cluster 8 --churn 8 --seconds 60s --messages 2000 --seed 7

    Exit code 0 only if every accepted message was delivered at every member, once and after its causes.
    With --churn, members come and go by a schedule derived from --seed. It includes kills and cuts, so it
    cannot be combined with --delay, --loss, --kill-every and --cut-every. A failed run keeps its folder.
    With freescale, hcg and basic, half of the processes (at least 5, or --super-peers) are members, with
    phones or local processes behind them. These write no trace; applications' logs are checked instead.

    With --protocol multigroup, the groups form a ring, and each process is in two of them. There, --churn can
    be combined with the other faults, and writes no trace either.
    """
    require("antecede.trace.writer", "sim")
    from antecede.audit.run import audit_path
    from antecede.live.trial import cluster as trial
    from antecede.protocols.multigroup import Multigroup

    check_engine(engine)
    if trace is not None and trace.exists() and any(trace.iterdir()):
        raise InputError(f"{trace} is not empty; give a new folder for the trace")
    if options.protocol == Multigroup.name:
        _ring(options.ring_plan(), trace, console, engine, as_json)
    if options.churn is not None:
        _churn(options.churn_plan(options.churn), trace, console, engine, as_json)
    plan = options.plan()
    with (
        temporary_folder("cluster") as work,
        _console(console, work / "members", "*-store"),
        show.progress() as update,
    ):

        def progress(done: int, due: int, kills: int) -> None:
            update(f"deliveries: {kills} killed", done, due)

        target = trace or work / "trace"
        outcome = asyncio.run(trial.run(plan, work / "members", target, progress))
        audited = None if outcome.faults else audit_path(str(target), engine, 10, None, update)
        ok = audited is not None and audited.verdict.clean
        left = None if ok else _leave(work, plan.seed)
    if as_json:
        audit = {"clean": audited.verdict.clean, "engine": audited.engine} if audited else None
        kept = {"folder": str(left)} if left else {}
        show.json({**trial.summary(outcome), "ok": ok, "seed": plan.seed, "audit": audit, **kept})
    else:
        _print_members(plan, outcome)
        if audited is not None:
            _print_audit(audited)
        if left:
            show.line(f"everything of this run is in {left}")
    raise typer.Exit(0 if ok else 1)


def _leave(work: Path, seed: int) -> Path:
    """Move the output of a failed run to a permanent folder."""
    left = Path(tempfile.mkdtemp(prefix=f"antecede-cluster-{seed}-"))
    for each in work.iterdir():
        if each.is_dir():
            each.rename(left / each.name)
    return left


def _console(is_wanted: bool, folder: Path, stores: str) -> AbstractContextManager[None]:
    """A page that shows all members of a trial; members that have left are not mentioned."""
    if not is_wanted:
        return nullcontext()
    return serving(lambda: stores_below(folder, stores), hides_silent=True)


def _churn(plan: ChurnPlan, trace: Path | None, console: bool, engine: str, as_json: bool) -> NoReturn:
    """A group that changes, judged by what its applications have, and by its trace."""
    from antecede.audit.run import audit_path
    from antecede.live.changing.protocols import WITH_PHONES
    from antecede.live.trial import churn as trial
    from antecede.live.trial.churn_phones import PhoneChurnTrial

    has_trace = plan.protocol not in WITH_PHONES
    if trace is not None and not has_trace:
        raise InputError(f"--trace: {plan.protocol} leaves none with --churn")
    work = Path(tempfile.mkdtemp(prefix=f"antecede-churn-{plan.seed}-"))
    target = (trace or work / "trace") if has_trace else None
    kind = PhoneChurnTrial if plan.phones else trial.ChurnTrial
    audited = None
    with _console(console, work, "*/store"), show.progress() as update:
        outcome = asyncio.run(trial.run(plan, work, target, update, kind))
        if target is not None and not outcome.faults:
            audited = audit_path(str(target), engine, 10, None, update)
    ok = not outcome.faults and (audited is None or audited.verdict.clean)
    if ok:
        shutil.rmtree(work)
    if as_json:
        audit = {"clean": audited.verdict.clean, "engine": audited.engine} if audited else None
        kept = {} if ok else {"folder": str(work)}
        show.json(
            {
                **trial.summary(outcome),
                "ok": ok,
                "seed": plan.seed,
                "protocol": plan.protocol,
                "audit": audit,
                **kept,
            }
        )
    else:
        _print_churn(plan, outcome)
        if audited is not None:
            _print_audit(audited)
        if not ok:
            show.line(f"everything of this run is in {work}")
    raise typer.Exit(0 if ok else 1)


def _ring(plan: RingPlan, trace: Path | None, console: bool, engine: str, as_json: bool) -> NoReturn:
    """Groups that overlap, judged by what the applications have, and by a trace if members do not change."""
    from antecede.audit.run import audit_path
    from antecede.live.trial import ring as trial

    if trace is not None and plan.churn:
        raise InputError("--trace: multigroup leaves none with --churn")
    work = Path(tempfile.mkdtemp(prefix=f"antecede-ring-{plan.seed}-"))
    with _console(console, work, "*-store"), show.progress() as update:

        def progress(done: int, due: int, kills: int) -> None:
            update(f"deliveries: {kills} killed", done, due)

        outcome, record = asyncio.run(trial.run(plan, work, progress))
        audited = None
        if record is not None:
            target = trace or work / "trace"
            trial.write_trace(record, target)
            audited = audit_path(str(target), engine, 10, None, update)
    ok = not outcome.faults and (audited is None or audited.verdict.clean)
    if ok:
        shutil.rmtree(work)
    if as_json:
        audit = {"clean": audited.verdict.clean, "engine": audited.engine} if audited else None
        kept = {} if ok else {"folder": str(work)}
        show.json({**trial.summary(outcome), "ok": ok, "seed": plan.seed, "audit": audit, **kept})
    else:
        _print_ring(plan, outcome)
        if audited is not None:
            _print_audit(audited)
        if not ok:
            show.line(f"everything of this run is in {work}")
    raise typer.Exit(0 if ok else 1)


def _print_ring(plan: RingPlan, outcome: RingResult) -> None:
    rows = [
        [
            member.name,
            ", ".join(member.groups),
            f"{member.accepted:,}",
            f"{member.delivered:,}",
            f"{member.redelivered:,}",
            f"{member.kills:,}",
        ]
        for member in outcome.members
    ]
    title = f"{plan.size} processes, {len(plan.members())} groups, multigroup, {outcome.seconds:.0f} s"
    show.table(title, ["process", "groups", "accepted", "delivered", "redelivered", "killed"], rows, left=2)
    if outcome.steps:
        show.line("changes: " + ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.steps.items())))
    for fault in outcome.faults[:_SHOWN_FAULTS]:
        show.line(show.styled("failed", "red"), f": {fault}")
    if not outcome.faults:
        show.line(
            show.styled("complete", "green"),
            f": every accepted message is at every member of its group, {outcome.kills} kills, "
            f"stores of {outcome.store_bytes / 1e6:.1f} MB",
        )


def _print_churn(plan: ChurnPlan, outcome: ChurnResult) -> None:
    verdict = outcome.verdict
    rows = [[kind, f"{count:,}"] for kind, count in sorted(outcome.steps.items())]
    behind = f" and {plan.phones} behind them" if plan.phones else ""
    title = (
        f"{plan.size} processes{behind}, {plan.protocol}, seed {plan.seed}, {outcome.seconds:.0f} s, "
        f"{outcome.changes:,} changes"
    )
    show.table(title, ["step", "times"], rows)
    for fault in outcome.faults[:_SHOWN_FAULTS]:
        show.line(show.styled("failed", "red"), f": {fault}")
    if not outcome.faults:
        show.line(
            show.styled("complete", "green"),
            f": {outcome.members} applications have the same {verdict.messages:,} messages; "
            f"{verdict.accepted:,} were accepted, {verdict.lost_with_disks:,} lost with disks, "
            f"{verdict.restored:,} snapshots ({outcome.network})",
        )


def _print_members(plan: TrialPlan, outcome: ClusterResult) -> None:
    rows = [
        [
            member.name,
            member.kind,
            f"{member.accepted:,}",
            f"{member.delivered:,}",
            f"{member.redelivered:,}",
            f"{member.kills:,}",
        ]
        for member in outcome.members
    ]
    title = f"{plan.size} processes, {plan.protocol}, {outcome.seconds:.0f} s"
    show.table(title, ["member", "", "accepted", "delivered", "redelivered", "killed"], rows, left=2)
    for fault in outcome.faults[:_SHOWN_FAULTS]:
        show.line(show.styled("failed", "red"), f": {fault}")
    if len(outcome.faults) > _SHOWN_FAULTS:
        show.line(f"and {len(outcome.faults) - _SHOWN_FAULTS:,} more")
    if not outcome.faults:
        show.line(
            show.styled("complete", "green"),
            f": every accepted message is at every member (by their own counts), "
            f"{outcome.kills} kills, stores of {outcome.store_bytes / 1e6:.1f} MB",
        )


def _print_audit(audited: AuditResult) -> None:
    verdict = audited.verdict
    if not verdict.clean:
        show.line(
            show.styled("not clean", "red"),
            ": the trace has violations; keep it with --trace and run antecede audit",
        )
        return
    place = "on Spark" if audited.engine == "spark" else "in this process"
    show.line(
        show.styled("clean", "green"),
        f": {verdict.deliveries:,} deliveries of {verdict.messages:,} messages, each once "
        f"and after its causes (trace audited {place})",
    )
