"""How a process becomes a member: it asks its contacts for admission, one after another."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from antecede.errors import AntecedeError, InputError
from antecede.live.changing.connections import MemberConnections
from antecede.live.changing.contact import NONCE_BYTES, Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import AttemptBegun, Founded, JoinAsked
from antecede.live.changing.greeting import NOT_A_MEMBER
from antecede.live.clock import Clock
from antecede.live.driver import Driver
from antecede.live.operations.logs import Log
from antecede.live.settings import Member
from antecede.live.transport.frames import RefusedError
from antecede.live.transport.reachability import Unreached, describe
from antecede.membership.state import Phase

_ATTEMPT_SECONDS = 10.0
"""How long a contact may take to admit a newcomer before another is asked."""
_STATE_SECONDS = 30.0
"""The same timeout, measured from the last part of a large state."""
_LOST_SECONDS = 2.0
"""How long a contact may be disconnected before another is asked. Its answer still counts."""
_RETRY_SECONDS = 0.3
_REFUSED_SECONDS = 60.0
"""How long all contacts must refuse a newcomer before it gives up. A refusal may be temporary: it takes up to
40 s to detect that a member's previous process is down."""
_REPEAT_LOG_SECONDS = 60.0
_MAX_LOGGED = 1_000
_SHOWN = 5
"""Most founders named in one log line."""


_ASKED_AT_ONCE = 16


class Attempts:
    """The attempts of one process. `stepped` is called after the core has taken an event; `until` waits for a
    condition."""

    def __init__(
        self,
        core: ChangingCore,
        connections: MemberConnections,
        driver: Driver,
        clock: Clock,
        stepped: Callable[[], None],
        until: Callable[[Callable[[], object]], Coroutine[Any, Any, None]],
        log: Log,
    ) -> None:
        self._core, self._connections, self._driver, self._clock = core, connections, driver, clock
        self._stepped, self._until, self._log = stepped, until, log
        self._refusals: dict[str, str] = {}
        """By name: a sentence that says who refuses whom, and why."""
        self._awaited: list[str] = []
        self._refused_since: dict[str, float] = {}
        """Contacts whose most recent answer is a refusal, and since when."""
        self._unreached = Unreached(log)
        self._logged: dict[tuple[str, str], float] = {}
        """By name and reason, when it was logged."""
        self._asked: int | None = None
        """The link to the most recently asked contact."""
        self.wants_history = False

    @property
    def contact(self) -> str:
        """The name of the most recently asked contact; empty if there is none."""
        if self._asked is None or self._asked not in self._core.links:
            return ""
        return self._core.partner_name(self._asked)

    async def found(self, founders: Sequence[Member]) -> None:
        """Begin the group as one of its founders, unless this process was a member before and has lost its
        store. That is certain only when a majority of the founders is connected and none of them knows this
        one."""
        core, connections = self._core, self._connections
        me = [each.name for each in founders].index(core.name)
        # Start with the founders after this one: an inquiry from another founder counts as its answer, too.
        others = [*founders[me + 1 :], *founders[:me]]
        new: set[str] = set()
        reported = ""
        while len(new) < len(founders) // 2:
            for first in range(0, len(others), _ASKED_AT_ONCE):
                new |= connections.inquirers & {each.name for each in others}
                asked = [each for each in others[first : first + _ASKED_AT_ONCE] if each.name not in new]
                answers = await asyncio.gather(*map(self._inquire, asked))
                if True in answers:
                    self._log.warning(
                        "%s has been a member before: its store is lost, so it joins", core.name
                    )
                    return
                new |= {each.name for each, known in zip(asked, answers, strict=True) if known is False}
            if len(new) < len(founders) // 2:
                text = self._describe_missing([each.name for each in others if each.name not in new])
                if text != reported:
                    self._log.warning("the group begins when most founders are there; %s", text)
                    reported = text
                await asyncio.sleep(_RETRY_SECONDS)
        contacts = [Contact(each.name, b"", each.at or "") for each in founders]
        core.step(Founded(contacts, self._clock.now(), forwards=True))
        await self._driver.durable()

    def _describe_missing(self, names: list[str]) -> str:
        """Who refuses this founder, and why; otherwise, which founders had not answered at first."""
        refusals = [self._refusals[name] for name in names if name in self._refusals]
        if refusals:
            return "; ".join(refusals[:_SHOWN])
        self._awaited = self._awaited or names
        more = len(self._awaited) - _SHOWN
        return "waiting for " + ", ".join(self._awaited[:_SHOWN]) + (f" and {more} more" if more > 0 else "")

    async def _inquire(self, founder: Member) -> bool | None:
        """Whether another founder has seen this one before; None if it gave no answer."""
        if not founder.at:
            return None
        self._unreached.calling(founder.name)
        try:
            known = await self._connections.inquire(founder.at, founder.name)
            self._unreached.reached(founder.name)
            return known
        except (OSError, TimeoutError, AntecedeError) as error:
            name, me = founder.name, self._core.name
            if isinstance(error, RefusedError):
                text = error.by(name, me)
            elif isinstance(error, AntecedeError):
                text = f"{me} refuses {name}: {error}"
            else:
                text = f"{name} does not answer: {describe(error)}"
                self._unreached.failed(name, founder.at, describe(error))
            if self.is_news(name, text if isinstance(error, AntecedeError) else "does not answer"):
                self._log.info("%s", text, extra={"peer": name})
            if isinstance(error, AntecedeError):
                self._refusals[name] = text
            return None

    async def join(self, contacts: Sequence[Member], gives_up: bool = True) -> None:
        """Ask one contact after another; the first welcome counts. A process that `gives_up` raises an
        `InputError` once it has reason to believe that none will admit it."""
        core = self._core
        failure: str | RefusedError = ""
        if not contacts:
            raise InputError(f"contact: {core.name} is no member any more; name whom to ask for admission")
        for contact in itertools.cycle(contacts):
            # Requested in time, or before a restart: the answer may be on its way.
            if core.phase == Phase.JOINING and not isinstance(failure, RefusedError):
                await self._wait(asyncio.create_task(self._until(lambda: core.phase != Phase.JOINING)))
            if self._is_member():  # perhaps by an answer that arrived after the timeout
                return
            if not core.members or core.phase != Phase.OUTSIDE:
                nonce = secrets.token_bytes(NONCE_BYTES)
                contact_here = core.new_identity(nonce, self._connections.address)
                core.step(AttemptBegun(contact_here, self._clock.now(), forwards=True))
                await self._driver.durable()
            failure = await self._ask(contact)
            if self._is_member():
                return
            if gives_up:
                self._check_hopeless(contacts, contact, failure)
            if isinstance(failure, RefusedError):
                text = failure.by(contact.name, core.name)
            else:
                text = f"not admitted by {contact.name}: {failure}"
            if failure and self.is_news(contact.name, text):
                self._log.warning("%s", text, extra={"peer": contact.name})
            await asyncio.sleep(_RETRY_SECONDS)

    def is_news(self, name: str, reason: str) -> bool:
        """Whether the log has not said this recently: contacts are asked several times a second."""
        now = time.monotonic()
        if now - self._logged.get((name, reason), float("-inf")) < _REPEAT_LOG_SECONDS:
            return False
        if len(self._logged) >= _MAX_LOGGED:
            self._logged.clear()
        self._logged[name, reason] = now
        return True

    def _check_hopeless(
        self, contacts: Sequence[Member], contact: Member, failure: str | RefusedError
    ) -> None:
        name, too_large, now = self._core.name, self._state_too_large, time.monotonic()
        if too_large:
            raise InputError(f"{name} cannot join: {contact.name} offers {too_large}. Give {name} a store")
        if isinstance(failure, RefusedError) and not failure.reason.endswith(NOT_A_MEMBER):
            self._refusals[contact.name] = failure.by(contact.name, name)
            self._refused_since.setdefault(contact.name, now)
        else:
            self._refused_since.pop(contact.name, None)
        names = [each.name for each in contacts]
        if all(now - self._refused_since.get(each, now) > _REFUSED_SECONDS for each in names):
            reasons = "; ".join(self._refusals[each] for each in names[:_SHOWN])
            raise InputError(f"{name} cannot join: {reasons}")

    @property
    def _state_too_large(self) -> str:
        return self._connections.states.too_large

    def _is_member(self) -> bool:
        return self._core.phase == Phase.MEMBER

    async def _ask(self, contact: Member) -> str | RefusedError:
        """Ask a contact for admission; returns the reason if it fails, or nothing if it is not reached: the
        log says that elsewhere."""
        self._unreached.calling(contact.name)
        seeking = asyncio.create_task(
            self._connections.seek(contact.at or "", contact.name, self._on_contact)
        )
        core, self._asked = self._core, None
        answer = asyncio.create_task(
            self._until(lambda: self._is_answered() or self._state_too_large or self._refusal())
        )
        try:
            await asyncio.wait(
                {seeking, answer}, timeout=_ATTEMPT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if core.phase == Phase.OUTSIDE and seeking.done():
                error = seeking.exception()
                if isinstance(error, RefusedError):
                    return error
                if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
                    self._unreached.failed(contact.name, contact.at or "", describe(error))
                    return ""
                return describe(error) if error is not None else "it has closed the connection"
            # The request is in the store: if this connection ends, the answer arrives on another one.
            await self._wait(answer)
        finally:
            answer.cancel()
            if self._asked is not None or not seeking.done():
                self._connections.adopt(seeking)
            elif not seeking.cancelled():
                seeking.exception()  # reported already, or it is asked again
        if self._is_answered():
            return "it is not a member any more"
        if (refusal := self._refusal()) is not None:
            return refusal
        return "it has not answered in time" if self._is_connected() else "the connection to it has ended"

    def _is_answered(self) -> bool:
        return self._core.phase not in (Phase.OUTSIDE, Phase.JOINING)

    def _refusal(self) -> RefusedError | None:
        """Why the contact that was asked has declined this newcomer, if it did."""
        return None if self._asked is None else self._connections.refusals.get(self._asked)

    def _is_connected(self) -> bool:
        return self._asked is None or self._asked in self._connections.connected

    async def _wait(self, answer: asyncio.Task[None]) -> None:
        """Wait for an answer, as long as the contact is connected and within its time, or parts of a large
        state arrive."""
        began, states = time.monotonic(), self._connections.states
        connected_at = began
        try:
            while not answer.done():
                now = time.monotonic()
                connected_at = now if self._is_connected() else connected_at
                transferred = states.received_at + _STATE_SECONDS
                end = max(began + _ATTEMPT_SECONDS, transferred)
                lost = max(connected_at + _LOST_SECONDS, transferred)
                if (left := min(end, lost) - now) <= 0:
                    return
                await asyncio.wait({answer}, timeout=min(left, _LOST_SECONDS / 4))
            answer.result()
        finally:
            answer.cancel()

    def _on_contact(self, link: int) -> None:
        self._asked = link
        self._unreached.reached(self._core.partner_name(link))
        self._connections.refusals.pop(link, None)
        if self._core.phase == Phase.OUTSIDE:
            self._core.step(JoinAsked(link, self._clock.now(), self.wants_history))
            self._stepped()
