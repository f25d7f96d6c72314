"""Delays, networks, overlays, workloads and probes of the user's own, named as module:Class."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antecede.causality import judge
from antecede.errors import InputError, ProtocolError
from antecede.protocols import find_protocol
from antecede.sim import Scenario, scenario, simulate
from antecede.sim.engines import choose
from antecede.sim.verify import Histories
from antecede.sweep.grid import expand, read_grid
from antecede.sweep.on_spark import Sweep
from antecede.sweep.results import RESULTS, write_results
from antecede.user_classes import parse_spec, user_folder, write_spec
from command_line import antecede

MODULE = """
from antecede.overlay import Overlay
from antecede.protocols import Flooding, Mbcp
from antecede.sim import Arrival, Delay, Network, Probe, Workload
from antecede.units import SECOND, parse_duration


class Bimodal(Delay):
    \"\"\"Fast, but one packet in `slow_one_in` is slow.\"\"\"

    def __init__(self, fast="1ms", slow="90ms", slow_one_in=10):
        self.fast, self.slow, self.one_in = parse_duration(fast), parse_duration(slow), slow_one_in

    def sample(self, bits):
        return self.slow if bits % self.one_in == 0 else self.fast


class Hub(Network):
    \"\"\"Everything passes through a hub that handles one packet at a time.\"\"\"

    def __init__(self, peers, seed, handling="100us"):
        self.handling, self.free, self.packets = parse_duration(handling), 0, 0

    def transmit(self, source, to, size, now):
        arrivals = []
        for peer in to:
            self.free = max(self.free, now) + self.handling
            self.packets += 1
            arrivals.append(Arrival(self.free, peer))
        return arrivals

    def figures(self, duration):
        return {"hub_packets": self.packets}


class Ladder(Overlay):
    def links(self, size, seed):
        for peer in range(size - 1):
            yield peer, peer + 1
            if peer + 3 < size:
                yield peer, peer + 3


class Hourly(Workload):
    \"\"\"All at once, `every` so often.\"\"\"

    def __init__(self, seed, reply, every="100ms"):
        super().__init__(seed, reply)
        self.every = parse_duration(every)

    def next_send(self, peer, number, previous):
        return (number + 1) * self.every


class Counts(Probe):
    def __init__(self, since, factor=1):
        super().__init__(since)
        self.count, self.factor = 0, factor

    def deliver(self, process, message, time):
        self.count += time >= self.since

    def figures(self):
        return {"counted": self.count * self.factor}


class Unfinished(Delay):
    pass


class Half(Mbcp):
    pass


class Unready(Network):
    def transmit(self, source, to, size, now):
        return []


class Nothing:
    def sample(self, bits):
        return 1


class Negative(Delay):
    def sample(self, bits):
        return -3


class Fails(Workload):
    def next_send(self, peer, number, previous):
        raise LookupError("no idea")


class Apart(Overlay):
    def links(self, size, seed):
        return [(0, 1)]


class Backwards(Network):
    def __init__(self, peers, seed):
        pass

    def transmit(self, source, to, size, now):
        return [Arrival(now - 1, to[0])]
"""

EVERYTHING: dict[str, Any] = {
    "protocol": "flooding",
    "peers": 7,
    "seconds": 0.5,
    "overlay": "own:Ladder",
    "workload": {"class": "own:Hourly", "every": "50ms"},
    "network": {"class": "own:Hub", "handling": "10us"},
    "probes": [{"class": "own:Counts", "factor": 2}, "costs"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a module that has one class of each kind."""
    (tmp_path / "own.py").write_text(MODULE)
    with user_folder(tmp_path):
        yield tmp_path
    sys.modules.pop("own", None)


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("mine:Bursty", "mine:Bursty", {}),
        ("mine:Bursty,mean=20ms,burst=5,on=true", "mine:Bursty", {"mean": "20ms", "burst": 5, "on": True}),
        ('mine:Bursty{"delay": "gauss:1ms,2ms,1ns"}', "mine:Bursty", {"delay": "gauss:1ms,2ms,1ns"}),
        ("routed,delay=gauss:1ms,2ms,1ns,edge=0.5", "routed", {"delay": "gauss:1ms,2ms,1ns", "edge": 0.5}),
    ],
)
def test_names_with_parameters(text: str, name: str, parameters: dict[str, Any]) -> None:
    assert parse_spec(text) == (name, parameters)
    assert parse_spec(write_spec(name, parameters)) == (name, parameters)


def test_every_component_can_be_a_user_class(folder: Path) -> None:
    setting = scenario(**EVERYTHING)
    histories = Histories(setting)
    result = simulate(setting, [histories])
    assert judge(histories.execution()).verdict.clean
    assert result.metrics.messages == 7 * 9  # at 50 ms, 100 ms and so on, before 500 ms
    assert result.metrics.deliveries == 6 * result.metrics.messages
    assert result.metrics.measured["counted"] == 2 * result.metrics.deliveries
    assert result.metrics.measured["hub_packets"] == result.metrics.packets
    assert setting.members()[0].partners() == (1, 3)
    assert msgspec.json.decode(msgspec.json.encode(setting), type=Scenario) == setting
    assert choose(setting, False, long=True).reason.startswith("own:")


def test_a_run_uses_the_user_s_delay_class(folder: Path) -> None:
    slow = scenario(protocol="mbcp", peers=5, delay="own:Bimodal,slow=1s,slow_one_in=5")
    metrics = simulate(slow).metrics
    assert metrics.held > 0
    assert metrics.latency_max_ns >= 1_000_000_000
    fast = scenario(protocol="mbcp", peers=5, delay={"class": "own:Bimodal", "slow": "1ms"})
    assert simulate(fast).metrics.latency_mean_ns == 1_000_000
    routed = {"model": "routed", "delay": {"class": "own:Bimodal", "slow_one_in": 3}}
    assert simulate(scenario(protocol="mbcp", peers=5, network=routed)).metrics.stuck == 0


def test_a_workload_that_never_lets_time_pass_ends_in_a_sentence(folder: Path) -> None:
    (folder / "endless.py").write_text(
        "from antecede.sim import Workload\n"
        "class Endless(Workload):\n"
        "    def next_send(self, peer, number, previous):\n"
        "        return previous\n"
    )
    with pytest.raises(ProtocolError, match="returned 0 more than 10,000 times in a row; peer 0 would send"):
        simulate(scenario(protocol="flooding", peers=1, workload="endless:Endless"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"delay": "own:Unfinished"},
            "'own:Unfinished' lacks sample: a subclass of antecede.sim.D",
        ),
        ({"delay": "own:Nothing"}, "'own:Nothing' is not a subclass of antecede.sim.Delay"),
        ({"workload": "own:Nothing"}, "of antecede.sim.Workload and lacks next_send"),
        ({"network": "own:Nothing"}, "of antecede.sim.Network and lacks transmit"),
        (
            {"overlay": "own:Nothing", "protocol": "flooding"},
            "of antecede.overlay.Overlay and lacks links",
        ),
        ({"probes": ["own:Nothing"]}, "not a subclass of antecede.sim.Probe"),
        ({"delay": "own:Missing"}, "cannot load delay 'own:Missing': own has no Missing"),
        ({"delay": "nowhere:Bimodal"}, "cannot load delay 'nowhere:Bimodal': no nowhere.py in"),
        (
            {"delay": "own:Bimodal,colour=red"},
            "cannot create delay .*unexpected keyword argument 'colour'; its parameters are: fast, slow, slo",
        ),
        ({"network": "own:Unready"}, r"takes no arguments; it is called as Unready\(peers, seed\)"),
        (
            {"network": "ether"},
            "there is no model 'ether'; there are relayed, routed, nodes, graph",
        ),
        ({"network": "own:Hub,handling=5"}, "5 is not a duration; write it with a unit, as in 5us"),
        ({"network": "own:Hub", "delay": "3ms"}, "delay is for direct links, .* own:Hub,NAME=3ms"),
        ({"network": "own:Hub", "faults": ["loss:50%"]}, "loss:50% is for direct links"),
        ({"delay": {"fast": "1ms"}}, "delay: a table needs a class"),
        ({"delay": "own:Bimodal{"}, "is not JSON"),
        ({"workload": "hourly"}, "there is no 'hourly'; there are periodic, .* or your own as module:Class"),
        ({"overlay": "own:Apart", "protocol": "pc"}, "no path leads from peer 0 to peer 2"),
        ({"overlay": "own:Ladder"}, "mbcp does not flood an overlay"),
        (
            {"overlay": "torus", "protocol": "flooding"},
            "there is no overlay 'torus'; there are hypercube, ring",
        ),
        ({"overlay": "ring,width=3", "protocol": "flooding"}, "overlay ring has no 'width'"),
    ],
)
def test_an_invalid_setting_is_refused_in_one_sentence(
    folder: Path, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        scenario(**{"protocol": "mbcp", **fields})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"delay": "own:Negative"}, r"delay own:Negative: sample\(\) returned -3"),
        (
            {"workload": "own:Fails"},
            r"own:Fails raised LookupError: no idea \(own.py, line",
        ),
        ({"network": "own:Backwards"}, "network own:Backwards returned Arrival"),
    ],
)
def test_an_error_in_user_code_during_a_run_is_one_sentence(
    folder: Path, fields: dict[str, Any], sentence: str
) -> None:
    setting = scenario(protocol="mbcp", peers=3, **fields)
    with pytest.raises(ProtocolError, match=sentence):
        simulate(setting)


def test_a_protocol_that_lacks_methods_is_refused_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "empty_protocol.py").write_text(
        "from antecede.protocols import LinkRequirements, Protocol\n"
        "class Empty(Protocol):\n"
        "    name = 'empty'\n"
        "    links = LinkRequirements(fifo=False)\n"
        "    def deliver(self, now): return None\n"
    )
    done = antecede("verify", "empty_protocol:Empty", cwd=tmp_path)
    assert done.returncode == 2
    lacking = "lacks broadcast, paper_bytes, receive and waiting: a subclass of antecede.protocols.Protocol"
    assert f"{lacking} must define them" in " ".join(done.stderr.split())


def test_a_protocol_with_a_constructor_is_told_where_its_state_goes(tmp_path: Path) -> None:
    (tmp_path / "constructed.py").write_text(
        "from antecede.protocols import Mbcp\n"
        "class Constructed(Mbcp):\n"
        "    def __init__(self, me, size): self.clock = [0] * size\n"
    )
    done = antecede("check", "constructed:Constructed", cwd=tmp_path)
    assert done.returncode == 2
    assert "leave it out: the fields of the class are its state" in done.stderr
    assert "__post_init__" in done.stderr


OWN_PROTOCOL = """
from typing import Any, ClassVar
from antecede.protocols import NO_EFFECTS, Delivery, Effects, LinkRequirements, MessageId
from antecede.protocols import Packet, Protocol, Send

class Note(Packet, frozen=True, array_like=True):
    origin: int
    number: int
    def message_ids(self): return (MessageId(self.origin, self.number),)

class Eager(Protocol):
    name: ClassVar[str] = "eager"
    packets: ClassVar[Any] = Note
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=True)
    sent: int = 0
    arrived: list[Note] = []
    def broadcast(self, payload, now, group=None):
        self.sent += 1
        send = Send(self.partners(), Note(self.me, self.sent))
        return Effects((send,), message=MessageId(self.me, self.sent))
    def receive(self, link, packet, now):
        self.arrived.append(packet)
        return NO_EFFECTS
    def deliver(self, now):
        if not self.arrived: return None
        note = self.arrived.pop(0)
        return Delivery(MessageId(note.origin, note.number), b"")
    def waiting(self): return []
    def paper_bytes(self, packet): return 0
"""


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ('name: ClassVar[str] = "eager"', "", 'does not declare its name: name: ClassVar[str] = "mine"'),
        ("packets: ClassVar[Any] = Note", "", "does not declare its packets: packets: "),
        ("packets: ClassVar[Any] = Note", "packets: ClassVar[Any] = int", "does not declare its packets"),
        ("def message_ids(self):", "def ids(self):", "Note must define message_ids()"),
        (", message=MessageId(self.me, self.sent)", "", "returns nothing as the message of broadcast"),
        (
            "message=MessageId(self.me, self.sent)",
            "message=(0, 1)",
            "returns (0, 1), a tuple, as the message",
        ),
        ("(MessageId(self.origin, self.number),)", "((0, 1),)", "returns (0, 1), a tuple, in message_ids()"),
        ("MessageId(note.origin, note.number)", "(0, 1)", "(0, 1), a tuple, as the message of a delivery"),
    ],
)
def test_a_protocol_that_declares_or_returns_too_little_is_refused(
    right: str, wrong: str, sentence: str, tmp_path: Path
) -> None:
    assert OWN_PROTOCOL.count(right) == 1
    own = tmp_path.name  # modules stay loaded: each has a name of its own
    (tmp_path / f"right_{own}.py").write_text(OWN_PROTOCOL)
    (tmp_path / f"wrong_{own}.py").write_text(OWN_PROTOCOL.replace(right, wrong))
    assert find_protocol(f"right_{own}:Eager", tmp_path).name == "eager"
    with pytest.raises(InputError, match=re.escape(sentence)):
        find_protocol(f"wrong_{own}:Eager", tmp_path)


def test_the_scenario_key_depends_on_every_named_module(folder: Path) -> None:
    for field in ("delay", "workload", "network", "overlay", "probes"):
        own = {
            "delay": "own:Bimodal",
            "workload": "own:Hourly",
            "network": "own:Hub",
            "overlay": "own:Ladder",
            "probes": ["own:Counts"],
        }[field]
        setting = scenario(protocol="flooding", **{field: own})
        before = setting.key()
        (folder / "own.py").write_text(MODULE + f"# {field}\n")
        assert setting.key() != before, field


def test_a_module_that_has_changed_is_loaded_again(folder: Path) -> None:
    def messages() -> int:
        return simulate(scenario(protocol="mbcp", peers=2, seconds=1, workload="own:Hourly")).metrics.messages

    assert messages() == 2 * 9
    (folder / "own.py").write_text(MODULE.replace('every="100ms"', 'every="500ms"'))
    assert messages() == 2


def test_simulate_accepts_user_classes_with_text_or_json_parameters(folder: Path) -> None:
    done = antecede(
        "simulate", "--protocol", "flooding", "--peers", "7", "--seconds", "0.5", "--json",
        "--delay", '{"class": "own:Bimodal", "slow": "5ms"}', "--overlay", "own:Ladder",
        "--workload", "own:Hourly,every=100ms", "--probe", "own:Counts,factor=3",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["messages"] == 7 * 4
    assert shown["measured"]["counted"] == 3 * shown["deliveries"] == 3 * 6 * 7 * 4
    assert shown["scenario"]["delay"] == "own:Bimodal,slow=5ms"
    wrong = antecede("simulate", "--delay", "own:Unfinished", cwd=folder)
    assert wrong.returncode == 2
    assert "lacks sample" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_sweeps_load_user_classes_on_spark_workers(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "swept_parts.py").write_text(MODULE)
    (tmp_path / "net.txt").write_text("a b 2ms\nb c 3ms\n")
    (tmp_path / "grid.toml").write_text(
        """
        [run]
        seconds = 0.3
        peers = 3
        workload = {class = "swept_parts:Hourly", every = "50ms"}
        probes = [{class = "swept_parts:Counts", factor = 2}]
        [grid]
        protocol = ["mbcp", "flooding"]
        network = [
            "swept_parts:Hub",
            {class = "swept_parts:Hub", handling = "1ms"},
            {model = "graph", file = "net.txt"},
        ]
        """
    )
    with user_folder(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        sweep = Sweep(tmp_path / "out", read_grid(tmp_path / "grid.toml"))
        assert sweep.simulate(spark) == {}
        sweep.judge(spark)
        assert {verdict is not None and verdict.clean for _, _, verdict in sweep.runs()} == {True}
        write_results(sweep)
    rows = pq.read_table(tmp_path / "out" / RESULTS).to_pylist()
    assert len(rows) == 6
    assert {row["workload"] for row in rows} == {"swept_parts:Hourly,every=50ms"}
    assert {row["network"] for row in rows if "Hub" in row["network"]} == {
        "swept_parts:Hub",
        "swept_parts:Hub,handling=1ms",
    }
    assert all(json.loads(row["measured"])["counted"] == 2 * row["deliveries"] for row in rows)


def test_a_grid_may_vary_user_classes_given_as_tables(folder: Path) -> None:
    delays = ["own:Bimodal", {"class": "own:Bimodal", "slow": "1s"}, "20ms"]
    made = expand({"protocol": "mbcp"}, {"delay": delays})
    assert [each.delay for each in made] == ["own:Bimodal", "own:Bimodal,slow=1s", "20ms"]
