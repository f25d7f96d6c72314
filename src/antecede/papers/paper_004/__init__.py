"""Paper 004: causal broadcast down a tree for each source, with and without aggregation.

Every node broadcasts one message of 50 bytes at some time within 500 units; nodes take a unit to process
and a unit to transmit each packet, one after the other; a link takes 100 ± 25. A unit of time is 1 ms here.
A sample is one run; what compares two protocols compares runs of the same seed.

The runs and what the paper prints are in `p004_runs`, the rows in `p004_scores` and `p004_nodes`, other
sizes in `p004_open`.
"""

from __future__ import annotations

from antecede.papers.paper import Paper, Reading
from antecede.papers.paper_004.figures import figures
from antecede.papers.paper_004.open_question import open_figures, open_grid, open_score
from antecede.papers.paper_004.runs import PAPER, grid
from antecede.papers.paper_004.scores import score

READINGS = [
    Reading(
        "“random time given by a Poisson distribution with interval rate λ = 1000”, one message a node",
        "each node at any time of the first 500 units",
        "the one number not printed, and chosen because the largest clock of Figure 6 has 54 dependencies. "
        "With 256 nodes ours has about 55; starts spread evenly over 1000 give 140, exponential with mean "
        "1000 give 253, and Poisson-distributed with mean 1000 give 5",
    ),
    Reading(
        "σ of the propagation time", "25 units, as printed", "40 would be nearer to Table 1, and is not used"
    ),
    Reading(
        "propagation",
        "whole units, drawn for each packet copy, again if negative; a link does not keep order",
        "PeerSim's clock is whole; messages must be able to overtake each other on one link (section 5.5)",
    ),
    Reading("processing", "a unit's delay at the receiver, without a queue", "only sending is said to queue"),
    Reading("queue", "one a node, a unit for each copy", "“a copy of it is inserted in the sending queue”"),
    Reading(
        "size of a packet",
        "20 bytes, and for each message its payload and 4 bytes an entry of its clock that changed, its own "
        "included",
        "section 5.2; a packet is cut so that it stays within 1500 bytes by this count, not by our encoding",
    ),
    Reading("order within a received set", "all at once", "other orders are wrong, or take bundles apart"),
    Reading(
        "Figure 6: “for the remaining messages, 28.5 % (18.4 %) of them”",
        "of all messages; 1 to 4, and 5 to 9",
        "of the rest, more messages would have 10 to 12 dependencies than 5 to 9, but the share “continues "
        "to drop”",
    ),
    Reading("Table 3", "its columns are swapped", "the text gives 8.45 = 3.91 + 4.54 % to aggregation"),
    Reading(
        "“2.1 times higher”", "L(1024) / L(8) − 1",
        "trees of 1024 nodes are 2.9 times as deep on average as those of 8, so that 2.1 cannot be the ratio",
    ),
    Reading("maximum increase", "of the longest reception of a run", "not said"),
    Reading(
        "time held", "averaged over all deliveries, those that did not wait included",
        "it is the difference of Figure 7's two latencies; 53.4 % is printed for the sending queue too",
    ),
    Reading(
        "Figure 8: “the individual transmissions of the corresponding messages”",
        "the same message in the same run, less what peers on its way kept it waiting for company",
        "a second run has other delays; by this, delivery is the same by definition, and Figure 7 tests that",
    ),
    Reading("buffered messages (Figure 9)", "what is left after all that can be delivered is", "“held in”"),
    Reading(
        "one tree (Figures 1 and 11)",
        "a message goes to node 0 by one packet and then down the tree of node 0, through its source again",
        "“disseminated from the root of this tree to the other nodes”; node 0 is the bottleneck",
    ),
    Reading("Figure 1", "with aggregation, and the times of Figure 7", "it is another paper's; section 5.5"),
    Reading("aggregations (Figure 11)", "packets with more than one message", "not said"),
    Reading("delayed messages (Figure 11)", "deliveries that waited", "“in buffer waiting for delivery”"),
    Reading(
        "how two protocols are compared",
        "runs with the same seed, so the same start times; what is rare is summed over runs first",
        "with few nodes most runs have nothing to divide by",
    ),
]  # fmt: skip

STUDY = Paper(
    PAPER,
    "VCube: a spanning tree for each source, and aggregation",
    grid,
    score,
    figures,
    READINGS,
    "The paper needs N to be a power of two. What do other sizes cost?",
    open_grid,
    open_score,
    open_figures,
)
