"""Merges what members report into one picture for the page: who is present, what is missing and who has it,
how far each member has delivered, and which changes happened when. The page itself computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antecede.console.causal import NotedMessages, drawn
from antecede.live.operations.state import Happened, MemberMessages, MemberReport, Missing
from antecede.live.view import ViewMember

Document = dict[str, Any]
_MAX_MISSING, _MAX_BLOCKED, _MAX_CHANGES, _MAX_DRAWN, _MAX_PROBLEMS = 100, 100, 200, 40, 100
_SAME_CHANGE = 30.0
"""Changes that members see within this many seconds of each other are one change."""


def overview(states: Sequence[MemberReport], now: float) -> Document:
    """The state of one group, as seen by the members that answer."""
    seen = _members(states)
    return {
        "time": now,
        "group": states[0].group if states else "",
        "protocol": states[0].protocol if states else "",
        "changes_members": any(state.changes_members for state in states),
        "members": [_member(label, views, states) for label, views in seen.items()],
        "knows_stability": all(state.knows_stability for state in states),
        "held": sum(state.held for state in states),
        "held_seconds": max((state.held_seconds for state in states), default=0.0),
        "missing": missing(states),
        "origins": _origins(states),
        "unstable_bytes": max((state.unstable_bytes for state in states), default=0),
        "changes": changes(states),
        "problems": _problems(states),
        "messages": _messages(states),
    }


# Members


def _members(states: Sequence[MemberReport]) -> dict[str, list[tuple[str, ViewMember]]]:
    """The members by label: in whose views each one is, and in which state."""
    found: dict[str, list[tuple[str, ViewMember]]] = {}
    for state in states:
        for member in state.members:
            found.setdefault(member.label, []).append((state.me, member))
        found.setdefault(state.me, [])
    return dict(sorted(found.items()))


def _member(label: str, views: list[tuple[str, ViewMember]], states: Sequence[MemberReport]) -> Document:
    own = next((state for state in states if state.me == label), None)
    suspected = {by: each.suspected for by, each in views if each.suspected is not None and by != label}
    since = [each.since for _, each in views if each.since is not None]
    others = [state for state in states if state.me != label]
    document = {
        "label": label,
        "name": label.partition("~")[0],
        "at": next((each.at for _, each in views if each.at), ""),
        "since": min(since, default=None),
        "known_to": len(views),
        "suspected_by": sorted(suspected),
        "suspected_since": min(suspected.values(), default=None),
        "is_removed": any(label in state.removing for state in states),
        "behind": max((state.behind.get(label, 0) for state in others), default=0),
        "answers": own is not None,
    }
    if own is not None:
        links = [each for each in own.partners if each != label]
        document |= {
            "state": own.state,
            "as_of": own.time,
            "opened": own.opened,
            "links": len(links),
            "links_down": sorted(set(links) - set(own.connected)),
            "broadcast": own.broadcast,
            "delivered": own.delivered,
            "for_application": own.for_application,
            "held": own.held,
            "unstable_bytes": own.unstable_bytes,
            "limit": own.limit,
            "problems": len(own.problems),
        }
    return document


def member_detail(state: MemberReport) -> Document:
    """The group as one member sees it."""
    by_label = {each.label: each for each in state.members}
    links = []
    for label in state.partners:
        if label != state.me:
            seen = by_label.get(label)
            links.append(
                {
                    "to": label,
                    "connected": label in state.connected,
                    "suspected": seen.suspected if seen is not None else None,
                    "timeout": state.timeouts.get(label),
                    "behind": state.behind.get(label, 0),
                }
            )
    return {
        "label": state.me,
        "view": sorted(by_label),
        "links": links,
        "problems": [_happened(each) for each in state.problems],
        "notices": [_happened(each) for each in state.notices[-12:]][::-1],
        "held": [_held_at(each) for each in state.missing],
    }


def _held_at(each: Missing) -> Document:
    return {"cause": each.cause, "count": each.count, "holders": each.holders}


def _happened(each: Happened) -> Document:
    return {"kind": each.kind, "about": each.about, "text": each.text, "time": each.time}


# What is missing.


def missing(states: Sequence[MemberReport]) -> list[Document]:
    """The messages that block deliveries, the longest-blocking first. A message that waits for a held message
    counts as waiting for whatever that one waits for."""
    found: dict[str, dict[str, list[Document]]] = {}
    counts: dict[str, dict[str, int]] = {}
    for state in states:
        waits_for = {each.id: wait.cause for wait in state.missing for each in wait.held}
        for wait in state.missing:
            root = _root(wait.cause, waits_for)
            blocked = found.setdefault(root, {}).setdefault(state.me, [])
            blocked += [{"id": each.id, "since": each.since, "cause": wait.cause} for each in wait.held]
            at = counts.setdefault(root, {})
            at[state.me] = at.get(state.me, 0) + wait.count
    documents = [_missing(root, at, counts[root], states) for root, at in found.items()]
    documents.sort(key=lambda each: each["since"])
    return documents[:_MAX_MISSING]


def _root(cause: str | None, waits_for: Mapping[str, str | None]) -> str:
    seen = set()
    while cause is not None and cause in waits_for and cause not in seen:
        seen.add(cause)
        cause = waits_for[cause]
    return cause or ""


def _missing(
    root: str,
    blocked: Mapping[str, list[Document]],
    counts: Mapping[str, int],
    states: Sequence[MemberReport],
) -> Document:
    has, lacks = _who_has(root, states)
    told = {
        holder for state in states for wait in state.missing if wait.cause == root for holder in wait.holders
    }
    may_have = sorted(told - set(has) - set(lacks))
    at = []
    for state in states:
        if state.me in blocked:
            messages = sorted(blocked[state.me], key=lambda each: (each["since"], each["id"]))
            at.append(
                {
                    "member": state.me,
                    "count": counts[state.me],
                    "arrived": _is_received(root, state),
                    "since": messages[0]["since"],
                    "messages": messages[:_MAX_BLOCKED],
                    "links": [_link(state, label) for label in [*has, *may_have] if label != state.me],
                }
            )
    return {
        "id": root,
        "origin": root.rpartition(":")[0],
        "count": sum(counts.values()),
        "since": min(each["since"] for each in at),
        "at": at,
        "arrived": all(each["arrived"] for each in at),
        "has": has,
        "may_have": may_have,
        "lacks": lacks,
    }


def _is_received(message: str, state: MemberReport) -> bool:
    """Whether the message has arrived here, and waits until the application has delivered what precedes
    it."""
    origin, _, seq = message.rpartition(":")
    number = int(seq) if seq.isdecimal() else 0
    return number > 0 and any(each.origin == origin and each.received >= number for each in state.progress)


def _link(state: MemberReport, to: str) -> Document:
    suspected = next((each.suspected for each in state.members if each.label == to), None)
    return {"to": to, "connected": to in state.connected, "suspected": suspected}


def _who_has(message: str, states: Sequence[MemberReport]) -> tuple[list[str], list[str]]:
    """Among the members that answer: which have delivered a message, and which have not received it."""
    origin, _, seq = message.rpartition(":")
    has, lacks = [], []
    for state in states:
        for each in state.progress:
            if each.origin == origin and seq.isdecimal():
                if each.delivered >= int(seq):
                    has.append(state.me)
                elif each.received < int(seq):
                    lacks.append(state.me)
    return sorted(has), sorted(lacks)


# Stability


def _origins(states: Sequence[MemberReport]) -> list[Document]:
    """By origin: its last message that any member has, how far each member has delivered, and up to where it
    is stable."""
    rows: dict[str, dict[str, int]] = {}
    stable: dict[str, int] = {}
    latest: dict[str, int] = {}
    for state in states:
        for each in state.progress:
            rows.setdefault(each.origin, {})[state.me] = each.delivered
            stable[each.origin] = max(stable.get(each.origin, 0), each.stable)
            latest[each.origin] = max(latest.get(each.origin, 0), each.received)
    documents = []
    for origin, delivered in sorted(rows.items()):
        least = min(delivered.values())
        documents.append(
            {
                "origin": origin,
                "latest": latest[origin],
                "stable": stable[origin],
                "delivered": delivered,
                "slowest": sorted(each for each, count in delivered.items() if count == least)
                if least < latest[origin]
                else [],
            }
        )
    return documents


# What has happened.


def changes(states: Sequence[MemberReport]) -> list[Document]:
    """Changes as members saw them, each once, earliest first. Views are not agreed on: each member sees a
    change when it delivers the message that made it."""
    every = sorted(
        ((each, state.me) for state in states for each in state.changes), key=lambda seen: seen[0].time
    )
    found: list[Document] = []
    current: dict[tuple[str, str], Document] = {}
    for each, me in every:
        key = each.kind, each.about
        before = current.get(key)
        if before is None or each.time - before["last"] > _SAME_CHANGE:
            before = {
                "kind": each.kind,
                "about": each.about,
                "by": each.by,
                "message": each.message,
                "text": each.text,
                "first": each.time,
                "last": each.time,
                "seen_by": [],
            }
            current[key] = before
            found.append(before)
        before["last"] = each.time
        if me not in before["seen_by"]:
            before["seen_by"].append(me)
    return found[-_MAX_CHANGES:]


def _problems(states: Sequence[MemberReport]) -> list[Document]:
    found = [{"at": state.me, **_happened(each)} for state in states for each in state.problems]
    return sorted(found, key=lambda each: each["time"])[:_MAX_PROBLEMS]


def _messages(states: Sequence[MemberReport]) -> list[Document]:
    """The last messages that members have recorded."""
    noted = NotedMessages(MemberMessages(state.me, state.messages) for state in states)
    latest = sorted(noted.causes, key=noted.first)[-_MAX_DRAWN:]
    return drawn(noted, latest)
