"""The papers' errors: what to check, within which bounds, and how errors that no schedule shows are
demonstrated."""

from __future__ import annotations

from typing import Any, NamedTuple

from antecede.check.bounds import Bounds
from antecede.papers.errata import ErratumKind
from antecede.papers.paper_002 import flooding_variants
from antecede.protocols.base import Protocol
from antecede.sim.scenario import Scenario, scenario
from printed_protocols import flooding, freescale, hcg, mbcp, multigroup, pc, vcube


class Erratum(NamedTuple):
    """A rule as printed, as it might be read, or as it was first combined, that fails."""

    paper: str
    page: str
    rule: str
    kind: type[Protocol]
    bounds: tuple[Bounds, ...]
    scenario: Scenario | None = None
    """A random run that fails, to be shrunk, if a large enough group has too many schedules."""

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def corrected(self) -> str:
        """What the protocol does instead of a rule as printed."""
        return AS_PRINTED.get(self.name, "")

    @property
    def status(self) -> ErratumKind:
        if self.name in AS_PRINTED:
            return "printed"
        return "read" if self.name in AS_READ else "needed"


class OtherError(NamedTuple):
    """An error that no schedule of a few messages shows."""

    paper: str
    page: str
    error: str
    shown: str


def _peers(*sizes: int, **fields: Any) -> tuple[Bounds, ...]:
    return tuple(Bounds(peers=size, **fields) for size in sizes)


def _subgroups(*layouts: str, **fields: Any) -> tuple[Bounds, ...]:
    """Each layout as in `vt:2 vt:1`."""
    parsed = [layout.split() for layout in layouts]
    sizes = [sum(int(subgroup.partition(":")[2]) for subgroup in layout) for layout in parsed]
    return tuple(
        Bounds(peers=size, layout={"subgroups": layout}, **fields)
        for size, layout in zip(sizes, parsed, strict=True)
    )


def _inside(size: int, *inside: int, ack_every: int = 32, **fields: Any) -> Bounds:
    layout: dict[str, Any] = {"inside": list(inside)}
    if ack_every != 32:
        layout["ack_every"] = ack_every
    return Bounds(peers=size, layout=layout, **fields)


def _groups(**groups: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return groups


def _in_groups(groups: dict[str, tuple[int, ...]], messages: int) -> tuple[Bounds, ...]:
    members = {member for group in groups.values() for member in group}
    return (Bounds(peers=len(members), groups=groups, messages=messages),)


_LINE: dict[str, Any] = {"layout": {"overlay": "line"}}
_GATEWAYS = ("vt:1 vt:1", "vt:2 vt:1")

AS_PRINTED = {
    "DropsWhatIsStillNamed": "an entry is dropped once every internal peer has reported that it will not "
    "name it again",
    "MbcpAsPrinted": "on delivery, what the message names is removed, as in step 4.v of the paper's example",
    "FloodingThatDeliversFirst": "forward first, as the text says",
    "NoWait": "everybody delivers a message one wait after its stamp: the longest delay, plus the largest "
    "difference between clocks, plus one unit",
    "NoSkew": "the wait includes the largest difference between clocks",
    "MoreThanTheWait": "what is older by at least the wait may precede; then it is exact",
    "TwiceTheWait": "one wait, between all processes",
    "EqualNumbers": "every message has a number of its own",
    "SmallestStamp": "everything that may precede a message is named",
    "NoOrderOfOrigins": "the order of a sender's messages is always kept",
    "DatesBack": "a forwarded message is stamped when it is forwarded",
    "ChildrenAsPrinted": "children from 1 ≤ s",
    "DeliversInLoop": "the delivery check comes after the loop",
    "ForwardsInWhile": "the loop over children comes after the while",
}
"""Rules that a paper prints and that fail, and what the protocol does instead."""
AS_READ = (
    "TakesOutNewerPairs", "WaitsForItself", "LeavesAtTheFirstMatch", "LastForSuperPeersToo",
    "TestsAllEntries", "TakesAllFirst", "DeliversBeforeItForwards", "FloodingWithMovingLinks",
)  # fmt: skip
"""Rules that leave something open, and fail in one reading. Without the other rules in `ERRATA`, a protocol
fails, so they are necessary."""

ERRATA = (
    Erratum(
        "000",
        "freescale",
        "section 3.2 drops table entries that a message in flight names",
        freescale.DropsWhatIsStillNamed,
        (_inside(4, 1, ack_every=1, messages=2, senders=(1, 2), duplicates=1),),
    ),
    Erratum(
        "000",
        "freescale",
        "Listing 12, line 19 removes a newer pair too",
        freescale.TakesOutNewerPairs,
        (_inside(2, messages=2), _inside(3, messages=2)),
    ),
    Erratum(
        "000",
        "freescale",
        "Listing 11 does not skip the peer's own id",
        freescale.WaitsForItself,
        (_inside(2),),
    ),
    Erratum(
        "000",
        "freescale",
        "`Exit For` in Listing 14 leaves both loops",
        freescale.LeavesAtTheFirstMatch,
        (_inside(2, 0), _inside(3, 0)),
    ),
    Erratum(
        "000",
        "freescale",
        "without line 1 of Listing 15",
        freescale.ForgetsItsOwnNumbers,
        (_inside(2, 0, messages=2), _inside(2, 1, messages=2), _inside(3, 1)),
    ),
    Erratum(
        "000",
        "freescale",
        "without line 6 of Listing 14",
        freescale.NoLastOutside,
        (_inside(2, 0, messages=2),),
    ),
    Erratum(
        "000",
        "freescale",
        "without the FIFO condition of Listing 5",
        freescale.NoFifoInside,
        (_inside(2, 0, messages=2), _inside(2, 1, messages=2)),
    ),
    Erratum(
        "000",
        "freescale",
        "without line 16 of Listing 15",
        freescale.NoLastForExternalPeers,
        (_inside(2, 0, messages=2), _inside(3, 1, messages=2)),
    ),
    Erratum(
        "000",
        "freescale",
        "`Last` also for what comes through another super peer",
        freescale.LastForSuperPeersToo,
        (_inside(3, 0, 0), _inside(4, 0, 1)),
    ),
    Erratum(
        "001",
        "mbcp",
        "Table 1 omits the step that removes what a delivered message names",
        mbcp.MbcpAsPrinted,
        _peers(2, messages=2) + _peers(3),
    ),
    Erratum(
        "001",
        "multigroup",
        "empty `causes` on every send",
        multigroup.ForgetsAllOnSend,
        _in_groups(_groups(a=(0, 1, 2), c=(0, 2)), 2),
    ),
    Erratum(
        "001",
        "multigroup",
        "drop everything that a delivered message names",
        multigroup.ForgetsWhateverIsNamed,
        _in_groups(_groups(red=(0, 2), blue=(0, 1), green=(1, 2)), 2),
    ),
    Erratum(
        "001",
        "multigroup",
        "leave out the sender's own messages",
        multigroup.LeavesItsOwnOut,
        _in_groups(_groups(red=(0, 1), blue=(0, 1)), 2),
    ),
    Erratum(
        "001",
        "multigroup",
        "drop an entry if groups overlap",
        multigroup.ForgetsOnOverlap,
        _in_groups(_groups(red=(0, 1, 2), blue=(0, 1), green=(0, 2)), 3),
    ),
    Erratum(
        "001",
        "multigroup",
        "name only what went to a group that overlaps this one",
        multigroup.NamesOnlyWhatMeets,
        _in_groups(_groups(c=(0, 3), d=(0, 1), e=(1, 2), f=(2, 3)), 2),
    ),
    Erratum(
        "002",
        "flooding",
        "Figure 2 delivers, then forwards",
        flooding_variants.FloodingThatDeliversFirst,
        _peers(2, 3),
    ),
    Erratum(
        "002",
        "flooding",
        "outside the paper's assumptions: links are not FIFO",
        flooding.FloodingWithoutFifo,
        _peers(2, messages=2),
    ),
    Erratum(
        "002",
        "flooding",
        "outside the paper's assumptions: the test for new messages, on links that are not FIFO",
        flooding.CountingWithoutFifo,
        _peers(2, messages=2),
    ),
    Erratum(
        "002",
        "pc",
        "outside the paper's assumptions: a new link is used at once (an open problem, section 7)",
        flooding_variants.FloodingWithMovingLinks,
        _peers(4, messages=2, link_changes=1),
    ),
    Erratum(
        "–",
        "pc",
        "the ping takes the new link",
        pc.PingsOverTheNewLink,
        _peers(3, messages=2, link_changes=1, **_LINE),
    ),
    Erratum(
        "–",
        "pc",
        "nothing is buffered for a new link",
        pc.ForgetsWhatItKept,
        _peers(3, messages=3, senders=(0,), link_changes=1, **_LINE),
    ),
    Erratum(
        "–",
        "pc",
        "any pong will do (a buffer of one message)",
        pc.TakesAnyPongSoon,
        _peers(3, messages=4, senders=(0,), link_changes=1, **_LINE),
    ),
    Erratum(
        "–",
        "pc",
        "a ping may take any link",
        pc.PassesPingsOnOverAnyLink,
        _peers(4, messages=2, senders=(0,), link_changes=2, **_LINE),
    ),
    Erratum(
        "003",
        "hcg",
        "real time: deliver on receipt (section 3.1 gives no rule)",
        hcg.NoWait,
        _subgroups("rt:2", messages=2),
    ),
    Erratum(
        "003",
        "hcg",
        "the wait ignores that clocks differ (section 4.2 compares with δj alone)",
        hcg.NoSkew,
        _subgroups("rt:2", messages=2, clocks=(0, 2)),
    ),
    Erratum(
        "003",
        "hcg",
        "what is older by more than the delay precedes (section 4.2, theorem with δj)",
        hcg.MoreThanTheWait,
        _subgroups("rt:2", "rt:1 vt:1", messages=2) + _subgroups("rt:2 vt:1"),
    ),
    Erratum(
        "003",
        "hcg",
        "twice the delay between different processes (section 4.2, theorem with 2δj)",
        hcg.TwiceTheWait,
        _subgroups("rt:2", "rt:1 vt:1", messages=2) + _subgroups("rt:2 vt:1"),
    ),
    Erratum(
        "003",
        "hcg",
        "concurrent messages get the same number (section 4.2, theorem on equal GT)",
        hcg.EqualNumbers,
        _subgroups(*_GATEWAYS, messages=2),
    ),
    Erratum(
        "003",
        "hcg",
        "the smallest stamp determines the number (section 4.2, rule for GT)",
        hcg.SmallestStamp,
        _subgroups(*_GATEWAYS, messages=2),
    ),
    Erratum(
        "003",
        "hcg",
        "two messages of one sender within the clock difference are concurrent (section 4.2, property)",
        hcg.NoOrderOfOrigins,
        _subgroups("rt:1 vt:1", messages=2),
    ),
    Erratum(
        "003",
        "hcg",
        "forwarded messages are dated back (section 4.2, before the first theorem)",
        hcg.DatesBack,
        _subgroups("rt:1 vt:1", "rt:2 vt:1", messages=2),
    ),
    Erratum(
        "003",
        "hcg",
        "the wait is the delay plus the difference",
        hcg.NoMoreThanTheSum,
        _subgroups("rt:2", messages=2, longest_delay=0),
    ),
    Erratum(
        "003",
        "hcg",
        "a gateway's application may deliver forwarded messages at once",
        hcg.GatewayFirst,
        _subgroups("rt:1 vt:1", "rt:2 vt:1", "rt:1 vt:1 vt:1"),
    ),
    Erratum(
        "003",
        "hcg",
        "nothing beyond a gap is named",
        hcg.NamesNothingBeyond,
        _subgroups(*_GATEWAYS, "vt:2 vt:1 vt:1"),
    ),
    Erratum(
        "003",
        "hcg",
        "what has arrived counts",
        hcg.CountsWhatArrived,
        _subgroups("vt:1 vt:1", "vt:1 vt:1 vt:1", messages=2),
    ),
    Erratum(
        "003",
        "hcg",
        "an acknowledgement holds when it arrives",
        hcg.PromisesAtOnce,
        _subgroups("lt:2", messages=2),
    ),
    Erratum("004", "vcube", "Algorithm 1 takes children from `1 < s`", vcube.ChildrenAsPrinted, _peers(2)),
    Erratum(
        "004",
        "vcube",
        "the delivery check is inside the loop over children",
        vcube.DeliversInLoop,
        _peers(2),
    ),
    Erratum(
        "004",
        "vcube",
        "the loop over children is inside the `while`",
        vcube.ForwardsInWhile,
        _peers(2, 4, messages=2),
    ),
    Erratum("004", "vcube", "the delivery test is over all peers", vcube.TestsAllEntries, _peers(2)),
    Erratum(
        "004",
        "vcube",
        "a packet of several messages: all are entered, then processed one by one",
        vcube.TakesAllFirst,
        (),
        scenario(
            protocol="printed_protocols.vcube:TakesAllFirst",
            peers=8,
            seconds=0.5,
            seed=2,
            rate=8,
            delay="wild:1ms-1s",
            reply=0.1,
            most_messages=30,
        ),
    ),
    Erratum(
        "004",
        "vcube",
        "without the first condition of CHECKAGG",
        vcube.NoFirstCondition,
        _peers(4, messages=2, senders=(0, 3)),
    ),
    Erratum(
        "004",
        "vcube",
        "what is delivered is removed before it is forwarded",
        vcube.DeliversBeforeItForwards,
        _peers(2, 4),
    ),
)

NOT_OF_ORDER = (
    OtherError(
        "000",
        "freescale",
        "passive receivers add no overhead",
        "a size: `test_in_the_papers_form_silent_internal_peers_cost_a_bit_for_every_external_message`",
    ),
    OtherError(
        "000",
        "freescale",
        "Listing 14, line 10 sets a bit that nothing needs",
        "a size: `test_line_10_of_listing_14_is_pure_overhead`",
    ),
    OtherError(
        "000",
        "freescale",
        "Lemmas 1 and 3: an immediate dependency is a bit of DV",
        "a proof; the protocol holds: "
        "`test_two_messages_in_a_row_are_linked_by_sender_previous_and_not_by_bits`",
    ),
    OtherError("001", "mbcp", "Table 1 prints `t_i`, `H_e` for `t_l`, `H_m`", "misprints of names"),
    OtherError(
        "002",
        "flooding",
        "a hypercube of any size, by a construction that is not given",
        "connectivity: `tests/overlay/test_hypercube_and_trees.py`",
    ),
    OtherError(
        "002",
        "flooding",
        "degree, diameter and disjoint paths are O(n); log n failures; the crossover with `timestamp`",
        "formulas: the [scoreboard](scoreboard.md)",
    ),
    OtherError(
        "–",
        "pc",
        "a newcomer starts with nothing",
        "`check` has no members that join: "
        "`test_without_a_snapshot_older_messages_arrive_late_over_another_link`",
    ),
    OtherError(
        "–",
        "pc",
        "the guard “more than one neighbour”; a ping is sent once",
        "`tests/protocols/test_pc_members.py`",
    ),
    OtherError(
        "003",
        "hcg",
        "one number for each subgroup says what precedes (`LargestNumberOnly`)",
        "it orders too much, which delays and breaks nothing: "
        "`test_a_largest_number_orders_more_than_happened_before`",
    ),
    OtherError(
        "003", "hcg", "Figures 7 and 8 disagree where they meet", "figures: the [scoreboard](scoreboard.md)"
    ),
    OtherError(
        "004",
        "vcube",
        "a message larger than a packet; numbers of peers that are no powers of two",
        "cases that are left open: `tests/stories/test_004_vcube.py`, "
        "`tests/overlay/test_hypercube_and_trees.py`",
    ),
    OtherError(
        "004", "vcube", "waiting at a relay adds no delay", "a delay: the [scoreboard](scoreboard.md)"
    ),
    OtherError(
        "004", "vcube", "the columns of Table 3 are swapped", "figures: the [scoreboard](scoreboard.md)"
    ),
)
