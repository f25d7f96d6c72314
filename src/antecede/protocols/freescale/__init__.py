"""Free-scale networks (paper 000): phones behind super peers, servers in a mesh, dependencies as bits.

An external peer exchanges messages with all members of the external group and names immediate dependencies as
pairs, as `mbcp` does. A super peer is also in the external group, and relays for the internal peers behind
it, which communicate only with it. It numbers every message that passes, whatever its origin, so an internal
peer names dependencies as bits in one sequence of numbers. The super peer translates between the two: a table
maps its own number of an external message to the sender's number.

An internal peer delivers a message once the same sender's previous message and all named numbers are
delivered. An external peer delivers a message once its pairs and bits are delivered, and the sender's
previous message too: it has the next lower number if an external peer sent it, and is named
(`sender_previous`) if it comes through a super peer. A super peer forwards external messages inside under
the same condition.

docs/protocols/freescale.md lists our corrections of the paper, each with the counter-example that forced it:
- A table entry is dropped only after every internal peer has reported that it will not name it again. Reports
  are piggybacked on messages; a silent peer sends one after every `ack_every` deliveries.
- Outside, one number (`relay_previous`) says which of the super peer's numbers are never sent; the paper
  sends a bit for each.
- `sender_previous` is a number; the paper sets a bit far back.
`form: paper` restores the paper's form, because its figures include it.

Links need not be FIFO. Control information: inside, the bits between the first and the last immediate
dependency, at most as many as messages were in flight, and O(1) numbers; outside, a pair for each external
peer named and a bitmap for each super peer named. Memory: inside, a window of bits; outside, a count for each
external peer and a window for each super peer; a super peer also has its table, whose length is the lag of
the slowest internal peer. A delivery costs the entries that its message names. An internal message takes one
packet up, one down for each internal peer, and one for each other member of the external group.
"""

from antecede.protocols.freescale.layout import FreescaleLayout
from antecede.protocols.freescale.packets import DownlinkPacket
from antecede.protocols.freescale.protocol import Freescale

__all__ = ["DownlinkPacket", "Freescale", "FreescaleLayout"]
