"""What each protocol would have cost on the workload of a log, and which one to choose.

- `core`: advice on one run
- `pasts`: the causal past of every message of a log, or of a table of dependencies
- `schedule`: who sent when, and how long messages took
- `trial`: simulates a protocol on that schedule
- `recommend`: which peers are behind a super peer; which protocol is recommended, and why
- `results`: the types of the answer
- `run`, `on_spark`: advice on a trace wherever it lies
"""

from antecede.advise.core import Request, advise_dependencies, advise_run
from antecede.advise.results import Advice, Cost

__all__ = ["Advice", "Cost", "Request", "advise_dependencies", "advise_run"]
