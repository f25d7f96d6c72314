"""How the reports of members are combined into an overview."""

from __future__ import annotations

from typing import Any

from antecede.console.causal import NotedMessages, around
from antecede.console.overview import changes, missing, overview
from antecede.live.inspection import DeliveredUpTo
from antecede.live.operations.recent import RecentMessage
from antecede.live.operations.state import Happened, HeldEntry, MemberMessages, MemberReport, Missing
from antecede.live.view import ViewMember

NAMES = ("ana", "bo", "cy")


def said(me: str, **more: Any) -> MemberReport:
    values: dict[str, Any] = {
        "version": 1,
        "opened": 0.0,
        "group": "room",
        "protocol": "mbcp",
        "me": me,
        "state": "open",
        "changes_members": True,
        "members": [ViewMember(name, name, "", connected=True) for name in NAMES],
        "removing": [],
        "partners": [name for name in NAMES if name != me],
        "connected": [name for name in NAMES if name != me],
        "timeouts": {},
        "broadcast": 0,
        "delivered": 0,
        "for_application": 0,
        "held": 0,
        "held_seconds": 0.0,
        "missing": [],
        "progress": [],
        "behind": {},
        "unstable_bytes": 0,
        "limit": 1,
        "problems": [],
        "changes": [],
        "notices": [],
        "messages": [],
        "time": 10.0,
    }
    return MemberReport(**values | more)


def test_messages_behind_a_held_message_are_listed_under_its_missing_cause() -> None:
    cy = said(
        "cy",
        missing=[
            Missing("bo:5", ["bo"], 1, [HeldEntry("cy:1", 7.0)]),
            Missing("ana:1", ["ana"], 1, [HeldEntry("bo:5", 6.0)]),
            Missing(None, [], 1, [HeldEntry("bo:9", 8.0)]),
        ],
        progress=[DeliveredUpTo("ana", 0, 0, 0)],
    )
    bo = said("bo", progress=[DeliveredUpTo("ana", 1, 1, 0)])
    first, second = missing([bo, cy])
    assert (first["id"], first["count"], first["since"]) == ("ana:1", 2, 6.0)
    assert (first["has"], first["may_have"], first["lacks"]) == (["bo"], ["ana"], ["cy"])
    assert [each["id"] for each in first["at"][0]["messages"]] == ["bo:5", "cy:1"]
    assert (second["id"], second["has"]) == ("", [])
    assert not first["arrived"]


def test_a_received_but_undelivered_message_is_not_missing() -> None:
    waits = [Missing("ana:1", ["ana"], 1, [HeldEntry("bo:5", 6.0)])]
    (found,) = missing([said("cy", missing=waits, progress=[DeliveredUpTo("ana", 1, 0, 0)])])
    assert (found["arrived"], found["lacks"]) == (True, [])


def test_a_cycle_of_waits_terminates() -> None:
    """No correct member reports one."""
    cy = said(
        "cy",
        missing=[
            Missing("a:1", [], 1, [HeldEntry("b:1", 1.0)]),
            Missing("b:1", [], 1, [HeldEntry("a:1", 1.0)]),
        ],
    )
    assert sum(each["count"] for each in missing([cy])) == 2


def test_a_change_seen_by_several_members_is_listed_once() -> None:
    ana = said(
        "ana", changes=[Happened("left", "cy", "", 5.0, "cy", "cy:9"), Happened("joined", "cy~1", "", 50.0)]
    )
    bo = said("bo", changes=[Happened("left", "cy", "", 6.0, "cy", "cy:9"), Happened("left", "cy", "", 99.0)])
    found = changes([ana, bo])
    assert [(each["kind"], each["first"], each["last"], each["seen_by"]) for each in found] == [
        ("left", 5.0, 6.0, ["ana", "bo"]),
        ("joined", 50.0, 50.0, ["ana"]),
        ("left", 99.0, 99.0, ["bo"]),
    ]


def test_unresponsive_members_are_shown_as_others_report_them() -> None:
    members = [ViewMember(name, name, "", connected=True) for name in NAMES]
    members[2] = ViewMember("cy", "cy", "host:1", connected=False, suspected=3.0)
    document = overview([said("ana", members=members, connected=["bo"], behind={"cy": 4}), said("bo")], 10.0)
    ana, bo, cy = document["members"]
    assert (ana["answers"], bo["answers"], cy["answers"]) == (True, True, False)
    assert (ana["links"], ana["links_down"]) == (2, ["cy"])
    assert (cy["suspected_by"], cy["suspected_since"], cy["behind"], cy["at"]) == (["ana"], 3.0, 4, "host:1")


def test_the_overview_is_empty_if_no_member_answers() -> None:
    document = overview([], 1.0)
    assert (document["members"], document["missing"], document["messages"]) == ([], [], [])


def test_past_and_future_follow_from_immediate_causes() -> None:
    ana = [
        ("ana:1", []),
        ("bo:1", ["ana:1"]),
        ("cy:1", ["ana:1"]),
        ("ana:2", ["bo:1"]),
        ("bo:2", ["ana:2", "cy:1"]),
    ]
    noted = NotedMessages(
        [
            MemberMessages(
                "ana", [RecentMessage(each, float(n), causes) for n, (each, causes) in enumerate(ana)]
            ),
            MemberMessages("cy", [RecentMessage("bo:1", 0.5, ["ana:1"])]),
        ]
    )
    found = around(noted, "bo:1")
    assert (found["past"], set(found["future"]), found["concurrent_count"]) == (
        ["ana:1"],
        {"ana:2", "bo:2"},
        1,
    )
    assert found["is_complete"]
    assert [each["member"] for each in found["delivered"]] == ["cy", "ana"]
    order = [each["id"] for each in found["messages"]]
    assert order.index("ana:1") < order.index("bo:1") < order.index("ana:2") < order.index("bo:2")
    assert not around(noted, "dana:7")["known"]
    older = NotedMessages([MemberMessages("ana", [RecentMessage("bo:7", 1.0, ["bo:6"])])])
    assert (around(older, "bo:7")["past"], around(older, "bo:7")["is_complete"]) == (["bo:6"], False)
