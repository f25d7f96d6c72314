"""The failure message of a property test: the smallest failing run of a protocol, in words."""

from __future__ import annotations

from antecede.check.failing_run import smallest_failure
from antecede.check.run import describe, show
from antecede.sim.scenario import Scenario
from antecede.sim.verify import VerifyReport


def assert_passed(report: VerifyReport) -> None:
    assert report.passed, smallest_run(report.failures[0].scenario)


def smallest_run(scenario: Scenario) -> str:
    """A small run that fails as a scenario does, or the scenario if none is found."""
    found = smallest_failure(scenario)
    if found is None:
        return f"no small run was found that fails as this one does: {scenario}"
    return "\n".join(describe(scenario.protocol, show(found)))
