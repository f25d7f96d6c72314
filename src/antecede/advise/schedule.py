"""Who sends when, and how long packets take: as the log shows, or assumed where it does not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.advise.pasts import Pasts, delivery_delays, link_delays, send_times
from antecede.audit.encoding import EncodedRun
from antecede.causality.width import depths
from antecede.errors import InputError
from antecede.sim.network import Delay, upper_bound
from antecede.units import MAX_DURATION, SECOND

ASSUMED_DELAY = "1-100ms"
ASSUMED_PAYLOAD = 100
_QUANTILES = 100
_STRATA = 4096


class WorkloadSchedule(NamedTuple):
    """The sends of a run and the network under them."""

    times: np.ndarray
    """When each message is sent, in nanoseconds from 0."""
    delay: str
    """The delay, as in a scenario."""
    delay_from: str
    payload: int
    logged_control: float | None
    assumptions: list[str]
    timed: bool = True
    """Whether the times are the log's own."""
    delivered_after: float | None = None
    """The average delay of the log's own deliveries, where packet delays are known separately."""


def logged_schedule(rows: pa.Table, encoded: EncodedRun, pasts: Pasts, delay: str | None) -> WorkloadSchedule:
    """The schedule of a log; a requested `delay` replaces the log's own."""
    payload, assumptions = _payload(rows)
    control = _mean_of_sends(rows, "control_bytes")
    if not _has_times(rows):
        untimed = _untimed(pasts, delay, "the log has no times")
        return untimed._replace(
            payload=payload, logged_control=control, assumptions=[*untimed.assumptions, *assumptions]
        )
    sent = send_times(encoded)
    delivered = np.maximum(delivery_delays(encoded, sent), 0)
    after = float(delivered.mean()) if len(delivered) else None
    if delay is not None:
        text, source = delay, "given"
    else:
        delays, source = link_delays(rows, encoded, sent), "the log's own, from send to receive"
        if not len(delays):
            delays, after = delivery_delays(encoded, sent), None
            source = "the log's own, from send to delivery, so with what its system held messages for"
        if len(delays):
            early = float((delays < 0).mean())
            if early:
                assumptions.append(
                    f"{early:.1%} of the log's delays are below 0: its clocks differ, and these count as 0"
                )
            text = _quantiles(np.maximum(delays, 0))
        else:
            text, source = ASSUMED_DELAY, "assumed"
            assumptions.append(f"the log has no deliveries; a packet takes {ASSUMED_DELAY}")
    return WorkloadSchedule(_monotonic(sent, pasts), text, source, payload, control, assumptions, True, after)


def assumed_schedule(pasts: Pasts, delay: str | None) -> WorkloadSchedule:
    """A schedule for a table of dependencies."""
    untimed = _untimed(
        pasts, delay, "times are not used: such a log does not say when anything was delivered"
    )
    notes = [
        "every node counts as a message to everyone",
        *untimed.assumptions,
        f"payloads are {ASSUMED_PAYLOAD} bytes",
    ]
    if pasts.unordered:
        notes.append(
            f"{pasts.unordered:,} nodes do not follow their process's previous one; here they do, as a "
            "process has seen what it sent"
        )
    return untimed._replace(assumptions=notes)


def mean_delay(delay: Delay) -> float:
    """The mean in nanoseconds, by stratified sampling."""
    return sum(delay.sample((2 * place + 1) << 51) for place in range(_STRATA)) / _STRATA


def _untimed(pasts: Pasts, delay: str | None, why: str) -> WorkloadSchedule:
    """A schedule that sends each message as soon as all its causes have arrived."""
    text = delay or ASSUMED_DELAY
    depth = depths(pasts.start, pasts.cause, pasts.order).astype(np.int64)
    times = (depth - 1) * max(1, upper_bound(text))
    note = f"{why}: each message is sent as soon as its causes have come, and a packet takes {text}"
    return WorkloadSchedule(
        times, text, "assumed" if delay is None else "given", ASSUMED_PAYLOAD, None, [note], False
    )


def _has_times(rows: pa.Table) -> bool:
    """Whether the times carry information: they are neither all equal nor copies of `index`."""
    time = rows.column("time")
    if rows.num_rows < 2:
        return False
    extremes = pc.min_max(time).as_py()
    return extremes["min"] != extremes["max"] and not pc.all(pc.equal(time, rows.column("index"))).as_py()


def _monotonic(sent: np.ndarray, pasts: Pasts) -> np.ndarray:
    """Send times from 0, ascending for each process regardless of its clock."""
    if int(sent.max()) - int(sent.min()) > MAX_DURATION:
        raise InputError("the log's sends are more than 30 years apart; take out its times (--map time=)")
    times: np.ndarray = sent - sent.min()
    for whose in pasts.columns:
        low, high = np.searchsorted(pasts.senders, [whose, whose + 1])
        times[low:high] = np.maximum.accumulate(times[low:high])
    return times


def _quantiles(delays: np.ndarray) -> str:
    if delays.max() > MAX_DURATION:
        years = delays.max() / SECOND / 86_400 / 365
        raise InputError(f"a message took {years:,.0f} years by the log's times; give --delay instead")
    values = np.quantile(delays, np.linspace(0, 1, _QUANTILES + 1))
    return "quantiles:" + ",".join(str(round(value)) for value in values)


def _payload(rows: pa.Table) -> tuple[int, list[str]]:
    mean = _mean_of_sends(rows, "payload_bytes")
    if mean is None:
        return ASSUMED_PAYLOAD, [f"payloads are {ASSUMED_PAYLOAD} bytes, as the log does not say"]
    return round(mean), []


def _mean_of_sends(rows: pa.Table, name: str) -> float | None:
    if name not in rows.column_names:
        return None
    mean: float | None = pc.mean(rows.filter(pc.equal(rows.column("kind"), "send")).column(name)).as_py()
    return mean
