"""Paper 002's flooding on links that may reorder, which the paper excludes."""

from __future__ import annotations

from typing import ClassVar

from antecede.papers.paper_002.flooding_variants import FloodingThatCounts
from antecede.protocols.base import LinkRequirements
from antecede.protocols.flooding import Flooding


class FloodingWithoutFifo(Flooding):
    name: ClassVar[str] = "flooding over links that reorder"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)


class CountingWithoutFifo(FloodingThatCounts):
    """Figure 2's duplicate test: what arrives after a later message of the same origin is taken for a
    duplicate."""

    name: ClassVar[str] = "flooding that counts, over links that reorder"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
