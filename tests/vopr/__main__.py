"""The command: ./dev vopr --seconds N, or --seed N for one execution with its story."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import queue
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from antecede.live.changing.protocols import WITH_PHONES
from vopr.changing.phones import execute as execute_phones
from vopr.changing.phones import short_times
from vopr.changing.world import PROTOCOLS
from vopr.changing.world import execute as execute_changing
from vopr.faults import KINDS
from vopr.planted import BUGS
from vopr.world import Result, execute

CHANGING, PHONES = "changing", "phones"
_REPORT_SECONDS = 2.0
_COLLECT_EVERY = 50


class Tally:
    """The totals of many executions."""

    def __init__(self) -> None:
        self.executions = self.deliveries = 0
        self.cpu_seconds = 0.0
        self.faults: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []

    def add(self, other: Tally) -> None:
        self.executions += other.executions
        self.deliveries += other.deliveries
        self.cpu_seconds += other.cpu_seconds
        self.faults.update(other.faults)
        self.violations += other.violations

    def as_json(self) -> dict[str, Any]:
        return {
            "executions": self.executions,
            "deliveries": self.deliveries,
            "cpu_seconds": round(self.cpu_seconds, 1),
            "executions_per_cpu_second": round(self.executions / max(self.cpu_seconds, 1e-9), 1),
            "faults": dict(self.faults.most_common()),
            "violations": self.violations,
        }


def play(options: argparse.Namespace, seed: int, is_told: bool = False) -> Result:
    if options.kind == PHONES:
        return execute_phones(seed, is_told, options.protocol)
    if options.kind == CHANGING:
        return execute_changing(seed, is_told, options.protocol)
    return execute(seed, is_told, options.kind)


def work(options: argparse.Namespace, start: int, results: multiprocessing.Queue[Tally | None]) -> None:
    """One worker: its share of the seeds, until the time is over or a planted bug is found."""
    step, seconds, bug = options.workers, options.seconds, options.planted
    if bug is not None:
        BUGS[bug]()
    gc.disable()  # executions leave little garbage, so collecting rarely pays off
    end, seed = time.monotonic() + seconds, start
    while time.monotonic() < end:
        tally, cpu = Tally(), time.process_time()
        report_at = time.monotonic() + _REPORT_SECONDS
        while time.monotonic() < min(end, report_at):
            result = play(options, seed)
            seed += step
            if seed // step % _COLLECT_EVERY == 0:
                gc.collect()
            tally.executions += 1
            tally.deliveries += result.deliveries
            tally.faults.update(result.faults)
            if result.violation is not None:
                tally.violations.append((result.seed, result.violation))
                if bug is not None:
                    end = 0.0
        tally.cpu_seconds = time.process_time() - cpu
        results.put(tally)
    results.put(None)


def run(options: argparse.Namespace) -> Tally:
    results: multiprocessing.Queue[Tally | None] = multiprocessing.Queue()
    workers = [
        multiprocessing.Process(target=work, args=(options, options.start + number, results), daemon=True)
        for number in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    total, running = Tally(), len(workers)
    while running:
        try:
            part = results.get(timeout=30)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                sys.exit("error: a worker ended without a result")
            continue
        if part is None:
            running -= 1
            continue
        total.add(part)
        if options.results is not None:
            with options.results.open("a") as file:
                file.write(json.dumps({"time": time.time(), **part.as_json()}) + "\n")
        for seed, text in part.violations:
            if options.planted is None:
                print(f"VIOLATION in seed {seed}: {text}\n  {replay(seed, options)}", file=sys.stderr)
        print(
            f"{total.executions:,} executions, {total.deliveries:,} deliveries, "
            f"{len(total.violations)} violations",
            file=sys.stderr,
        )
    return total


def replay(seed: int, options: argparse.Namespace) -> str:
    """The command that shows an execution again."""
    kind = f" --kind {options.kind}" if options.kind else ""
    return f"./dev vopr --seed {seed}{kind}" + (f" --protocol {options.protocol}" if options.protocol else "")


def show(total: Tally, options: argparse.Namespace) -> None:
    rate = total.executions / max(total.cpu_seconds, 1e-9)
    print(
        f"{total.executions:,} executions, {rate:.0f} in a CPU second; {total.deliveries:,} deliveries judged"
    )
    for name, count in total.faults.most_common():
        print(f"  {count:10,}  {name}")
    print(f"{len(total.violations)} violations")
    for seed, text in total.violations[:20]:
        print(f"  seed {seed}: {text}\n    {replay(seed, options)}")


def tell(options: argparse.Namespace) -> int:
    """One execution, step by step."""
    if options.planted is not None:
        BUGS[options.planted]()
    result = play(options, options.seed, is_told=True)
    print("\n".join(result.story))
    return int(result.violation is not None)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev vopr",
        description="Simulate whole live members with faults, deterministically, and judge what they "
        "deliver. Exit 1 on a violation.",
    )
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="how long to run")
    parser.add_argument("--start", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--seed", type=int, metavar="SEED", help="run one execution and print its story")
    parser.add_argument(
        "--planted", choices=sorted(BUGS), metavar="BUG", help=f"plant a bug and find it: {', '.join(BUGS)}"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="append figures to a file, as JSON lines"
    )
    parser.add_argument(
        "--kind",
        choices=[*sorted(set(KINDS)), CHANGING, PHONES],
        metavar="KIND",
        help=f"only {', '.join(sorted(set(KINDS)))}; or {CHANGING}: groups whose members come and go; "
        f"{PHONES}: with phones behind super peers, or local processes behind gateways",
    )
    parser.add_argument(
        "--protocol",
        choices=[*PROTOCOLS, *WITH_PHONES],
        metavar="NAME",
        help=f"with --kind {CHANGING}: only {', '.join(PROTOCOLS)}; with {PHONES}: only "
        f"{', '.join(WITH_PHONES)}",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.protocol is not None and (options.kind == PHONES) != (options.protocol in WITH_PHONES):
        parser.error(f"--protocol {options.protocol} is not for --kind {options.kind}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    with short_times():
        return tell(options) if options.seed is not None else search(options)


def search(options: argparse.Namespace) -> int:
    """Many executions."""
    began = time.monotonic()
    total = run(options)
    seconds = time.monotonic() - began
    if options.json:
        print(json.dumps({"planted": options.planted, "seconds": round(seconds, 1), **total.as_json()}))
    elif options.planted is None:
        show(total, options)
    if options.planted is None:
        return int(bool(total.violations))
    if not options.json:
        found = (
            f"found by seed {total.violations[0][0]}: {total.violations[0][1]}"
            if total.violations
            else "not found"
        )
        print(f"{options.planted}: after {total.executions:,} executions and {seconds:.1f} s {found}")
    return int(not total.violations)


if __name__ == "__main__":
    sys.exit(main())
