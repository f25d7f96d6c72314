"""Paper 002: flooding a hypercube (Overlay) compared with vector timestamps (Timestamp) on a routed network.

Ten senders send ten messages each, every millisecond, ten times, with 0, 100 or 1000 bytes of data, among 100
to 600 nodes on a random graph of 10 Mbit/s links. The paper prints no numbers, so its claims in words are
checked: at each of its own sizes that were run, otherwise at the largest size. Timestamp runs on a multicast
tree, and a second time as unicasts. `pc` answers the paper's open question, links that open and close.

`runs` makes the runs and averages them, `scores` and `overlays` have the rows, `open_question` what was left
open, and `flooding_variants` the flooding protocols as the paper prints them.
"""

from __future__ import annotations

from antecede.papers.paper import Figure, Paper, Runs, wire_figure
from antecede.papers.paper_002.open_question import OPEN_QUESTION, open_figures, open_grid, open_score
from antecede.papers.paper_002.runs import DATA, MB, MS, PAPER, grid, seeds, select
from antecede.papers.paper_002.scores import score
from antecede.papers.readings import Alternative, Joint, Reading, fixed

_FIGURES = (
    # the first of three numbers, one for each size of data; (part, figure, title, unit, scale)
    (3, (("a", "latency_mean_ns", "Mean delay", "ms", MS),
         ("b", "latency_max_ns", "Maximum delay", "ms", MS))),
    (6, (("a", "fragments", "Fragments sent", "fragments", 1.0),
         ("b", "sent_bytes", "Bytes sent", "MB", MB))),
    (9, (("", "hops", "Physical hops", "hops", 1.0),)),
    (12, (("a", "delivery_queue_mean", "Mean delivery queue", "messages", 1.0),
          ("b", "delivery_queue_most", "Longest delivery queue", "messages", 1.0))),
    (15, (("a", "mean_link_queue", "Mean link queue", "fragments", 1.0),
          ("b", "longest_link_queue", "Longest link queue", "fragments", 1.0))),
)  # fmt: skip


def _names(joint: Joint) -> dict[str, str]:
    """What lines are called: which way of Timestamp the verdicts are about."""
    judged = "unicast" if joint["Timestamp"] == "unicasts" else "Timestamp"
    names = {"Timestamp": "Timestamp, tree", "unicast": "Timestamp, unicast"}
    return {"Overlay": "Overlay"} | {
        name: f"{shown} (judged)" if name == judged else shown for name, shown in names.items()
    }


def figures(runs: Runs, joint: Joint) -> list[Figure]:
    """The paper's Figures 3 to 17, which have no printed numbers."""
    names, charts = _names(joint), []
    for first, parts in _FIGURES:
        for place, data in enumerate(DATA):
            for part, figure, title, unit, scale in parts:
                lines = {
                    shown: [(x, y / scale) for x, y in select(runs, name, data).line(figure)]
                    for name, shown in names.items()
                }
                title = f"{title}, {data} bytes of data"
                charts.append(Figure(f"{first + place}{part}", title, "nodes", unit, lines))
    both = {}
    for name in ("Overlay", "Timestamp"):
        there = select(runs, name, 0)
        both[name] = there.line("paper_bytes_mean"), there.line("control_bytes_mean")
    return charts + wire_figure(both, "nodes")


READINGS = [
    fixed("the length of a run", "10 rounds, and until everything has arrived",
            "not printed; where links do not keep up with the rate, delays and queues grow with it"),
    Reading("rounds", "“10 new messages every 1 milliseconds”",
            (Alternative("1000", "10 at once, 1000 times a second", "as printed", "rate"),
             Alternative("20", "20 times a second", "links then keep up with most of the load", "rate"),
             Alternative("1", "once a second", "links are idle again before each round", "rate"))),
    fixed("GT-ITM with edge probability 0.01 to 0.04",
            "a random graph with probability 4/n, at least 0.01, and links added until it is connected",
            "that is 0.04 at 100 and 0.01 from 400 nodes on; 0.01 at 100 would mean one neighbour each"),
    Reading("Timestamp", "how Timestamp reaches all",
            (Alternative("tree", "a multicast tree of shortest paths", "“net_multicast”", "multicast"),
             Alternative("unicasts", "a packet to each", "“n messages”", "multicast"))),
    fixed("routes", "fewest hops, always the same of several paths", "links must be FIFO end to end"),
    fixed("what a fragment is", "packets above 1500 bytes are split, each part with a header of 32",
            "“a real IP network”; the MTU is not printed"),
    Reading("counted", "“each message (fragment) is counted once for each logical arc it traverses”",
            (Alternative("fragments", "fragments", "“we in fact measure the number of fragments sent”",
                         "fragments"),
             Alternative("messages", "messages, in however many fragments",
                         "“counted as n sent messages”, whatever n", "packets"))),
    Reading("d", "d in “d < n/(log n − 1)”",
            (Alternative("data", "the bytes of data", "“the size of the application data”"),
             Alternative("copy", "all that a copy carries but the timestamp, in units of its entries",
                         "“control information of size n”: the unit is an entry, of 4 bytes; and what is "
                         "sent with every copy is a header of 32 bytes and a number, too"))),
    fixed("control information", "4 bytes per sequence number: one for Overlay, n for Timestamp", "5.1"),
    fixed("which log", "to base 2", "the dimension of a hypercube"),
    fixed("incomplete hypercubes", "the node half a cube below stands in for a missing corner",
            "the paper's construction is in other papers; degrees and disjoint paths are as it says"),
    fixed("messages and bytes sent", "each fragment once per destination, whatever its path",
            "“once for each logical arc it traverses”"),
    fixed("mean network load", "fragments on a link or in its queue, averaged over links and the run",
            "“average number of messages on all links”"),
    fixed("“high maximum queue size and low mean queue size”",
            "maximum above Timestamp's; ratio of mean to maximum below Timestamp's",
            "chosen after the first runs, at 1000 rounds a second: there the mean is not below Timestamp's, "
            "which has its own row"),
    fixed("“much faster”, “the difference decreases”", "which is less; Timestamp's delay over Overlay's",
            "no factor is printed; where the order is reversed has its own row"),
    fixed("delivery queue", "messages held, averaged over nodes and the run", "5.1"),
    fixed("who sends", "10 nodes, evenly spread over the ranks", "not printed"),
]  # fmt: skip

STUDY = Paper(
    PAPER, "Flooding a hypercube, against vector timestamps", READINGS, seeds, grid, score, figures,
    OPEN_QUESTION, open_grid, open_score, open_figures,
)  # fmt: skip
