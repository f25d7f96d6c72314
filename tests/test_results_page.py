"""docs/results.md has every result column, and none that does not exist."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from antecede.sim.engines import simulate
from antecede.sim.metrics import Metrics
from antecede.sim.probes import PROBES
from antecede.sim.scenario import scenario
from antecede.sweep.grid import expand
from antecede.sweep.on_spark import Sweep, _run
from antecede.sweep.results import RESULTS, SUMMARY, write_results
from antecede.trace.schema import FIELDS
from command_line import antecede

PAGE = Path(__file__).parent.parent / "docs" / "results.md"


@cache
def section(title: str) -> list[list[str]]:
    """The rows of the tables in a section, as the names in their columns but the last."""
    (text,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    rows = [line.split(" | ")[:-1] for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip("| ") for cell in row] for row in rows]


def documented(title: str) -> list[str]:
    return [row[0].strip("`") for row in section(title)]


def test_the_page_documents_every_metric_that_simulate_prints(tmp_path: Path) -> None:
    names = documented("Metrics of a run")
    assert len(names) == len(set(names))
    printed = json.loads(antecede("simulate", "--seconds", "0.1", "--json", cwd=tmp_path).stdout)
    assert set(names) == set(printed) >= set(Metrics.__struct_fields__)


def test_both_tables_of_a_sweep(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, expand({"seconds": 0.1}, {"protocol": ["mbcp"], "peers": [2], "seed": [1, 2]}))
    for each in sweep.scenarios.values():
        assert _run(tmp_path / "runs", msgspec.json.encode(each).decode(), "metrics", False)["error"] is None
    write_results(sweep)
    results = set(pq.read_schema(tmp_path / RESULTS).names)
    assert sorted(documented("results.parquet")) == sorted(results - set(Metrics.__struct_fields__))
    assert documented("summary.parquet") == pq.read_schema(tmp_path / SUMMARY).names


def test_the_page_documents_every_trace_column() -> None:
    assert sorted(documented("Traces")) == sorted(FIELDS)


NETWORKS: list[dict[str, Any]] = [
    {"network": {"model": "routed"}, "protocol": "mbcp"},
    {"network": {"model": "nodes"}, "protocol": "vcube"},
]
PROBED: dict[str, list[dict[str, Any]]] = {
    "costs": [{"protocol": "freescale"}, {"protocol": "flooding"}],
    "queues": [{"protocol": "mbcp"}],
    "immediate": [{"protocol": "mbcp"}],
    "named": [{"protocol": "hcg", "peers": 8, "workload": "windows", "delay": "1ms"}],
    "bundles": [{"protocol": "vcube-agg", "rate": 50}],
}


def matches(pattern: str, figure: str) -> bool:
    """Whether a figure is one of those that a documented name stands for."""
    regex = re.sub(r"KIND|ROLE", "[a-z]+", re.escape(pattern))
    return bool(re.fullmatch(re.sub(r"(?<![A-Z])[NM](?![A-Z])", "[0-9]+", regex), figure))


def compare(figures: set[str], patterns: list[str]) -> None:
    assert {figure for figure in figures if not any(matches(name, figure) for name in patterns)} == set()
    assert {name for name in patterns if not any(matches(name, figure) for figure in figures)} == set()


@pytest.mark.parametrize("setting", NETWORKS, ids=["routed", "nodes"])
def test_the_page_documents_every_network_measurement(setting: dict[str, Any]) -> None:
    model = setting["network"]["model"]
    rows = section("measured: networks")
    patterns = [figure.strip("`") for network, figure in rows if f"`{model}`" in network]
    compare(set(simulate(scenario(**setting, seconds=0.2)).metrics.measured), patterns)


def test_the_page_documents_every_membership_measurement() -> None:
    chosen = scenario(protocol="freescale", peers=3, seconds=0.2, churn=["join:10ms", "phones:1"])
    measured = simulate(chosen).metrics.measured
    compare(set(measured), documented("measured: changes of a group"))


@pytest.mark.parametrize("probe", PROBES)
def test_the_page_documents_every_probe_measurement(probe: str) -> None:
    patterns = [figure.strip("`") for name, figure in section("measured: probes") if name == f"`{probe}`"]
    found: set[str] = set()
    for setting in PROBED[probe]:
        found |= set(simulate(scenario(**setting, seconds=1, probes=[probe])).metrics.measured)
    compare(found, patterns)


def test_every_probe_is_on_the_page() -> None:
    assert {name.strip("`") for name, _ in section("measured: probes")} == set(PROBES)
