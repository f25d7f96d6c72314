"""The mathematics of causal order, and the oracle that judges a finished execution.

Nothing here knows a protocol, a clock or a file. From what each process sent and delivered, in its own order,
it derives what happened before what.
"""

from antecede.causality.bit_window import BitWindow
from antecede.causality.execution import Execution, Kind, MessageId, Step
from antecede.causality.happened_before import CausalOrder
from antecede.causality.oracle import Judgement, Verdict, Violation, judge

__all__ = [
    "BitWindow",
    "CausalOrder",
    "Execution",
    "Judgement",
    "Kind",
    "MessageId",
    "Step",
    "Verdict",
    "Violation",
    "judge",
]
