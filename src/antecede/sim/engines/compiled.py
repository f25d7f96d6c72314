"""Kernels of compiled engines: finds the kernel that a protocol declares, and what no kernel can run."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from types import ModuleType
from typing import cast

from antecede.errors import InputError, missing_extra
from antecede.sim import build
from antecede.sim.kernels.contract import Kernel, Unsupported
from antecede.sim.network import GraphModel, parse_delay, reach
from antecede.sim.scenario import Scenario

_MAX_REACH = 1 << 42
"""In nanoseconds, about an hour: for longer delays the calendars of kernels would be too coarse."""


def has_kernel(scenario: Scenario, engine: str) -> bool:
    """Whether a scenario's protocol has a kernel for an engine."""
    package = _package(scenario)
    return package is not None and engine in package.ENGINES


def kernel(scenario: Scenario, engine: str) -> Kernel:
    """The kernel of a scenario's protocol for an engine. Imports numba."""
    package = _package(scenario)
    assert package is not None  # noqa: S101
    return cast(Kernel, import_module(f"{package.__name__}.{engine}"))


def packets_per_delivery(scenario: Scenario) -> float:
    """About how many packets a delivery takes; 1 for protocols without a kernel."""
    package = _package(scenario)
    return float(package.packets_per_delivery(scenario.peers)) if package is not None else 1.0


def supports(scenario: Scenario, engine: str) -> Unsupported | None:
    """Why a compiled engine cannot run a scenario; None if it can."""
    if scenario.has_changes and not scenario.is_changing:
        return Unsupported(f"its processes crash, and {scenario.protocol} is compiled for those that do not")
    if scenario.has_changes and not has_kernel(scenario, "event"):
        return Unsupported(f"its group changes, and {scenario.protocol} is compiled for fixed groups only")
    if importlib.util.find_spec("numba") is None:
        return Unsupported(missing_extra("numba", "sim"))
    if not has_kernel(scenario, engine):
        return Unsupported(f"{scenario.protocol} has no compiled version for it")
    if scenario.sends is not None:
        return Unsupported("its sends are given one by one")
    own = build.user_class_names(scenario)
    if own:
        return Unsupported(f"{own[0]} is Python, and not compiled")
    if isinstance(scenario.network, GraphModel):
        return Unsupported("its network is in a file")
    for text in _distributions(scenario):
        if text.startswith("quantiles:"):
            return Unsupported("its delays are given by quantiles")
        if parse_delay(text).longest is None and reach(text) > _MAX_REACH:
            return Unsupported(f"its delays may be very long, unless they are clipped, as in {text},60s")
    return kernel(scenario, engine).supports(scenario)


def _package(scenario: Scenario) -> ModuleType | None:
    """The kernel package that a protocol declares."""
    declared = scenario.protocol_class().declared_kernel()
    if not declared:
        return None
    try:
        return import_module(f"antecede.sim.kernels.{declared}")
    except ModuleNotFoundError:
        raise InputError(f"protocol {scenario.protocol} declares no existing kernel: '{declared}'") from None


def _distributions(scenario: Scenario) -> list[str]:
    """All distributions that a run draws from."""
    network = [getattr(scenario.network, name, None) for name in ("delay", "propagation")]
    return [text for text in (scenario.delay, scenario.local_delay, scenario.interval, *network) if text]
