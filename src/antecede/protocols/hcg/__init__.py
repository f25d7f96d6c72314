"""HCG (paper 003): subgroups on real, linear and vector clocks, joined by gateways; and the paper's baseline.

Within a subgroup, messages are ordered by the clock that its members share (`clocks`). The first member of
each subgroup is its gateway. In the order of the subgroup, a gateway numbers its members' messages and sends
them to the other gateways. With each it sends what may precede it (`precedence`): for each subgroup, a number
up to which all messages may. A gateway that receives a message from another gateway forwards it once
everything that it names and its origin's previous message have been forwarded. To forward a message, it sends
it in its own subgroup as a message of its own, stamped with its own clock.

`hcg` names m1 in m if m's stamp says that m1 may precede it: in real time, if m is later by at least the time
that members wait before delivering m1; in linear time, if m is later; by vectors, if m's vector counts m1.
`basic`, the paper's B, names everything that the gateway has received by then.

Why this is causal: if m1 was delivered where m was sent, m's stamp says so, so m names m1 or follows it in
its origin's order. Hence every gateway forwards m after m1, or had numbered m1 before m could arrive.
Either way its clock has passed m1 when it stamps m, and the order of the subgroup preserves that for all
members.

Corrections of the paper; tests show that each rule fails as printed:
- It delivers in real time without waiting. The wait is the longest local delay plus the largest clock
  difference. With it, "later by at least the wait" is exact. It replaces the paper's thresholds (more than
  the delay, twice the delay between different processes), which miss causes.
- It gives concurrent messages equal numbers, starting from the smallest stamp. Such numbers do not say how
  many messages to wait for. Here every message has its own number.
- Two messages of one sender within the clock difference are not concurrent: sender order is always kept.
- Dating forwarded messages back is left out: it needs a longer wait, and has no meaning for linear clocks.
Found while combining the parts:
- The wait is one unit longer than that sum, for packets that arrive at the very same instant.
- A gateway's own application delivers forwarded messages in the order of the subgroup, like all other
  members, and its own messages are numbered in that order. If it delivered them at once, what it sends
  within the wait would not name them.
- A gateway forwards concurrent messages of another gateway out of order, so "the largest number among those
  that precede m" counts some that do not. Messages beyond a gap are named one by one.
- What counts is what was forwarded, not what has arrived.
Then, if timers fire on time, `hcg` on real-time and vector clocks orders at the gateways exactly what
happened before, except for messages sent in reply to one of several that are delivered at the same instant.

Links need not be FIFO. Those within a real-time subgroup, and its clocks, must keep to their bounds. Control
information: within a subgroup of s, one time (RT, LT) or s numbers (VT), and up to s² acknowledgements a
message (LT); between k gateways, k numbers, and one for each message beyond a gap. A delivery costs O(log
held) (RT), O(s) for each acknowledgement (LT), O(s) (VT); at a gateway, O(k + s) more. Memory: what is
held, O(s) a member, at a gateway O(k + n), with vectors O(ks + s²), and what `precedence` remembers.
"""

from antecede.protocols.hcg.layout import CLOCKS, SubgroupLayout
from antecede.protocols.hcg.packets import GatewayPacket
from antecede.protocols.hcg.protocol import Basic, Hcg

__all__ = ["CLOCKS", "Basic", "GatewayPacket", "Hcg", "SubgroupLayout"]
