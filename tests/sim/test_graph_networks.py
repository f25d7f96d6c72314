"""Networks and overlays in files, and flooding on any overlay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import judge
from antecede.errors import InputError
from antecede.overlay.graph_file import read_graph
from antecede.overlay.shapes import neighbours
from antecede.sim import Scenario, engines, scenario, simulate
from antecede.sim.verify import Histories
from antecede.user_classes import user_folder
from command_line import antecede
from event_log import EventLog

GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="edge" attr.name="delay" attr.type="string"/>
  <key id="d1" for="node" attr.name="delay" attr.type="string"/>
  <graph edgedefault="undirected">
    <node id="Bonn"><data key="d1">not of an edge</data></node>
    <node id="Kiel"/>
    <node id="Ulm"/>
    <edge source="Bonn" target="Ulm"><data key="d0">30ms</data></edge>
    <edge source="Bonn" target="Kiel"><data key="d0"> 5ms </data></edge>
    <edge source="Kiel" target="Ulm"><data key="d0">6ms</data></edge>
  </graph>
</graphml>
"""

EDGES = "# a comment\nBonn Kiel 5ms\nBonn,Ulm,30ms\n\nUlm Kiel 6ms  # and another\n"


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    (tmp_path / "net.graphml").write_text(GRAPHML)
    (tmp_path / "net.txt").write_text(EDGES)
    with user_folder(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("file", ["net.graphml", "net.txt"])
def test_packets_take_the_path_of_least_delay(folder: Path, file: str) -> None:
    """From Bonn to Ulm by way of Kiel in 11 ms, not in 30 ms."""
    setting = scenario(
        protocol="mbcp", peers=3, seconds=1, workload="given", sends=[[0], [], []], payload=0,
        network={"model": "graph", "file": file, "bits_per_second": 1e12},
    )  # fmt: skip
    graph = read_graph(folder / file)
    assert graph.names == ["Bonn", "Kiel", "Ulm"]
    assert graph.delays == {(0, 1): 5_000_000, (0, 2): 30_000_000, (1, 2): 6_000_000}
    metrics = simulate(setting).metrics
    assert metrics.latency_max_ns == 11_000_000
    assert metrics.measured["hops"] == 3


def test_the_graphml_default_delay_applies_to_edges_without_one(folder: Path) -> None:
    key = 'attr.name="delay" attr.type="string"/>'
    with_default = GRAPHML.replace(key, key.replace("/>", "><default>9ms</default></key>"), 1)
    (folder / "default.graphml").write_text(with_default.replace('<data key="d0">6ms</data>', ""))
    delays = read_graph(folder / "default.graphml").delays
    assert delays == {(0, 1): 5_000_000, (0, 2): 30_000_000, (1, 2): 9_000_000}


def test_without_edge_delays_paths_minimise_hops_and_delays_are_drawn(folder: Path) -> None:
    (folder / "star.txt").write_text("hub a\nhub b\nhub c\nhub 0\n")
    assert read_graph(folder / "star.txt").names == ["hub", "a", "b", "c", "0"]
    (folder / "numbers.txt").write_text("10 2\n9 2 {}\n0 10\n")
    assert read_graph(folder / "numbers.txt").names == ["0", "2", "9", "10"]
    done = antecede(
        "simulate", "--peers", "5", "--network", "graph,file=star.txt,delay=2ms", "--json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["stuck"] == 0
    assert 2_000_000 <= shown["latency_mean_ns"] <= 4_100_000
    routers = scenario(protocol="flooding", peers=3, network={"model": "graph", "file": "star.txt"})
    assert simulate(routers).metrics.stuck == 0  # the other two nodes only forward


@pytest.mark.parametrize(
    ("network", "remedy"),
    [
        (
            "graph,file=net.txt",
            "write graph,file=net.txt,delay=20ms for the links to which the file gives none",
        ),
        ("routed", "write routed,delay=20ms"),
        ("nodes", "write nodes,propagation=20ms"),
        ("relayed,behind=1,delay=1ms", "write relayed,behind=1,delay=20ms"),
    ],
)
def test_a_delay_that_the_network_would_ignore_is_refused(folder: Path, network: str, remedy: str) -> None:
    command = ["simulate", "--protocol", "mbcp", "--peers", "3", "--network", network]
    assert antecede(*command, cwd=folder).returncode == 0
    done = antecede(*command, "--delay", "20ms", cwd=folder)
    assert done.returncode == 2
    assert f"delay is for direct links, and this network has delays of its own; {remedy}" in done.stderr
    assert scenario(protocol="hcg", peers=3, network=network, delay="20ms").delay == "20ms"  # its bound


def test_nodes_that_only_forward_are_named(folder: Path) -> None:
    command = ["simulate", "--network", "graph,file=net.txt"]
    done = antecede(*command, "--peers", "2", cwd=folder)
    assert "nodes of the network 3: 2 peers, and 1 that only forwards" in " ".join(done.stdout.split())
    done = antecede(*command, "--peers", "3", cwd=folder)
    assert "nodes of the network 3: 3 peers" in " ".join(done.stdout.split())


def test_changing_the_graph_file_changes_the_scenario_key(folder: Path) -> None:
    network = scenario(protocol="mbcp", peers=3, network={"model": "graph", "file": "net.txt"})
    overlay = scenario(protocol="flooding", peers=3, overlay="graph,file=net.txt")
    before = network.key(), overlay.key()
    (folder / "net.txt").write_text(EDGES.replace("6ms", "7ms"))
    assert network.key() != before[0]
    assert overlay.key() != before[1]


def test_compiled_engines_refuse_file_networks_with_the_reason(folder: Path) -> None:
    network = scenario(protocol="mbcp", peers=3, network={"model": "graph", "file": "net.txt"})
    assert engines.choose(network, False, long=True).reason == "its network is in a file"
    with pytest.raises(InputError, match="event engine cannot run this scenario: its network is in"):
        engines.choose(network, False, "event")


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaa">]><graphml><graph><node id="&a;"/></graph></graphml>'
)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no nodes; write an edge list"),
        ("a\n", "line 1: a link is two names and perhaps a delay"),
        ("a b c d\n", "line 1: a link is two names"),
        ("a b\nb c 5\n", "line 2: the delay '5' is not a duration; .*or say unit=ms"),
        ("a b -5ms\n", "line 1: the delay '-5ms' is not a duration"),
        ("a a\n", "line 1: a is linked to itself"),
        ("a b 1ms\nb a 2ms\n", "line 2: the link of b and a had another delay in line 1"),
        ("a b\nc d\n", "no path leads from a to c; a graph must be connected"),
        ("a b\n", "has 2 nodes, too few for 3 peers"),
        ("\xff\xfe\x00", "is not text|has no nodes|line 1"),
        ("<graphml><graph>", "is not XML"),
        ("<html></html>", "is XML, but not GraphML"),
        ("<graphml><graph><edge source='a'/></graph></graphml>", "line 1: a node has no name"),
        ("<graphml><graph/><graph/></graphml>", "line 1: a second graph"),
        ("<graphml><graph><hyperedge/></graph></graphml>", "links have two ends"),
        (BOMB, "line 1: a document type is not accepted"),
        ("<?xml version='1.0' encoding='nonsense'?><graphml/>", "is not XML"),
    ],
)
def test_a_malformed_graph_file_is_refused_in_one_sentence(folder: Path, content: str, sentence: str) -> None:
    (folder / "bad.txt").write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=sentence):
        scenario(protocol="mbcp", peers=3, network={"model": "graph", "file": "bad.txt"})


def test_a_missing_graph_file_or_one_of_another_size_is_refused(folder: Path) -> None:
    for arguments, sentence in [
        (("--network", "graph,file=nowhere"), "No such file"),
        (("--network", "graph,file=/dev/zero"), "/dev/zero is not a file"),
        (("--network", "graph,file=."), "is not a file"),
        (("--protocol", "flooding", "--overlay", "graph,file=net.txt"), "has 3 nodes, one for each peer"),
        (("--protocol", "flooding", "--overlay", "graph"), "needs a file"),
        (("--network", "graph"), "file"),
    ]:
        done = antecede("simulate", *arguments, cwd=folder)
        assert done.returncode == 2
        assert sentence in " ".join(done.stderr.split())


@given(st.binary(max_size=200) | st.text("ab 15ms#,\n<>/=\"'!", max_size=80).map(str.encode))
def test_any_bytes_are_a_graph_or_one_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.graph"
    file.write_bytes(data)
    try:
        graph = read_graph(file)
    except InputError:
        return
    assert len(graph.names) >= 2


# Flooding on any overlay.


def verdict_of(setting: Scenario) -> tuple[bool, int]:
    histories = Histories(setting)
    metrics = simulate(setting, [histories]).metrics
    return judge(histories.execution()).verdict.clean, metrics.stuck


@pytest.mark.parametrize("protocol", ["flooding", "pc"])
@pytest.mark.parametrize("overlay", ["hypercube", "ring", "line", "star", "random", "random,degree=2"])
def test_causal_order_on_every_named_overlay(protocol: str, overlay: str) -> None:
    for seed in range(4):
        setting = scenario(
            protocol=protocol, peers=5 + 3 * seed, seconds=0.5, seed=seed, overlay=overlay, reply=0.2,
            most_messages=60, delay="wild:1us-1s", churn=40.0 if protocol == "pc" else None,
        )  # fmt: skip
        assert verdict_of(setting) == (True, 0)


@given(st.integers(2, 12), st.data(), st.sampled_from(["flooding", "pc"]))
def test_causal_order_on_any_connected_graph(
    tmp_path_factory: pytest.TempPathFactory, size: int, data: st.DataObject, protocol: str
) -> None:
    """A random tree and any further links, in a file."""
    links = [(peer, data.draw(st.integers(0, peer - 1))) for peer in range(1, size)]
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )
    links += data.draw(st.lists(pairs, max_size=size))
    folder = tmp_path_factory.getbasetemp()
    (folder / "overlay.txt").write_text("".join(f"{one} {other}\n" for one, other in links))
    with user_folder(folder):
        setting = scenario(
            protocol=protocol, peers=size, seconds=0.3, overlay="graph,file=overlay.txt", delay="wild:1us-1s",
            reply=0.3, most_messages=40, seed=data.draw(st.integers(0, 1000)),
        )  # fmt: skip
        assert [member.partners() for member in setting.members()] == neighbours(size, links)
        assert verdict_of(setting) == (True, 0)


def test_flooding_over_the_default_overlay_is_flooding_over_a_hypercube() -> None:
    fields: dict[str, Any] = {"protocol": "flooding", "peers": 11, "seconds": 0.5}
    assert simulate(scenario(**fields)).metrics == simulate(scenario(**fields, overlay="hypercube")).metrics


@pytest.mark.parametrize("protocol", ["flooding", "pc"])
@pytest.mark.parametrize("overlay", ["star", "random,degree=3", "graph,file=net.txt"])
def test_compiled_engines_flood_any_overlay_in_the_same_way(
    folder: Path, protocol: str, overlay: str
) -> None:
    peers = 3 if "file" in overlay else 13
    churn = 20.0 if protocol == "pc" and peers > 3 else None
    setting = scenario(protocol=protocol, peers=peers, overlay=overlay, seconds=1, churn=churn, reply=0.05)
    compiled, reference = EventLog(), EventLog()
    assert (
        simulate(setting, [compiled], engine="event").metrics
        == simulate(setting, [reference], engine="reference").metrics
    )
    assert compiled.events == reference.events


def test_an_overlay_and_a_layout_are_one_too_many() -> None:
    with pytest.raises(InputError, match="overlay and layout both name the links"):
        scenario(protocol="pc", overlay="ring", layout={"overlay": "star"})
