"""Paper 000: communication and storage overhead in a free-scale network, compared with IDR and DS.

`runs` makes the runs and selects among them, `scores` has the rows, `figures` the charts, `home_numbers` a
reading of DS, and `open_question` several super peers and internal groups.
"""

from __future__ import annotations

from antecede.papers.paper import Paper
from antecede.papers.paper_000.figures import figures
from antecede.papers.paper_000.open_question import open_figures, open_grid
from antecede.papers.paper_000.runs import PAPER, grid, seeds
from antecede.papers.paper_000.scores import score
from antecede.papers.readings import Alternative, Reading, fixed

READINGS = [
    fixed(
        "“variance equal to one fourth of the interval”",
        "standard deviation a quarter of the interval",
        "the paper's own example, N(80, 5) for 70–90 ms, and its figures",
    ),
    fixed("bytes of a pair and of a clock entry", "4 + 4 and 4", "not printed; the usual sizes"),
    fixed(
        "bytes of a bit vector",
        "bits from the first to the last that is set; for RV and VTx from the first that is cleared",
        "section 3.1.2 says which bits must be stored",
    ),
    fixed("identities, SN and offsets", "not counted", "the figures start near zero"),
    Reading(
        "Last",
        "the number of the sender's previous message (Last)",
        (
            Alternative("not counted", "not counted", "the figures start near zero"),
            Alternative(
                "bit", "a bit inside DV where a super peer passes on a message from the external group",
                "the translation to the internal group sets it in DV (Listing 15)", "down_last_paper_bytes",
            ),
        ),
    ),
    Reading(
        "DS",
        "DS: “each external peer is simulated as a super peer with exactly one peer in its group”",
        (
            Alternative(
                "alone", "an interval for each other peer", "under causal delivery there is no other one"
            ),
            Alternative(
                "home", "and the intervals of its super peer's numbers that a peer has received",
                "a peer's super peer is one more delay away", "home_numbers",
            ),
        ),
    ),
    Reading(
        "linear from",
        "where “the linear part” of Figures 7 to 9 begins, in peers",
        (
            Alternative("100", "100", "“more than 100–200”"),
            Alternative("200", "200", "“more than 100–200”"),
            Alternative("300", "300", "at longer delays it begins later"),
        ),
    ),
    fixed("when storage is measured", "every 50 ms after a warm-up, averaged over peers", "“on average”"),
    fixed(
        "the form of the protocol",
        "the paper's own (I as bits), with only the rules corrected that fail as printed",
        "its figures include I; our own form, which is not measured here, is smaller",
    ),
    fixed(
        "the super peer in IDR",
        "a relay: a message takes one delay to it, and each copy one delay from it",
        "it “only retransmits”",
    ),
]  # fmt: skip

STUDY = Paper(
    PAPER,
    "Free-scale networks: internal, external and super peers",
    READINGS,
    seeds,
    grid,
    score,
    figures,
    "Several super peers and internal groups: how does overhead grow?",
    open_grid,
    open_figures=open_figures,
)
