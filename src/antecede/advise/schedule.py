"""Who sends when, and how long packets take: as a log shows it, or where it does not, as is assumed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.advise.pasts import Pasts, delivery_delays, link_delays, send_times
from antecede.audit.encoding import EncodedRun
from antecede.causality.width import depths
from antecede.errors import InputError
from antecede.sim.network import Delay, parse_delay
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
    """As a scenario has it."""
    delay_from: str
    payload: int
    logged_control: float | None
    assumptions: list[str]
    timed: bool = True
    """Whether the times are the log's own."""
    delivered_after: float | None = None
    """How long the log's own deliveries took, on average, where that is known besides what packets take."""


def logged(rows: pa.Table, log: EncodedRun, pasts: Pasts, delay: str | None) -> WorkloadSchedule:
    """The schedule of a log; a `delay` that is given is taken instead of the log's own."""
    payload, assumptions = _payload(rows)
    control = _mean_of_sends(rows, "control_bytes")
    if not _has_times(rows):
        assumed = _untimed(pasts, delay, "the log has no times")
        return assumed._replace(
            payload=payload, logged_control=control, assumptions=[*assumed.assumptions, *assumptions]
        )
    sent = send_times(log)
    delivered = np.maximum(delivery_delays(log, sent), 0)
    after = float(delivered.mean()) if len(delivered) else None
    if delay is not None:
        text, source = delay, "given"
    else:
        delays, source = link_delays(rows, log, sent), "the log's own, from send to receive"
        if not len(delays):
            delays, after = delivery_delays(log, sent), None
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
    return WorkloadSchedule(_in_turn(sent, pasts), text, source, payload, control, assumptions, True, after)


def assumed(pasts: Pasts, delay: str | None) -> WorkloadSchedule:
    """A schedule for a table of dependencies."""
    made = _untimed(pasts, delay, "a table of dependencies has no times")
    notes = [
        "every node counts as a message to everyone",
        *made.assumptions,
        f"payloads are {ASSUMED_PAYLOAD} bytes",
    ]
    if pasts.out_of_turn:
        notes.append(
            f"{pasts.out_of_turn:,} nodes do not follow their process's previous one; here they do, as a "
            "process has seen what it sent"
        )
    return made._replace(assumptions=notes)


def mean_delay(delay: Delay) -> float:
    """Nanoseconds, on average: from as many evenly spread bits as matter."""
    return sum(delay.sample((2 * place + 1) << 51) for place in range(_STRATA)) / _STRATA


def _untimed(pasts: Pasts, delay: str | None, why: str) -> WorkloadSchedule:
    """Each message as soon as all that it depends on has come."""
    text = delay or ASSUMED_DELAY
    depth = depths(pasts.start, pasts.cause, pasts.order).astype(np.int64)
    times = (depth - 1) * max(1, parse_delay(text).longest)
    note = f"{why}: each message is sent as soon as its causes have come, and a packet takes {text}"
    return WorkloadSchedule(
        times, text, "assumed" if delay is None else "given", ASSUMED_PAYLOAD, None, [note], False
    )


def _has_times(rows: pa.Table) -> bool:
    """A log without times has the rows' own numbers there, or always the same."""
    time = rows.column("time")
    if rows.num_rows < 2:
        return False
    same = pc.min_max(time).as_py()
    return same["min"] != same["max"] and not pc.all(pc.equal(time, rows.column("index"))).as_py()


def _in_turn(sent: np.ndarray, pasts: Pasts) -> np.ndarray:
    """From 0 on, and each process in its own order, whatever its clock says."""
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
