"""Paper 003: subgroups with different clocks, joined by gateways (HCG), against the basic protocol B.

`runs` makes the runs and selects among them, `scores` has the rows, `figures` the charts, and
`open_question` the sizes that the paper talks about and does not measure.
"""

from __future__ import annotations

from antecede.papers.paper import Paper, Reading
from antecede.papers.paper_003.figures import figures
from antecede.papers.paper_003.open_question import OPEN_QUESTION, open_figures, open_grid, open_score
from antecede.papers.paper_003.runs import PAPER, grid
from antecede.papers.paper_003.scores import score

READINGS = [
    Reading(
        "“reduction ratio of the messages causally ordered in HCG to B”",
        "the share of pairs that HCG orders; additionally as a ratio to B, and as savings relative to B",
        "the text reads the figure as “only about 50 % of messages … causally precede”, a share",
    ),
    Reading(
        "“sends randomly one message every λ time units”",
        "one a and one b in each window, each at any time in [0, λ]; windows are far apart",
        "“0 ≤ λ ≤ 100” next to λ = 100: the time is drawn from that interval",
    ),
    Reading(
        "“a gateway process sends a message a”",
        "a is a message from another subgroup that the gateway forwards; its own are run at one point",
        "that is the purpose of gateways; their own are numbered in the subgroup's order, by B too",
    ),
    Reading(
        "“|b.LT − a.LT| > δj”",
        "b.LT − a.LT > δj: a before b only",
        "with the absolute value b would also follow messages sent after it, and 93 % would be ordered",
    ),
    Reading(
        "which of the two precedes",
        "a before b, as in the description of the model; the reverse is scored too",
        "the text on Figure 7 has the reverse; the shares are equal",
    ),
    Reading(
        "δl, and what HCG compares with",
        "every local packet takes δl; a may precede b if b is sent at least δl + 1 ns after it",
        "the subgroup waits for its longest delay before delivering",
    ),
    Reading(
        "B: “sent after receiving m1 in a gateway”",
        "a is named if the gateway has it when b is delivered there, δl + 1 ns after b was sent",
        "the gateway forwards b",
    ),
    Reading("λ of Figure 7", "100 to 300,000 µs", "as in the text; little changes beyond 30,000"),
    Reading("clock difference", "none", "section 5 does not mention it"),
    Reading(
        "“invariant”", "ends within 10 % of where it began", "the scoreboard's own measure of what matches"
    ),
    Reading(
        "where Figures 7 and 8 meet",
        "one point, scored against both printed values",
        "“about 50 %” and “about 45 %” are given for the same λ and δl",
    ),
]

STUDY = Paper(
    PAPER,
    "Subgroups with different clocks, joined by gateways",
    grid,
    score,
    figures,
    READINGS,
    OPEN_QUESTION,
    open_grid,
    open_score,
    open_figures,
)
