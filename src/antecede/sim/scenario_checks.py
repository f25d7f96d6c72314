"""Validates a scenario beyond its fields' types, so that a mistake is found before a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from antecede.errors import InputError
from antecede.membership.catalog import CHANGING
from antecede.membership.hub import HubMember
from antecede.protocols import catalog
from antecede.protocols.base import LocalError
from antecede.sim import build
from antecede.sim.changes import (
    Attach,
    Churn,
    Join,
    Phones,
    Suspicion,
    highest_peer,
    is_group_fault,
    is_of_phones,
    parse_churn,
    parse_group_fault,
)
from antecede.sim.network import GraphModel, parse_delay
from antecede.sim.network.faults import parse_fault
from antecede.sim.scenario_detector import parse_detector
from antecede.units import SECOND, parse_duration
from antecede.user_classes import parse_spec

if TYPE_CHECKING:
    from antecede.sim.scenario import Scenario


def check(scenario: Scenario) -> None:
    """Refuse what the protocol does not support, and parts that cannot be created."""
    _check_texts(scenario)
    _check_changes(scenario)
    _check_protocol_supports(scenario)
    _check_layout(scenario)
    _check_faults(scenario)
    build.check_parts(scenario)


def check_delay_is_used(scenario: Scenario) -> None:
    """Refuse a delay that the user has set but that would have no effect."""
    network = scenario.network
    if network is None or scenario.protocol_class().links.bounded_delays:
        return  # A protocol that relies on a bound takes it from this field.
    if isinstance(network, str):
        remedy = f"pass it to the class, as in {parse_spec(network).name},NAME={scenario.delay}"
    else:
        name, field = build.written_model(network)
        remedy = f"write {name},{field}={scenario.delay}"
        if isinstance(network, GraphModel):
            remedy += " for the links to which the file gives none"
    raise InputError(f"scenario: delay is for direct links, and this network has delays of its own; {remedy}")


def _check_faults(scenario: Scenario) -> None:
    """Refuse faults and orders of packets where a network of its own decides when these arrive, and failures
    that come too late."""
    of_packets = [text for text in scenario.faults if not is_group_fault(text)]
    if scenario.network is not None and (of_packets or scenario.fifo is not None):
        what = f"faults: {of_packets[0]}" if of_packets else "fifo"
        raise InputError(
            f"scenario: {what} is for direct links, and this network decides itself when packets arrive; "
            "leave out network, or this field"
        )
    for text in filter(is_group_fault, scenario.faults):
        if (begins := parse_group_fault(text).time) > scenario.seconds * SECOND:
            raise InputError(
                f"scenario: faults: {text} comes after the {scenario.seconds:g} s in which members send; "
                f"set seconds to more than {begins / SECOND:g}"
            )


def _check_protocol_supports(scenario: Scenario) -> None:
    name, protocol = scenario.protocol, scenario.protocol_class()
    if scenario.groups is not None and not catalog.find_protocol(name).overlapping_groups:
        raise InputError(f"scenario: groups: {name} has one group of all peers")
    if scenario.layout is not None and protocol.layout is None:
        raise InputError(f"scenario: layout: the members of {name} are all alike")
    if scenario.link_churn and not protocol.dynamic_links:
        raise InputError(f"scenario: churn: the links of {name} stay as they are")
    if scenario.overlay is not None and not hasattr(protocol, "on_overlay"):
        raise InputError(f"scenario: overlay: {name} does not flood an overlay; flooding and pc do")
    if scenario.overlay is not None and scenario.layout is not None:
        raise InputError("scenario: overlay and layout both name the links; keep one")


def _check_texts(scenario: Scenario) -> None:
    """Parse the fields that are text, so that a mistake names its field."""
    parsers: list[tuple[str, Callable[[str], object], Sequence[str | None]]] = [
        ("delay", parse_delay, (scenario.delay,)),
        ("local_delay", parse_delay, (scenario.local_delay,)),
        ("interval", parse_delay, (scenario.interval,)),
        ("skew", parse_duration, (scenario.skew,)),
        (
            "faults",
            lambda text: (parse_group_fault if is_group_fault(text) else parse_fault)(text),
            scenario.faults,
        ),
        ("churn", parse_churn, scenario.group_churn),
        ("detector", parse_detector, (scenario.detector,)),
    ]
    for field, parse, texts in parsers:
        for text in texts:
            try:
                if text:
                    parse(text)
            except InputError as error:
                raise InputError(f"scenario: {field}: {error}") from error


def _check_changes(scenario: Scenario) -> None:
    """Refuse changes that a group cannot make."""
    if not scenario.has_changes:
        return
    name = scenario.protocol
    changes = [parse_churn(text) for text in scenario.group_churn]
    faults = [parse_group_fault(text) for text in scenario.faults if is_group_fault(text)]
    joins = sum(
        change.number if isinstance(change, Phones) else isinstance(change, Join | Attach)
        for change in changes
    )
    for field, change in [*(("churn", each) for each in changes), *(("faults", each) for each in faults)]:
        if highest_peer(change) >= scenario.peers + joins:
            raise InputError(
                f"scenario: {field}: there is no process {highest_peer(change)}; members are 0 to "
                f"{scenario.peers - 1}, and those who join come next"
            )
    if not scenario.is_changing:
        if scenario.group_churn or scenario.detector or any(isinstance(each, Suspicion) for each in faults):
            raise InputError(
                f"scenario: churn: the group of {name} is fixed, its processes can only crash; groups of "
                f"{', '.join(CHANGING)} change"
            )
        return
    if any(map(is_of_phones, changes)) and not issubclass(CHANGING[name], HubMember):
        raise InputError(f"scenario: churn: {name} has no phones; freescale, hcg and basic have")
    _check_groups_of(changes, scenario)
    for field in ("layout", "overlay"):
        if getattr(scenario, field) is not None:
            raise InputError(f"scenario: {field}: a group of {name} that changes is arranged by its view")
    unreliable = [text for text in scenario.faults if text.startswith(("duplicate", "reorder", "loss"))]
    if unreliable or scenario.fifo is False:
        raise InputError("scenario: a group that changes needs links that are FIFO and lose nothing")
    if scenario.network is not None and scenario.group_churn:
        raise InputError(
            "scenario: network: it has places for its peers only; those who join need direct links"
        )


def _check_groups_of(changes: Sequence[Churn], scenario: Scenario) -> None:
    groups = scenario.groups or {}
    for change in changes:
        group = getattr(change, "group", None)
        if group is not None and group not in groups:
            known = f"there are {', '.join(groups)}" if groups else "the scenario names no groups"
            raise InputError(f"scenario: churn: there is no group '{group}'; {known}")


def _check_layout(scenario: Scenario) -> None:
    try:
        scenario.resolved_layout()
    except InputError as error:
        raise InputError(f"scenario: {scenario.protocol} needs to know the longest delay: {error}") from error
    except (LocalError, msgspec.ValidationError) as error:
        fields = ", ".join(getattr(scenario.protocol_class().layout, "__struct_fields__", ()))
        known = f"; a layout of {scenario.protocol} has {fields}"
        raise InputError(f"scenario: layout: {error}{known}") from error
