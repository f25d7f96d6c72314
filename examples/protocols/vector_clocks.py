"""A protocol as a program of its own, in any language: this one knows nothing of Antecede.

    antecede check "exec:python3 examples/protocols/vector_clocks.py"

It reads a request and writes a reply, one JSON document a line, and keeps nothing in between: the state of a
member comes with each request. A message carries its sender's vector clock, and is delivered once it is the
sender's next and everything else that the clock counts was delivered.
"""

import json
import sys
from typing import Any

Json = dict[str, Any]


def new(request: Json) -> Json:
    return {"state": {"me": request["me"], "clock": [0] * request["size"], "held": []}}


def broadcast(request: Json) -> Json:
    state = request["state"]
    me, clock = state["me"], state["clock"]
    clock[me] += 1
    packet = {"from": me, "clock": clock, "payload": request["payload"]}
    others = [peer for peer in range(len(clock)) if peer != me]
    send = {"to": others, "packet": packet, "messages": [[me, clock[me]]]}
    return {"state": state, "sends": [send], "message": [me, clock[me]]}


def receive(request: Json) -> Json:
    state, packet = request["state"], request["packet"]
    if packet not in state["held"] and packet["clock"][packet["from"]] > state["clock"][packet["from"]]:
        state["held"].append(packet)
    return {"state": state}


def deliver(request: Json) -> Json:
    state = request["state"]
    for packet in state["held"]:
        sender = packet["from"]
        missing = [theirs - ours for theirs, ours in zip(packet["clock"], state["clock"], strict=True)]
        if missing[sender] == 1 and all(n <= 0 for peer, n in enumerate(missing) if peer != sender):
            state["held"].remove(packet)
            state["clock"][sender] += 1
            message = [sender, state["clock"][sender]]
            return {"state": state, "delivery": {"message": message, "payload": packet["payload"]}}
    return {"state": state, "delivery": None}


REPLIES = {"new": new, "broadcast": broadcast, "receive": receive, "deliver": deliver}

for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "describe":
        reply = {"name": "vector clocks", "fifo": False}
    else:
        reply = REPLIES[request["op"]](request)
    print(json.dumps(reply), flush=True)
