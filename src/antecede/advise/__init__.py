"""What each protocol would have cost on the workload of a log, and which one to take.

- `pasts`: what every message of a log, or of a table of dependencies, depends on
- `schedule`: who sent when, and how long messages took
- `trial`: a protocol on that schedule
- `choice`: who is behind a super peer; which protocol is recommended, and why
- `advise`: all of it, for one run
"""

from antecede.advise.core import Request, advise_dependencies, advise_run
from antecede.advise.results import Advice, Cost

__all__ = ["Advice", "Cost", "Request", "advise_dependencies", "advise_run"]
