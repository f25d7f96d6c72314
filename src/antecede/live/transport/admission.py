"""Limits on clients that have not authenticated: no stranger keeps a member out, or exhausts its file
descriptors.

A connection passes two gates. Until its first bytes arrive it costs only a file descriptor: it waits in a
pool of bounded size. When the pool is full, one of the oldest few silent connections is closed, of the source
with the most connections; if none is silent, a handshake that has taken long. Members send at once, so they
are not affected. Once a connection has sent something, token buckets for its source and for all strangers
together decide whether the handshake is worth its cost; TLS takes about a millisecond. A client that
authenticates gets its token back, so that the members of a large group that all connect at once do not wait
for each other.

Sources from which a member has authenticated, or that are listed as peers, have a pool and buckets of their
own, so that strangers cannot use them up. A source is an IPv4 address, or an IPv6 /64, which is what a
provider assigns to one customer. Every table is bounded, and each decision takes constant time.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

_RESERVED_FILES = 96
"""File descriptors reserved for the store, the trace, Python itself and the application."""
_MAX_CAPACITY = 1024
_MIN_CAPACITY = 16
_MAX_HANDSHAKES = 64
"""Handshakes in one pool: with TLS each has buffers of about a megabyte, unlike silent connections."""
_CANDIDATES = 8
_MAX_SOURCES = 4096
_MAX_KNOWN = 1024
_STRANGERS_PER_SECOND = 100.0
_PER_STRANGER = 25.0
_PER_KNOWN = 50.0
_HANDSHAKE_SECONDS = 2.0
"""A handshake that takes longer may be given up for another connection."""
DEADLINE_SECONDS = 10.0
"""A handshake that takes longer is given up."""


class TokenBucket:
    """Admits `rate` a second on average, and up to `burst` at once (by default twice the rate)."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate, self._burst = rate, 2 * rate if burst is None else burst
        self._tokens, self._at = self._burst, time.monotonic()

    def admit(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._burst)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def refund(self) -> None:
        """Return a token: the admitted client has authenticated."""
        self._tokens = min(self._tokens + 1, self._burst)


class PendingConnection:
    """A connection that has not authenticated yet. `close` ends it at any stage."""

    __slots__ = ("close", "pool", "since", "source")

    def __init__(self, source: str, pool: _Pool, close: Callable[[], None]) -> None:
        self.source, self.pool, self.close = source, pool, close
        self.since = time.monotonic()


class _Pool:
    """A bounded number of connections, oldest first, and how many each source has."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._silent: dict[PendingConnection, None] = {}
        self._speaking: dict[PendingConnection, None] = {}
        self._by_source: Counter[str] = Counter()

    @property
    def size(self) -> int:
        return len(self._silent) + len(self._speaking)

    @property
    def is_full(self) -> bool:
        return self.size >= self._capacity

    def make_room(self) -> bool:
        """Close a connection that another may displace, and return whether there was one."""
        chosen = self._heaviest_of_oldest(self._silent) or self._stalled()
        if chosen is not None:
            self.remove(chosen)
            chosen.close()
        return chosen is not None

    def _stalled(self) -> PendingConnection | None:
        """A handshake that has taken too long."""
        moment = time.monotonic() - _HANDSHAKE_SECONDS
        chosen = self._heaviest_of_oldest(self._speaking)
        return chosen if chosen is not None and chosen.since < moment else None

    def _heaviest_of_oldest(self, stage: dict[PendingConnection, None]) -> PendingConnection | None:
        """Among the oldest few, a connection whose source has the most connections; the oldest of several."""
        oldest = islice(stage, _CANDIDATES)
        return max(oldest, key=lambda pending: self._by_source[pending.source], default=None)

    def add(self, pending: PendingConnection) -> None:
        self._silent[pending] = None
        self._by_source[pending.source] += 1

    def begin(self, pending: PendingConnection) -> bool:
        """A connection has sent something; returns whether there is room for one more handshake."""
        if len(self._speaking) >= _MAX_HANDSHAKES:
            stalled = self._stalled()
            if stalled is None:
                return False
            self.remove(stalled)
            stalled.close()
        del self._silent[pending]
        self._speaking[pending] = None
        return True

    def remove(self, pending: PendingConnection) -> None:
        stage = self._silent if pending in self._silent else self._speaking
        if pending in stage:
            del stage[pending]
            self._by_source[pending.source] -= 1
            if not self._by_source[pending.source]:
                del self._by_source[pending.source]

    def since_before(self, moment: float) -> list[PendingConnection]:
        return [each for stage in (self._silent, self._speaking) for each in stage if each.since < moment]


class Admission:
    """Decides, for all ports of a member together, which connections may stay and which may start a
    handshake."""

    def __init__(self, capacity: int, known: Iterable[str], counts: Counter[str]) -> None:
        self._counts = counts
        self._known_pool, self._stranger_pool = _Pool(max(1, capacity // 4)), _Pool(capacity - capacity // 4)
        self._known = dict.fromkeys(known)
        self._buckets: dict[str, TokenBucket] = {}
        self._all_strangers = TokenBucket(_STRANGERS_PER_SECOND)

    @property
    def size(self) -> int:
        """The number of connections that have not authenticated."""
        return self._known_pool.size + self._stranger_pool.size

    def connected(self, source: str, close: Callable[[], None]) -> PendingConnection | None:
        """A connection was accepted; another may be closed to make room. None if there is no room."""
        pool = self._known_pool if source in self._known else self._stranger_pool
        was_full = pool.is_full
        if was_full:
            self._counts["rejected too many"] += 1
        if was_full and not pool.make_room():
            return None
        pending = PendingConnection(source, pool, close)
        pool.add(pending)
        return pending

    def may_begin(self, pending: PendingConnection) -> bool:
        """Whether a connection that has sent something may start a handshake; if not, it is forgotten."""
        bucket = self._bucket(pending.source)
        has_token = bucket.admit() and (pending.source in self._known or self._all_strangers.admit())
        if has_token and pending.pool.begin(pending):
            return True
        self._counts["rejected too many"] += 1
        self.ended(pending)
        return False

    def _bucket(self, source: str) -> TokenBucket:
        bucket = self._buckets.pop(source, None)
        if bucket is None:
            if len(self._buckets) >= _MAX_SOURCES:
                del self._buckets[next(iter(self._buckets))]
            bucket = TokenBucket(_PER_KNOWN if source in self._known else _PER_STRANGER)
        self._buckets[source] = bucket  # now the last to be evicted
        return bucket

    def authenticated(self, pending: PendingConnection) -> None:
        """The client is a member: its connection no longer counts, and its source is trusted from now on."""
        self.ended(pending)
        if pending.source not in self._known:
            self._all_strangers.refund()
        self._bucket(pending.source).refund()
        self.trust(pending.source)

    def ended(self, pending: PendingConnection) -> None:
        pending.pool.remove(pending)

    def trust(self, source: str) -> None:
        """A member is at this source."""
        if source in self._known:
            del self._known[source]
        else:
            self._buckets.pop(source, None)
            if len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
        self._known[source] = None

    def close_overdue(self) -> None:
        """Close connections that have not authenticated in time."""
        self._close_since_before(time.monotonic() - DEADLINE_SECONDS)

    def close_all(self) -> None:
        """Close all connections that have not authenticated."""
        self._close_since_before(float("inf"))

    def _close_since_before(self, moment: float) -> None:
        for pool in (self._known_pool, self._stranger_pool):
            for pending in pool.since_before(moment):
                pool.remove(pending)
                pending.close()


def capacity_for(members: int) -> int:
    """How many connections may be unauthenticated at once: a share of the file descriptors that remain when
    every member is connected, so that strangers never exhaust them."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MAX_CAPACITY
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MAX_CAPACITY
    return max(_MIN_CAPACITY, min(_MAX_CAPACITY, (limit - _RESERVED_FILES - 2 * members) // 2))


def source_of(address: Any) -> str:
    """The unit by which connections are counted: an IPv4 address, or an IPv6 /64.

    >>> source_of(("::ffff:10.0.0.7", 1)), source_of(("2001:db8::7%eth0", 1, 0, 0))
    ('10.0.0.7', '2001:db8::/64')
    """
    host = str(address[0]).partition("%")[0] if isinstance(address, tuple) and address else ""
    if ":" not in host:
        return host
    try:
        parsed = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


def sources_of_peers(addresses: Iterable[str | None]) -> list[str]:
    """The sources of peers whose host is an IP address; those with a host name are known once connected.

    >>> sources_of_peers(["10.0.0.7:7000", "ws://localhost:8000", "bo.example:7000", None])
    ['10.0.0.7', '127.0.0.1']
    """
    sources = []
    for text in addresses:
        with contextlib.suppress(ValueError):
            host = urlsplit(f"//{(text or '').rpartition('://')[2]}").hostname
            host = {None: "127.0.0.1", "localhost": "127.0.0.1"}.get(host, host) if text else None
            sources.append(source_of((str(ipaddress.ip_address(host or "")),)))
    return sources
