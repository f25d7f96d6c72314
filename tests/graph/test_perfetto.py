"""The export for Perfetto has the form of Chrome's traces, and an arrow for each immediate dependency."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

from antecede.causality.happened_before import CausalOrder
from antecede.graph.perfetto import export_perfetto
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.execution_from_rows import execution
from antecede.trace.reader import read_trace


def test_perfetto_export_has_slices_and_dependency_arrows(tmp_path: Path) -> None:
    setting = scenario(protocol="timestamp", peers=6, seconds=1.0, rate=10.0, delay="exp:30ms", seed=3)
    simulate_to(tmp_path / "trace", setting)
    exported = export_perfetto(tmp_path / "trace", tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}
    rows = read_trace(tmp_path / "trace")
    kinds = Counter(rows.column("kind").to_pylist())
    slices = [event for event in events if event["ph"] == "X"]
    assert Counter(event["cat"] for event in slices) == {kind: kinds[kind] for kind in ("send", "deliver")}
    assert exported.events == len(slices)
    tracks = defaultdict(list)
    for event in slices:
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) == exported.processes == 6
    for own in tracks.values():
        assert all(begin < end for begin, end in own)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(own)), "slices overlap"

    order = CausalOrder(execution(rows, {}))
    edges = sum(
        cause.origin != message.origin
        for message in order.messages
        for cause in order.immediate_dependencies(message)
    )
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert edges == exported.flows == len(starts) == len(ends)
    at = {(event["tid"], event["ts"]): event for event in slices}
    for number, start in starts.items():
        end = ends[number]
        left, arrived = at[start["tid"], start["ts"]], at[end["tid"], end["ts"]]
        assert (left["cat"], arrived["cat"], end["bp"]) == ("send", "deliver", "e")
        assert left["args"]["message"] == arrived["args"]["message"]
