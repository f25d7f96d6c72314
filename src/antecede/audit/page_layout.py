"""The HTML page of an audit: what was found, where and when, and every violation with its path drawn."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede import __version__
from antecede.audit.core import Finding
from antecede.audit.diagram import diagram, span
from antecede.audit.excerpt import Excerpt
from antecede.audit.faults import DeliveryFault
from antecede.audit.tally import OverTime, Tally
from antecede.causality import Verdict
from antecede.report.charts import compact
from antecede.report.page import Section, figure, link, page, table
from antecede.report.svg import hover, tag, text
from antecede.trace.lineage import Lineage, in_brief

MAX_ROWS = 20
_MAX_STEPS = 24

_COUNTS = {
    "causal_violations": (
        "deliveries before a cause",
        "a process delivered a message while one of its causes was still missing there",
    ),
    "causal_late_deliveries": ("the cause was delivered later", "the two were delivered in the wrong order"),
    "fifo_violations": (
        "cause and effect from the same sender (FIFO)",
        "cause and effect were sent by the same process",
    ),
    "causal_pairs_late": (
        "pairs of effect and late cause",
        "a delivery may lack several causes; each is a pair",
    ),
    "causal_pairs_never": ("pairs of effect and cause never delivered", "that process lost the cause"),
    "missing": ("missing", "a message was addressed to a process that never delivered it"),
    "duplicates": ("delivered twice", "a process delivered a message that it already had"),
    "orphans": ("delivered but never sent", "the trace has no send of that message"),
    "impossible": (
        "delivered before it was sent",
        "directly or around a cycle; the trace contradicts itself",
    ),
    "wrong_views": ("members wrongly in a view, or missing from it", "in the end all views should be equal"),
    "different_cuts": ("streams that members end at different messages", "members lack parts of them"),
    "split_groups": ("pairs of members that removed each other", "there are two groups"),
    "after_end": ("processes that continued after they left", "a member's last message is its leave"),
    "wrong_snapshots": (
        "snapshots that do not match the admission",
        "a process started with too many or too few messages",
    ),
}


_OF_CHANGING_GROUPS = ("wrong_views", "different_cuts", "split_groups", "after_end", "wrong_snapshots")
"""Counts that mean nothing for a group that does not change, so their zeros are left out."""
_MISSING_SOMEWHERE = "a process never delivered it; every message is expected at every process"
"""What "missing" means if nothing says who should receive a message."""

MAX_DRAWN = 20
"""How many violations are drawn. In groups that overlap and change, violations across groups are not
drawn."""


class AuditPageData(msgspec.Struct, frozen=True):
    """Everything shown on the page of an audit."""

    trace: str
    verdict: Verdict
    findings: list[Finding]
    """The first violations, the worst first."""
    faults: list[DeliveryFault]
    """The first missing, duplicate, orphan and impossible deliveries, the worst first."""
    excerpts: dict[int, Excerpt]
    """The excerpts of the violations that are drawn, by position in `findings`."""
    chosen: int = 0
    tally: Tally | None = None
    tally_of: str | None = None
    """The run that the tally is about, if there are several."""
    lineage: Lineage | None = None
    names_receivers: bool = True
    """Whether the log says who should receive each message."""
    explorer: str = ""
    """The address of the explorer of the run with the worst violation."""


def headline(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    size = (
        f"{verdict.deliveries:,} deliver{'y' if verdict.deliveries == 1 else 'ies'} of {verdict.messages:,} "
        f"message{'' if verdict.messages == 1 else 's'} at {verdict.processes:,} processes"
    )
    if verdict.clean:
        return f"Clean: {size}, each once and after all its causes."
    if verdict.causal_violations:
        wrong = verdict.causal_violations
        return (
            f"Not in causal order: of {size}, {wrong:,} came before {'its' if wrong == 1 else 'their'} cause."
        )
    faults = [
        f"{getattr(verdict, name):,} {_COUNTS[name][0]}" for name in Verdict.FAULTS if getattr(verdict, name)
    ]
    return f"No message came before its cause, but there are other violations in {size}: {', '.join(faults)}."


def audit_page(data: AuditPageData) -> str:
    """The page as HTML: one file, nothing to fetch, no scripts."""
    verdict, findings = data.verdict, data.findings
    sections = []
    if findings:
        sections.append(_chosen_section(data))
    if len(findings) > 1:
        sections.append(_all_section(data))
    sections += _fault_sections(data)
    sections.append(_counts_section(data))
    if data.tally is not None:
        sections += _tally_sections(data.tally, data.tally_of)
    if data.lineage is not None:
        sections.append(_lineage_section(data.lineage))
    return page(f"Audit of {data.trace}", headline(verdict), sections, f"Antecede {__version__}")


def _chosen_section(data: AuditPageData) -> Section:
    finding = data.findings[data.chosen]
    which = (
        f"Violation {data.chosen + 1:,} of {len(data.findings):,}"
        if len(data.findings) > 1
        else "The violation"
    )
    sentence = f"<p>{_sentence(finding)} {text(_more(finding))}</p>"
    return Section(which, "", sentence + _draw(data, data.chosen))


def _all_section(data: AuditPageData) -> Section:
    many = len({finding.run for finding in data.findings}) > 1
    items = []
    for number, finding in enumerate(data.findings):
        run = f" in run {_name(finding.run)}" if many else ""
        more = f" <small>{text(_more(finding))}</small>" if _more(finding) else ""
        summary = f"<summary><b>{number + 1:,}.</b> {_sentence(finding)}{run}{more}</summary>"
        shown = '<p class="quiet">It is drawn above.</p>' if number == data.chosen else _draw(data, number)
        items.append(f'<details id="violation-{number + 1}">{summary}{shown}</details>')
    lead = (
        "Each is a root: a message that a process did not have in time, the first delivery that needed it, "
        "and how many more did. Click on one to see its path."
    )
    return Section("All violations" if _shows_all(data) else "The first violations", lead, "".join(items))


def _shows_all(data: AuditPageData) -> bool:
    shown = sum(finding.consequences for finding in data.findings)
    return shown >= data.verdict.causal_pairs_late + data.verdict.causal_pairs_never


def _short(finding: Finding) -> str:
    fault = "before its cause" if finding.late else "and never its cause"
    return f"{finding.process} delivered {finding.effect} {fault} {finding.cause}."


def _sentence(finding: Finding) -> str:
    """`_short` as HTML, in which names keep their direction to themselves."""
    fault = "before its cause" if finding.late else "and never its cause"
    names = (_name(each) for each in (finding.process, finding.effect, finding.cause))
    process, effect, cause = names
    return f"{process} delivered {effect} {fault} {cause}."


def _name(name: str) -> str:
    return f"<bdi>{text(name)}</bdi>"


def _more(finding: Finding) -> str:
    more = finding.consequences - 1
    if not more:
        return ""
    return (
        f"{more:,} more of its deliveries needed it." if more > 1 else "One more of its deliveries needed it."
    )


def _draw(data: AuditPageData, number: int) -> str:
    shown = data.excerpts.get(number)
    if shown is None:
        is_next = number >= MAX_DRAWN and number != data.chosen
        hint = f"--violation {number + 1} draws this one. " if is_next else ""
        return f'<p class="quiet">{text(hint + data.findings[number].text[:2000])}</p>'
    finding = shown.finding
    picture, about = diagram(shown, _short(finding))
    where = "where it is delivered" if finding.late else "which it never reached"
    caption = (
        f"{about} The numbered arrows are the path from the cause (blue) to the effect (orange); the crossed "
        "ring is the delivery that came too early, and the red band the time without the cause. Dashed: the "
        f"cause's own way to this process, {where}. Small dots are what else these processes did. Rest the "
        "pointer on anything to read it."
    )
    scrolled = f'<div class="scroll">{picture}</div>'
    return figure(scrolled, caption) + _steps(shown) + _link(data, number)


def _link(data: AuditPageData, number: int) -> str:
    """A link to a violation in the explorer, which numbers violations by run."""
    run = data.findings[0].run
    if not data.explorer or data.findings[number].run != run:
        return ""
    own = sum(finding.run == run for finding in data.findings[: number + 1])
    return f"<p>{link('Open in the explorer', f'{data.explorer}#violation={own}')}</p>"


def _steps(shown: Excerpt) -> str:
    """The path in words, numbered as in the picture."""
    items = []
    hops = shown.hops
    for number, hop in enumerate(hops, start=1):
        if len(hops) > _MAX_STEPS and _MAX_STEPS // 2 < number <= len(hops) - _MAX_STEPS // 2:
            if number == _MAX_STEPS // 2 + 1:
                items.append(f"<li class=more>… {len(hops) - _MAX_STEPS:,} more messages …</li>")
            continue
        sender, message, to = map(_name, (hop.sent.process, hop.message, hop.arrived.process))
        then = "" if hop.stays and hop.arrived is not shown.fault else f", and {to} delivered it"
        if hop.arrived is shown.fault:
            then += f" <b class=bad>without {_name(shown.finding.cause)}</b>"
        after = "then " if number > 1 else ""
        items.append(f'<li value="{number}">{after}{sender} sent <b>{message}</b>{then}</li>')
    return f'<ol class="steps">{"".join(items)}</ol>'


_FAULTS = {
    "missing": ("missing", "Missing", "deliveries that needed it"),
    "duplicate": ("duplicates", "Delivered twice", "times too often"),
    "orphan": ("orphans", "Delivered, though nobody sent it", "deliveries"),
    "impossible": ("impossible", "Delivered before it was sent", "deliveries"),
    "view": ("wrong_views", "Views that have or lack a member wrongly", "views"),
    "cut": ("different_cuts", "Streams that members end at different messages", "processes"),
    "split": ("split_groups", "Members that removed each other", "pairs"),
    "ended": ("after_end", "Processes that continued after they left", "events"),
    "snapshot": ("wrong_snapshots", "Snapshots that do not match the admission", "messages"),
}


def _meaning(name: str, data: AuditPageData) -> str:
    return _COUNTS[name][1] if name != "missing" or data.names_receivers else _MISSING_SOMEWHERE


def _fault_sections(data: AuditPageData) -> list[Section]:
    """A table for each kind of fault, the kind with the worst consequences first."""
    faults, verdict = data.faults, data.verdict
    sections = []
    several_runs = len({fault.run for fault in faults}) > 1
    for kind in dict.fromkeys(fault.kind for fault in faults):
        name, title, consequences = _FAULTS[kind]
        mine = [fault for fault in faults if fault.kind == kind]
        header = [*(["run"] if several_runs else []), "process", "message", "sender", "index", consequences]
        rows = [
            [
                *([fault.run] if several_runs else []),
                fault.process,
                fault.message,
                fault.sender or "–",
                "–" if fault.index is None else f"{fault.index}",
                f"{fault.consequences:,}",
            ]
            for fault in mine
        ]
        words = tuple(range(len(header) - 2))
        count = getattr(verdict, name)
        lead = f"{count:,} in all: {_meaning(name, data)}. The worst first; --limit lists more or fewer."
        sections.append(Section(title, lead, table(header, rows, words=words)))
    return sections


def _counts_section(data: AuditPageData) -> Section:
    verdict = data.verdict
    rows = [
        [label, f"{getattr(verdict, name):,}", _meaning(name, data)]
        for name, (label, _) in _COUNTS.items()
        if getattr(verdict, name) or (name in Verdict.FAULTS and name not in _OF_CHANGING_GROUPS)
    ]
    lead = "The counts that must be 0 in a trace in causal order, and their breakdown."
    return Section("Counts", lead, table(["", "count", "what it means"], rows, words=(2,)))


def _lineage_section(found: Lineage) -> Section:
    """What was read, so that two people can compare their answers."""
    rows = [
        [file.file, "" if file.bytes is None else f"{file.bytes:,}", f"{file.rows:,}"] for file in found.files
    ]
    body = _first_rows(["file", "bytes", "rows"], rows)
    if found.skipped:
        why = [[kind.what, f"{kind.rows:,}"] for kind in found.skipped]
        body += table(["skipped", "rows"], why)
    body += "".join(f"<p><b>Note</b>: {text(note)}</p>" for note in found.notes)
    return Section("What was read", f"{in_brief(found)}.", body)


def _tally_sections(tally: Tally, run: str | None) -> list[Section]:
    of = f" In run {run}." if run else ""
    sections = []
    if tally.over_time and tally.over_time.deliveries:
        about = f"Deliveries before a cause, and all deliveries, from the first to the last.{of}"
        sections.append(
            Section("Over time", about, figure(_over_time(tally.over_time), _bucket(tally.over_time)))
        )
    if tally.by_process:
        rows = [
            [
                p.process,
                f"{p.causal_violations:,}",
                f"{p.missing:,}",
                f"{p.duplicates:,}",
                f"{p.deliveries:,}",
            ]
            for p in tally.by_process
        ]
        header = ["process", "before a cause", "missing", "twice", "deliveries"]
        about = f"Who delivered before a cause, who misses what, the worst first.{of}"
        sections.append(Section("By process", about, _first_rows(header, rows)))
    if tally.by_origin:
        rows = [[o.origin, f"{o.late:,}", f"{o.never:,}", f"{o.messages:,}"] for o in tally.by_origin]
        about = f"Whose messages were causes that came late or never, once a delivery that needed one.{of}"
        sections.append(
            Section("By origin", about, _first_rows(["origin", "late", "never", "messages"], rows))
        )
    return sections


def _first_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    more = len(rows) - MAX_ROWS
    rest = f'<p class="quiet">and {more:,} more</p>' if more > 0 else ""
    return table(header, rows[:MAX_ROWS]) + rest


def _bucket(counted: OverTime) -> str:
    return f"A bar is {span(counted.width)}. Rest the pointer on one to read it."


_CHART, _LEFT, _HIGH = 1000, 70, 74


def _over_time(counted: OverTime) -> str:
    """Two rows of bars, each on its own scale, so that few violations show among many deliveries."""
    step = (_CHART - _LEFT - 12) / len(counted.deliveries)
    body = []
    rows = (("wrong", "before a cause", counted.causal_violations), ("", "deliveries", counted.deliveries))
    for row, (kind, name, values) in enumerate(rows):
        base = 22 + _HIGH + row * (_HIGH + 34)
        top = max([1, *values])
        bars = []
        for place, value in enumerate(values):
            high = max(2.0, _HIGH * value / top) if value else 0.0
            when = span(place * counted.width)
            title = hover(f"{value:,} {name}, from {when} after the first event")
            bars.append(
                tag(
                    "rect",
                    title,
                    x=_LEFT + place * step,
                    y=base - high,
                    width=max(step - 1, 0.6),
                    height=high,
                )
            )
        body.append(tag("g", *bars, class_=f"bars {kind}".strip()))
        body.append(tag("g", tag("line", x1=_LEFT, x2=_CHART - 12, y1=base, y2=base), class_="grid"))
        body.append(tag("text", text(compact(top)), x=_LEFT - 8, y=base - _HIGH + 10, text_anchor="end"))
        body.append(tag("text", text(name), x=_LEFT, y=base - _HIGH - 6))
    foot = 22 + 2 * _HIGH + 34 + 18
    body.append(tag("text", text("0"), x=_LEFT, y=foot))
    whole = span(counted.width * len(counted.deliveries))
    body.append(tag("text", text(f"+{whole}"), x=_CHART - 12, y=foot, text_anchor="end"))
    label = "deliveries before a cause, and all deliveries, over time"
    return tag(
        "svg", *body, class_="overtime", viewBox=f"0 0 {_CHART} {foot + 8}", role="img", aria_label=label
    )
