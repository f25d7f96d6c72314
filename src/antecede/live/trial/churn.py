"""A churn trial: real processes of a dynamic group under load, following a schedule derived from a seed.

Workers join, leave, are killed (SIGKILL) and recover from their disks, are killed for good and removed, are
removed although they are alive and return, are stopped (SIGSTOP) so that others suspect them, are cut off by
partitions that heal, and lose their disks. Meanwhile all broadcast. In the end `churn_judge.py` compares the
applications' states.

The schedule keeps the group's size near the plan's, and so few members down at a time that the others are a
quorum: there are no guarantees otherwise. It determines what happens next, and when at the earliest; how long
each step takes depends on the machine, so runs with the same seed are similar but not equal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import AntecedeError
from antecede.live.trial import churn_judge
from antecede.live.trial.churn_processes import WorkerGoneError, WorkerProcess, WorkerProcesses
from antecede.live.trial.churn_worker import WorkerTask
from antecede.live.trial.lost_traces import complete_trace
from antecede.live.trial.networks import TrialNetwork, create_network

OnProgress = Callable[[str, int, int], None]
"""Called with the current step, how many changes were made, and about how many there will be."""

_WEIGHTS = {
    "join": 6,
    "leave": 4,
    "crash": 3,
    "die": 2,
    "remove": 2,
    "stop": 1,
    "partition": 1,
    "lose": 1,
}
_CHANGES = {"join": 1, "leave": 1, "die": 1, "remove": 2, "lose": 2}
"""How many membership changes each step makes: a removed member that returns was removed, and joins."""
_REPEAT_SECONDS = 10.0
"""How long a removal may take until another member is asked to do it as well."""
MIN_SIZE = 5
"""The smallest group, so that one member may be away."""
_MAX_EXTRA = 8
"""Workers beyond the size of the group that are joining or leaving."""
_LONG_SHARE, _LONG_SECONDS = 0.2, 8.0
"""Of the stopped or partitioned workers, how many may be away for longer than others, and for how long."""
_AWAY_SECONDS = 3.0
"""How long the others are away at most. Meanwhile few steps are possible: most of them need a quorum, and one
member to spare."""


class ChurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, and how many changes to make."""

    size: int
    rate: float
    """Maximum steps of the schedule per second."""
    protocol: str = "mbcp"
    seconds: float = 20.0
    messages: int = 1_000
    payload: int = 100
    sync: bool = False
    seed: int = 0
    phones: int = 0
    """Processes behind members, with a protocol that supports them: phones, or local processes."""
    patience: float = 90.0
    """Seconds that one step, or the end, may take."""
    settings: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"heartbeat": "500ms", "suspect_after": "2s"}
    )
    """The setting of all members: short enough that stopped ones are suspected."""


class ChurnResult(msgspec.Struct):
    steps: dict[str, int]
    """How many steps were made, by kind."""
    changes: int
    """Members that joined, returned, left or were removed."""
    seconds: float
    network: str
    seen: dict[str, int]
    """How many changes members were notified of, in all."""
    verdict: churn_judge.ChurnVerdict
    faults: list[str]
    members: int
    """At the end of the trial."""


class ChurnTrial:
    def __init__(self, plan: ChurnPlan, folder: Path, trace: Path | None, progress: OnProgress) -> None:
        self._plan, self._folder, self._trace, self._on_progress = plan, folder, trace, progress
        self._group = f"churn {plan.seed}"
        self._random = random.Random(plan.seed)
        self._processes = WorkerProcesses(folder)
        self._workers = self._processes.workers
        self._network: TrialNetwork
        self._steps: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._changes = 0
        self._faults: list[str] = []
        self._files: list[churn_judge.KeptFile] = []
        self._names = 0
        self._is_divided = False
        self._may_broadcast = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._events = (folder / "events").open("a", buffering=1)
        self._began = time.monotonic()

    async def run(self) -> ChurnResult:
        self._network = create_network(self._most_workers())
        try:
            await self._processes.open()
            try:
                await self._found()
                await self._follow_schedule()
                await self._settle()
            except (TimeoutError, AntecedeError, WorkerGoneError) as error:
                self._faults.append(str(error))
                await self._note_statuses()
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._processes.close()
        finally:
            self._network.close()
            self._events.close()
        if self._trace is not None and not self._faults:
            for file in self._files:  # on a busy machine this includes workers that have exited
                if (store := file.path.with_name("store")).exists():
                    name = file.author.rpartition(".")[0]
                    await complete_trace(store, self._group, self._plan.protocol, name, self._trace)
        return self._judge()

    async def _note_statuses(self) -> None:
        """Log the state of each worker, for diagnosing a failure."""
        for worker in list(self._workers.values()):
            text = "is down"
            with contextlib.suppress(WorkerGoneError, TimeoutError):
                async with asyncio.timeout(1.0):
                    text = json.dumps(await worker.ask("status"))
            self._note(f"{worker.label}, disk {worker.disk}, {worker.place}: {text}")

    def _note(self, text: str) -> None:
        self._events.write(f"{time.time():.3f} {time.monotonic() - self._began:.3f} {text}\n")

    # Workers

    async def _found(self) -> None:
        founders = [self._new_worker() for _ in range(self._plan.size)]
        for worker in founders:
            worker.at = worker.place
        contacts = [worker.contact for worker in founders]
        for worker in founders:
            await self._start(worker, contacts)
        for worker in founders:
            await self._until_ready(worker, f"{worker.name} does not begin")

    def _new_worker(self, is_phone: bool = False) -> WorkerProcess:
        self._names += 1
        worker = self._processes.add(f"w{self._names}")
        worker.is_phone = is_phone
        worker.place, worker.network = self._network.place(worker.name)
        self._add_file(worker)
        return worker

    def _add_file(self, worker: WorkerProcess) -> None:
        """Start a file for the worker's new disk."""
        path = worker.folder / "application"
        self._files.append(churn_judge.KeptFile(path, worker.author))

    async def _start(self, worker: WorkerProcess, founders: list[str] | None = None) -> None:
        plan = self._plan
        worker.contacts = [] if founders else self._contacts(worker)
        task = WorkerTask(
            name=worker.name,
            author=worker.author,
            folder=str(worker.folder),
            group=self._group,
            listen=worker.place,
            control=self._processes.control,
            founders=founders or [],
            contacts=worker.contacts,
            is_phone=worker.is_phone,
            pause=plan.seconds * plan.size / plan.messages,
            payload=plan.payload,
            seed=self._random.getrandbits(32),
            sync=plan.sync,
            network=worker.network,
            trace=str(self._trace) if self._trace else None,
            settings={"protocol": plan.protocol, **plan.settings},
        )
        await self._processes.start(worker, task)

    def _contacts(self, worker: WorkerProcess) -> list[str]:
        """All members that seem healthy and are staying: of a few, all may leave before one is asked."""
        others = [each for each in self._workers.values() if each is not worker and each.at]
        chosen = [each for each in others if each.ready.is_set() and each.is_settled] or others
        return [each.contact for each in self._random.sample(chosen, len(chosen))]

    def _most_workers(self) -> int:
        """How many workers there may be at a time."""
        return self._plan.size + _MAX_EXTRA

    def _members(self) -> list[WorkerProcess]:
        return [each for each in self._workers.values() if not each.is_phone]

    def _well(self) -> list[WorkerProcess]:
        return [each for each in self._members() if each.ready.is_set() and not each.is_down]

    def _present(self) -> list[WorkerProcess]:
        """Workers that are members, or will be again."""
        return [each for each in self._members() if each.has_begun]

    def _file_of(self, worker: WorkerProcess) -> churn_judge.KeptFile:
        return next(file for file in self._files if file.author == worker.author)

    def _forget(self, worker: WorkerProcess) -> None:
        del self._workers[worker.name]
        self._network.release(worker.name)

    async def _within(self, work: Awaitable[Any], text: str) -> Any:
        try:
            async with asyncio.timeout(self._plan.patience):
                return await work
        except TimeoutError:
            raise TimeoutError(f"{text}, for {self._plan.patience:.0f} s") from None

    async def _until_ready(self, worker: WorkerProcess, text: str) -> None:
        """Wait until it is a member; its process may fail before."""
        await self._within(self._until_member(worker), text)
        if not worker.ready.is_set():
            raise AntecedeError(f"{text}: {worker.tail_of_log()}")

    async def _until_member(self, worker: WorkerProcess) -> None:
        """Wait until it is a member, or its process has ended. If all its contacts have left before they
        could answer, it is restarted with other contacts, as a person would do."""
        while not worker.ready.is_set() and not worker.ended.is_set():
            await self._processes.until_news()
            here = {each.contact for each in self._workers.values() if each.at}
            if worker.contacts and here.isdisjoint(worker.contacts) and not worker.ready.is_set():
                self._note(f"{worker.name} knows nobody who is still there")
                await worker.kill()
                await self._start(worker)

    # The schedule

    async def _follow_schedule(self) -> None:
        plan, started = self._plan, time.monotonic()
        self._began = started
        at = started
        while (at := at + self._random.expovariate(plan.rate)) < started + plan.seconds:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if time.monotonic() > started + plan.seconds:
                break
            self._raise_faults()
            step = self._choose()
            if step is not None:
                kind, work = step
                self._spawn(self._carry_out(kind, work))
            self._show("running", started)
        self._show("finishing", started)
        while any(not task.done() for task in self._tasks):
            self._raise_faults()
            await asyncio.wait(self._tasks, timeout=0.2)
        self._raise_faults()

    def _show(self, what: str, started: float) -> None:
        share = min(1.0, (time.monotonic() - started) / self._plan.seconds)
        expected = int(self._changes / share) if share > 0.05 else self._changes
        names = ", ".join(f"{count} {kind}" for kind, count in sorted(self._steps.items()))
        self._on_progress(f"{what}, seed {self._plan.seed}: {names}", self._changes, max(expected, 1))

    def _raise_faults(self) -> None:
        broken = [each for each in self._workers.values() if each.status > 0 and each.ended.is_set()]
        self._faults += [f"{each.name} exited: {each.tail_of_log()}" for each in broken]
        if self._faults:
            raise TimeoutError("the trial ends early")

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _spare(self) -> int:
        """How many more may be away while the others remain a quorum: members whose admission is stable,
        against removed ones that are not forgotten. Members that join while one is away become stable only
        when it is back or removed."""
        seen = [each.sees for each in self._well() if each.sees is not None]
        unstable = {label for each in seen for label in each.unstable}
        removed = max((each.removed for each in seen), default=0)
        unwell = sum(each.is_down or each.is_removed for each in self._members())
        settled = sum(
            each.is_settled and each.sees is not None and each.label not in unstable for each in self._well()
        )
        return (settled - removed - unwell - 1) // 2

    def _choose(self) -> tuple[str, Awaitable[None]] | None:
        """Choose the next step and its worker; None if nothing may happen now."""
        plan, present = self._plan, self._present()
        free = [each for each in self._well() if not each.is_busy]
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if len(present) < plan.size and kind in ("leave", "die"):
            kind = "join"
        elif len(present) > plan.size and kind == "join":
            kind = "leave"
        if kind == "join":
            if len(self._members()) >= plan.size + _MAX_EXTRA:
                return None
            worker = self._new_worker()
            worker.is_busy = True
            return kind, self._join(worker)
        spare = self._spare()
        if not free or spare < 1 or (kind == "partition" and self._is_divided):
            return None
        if kind == "partition":
            return kind, self._partition(self._random.sample(free, self._random.randint(1, spare)))
        worker = self._random.choice(free)
        worker.is_busy, worker.is_removed = True, kind in ("remove", "lose")
        return kind, getattr(self, f"_{kind}")(worker)

    async def _carry_out(self, kind: str, work: Awaitable[None]) -> None:
        try:
            await work
        except WorkerGoneError as error:  # the result is unknown, so the step does not count
            self._note(f"{kind} ends: {error}")
        except (TimeoutError, AntecedeError) as error:
            self._faults.append(f"{kind}: {error}")
        else:
            self._steps[kind] += 1
            self._changes += _CHANGES.get(kind, 0)

    # The steps

    async def _join(self, worker: WorkerProcess) -> None:
        self._note(f"{worker.name} joins")
        await self._start(worker)
        if self._random.random() < 0.15:
            await asyncio.sleep(self._random.uniform(0.0, 0.3))
            self._note(f"{worker.name} is killed while it joins")
            await self._within(worker.kill(), f"{worker.name} does not end")
            await self._start(worker)
        await self._until_ready(worker, f"{worker.name} is not admitted")
        await self._tell_load(worker)
        self._note(f"{worker.label} has joined")
        worker.is_busy = False

    async def _leave(self, worker: WorkerProcess) -> None:
        self._note(f"{worker.label} leaves")
        worker.is_leaving = True
        answer: dict[str, Any] = {}
        with contextlib.suppress(WorkerGoneError):  # it may end before its answer is read
            answer = await self._within(worker.ask("leave"), f"{worker.label} does not get away")
        if "refused" in answer:
            raise AntecedeError(f"{worker.label} does not leave: {answer['refused']}")
        await self._within(worker.ended.wait(), f"{worker.label} has left and does not end")
        if worker.status:
            raise AntecedeError(f"{worker.label} has failed: {worker.tail_of_log()}")
        self._note(f"{worker.label} has left")
        self._forget(worker)

    async def _crash(self, worker: WorkerProcess) -> None:
        self._note(f"{worker.label} is killed")
        worker.is_down = True
        await self._within(worker.kill(), f"{worker.name} does not end")
        await asyncio.sleep(self._random.uniform(0.0, 1.0))
        await self._start(worker)
        await self._until_ready(worker, f"{worker.label} does not come back")
        await self._tell_load(worker)
        self._note(f"{worker.label} is back")
        worker.is_busy = worker.is_down = False

    async def _die(self, worker: WorkerProcess) -> None:
        self._note(f"{worker.label} is killed for good")
        worker.is_down, label = True, worker.label
        self._file_of(worker).is_lost = True
        await self._within(worker.kill(), f"{worker.name} does not end")
        await asyncio.sleep(self._random.uniform(0.0, 0.5))
        await self._remove_by_others(label, worker)
        self._forget(worker)

    async def _remove(self, worker: WorkerProcess) -> None:
        """Remove a worker that is alive: it returns."""
        label = worker.label
        self._note(f"{label} is removed and alive")
        await self._remove_by_others(label, worker)
        await self._within(self._until_renamed(worker), f"{label} was removed and does not return")
        await self._tell_load(worker)
        self._note(f"{label} has returned as {worker.label}")
        worker.is_busy = worker.is_removed = False

    async def _remove_by_others(self, label: str, worker: WorkerProcess) -> None:
        """Have it removed, until some member's view says that it is done; the member that was asked may be
        killed meanwhile."""
        await self._within(self._until_removed(label, worker), f"{label} is not removed")
        self._note(f"{label} was removed")

    async def _until_removed(self, label: str, worker: WorkerProcess) -> None:
        while True:
            others = [each for each in self._well() if each is not worker and not each.is_busy]
            if others:
                by = self._random.choice(others)
                with contextlib.suppress(WorkerGoneError, TimeoutError):
                    answer = await by.ask("remove", who=label)
                    self._note(f"{label} is removed by {by.label}: {answer.get('refused', 'accepted')}")
                    async with asyncio.timeout(_REPEAT_SECONDS):
                        await self._until_unknown(label)
                        return
            await asyncio.sleep(0.1)

    async def _until_unknown(self, label: str) -> None:
        """Wait until an incarnation is in the view of no healthy member."""
        while True:
            views = [each.sees for each in self._well() if each.sees is not None]
            if views and not any(label in each.view or label in each.removing for each in views):
                return
            await self._processes.until_news()

    async def _stop(self, worker: WorkerProcess) -> None:
        """SIGSTOP: others suspect it, although it is alive."""
        self._note(f"{worker.label} is stopped")
        worker.is_down = True
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(self._away_seconds())
        worker.signal(signal.SIGCONT)
        self._note(f"{worker.label} goes on")
        worker.is_busy = worker.is_down = False

    def _away_seconds(self) -> float:
        """A time that is either long enough for others to suspect it, or not."""
        is_long = self._random.random() < _LONG_SHARE
        return self._random.uniform(0.5, _LONG_SECONDS if is_long else _AWAY_SECONDS)

    async def _partition(self, apart: list[WorkerProcess]) -> None:
        names = [worker.name for worker in apart]
        self._is_divided = True
        for worker in apart:
            worker.is_busy = worker.is_down = True
        self._note(f"partition: {', '.join(names)}")
        await self._divide(names)
        await asyncio.sleep(self._away_seconds())
        await self._divide([])
        self._note("the partition heals")
        for worker in apart:
            worker.is_busy = worker.is_down = False
        self._is_divided = False

    async def _divide(self, apart: list[str]) -> None:
        if self._network.can_divide:
            if apart:
                self._network.divide(apart)
            else:
                self._network.heal()
            return
        others = [name for name in self._workers if name not in apart] if apart else []
        for worker in list(self._workers.values()):
            with contextlib.suppress(WorkerGoneError):
                await worker.ask("cut_off", names=others if worker.name in apart else apart)

    async def _lose(self, worker: WorkerProcess) -> None:
        """It loses its disk and rejoins with nothing but its name, and its former incarnation is removed."""
        label = worker.label
        self._note(f"{label} loses its disk")
        worker.is_down = True
        self._file_of(worker).is_lost = True
        await self._within(worker.kill(), f"{worker.name} does not end")
        worker.disk += 1
        worker.has_begun = False
        self._add_file(worker)
        await self._start(worker)
        await self._until_ready(worker, f"{worker.name}, without its disk, is not admitted")
        worker.is_down = False
        await self._within(self._until_unknown(label), f"{label}, whose disk is lost, is not removed")
        await self._tell_load(worker)
        self._note(f"{label} is {worker.label}, on a new disk")
        worker.is_busy = worker.is_removed = False

    async def _until_renamed(self, worker: WorkerProcess) -> None:
        """Wait until it is another incarnation."""
        while worker.sees is None or worker.sees.label == worker.label:
            if worker.ended.is_set():
                raise WorkerGoneError(f"{worker.name} has ended")
            await self._processes.until_news()
        worker.become(worker.sees.label)

    async def _tell_load(self, worker: WorkerProcess) -> None:
        if not self._may_broadcast:
            with contextlib.suppress(WorkerGoneError):
                await worker.ask("broadcast", may=False)

    # The end

    async def _settle(self) -> None:
        """Broadcasting has stopped; wait until all states are equal."""
        self._may_broadcast = False
        for worker in self._workers.values():
            await worker.ask("broadcast", may=False)
        deadline, statuses = time.monotonic() + self._plan.patience, dict[str, dict[str, Any]]()
        while True:
            self._on_progress(
                f"waiting for equal states, seed {self._plan.seed}", self._changes, self._changes
            )
            statuses = {name: await worker.ask("status") for name, worker in self._workers.items()}
            members = {worker.name: worker.label for worker in self._members()}
            labels = sorted(members.values())
            states = {status["state"] for status in statuses.values()}
            is_at_rest = len(states) == 1 and not any(each["is_broadcasting"] for each in statuses.values())
            if is_at_rest and all(statuses[name]["view"] == labels for name in members):
                break
            if time.monotonic() > deadline:
                counts = {name: each["messages"] for name, each in statuses.items()}
                raise TimeoutError(
                    f"states or views differ after {self._plan.patience:.0f} s: {labels}, messages {counts}"
                )
            await asyncio.sleep(0.2)
        for status in statuses.values():
            self._seen.update(status["seen"])
        await self._close_workers()

    async def _close_workers(self) -> None:
        """Close the workers so that their traces are complete."""
        for worker in self._workers.values():
            self._file_of(worker).is_member = True
            with contextlib.suppress(WorkerGoneError):  # it may end before it answers
                await worker.ask("close")
        for worker in self._workers.values():
            await self._within(worker.ended.wait(), f"{worker.name} does not end")

    def _judge(self) -> ChurnResult:
        seconds = time.monotonic() - self._began
        complete = any(file.is_member for file in self._files)
        verdict = churn_judge.judge(self._files) if complete else churn_judge.ChurnVerdict()
        return ChurnResult(
            steps=dict(self._steps),
            changes=self._changes,
            seconds=seconds,
            network="namespaces" if self._network.can_divide else "loopback",
            seen=dict(self._seen),
            verdict=verdict,
            faults=self._faults + verdict.faults,
            members=sum(file.is_member for file in self._files),
        )


async def run(
    plan: ChurnPlan,
    folder: Path,
    trace: Path | None,
    progress: OnProgress,
    kind: type[ChurnTrial] = ChurnTrial,
) -> ChurnResult:
    folder.mkdir(parents=True, exist_ok=True)
    return await kind(plan, folder.resolve(), trace.resolve() if trace else None, progress).run()


def summary(result: ChurnResult) -> dict[str, Any]:
    """The result as JSON."""
    built: dict[str, Any] = msgspec.to_builtins(result)
    return built
