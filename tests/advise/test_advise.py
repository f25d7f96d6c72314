"""Advice: costs computed from a log equal what the simulator measures; simulated ones are close."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antecede.advise import Advice, Request, advise_dependencies, advise_run
from antecede.advise.core import ADVISED_PROTOCOLS, FROM_PASTS
from antecede.advise.recommend import choose_roles, recommend
from antecede.advise.results import Cost
from antecede.advise.trial import run_trial, trial_scenario
from antecede.audit.core import members_by_run
from antecede.errors import InputError
from antecede.sim import engines
from antecede.sim.network import Quantiles, parse_delay
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from antecede.trace.dependencies import dependencies
from antecede.trace.reader import read_batches, read_metas, trace_files

MILLISECOND = 1_000_000


def logged(given: Scenario, receives: bool = True) -> tuple[str, pa.Table, dict[str, list[str]]]:
    """The rows of a run and the members of its group."""
    with tempfile.TemporaryDirectory() as folder:
        simulate_to(folder, given, receives=receives)
        tables = [table for file in trace_files(Path(folder)) for table in read_batches(file)]
        run = given.key()
        members = dict(members_by_run(read_metas(Path(folder)))[run])
    return run, pa.concat_tables(tables, promote_options="default"), members


def by_protocol(advice: Advice) -> dict[str, Cost]:
    return {cost.protocol: cost for cost in advice.costs}


@settings(max_examples=25)
@given(
    peers=st.integers(2, 12),
    seed=st.integers(0, 1000),
    source=st.sampled_from(sorted(FROM_PASTS)),
    workload=st.sampled_from(["periodic", "poisson", "rounds", "once"]),
    senders=st.integers(1, 12),
    payload=st.sampled_from([0, 100, 300]),
)
def test_costs_computed_from_the_log_equal_simulator_measurements(
    peers: int, seed: int, source: str, workload: str, senders: int, payload: int
) -> None:
    fields = {
        "peers": peers, "seed": seed, "workload": workload, "seconds": 0.6, "senders": min(senders, peers),
        "payload": payload,
    }  # fmt: skip
    log = scenario(protocol=source, **fields)
    run, rows, members = logged(log)
    if not rows.num_rows:
        return
    found = by_protocol(advise_run(run, rows, members, Request(tuple(FROM_PASTS), deliveries=1)))
    for protocol in FROM_PASTS:
        measured = engines.simulate(scenario(protocol=protocol, **fields)).metrics
        assert found[protocol].control_bytes_mean == pytest.approx(measured.control_bytes_mean)
        assert found[protocol].link_bytes == pytest.approx(measured.link_bytes / measured.messages)
        assert found[protocol].copies == measured.packets / measured.messages
        assert found[protocol].exact


@pytest.mark.parametrize("deliveries", [100_000, 4_000])
def test_advice_trials_are_close_to_simulating_the_same_sends(deliveries: int) -> None:
    log = scenario(protocol="mbcp", peers=12, seconds=8, workload="poisson", seed=5)
    run, rows, members = logged(log)
    advice = advise_run(run, rows, members, Request(deliveries=deliveries))
    assert (advice.simulated_messages == advice.messages) is (deliveries == 100_000)
    assert advice.delay_mean_ns == pytest.approx(50.5 * MILLISECOND, rel=0.03)
    assert not advice.assumptions
    found = by_protocol(advice)
    assert list(found) == list(ADVISED_PROTOCOLS)
    for protocol in ("flooding", "vcube", "vcube-agg", "pc"):
        measured = engines.simulate(
            scenario(protocol=protocol, peers=12, seconds=8, workload="poisson", seed=5)
        ).metrics
        cost = found[protocol]
        assert cost.control_bytes_mean == pytest.approx(measured.control_bytes_mean, rel=0.1)
        assert cost.copies == pytest.approx(measured.packets / measured.messages, rel=0.1)
        assert cost.link_bytes == pytest.approx(measured.link_bytes / measured.messages, rel=0.1)
        extra = measured.latency_mean_ns - 50.5 * MILLISECOND
        assert cost.extra_delay_ns == pytest.approx(extra, rel=0.1)
        assert cost.stored_bytes
        assert not cost.exact


def test_causal_pasts_of_a_slower_system_are_not_used_for_direct_protocols() -> None:
    fields = {"peers": 16, "seconds": 8, "workload": "rounds", "rate": 2, "delay": "wild:1ms-2s"}
    run, rows, members = logged(scenario(protocol="vcube", **fields))
    advice = advise_run(run, rows, members, Request(("timestamp-diff", "mbcp", "vcube")))
    assert any("not what direct ones take" in note for note in advice.assumptions)
    for cost in advice.costs:
        measured = engines.simulate(scenario(protocol=cost.protocol, seed=2, **fields)).metrics
        assert cost.control_bytes_mean == pytest.approx(measured.control_bytes_mean, rel=0.1)
        assert not cost.exact


def test_a_vector_clock_is_shorter_if_every_cause_is_immediate() -> None:
    log = scenario(protocol="mbcp", peers=20, seconds=5, workload="rounds", rate=2)
    run, rows, members = logged(log)
    advice = advise_run(run, rows, members, Request(tuple(FROM_PASTS)))
    assert advice.recommended == "timestamp"
    assert "timestamp: the fewest bytes" in advice.reason


def test_the_same_log_gives_the_same_advice() -> None:
    run, rows, members = logged(scenario(protocol="vcube", peers=5, seconds=1))
    first = advise_run(run, rows, members, Request())
    assert advise_run(run, rows.slice(7), members, Request()) != first
    backwards = rows.take(list(range(rows.num_rows))[::-1])
    assert advise_run(run, backwards, members, Request()) == first


def test_a_silent_member_still_receives_copies() -> None:
    run, rows, members = logged(scenario(protocol="mbcp", peers=4, seconds=1))
    (group,) = members
    asked = Request(("timestamp",))
    (few,) = advise_run(run, rows, members, asked).costs
    (more,) = advise_run(run, rows, {group: [*members[group], "quiet"]}, asked).costs
    assert (few.copies, more.copies) == (3, 4)
    assert (more.control_bytes_mean or 0) - (few.control_bytes_mean or 0) == 1  # a 0 in every clock


def test_without_receive_rows_delays_are_measured_to_delivery() -> None:
    run, rows, members = logged(
        scenario(protocol="timestamp", peers=6, seconds=1, delay="20ms"), receives=False
    )
    advice = advise_run(run, rows, members, Request(("mbcp",)))
    assert advice.delay_mean_ns == 20 * MILLISECOND
    assert "from send to delivery" in advice.delay


def test_clock_skew_is_reported() -> None:
    run, rows, members = logged(scenario(protocol="mbcp", peers=3, seconds=1, delay="20ms"))
    ahead = [t + (50 * MILLISECOND if p == "p0" else 0) for t, p in zip(
        rows.column("time").to_pylist(), rows.column("process").to_pylist(), strict=True)]  # fmt: skip
    spoilt = rows.set_column(rows.column_names.index("time"), "time", pa.array(ahead))
    advice = advise_run(run, spoilt, members, Request(("mbcp",)))
    assert any("below 0" in note for note in advice.assumptions)


def test_a_log_without_times_is_replayed_as_soon_as_causes_allow() -> None:
    run, rows, members = logged(scenario(protocol="mbcp", peers=6, seconds=2))
    timed = by_protocol(advise_run(run, rows, members, Request()))
    blind = rows.set_column(rows.column_names.index("time"), "time", rows.column("index"))
    advice = advise_run(run, blind, members, Request())
    untimed = by_protocol(advice)
    assert any("no times" in note and "1-100ms" in note for note in advice.assumptions)
    for protocol in FROM_PASTS:
        assert untimed[protocol].control_bytes_mean == timed[protocol].control_bytes_mean
    for protocol in ("vcube", "flooding"):
        expected = timed[protocol].control_bytes_mean
        assert untimed[protocol].control_bytes_mean == pytest.approx(expected, rel=0.25)


def test_a_table_of_dependencies() -> None:
    table = pa.table(
        {
            "node": ["a1", "b1", "b2", "c1", "a2"],
            "process": ["a", "b", "b", "c", "a"],
            "parents": [[], ["a1"], ["a1"], ["b1", "b2"], ["c1"]],
        }
    )
    advice = advise_dependencies(dependencies(table, "r"), Request(("timestamp", "mbcp", "pc")))
    assert (advice.processes, advice.messages, advice.simulated_messages) == (3, 5, 5)
    assert any("1 nodes do not follow" in note for note in advice.assumptions)
    clocks, pairs, _ = (cost.control_bytes_mean or 0 for cost in advice.costs)
    # A head, a tag, the sender, the payload's length; then three counts, or the number and pairs.
    assert clocks == 2 + 1 + 2 + 1 + 3
    assert pairs == 2 + 1 + 2 + 1 + 1 + 2 * 3 / 5  # b1 names a1, c1 names b2, a2 names c1


def test_named_causes_suffice_without_deliveries() -> None:
    rows = rows_of(
        ("a", 0, "send", "a", 1), ("b", 0, "send", "b", 1), ("b", 1, "send", "b", 2),
        deps=pa.array([[], ["a:1"], ["b:1", "a:1"]]),
    )  # fmt: skip
    (cost,) = advise_run("r", rows, {}, Request(("mbcp",))).costs
    assert cost.control_bytes_mean == 7 + 2 / 3  # b:1 names a:1; sender order implies its own


def test_a_trial_sends_messages_at_the_logged_times() -> None:
    again = trial_scenario("mbcp", [[0, 5 * MILLISECOND], [], [MILLISECOND]], "quantiles:2ms,2ms", 7)
    trial = run_trial(again)
    assert trial.copies == 2
    assert trial.payload_bytes == 14
    assert trial.extra_delay == 0
    assert trial.control.tolist() == [7, 7, 9]  # only the last knows of an earlier message, p2's first
    assert engines.choose(again, observed=False, long=True)[0] == "reference"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workload": "given"}, "go together"),
        ({"sends": [[0]]}, "go together"),
        ({"workload": "given", "sends": [[0]]}, "1 lists of times for 2 peers"),
        ({"workload": "given", "sends": [[5, 4], []]}, "times of peer 0"),
        ({"workload": "given", "sends": [[-1], []]}, "times of peer 0"),
        ({"delay": "quantiles:3ms"}, "two or more"),
        ({"delay": "quantiles:3ms,2ms"}, "ascending"),
    ],
)
def test_bad_sends_and_quantiles(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenario(protocol="mbcp", peers=2, **fields)


def test_quantiles_are_drawn_evenly() -> None:
    delay = parse_delay("quantiles:0,10ns,1us,1us")
    assert delay == Quantiles((0, 10, 1000, 1000))
    drawn = [delay.sample(place << 56) for place in range(256)]
    assert sum(value <= 10 for value in drawn) == pytest.approx(256 / 3, abs=2)
    assert sum(value == 1000 for value in drawn) == pytest.approx(256 / 3, abs=4)


def rows_of(*events: tuple[str, int, str, str, int], group: str = "g", **more: object) -> pa.Table:
    process, index, kind, origin, seq = (list(column) for column in zip(*events, strict=True))
    columns = {"process": process, "index": index, "kind": kind, "origin": origin, "seq": seq}
    size = len(events)
    return pa.table({"run": ["r"] * size, "group": [group] * size, **columns, "time": index, **more})


def test_runs_that_advise_cannot_handle_are_refused() -> None:
    one = rows_of(("a", 0, "send", "a", 1), ("b", 0, "deliver", "a", 1))
    two = pa.concat_tables([one, rows_of(("a", 1, "send", "a", 2), ("c", 0, "deliver", "a", 2), group="h")])
    for rows, message in (
        (two, "2 groups .* only multigroup"),
        (rows_of(("a", 0, "send", "a", 1)), "sends only: no deliveries, and no deps"),
        (rows_of(("a", 0, "send", "a", 1), ("a", 1, "deliver", "a", 1)), "there is only a"),
        (rows_of(("a", 0, "receive", "b", 1), ("b", 0, "receive", "a", 1)), "nobody sends anything"),
        (rows_of(("a", 0, "deliver", "b", 1), ("b", 0, "deliver", "a", 1)), "nobody sends anything"),
        (
            rows_of(("a", 0, "send", "a", 1), ("b", 0, "deliver", "a", 1), ("c", 0, "send", "c", 1),
                    destinations=[["b"], None, None]),
            "a:1 does not go to c",
        ),
        (rows_of(("a", 0, "sned", "a", 1), ("b", 0, "send", "b", 1)), "run r: process a, index 0: kind"),
        (
            rows_of(("a", 0, "send", "a", 1)).set_column(2, "process", pa.array([None], pa.string())),
            "run r: field process is empty in 1 row",
        ),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            advise_run("r", rows, {}, Request())
    with pytest.raises(InputError, match="advise does not support protocol 'hcg'"):
        Request(("hcg",))
    with pytest.raises(InputError, match="no process 'zoe'"):
        advise_run("r", one, {}, Request(internal=("zoe",)))
    with pytest.raises(InputError, match="somebody must be left"):
        advise_run("r", one, {}, Request(internal=("a", "b")))
    with pytest.raises(InputError, match="freescale is not among"):
        advise_run("r", one, {}, Request(("mbcp",), internal=("a",)))


def test_freescale_roles_follow_traffic_unless_requested() -> None:
    import numpy as np

    names = ["a", "b", "c", "d"]
    chosen = choose_roles(names, np.array([1, 50, 0, 60]), None)
    assert (chosen.super_peer, chosen.internal, chosen.external) == ("d", ["a", "c"], ["b"])
    alike = choose_roles(names, np.array([5, 5, 5, 5]), None)
    assert (alike.super_peer, alike.internal, alike.external) == ("a", ["d"], ["b", "c"])
    told = choose_roles(names, np.array([1, 50, 0, 60]), ["d"])
    assert (told.super_peer, told.internal, told.external) == ("b", ["d"], ["a", "c"])


def cost(protocol: str, total: float | None, stored: float | None = 0.0, delay: float | None = 0.0) -> Cost:
    return Cost(protocol, 1.0, 1.0, True, 1, total, total, stored, delay)


def test_the_rule_of_the_recommendation() -> None:
    fewest = [cost("timestamp", 200), cost("mbcp", 150), cost("pc", 90, delay=50.0)]
    chosen, reason, otherwise = recommend(fewest, 100.0, 0.1)
    assert chosen == "mbcp"
    assert "150" in reason
    assert "timestamp 200" in reason
    assert otherwise is not None
    assert "pc takes 40% fewer bytes" in otherwise
    assert recommend(fewest, 100.0, 0.5)[0] == "pc"
    near = [cost("timestamp", 200, stored=5), cost("mbcp", 199, stored=9)]
    assert recommend(near, 100.0, 0.1)[0] == "timestamp"
    unknown = [cost("mbcp", None, None, None), cost("pc", None, None, None)]
    assert recommend(unknown, 100.0, 0.1)[0] == "mbcp"
