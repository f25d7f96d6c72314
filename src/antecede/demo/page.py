"""The page of the demo: what each step found, drawn, and where to go next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from antecede import __version__
from antecede.demo.planted import FoundFault
from antecede.demo.run import DemoResult, LiveRun, SystemRuns
from antecede.demo.stream import OrderedStream
from antecede.report.charts import Series, line_chart
from antecede.report.page import Markup, Section, code, contents, figure, page, table
from antecede.report.svg import text as escape
from antecede.units import SECOND

_STEP = SECOND // 2
_POINTS = 24
_CAUSES = 5


class NextStep(NamedTuple):
    """Where one kind of user goes from here."""

    user: str
    what: str
    commands: tuple[str, ...]
    read: str


NEXT = (
    NextStep(
        "Application engineers",
        "A group of processes that broadcast over real connections, with stores that survive kill -9.",
        (
            "antecede chat --me ana --listen :7000 --peer bo@127.0.0.1:7001 --store ana",
            "antecede cluster 5 --kill-every 2s",
        ),
        "docs/tutorials/application.md, docs/live.md, examples/chat.py",
    ),
    NextStep(
        "Data engineers",
        "Logs, topics and tables: was anything delivered before its cause, and what is the right order?",
        (
            "antecede audit trace/ --html audit.html",
            "antecede order events/ --id id --deps causes --out ordered",
        ),
        "docs/tutorials/data.md, docs/sources.md, docs/how-to/order-a-stream.md",
    ),
    NextStep(
        "Researchers",
        "Check your own protocol with an oracle and in every schedule; repeat the papers at full size.",
        ("antecede check mymodule:MyProtocol", "antecede reproduce --full"),
        "docs/tutorials/research.md, docs/how-to/your-own-protocol.md, docs/scoreboard.md",
    ),
)


def demo_page(result: DemoResult, live_events: Sequence[dict[str, Any]]) -> str:
    """The page as HTML; `live_events` are those of the processes that were killed."""
    lead = f"Not as it should be: {'; '.join(result.wrong)}." if result.wrong else _lead(result)
    sections = [
        _systems(result.systems),
        _stream(result.stream),
        _planted(result.planted),
        _live(result.live, live_events),
        _next(),
    ]
    footer = f"Antecede {__version__}"
    return page("Causal order, in five steps", lead, sections, footer, opening=contents(sections))


def _lead(result: DemoResult) -> str:
    return (
        f"Five systems, {result.systems.deliveries:,} deliveries audited on Spark, a stream put in order, a "
        f"planted fault found, {_kills(result.live)} survived: in {result.seconds:.0f} seconds."
    )


def _kills(live: LiveRun) -> str:
    return f"{live.trial.kills} kill{'' if live.trial.kills == 1 else 's'} of live processes"


def _systems(found: SystemRuns) -> Section:
    rows = [
        [
            f"{run.protocol}: {run.title}",
            run.paper,
            f"{run.peers:,}",
            f"{run.messages:,}",
            f"{run.deliveries:,}",
            f"{run.control_bytes:.0f}",
            f"{run.held_share:.0%}",
            _violations(run.violations),
        ]
        for run in found.runs
    ]
    text = (
        "One system from each paper was simulated in Spark tasks, mbcp and flooding with compiled engines. "
        "Then an oracle that knows nothing about protocols audited every trace on Spark: was each message "
        "delivered everywhere, exactly once, and after everything that happened before it?"
    )
    header = ["system", "paper", "peers", "messages", "deliveries", "control bytes", "held", "verdict"]
    return Section("1. Five systems, audited", text, table(header, rows, (0,), stacked=True), "systems")


def _violations(count: int | None) -> Markup:
    if count is None:
        return verdict("not judged")
    return verdict(f"{count:,} violations" if count else "", "in order")


def verdict(wrong: str, right: str = "") -> Markup:
    """A verdict as a coloured word: what is wrong, or else what is right."""
    return Markup(f'<span class="verdict {"fails" if wrong else "holds"}">{escape(wrong or right)}</span>')


def _stream(found: OrderedStream) -> Section:
    text = (
        f"The {found.rows:,} messages of mbcp, each with its immediate causes, were shuffled and arrived in "
        f"{found.files} files, one micro-batch each. {found.early:,} arrived before a cause. causal_order "
        f"held {found.held:,} of them for a later batch, and emitted every row once, after its causes."
    )

    rows = [
        [f"{number}", each.row.message, _some(each.row.causes), f"{each.place:,}" if each.place else "never"]
        for number, each in enumerate(found.first, start=1)
    ]
    shown = table(["arrived as row", "message", "causes", "emitted as row"], rows, (1, 2), stacked=True)
    word = verdict(found.wrong, "in order")
    return Section("2. A shuffled stream, ordered", text, f"<p>{word}</p>{shown}", "stream")


def _some(causes: Sequence[str]) -> str:
    more = len(causes) - _CAUSES
    return (", ".join(causes[:_CAUSES]) or "–") + (f" and {more} more" if more > 0 else "")


def _planted(found: FoundFault) -> Section:
    fault = found.planted
    text = (
        f"In a copy of mbcp's trace, among {found.deliveries:,} deliveries, two at {fault.process} were "
        f"swapped: {fault.effect} now comes before its cause {fault.cause}. The audit was not told."
    )
    sentence = found.finding.text if found.finding else "It found nothing."
    word = verdict(found.wrong, "found, with no false alarm")
    body = f"<p>{word} {escape(sentence)}</p>"
    if found.picture:
        caption = (
            f"{found.about} Numbered arrows lead from the cause (blue) to the effect (orange); the crossed "
            "ring is the delivery that came too early, the red band the time without the cause."
        )
        body += figure(f'<div class="scroll">{found.picture}</div>', caption)
    return Section("3. A planted fault, found and drawn", text, body, "planted")


def _live(found: LiveRun, events: Sequence[dict[str, Any]]) -> Section:
    outcome = found.trial
    text = (
        f"{len(outcome.members)} processes on this machine broadcast over TCP, with stores on disk. "
        f"They were killed with SIGKILL {outcome.kills} times and started again. Afterwards every accepted "
        "message was checked at every member, and the trace was audited on Spark."
    )
    rows = [
        [
            member.name,
            f"{member.accepted:,}",
            f"{member.delivered:,}",
            f"{member.redelivered:,}",
            f"{member.kills:,}",
        ]
        for member in outcome.members
    ]
    word = verdict(found.wrong, "nothing lost, everything in order")
    shown = table(["member", "broadcast", "delivered", "delivered again", "killed"], rows, stacked=True)
    body = f'<p>{word}</p><div class="panels"><div>{shown}</div>{_over_time(events)}</div>'
    return Section("4. Live processes, killed", text, body, "live")


def _over_time(events: Sequence[dict[str, Any]]) -> str:
    """How many messages each member has delivered, by the second: a killed one stops, and catches up."""
    times: dict[str, list[int]] = {}
    for event in events:
        if event["kind"] == "deliver":
            times.setdefault(event["process"], []).append(event["time"])
    if not times:
        return ""
    first = min(map(min, times.values()))
    last = max(map(max, times.values()))
    step = max(_STEP, -(-(last - first) // (_POINTS * _STEP)) * _STEP)
    marks = range(0, last - first + step, step)
    series = [
        Series(name, [(mark / SECOND, bisect_right(sorted(at), first + mark)) for mark in marks])
        for name, at in sorted(times.items())
    ]
    caption = (
        "Messages of other members that each member has delivered. A killed process stops, and catches up "
        "after its restart."
    )
    return figure(line_chart(series, "seconds", "deliveries", caption), caption)


def _next() -> Section:
    cards = "".join(
        f"<div class=card><h3>{escape(step.user)}</h3><p>{escape(step.what)}</p>{code(*step.commands)}"
        f"<p class=quiet>{escape(step.read)}</p></div>"
        for step in NEXT
    )
    return Section("5. Where to go next", "", f'<div class="cards">{cards}</div>', "next")
