"""A churn trial with processes behind the members: phones of super peers, or local processes of gateways.

Members do the same as in every such trial, so each of these processes now and then loses the member that it
is behind: killed for good, removed, away or gone. It continues behind another one. In addition, they join and
leave themselves, move, are expelled, killed, stopped and partitioned, and lose their disks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

from antecede.errors import AntecedeError
from antecede.live.trial.churn import ChurnTrial
from antecede.live.trial.churn_processes import WorkerGoneError, WorkerProcess

_WEIGHTS = {
    "join": 3,
    "leave": 2,
    "move": 4,
    "expel": 1,
    "crash": 3,
    "die": 1,
    "lose": 1,
    "stop": 1,
    "partition": 1,
}
_MAX_EXTRA = 3
"""Phones beyond those of the plan that are joining or leaving."""
_LOOK_SECONDS = 0.5
_FEW = 2
"""If so few of a phone's known super peers are left, it is given new ones, as a person would do."""


class PhoneChurnTrial(ChurnTrial):
    def _most_workers(self) -> int:
        return super()._most_workers() + self._plan.phones + _MAX_EXTRA

    def _phones(self) -> list[WorkerProcess]:
        return [each for each in self._workers.values() if each.is_phone]

    def _new_phone(self) -> WorkerProcess:
        return self._new_worker(is_phone=True)

    async def _found(self) -> None:
        await super()._found()
        for worker in [self._new_phone() for _ in range(self._plan.phones)]:
            await self._start(worker)
        for worker in self._phones():
            await self._until_ready(worker, f"{worker.name} is not let in")

    # The schedule

    async def _follow_schedule(self) -> None:
        caring = asyncio.create_task(self._look_after_phones())
        try:
            await super()._follow_schedule()
        finally:
            caring.cancel()
            await asyncio.gather(caring, return_exceptions=True)

    def _choose(self) -> tuple[str, Awaitable[None]] | None:
        everyone = len(self._members()) + len(self._phones())
        if self._random.randrange(everyone) < len(self._members()):
            return super()._choose()
        step = self._choose_phone()
        return None if step is None else (f"{step[0]} behind", step[1])

    def _choose_phone(self) -> tuple[str, Awaitable[None]] | None:
        """Choose the next step for a phone; none of these needs a quorum."""
        phones = self._phones()
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if len(phones) < self._plan.phones and kind in ("leave", "die"):
            kind = "join"
        elif len(phones) > self._plan.phones and kind == "join":
            kind = "leave"
        if kind == "join":
            if len(phones) >= self._plan.phones + _MAX_EXTRA:
                return None
            worker = self._new_phone()
            worker.is_busy = True
            return kind, self._join(worker)
        free = [each for each in phones if each.ready.is_set() and not each.is_busy]
        if not free or (kind == "partition" and self._is_divided):
            return None
        worker = self._random.choice(free)
        worker.is_busy = True
        if kind == "partition":
            return kind, self._partition([worker])
        steps = {
            "leave": self._leave_behind,
            "move": self._move,
            "expel": self._expel,
            "crash": self._crash,
            "die": self._die_behind,
            "lose": self._lose_behind,
            "stop": self._stop,
        }
        return kind, steps[kind](worker)

    async def _look_after_phones(self) -> None:
        """Keep phones' lists of super peers current: one after another, the listed ones leave, or are
        removed."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._tell_phones_of_others()

    async def _tell_phones_of_others(self) -> None:
        here = {each.contact for each in self._well() if each.is_settled}
        for worker in self._phones():
            is_told = len(here.intersection(worker.contacts)) >= min(_FEW, len(here))
            if worker.ready.is_set() and not worker.is_busy and not is_told:
                worker.is_busy = True
                self._spawn(self._carry_out("renew behind", self._crash(worker)))

    async def _settle(self) -> None:
        """By now, phones whose super peer is gone must be behind another one."""
        await self._tell_phones_of_others()
        await asyncio.gather(*self._tasks)
        await super()._settle()

    # The steps

    async def _leave_behind(self, worker: WorkerProcess) -> None:
        self._note(f"{worker.label} leaves")
        worker.is_leaving = True
        await self._within(self._until_left(worker), f"{worker.label} does not get away")
        self._note(f"{worker.label} has left")
        self._forget(worker)

    async def _until_left(self, worker: WorkerProcess) -> None:
        """Its broadcasts must be accepted elsewhere first, and all its known super peers may be gone before
        that."""
        while True:
            leaving = asyncio.create_task(self._ask_to_leave(worker))
            while not leaving.done() and self._knows_somebody(worker):
                await asyncio.wait([leaving], timeout=_LOOK_SECONDS)
            if leaving.done():
                return leaving.result()
            leaving.cancel()
            self._note(f"{worker.label} knows nobody who is still there")
            await worker.kill()
            await self._start(worker)
            await self._until_member(worker)

    def _knows_somebody(self, worker: WorkerProcess) -> bool:
        return not {each.contact for each in self._members() if each.at}.isdisjoint(worker.contacts)

    async def _ask_to_leave(self, worker: WorkerProcess) -> None:
        answer = {}
        with contextlib.suppress(WorkerGoneError):  # it may end before its answer is read
            answer = await worker.ask("leave")
        if "refused" in answer:
            raise AntecedeError(f"{worker.label} does not leave: {answer['refused']}")
        await worker.ended.wait()
        if worker.status:
            raise AntecedeError(f"{worker.label} has failed: {worker.tail_of_log()}")

    async def _die_behind(self, worker: WorkerProcess) -> None:
        """Kill it for good. Its slot is kept until too many bytes are retained for it."""
        self._note(f"{worker.label} is killed for good")
        self._file_of(worker).is_lost = worker.is_down = True
        await self._within(worker.kill(), f"{worker.name} does not end")
        self._forget(worker)

    async def _lose_behind(self, worker: WorkerProcess) -> None:
        self._note(f"{worker.label} loses its disk")
        self._file_of(worker).is_lost = worker.is_down = True
        await self._within(worker.kill(), f"{worker.name} does not end")
        worker.disk += 1
        self._add_file(worker)
        await self._start(worker)
        await self._until_ready(worker, f"{worker.name}, without its disk, is not let in")
        await self._tell_load(worker)
        self._note(f"{worker.label} is there on a new disk")
        worker.is_busy = worker.is_down = False

    async def _move(self, worker: WorkerProcess) -> None:
        names = [each.partition("@")[0] for each in worker.contacts]
        to = self._random.choice(names)
        answer = await self._within(worker.ask("move", to=to), f"{worker.label} does not move")
        self._note(f"{worker.label} moves to {to}: {answer.get('refused', 'done')}")
        worker.is_busy = False

    async def _expel(self, worker: WorkerProcess) -> None:
        """Have it expelled by the member that it is behind: the others refuse."""
        for member in self._well():
            with contextlib.suppress(WorkerGoneError):
                answer = await self._within(
                    member.ask("expel", who=worker.name), f"{member.name} does not answer"
                )
                if "refused" not in answer:
                    self._note(f"{worker.label} is expelled by {member.label}")
                    break
        else:
            self._note(f"{worker.label} is expelled by nobody")
        worker.is_busy = False
