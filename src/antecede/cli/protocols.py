"""antecede protocols: the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.cli import show
from antecede.cli.options import Json

if TYPE_CHECKING:
    from antecede.protocols.base import Protocol


def protocols(as_json: Json = False) -> None:
    """List the protocols: what messages carry, which links each requires, and whether groups may change."""
    from antecede.protocols.catalog import PROTOCOLS

    classes = list(PROTOCOLS.values())
    if as_json:
        show.json([_document(protocol) for protocol in classes])
        return
    show.table(None, ["protocol", "a message carries"], [[p.name, p.summary] for p in classes], left=2)
    show.line()
    header = ["protocol", "links", "control information", "a message waits"]
    rows = [[p.name, _links(p), p.control, p.buffering] for p in classes]
    show.table(None, header, rows, left=4)
    show.line()
    from antecede.membership.catalog import CHANGES

    header = ["protocol", "live, by", "in a fixed group", "where members come and go"]
    rows = [[p.name, _live(p), p.membership, CHANGES[p.name]] for p in classes]
    show.table(None, header, rows, left=4)
    show.note(
        "A live group is fixed if it has peers; members come and go if it has founders, or with connect. "
        "In a fixed group super peers of freescale may be behind others, at any number of levels. "
        "Every protocol requires links that lose nothing while open. "
        "The page Protocols of the documentation explains each."
    )


def _document(protocol: type[Protocol]) -> dict[str, object]:
    from antecede.membership.catalog import CHANGES

    links = protocol.links
    return {
        "name": protocol.name,
        "carries": protocol.summary,
        "control": protocol.control,
        "links": {"fifo": links.fifo, "reliable": links.reliable, "bounded": links.bounded_delays},
        "buffering": protocol.buffering,
        "changes_in_fixed_group": protocol.membership,
        "changes": CHANGES[protocol.name],
        "live": _live(protocol),
        "layout": list(protocol.layout.__struct_fields__) if protocol.layout else [],
    }


def _live(protocol: type[Protocol]) -> str:
    from antecede.live.changing.protocols import LIVE

    if protocol.overlapping_groups:
        return "antecede.connect"
    return "peers, founders" if protocol.name in LIVE else "peers"


def _links(protocol: type[Protocol]) -> str:
    order = "FIFO" if protocol.links.fifo else "any order"
    return f"{order}, bounded" if protocol.links.bounded_delays else order
