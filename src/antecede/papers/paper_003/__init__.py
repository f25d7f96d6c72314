"""Paper 003: subgroups with different clocks, joined by gateways (HCG), against the basic protocol B.

`runs` makes the runs and selects among them, `scores` has the rows, `figures` the charts, and
`open_question` the sizes that the paper talks about and does not measure.
"""

from __future__ import annotations

from antecede.papers.paper import Paper
from antecede.papers.paper_003.figures import figures
from antecede.papers.paper_003.open_question import OPEN_QUESTION, open_figures, open_grid, open_score
from antecede.papers.paper_003.runs import PAPER, grid, seeds
from antecede.papers.paper_003.scores import score
from antecede.papers.readings import Alternative, Reading, fixed

READINGS = [
    Reading(
        "ratio",
        "“reduction ratio of the messages causally ordered in HCG to B”",
        (
            Alternative(
                "share",
                "the share of pairs that HCG orders",
                "the text reads the figure as “only about 50 % of messages … causally precede”, a share",
            ),
            Alternative("HCG over B", "HCG's share relative to B's", "the label of the axis"),
            Alternative("saved of B", "what B orders and HCG does not, relative to B", "“reduction”"),
        ),
    ),
    fixed(
        "“sends randomly one message every λ time units”",
        "one a and one b in each window, each at any time in [0, λ]; windows are far apart",
        "“0 ≤ λ ≤ 100” next to λ = 100: the time is drawn from that interval",
    ),
    Reading(
        "a",
        "“a gateway process sends a message a”, and which of a and b precedes",
        (
            Alternative(
                "forwarded",
                "a is a message from another subgroup that the gateway forwards; a before b",
                "that is the purpose of gateways",
                "silent",
            ),
            Alternative("own", "a is the gateway's own; a before b", "“sends”", "silent"),
            Alternative(
                "own, reversed", "a is the gateway's own; b before a", "the text on Figure 7", "silent"
            ),
        ),
    ),
    fixed(
        "“|b.LT − a.LT| > δj”",
        "b.LT − a.LT > δj: a before b only",
        "with the absolute value b would also follow messages sent after it, and 93 % would be ordered",
    ),
    fixed(
        "δl, and what HCG compares with",
        "every local packet takes δl; a may precede b if b is sent at least δl + 1 ns after it",
        "the subgroup waits for its longest delay before delivering",
    ),
    fixed(
        "B: “sent after receiving m1 in a gateway”",
        "a is named if the gateway has it when b is delivered there, δl + 1 ns after b was sent",
        "the gateway forwards b",
    ),
    fixed("λ of Figure 7", "100 to 300,000 µs", "as in the text; little changes beyond 30,000"),
    fixed("clock difference", "none", "section 5 does not mention it"),
    fixed(
        "“invariant”", "ends within 10 % of where it began", "the scoreboard's own measure of what matches"
    ),
    fixed(
        "where Figures 7 and 8 meet",
        "one point, scored against both printed values",
        "“about 50 %” and “about 45 %” are given for the same λ and δl",
    ),
]

STUDY = Paper(
    PAPER,
    "Subgroups with different clocks, joined by gateways",
    READINGS,
    seeds,
    grid,
    score,
    figures,
    OPEN_QUESTION,
    open_grid,
    open_score,
    open_figures,
)
