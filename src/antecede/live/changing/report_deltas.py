"""Progress reports as deltas: what has changed since the last report on a link, which the other end has.

Links are reliable and FIFO, so a delta needs no acknowledgement. Streams are named by their index in the last
report, so a count that has grown takes two bytes, however long the stream's id is. The first report on a link
is complete, and so is the first one after a checkpoint, which therefore need not record what was sent last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.membership.packets import ControlPacket, Counts, ProgressReport, Stream
from antecede.protocols.base import RemoteError

_LONGEST_NUMBER = 9
"""Bytes of seven bits each: a count fits into 63 bits."""


class ReportRest(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a report other than its counts; as in `ProgressReport`."""

    closed: Counts
    done: frozenset[Stream]
    has_left: bool
    admissions: dict[Stream, MessageId]


class ReportDelta(ControlPacket, frozen=True, array_like=True, tag=56):
    """The changes since the last report on this link."""

    since: ClassVar[int] = 2

    counts: bytes
    """For each count that has grown: how many streams of the last report are skipped, in order, and by how
    much the count has grown."""
    added: Counts
    dropped: list[Stream]
    rest: ReportRest | None
    """None if nothing else has changed."""


class ReportRequest(ControlPacket, frozen=True, array_like=True, tag=57):
    """Asks the receiver to report its progress now: the sender is waiting for it."""

    since: ClassVar[int] = 2


_decoder: msgspec.msgpack.Decoder[ReportDelta | ReportRequest] = msgspec.msgpack.Decoder(
    ReportDelta | ReportRequest
)
_encode = msgspec.msgpack.Encoder().encode
REPORT_REQUEST = _encode(ReportRequest())
_TAGS = {_encode(ReportDelta(b"", {}, [], None))[1], REPORT_REQUEST[1]}
"""The second bytes of these packets."""


def is_ours(data: bytes) -> bool:
    """Whether a packet is of one of these types, rather than one of a member's."""
    return len(data) > 1 and data[1] in _TAGS


def decode(data: bytes) -> ReportDelta | ReportRequest:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a report: {error}") from error


def encode_report(last: ProgressReport | None, report: ProgressReport) -> bytes:
    """Encode a report for a link on which `last` was the previous one."""
    if last is None or last.member != report.member:
        return _encode(report)
    numbers, passed = [], 0
    before, after = last.delivered, report.delivered
    added = {stream: count for stream, count in after.items() if before.get(stream, count + 1) > count}
    for stream in sorted(before):
        grown = after.get(stream, 0) - before[stream]
        if grown > 0:
            numbers += [passed, grown]
            passed = 0
        else:
            passed += 1
    dropped = sorted(before.keys() - after.keys())
    rest = _rest_of(report)
    return _encode(ReportDelta(_pack(numbers), added, dropped, None if rest == _rest_of(last) else rest))


def apply_delta(last: ProgressReport | None, delta: ReportDelta) -> ProgressReport:
    """The complete report."""
    if last is None:
        raise RemoteError("a report of changes without a previous report")
    delivered, numbers = dict(last.delivered), _unpack(delta.counts)
    streams, place = sorted(last.delivered), 0
    for passed, grown in zip(numbers[::2], numbers[1::2], strict=True):
        place += passed
        if place >= len(streams):
            raise RemoteError("a report counts streams that the last one did not have")
        delivered[streams[place]] += grown
        place += 1
    delivered |= delta.added
    for stream in delta.dropped:
        delivered.pop(stream, None)
    rest = delta.rest or _rest_of(last)
    return ProgressReport(last.member, delivered, rest.closed, rest.done, rest.has_left, rest.admissions)


def _rest_of(report: ProgressReport) -> ReportRest:
    return ReportRest(report.closed, report.done, report.has_left, report.admissions)


def _pack(numbers: Iterable[int]) -> bytes:
    """Variable-length integers: seven bits per byte, least significant first; the eighth bit says that more
    follow."""
    packed = bytearray()
    for number in numbers:
        while number > 0x7F:
            packed.append(number & 0x7F | 0x80)
            number >>= 7
        packed.append(number)
    return bytes(packed)


def _unpack(packed: bytes) -> list[int]:
    numbers, number, shift = [], 0, 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 7 * _LONGEST_NUMBER:
            raise RemoteError("a report with a number that is too long")
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) % 2:
        raise RemoteError("a report that breaks off")
    return numbers
