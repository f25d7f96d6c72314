"""Whatever bytes another member sends give a RemoteError or a message; the member continues and can be
restarted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from core_group import LIVE, Group, Peer, roster
from hypothesis import given, settings
from hypothesis import strategies as st

from antecede.causality.bit_window import OffsetBitmap
from antecede.live.core import Core
from antecede.live.envelope import decode_body, unwrap, wrap
from antecede.live.events import Delivered, Life, PacketReceived, RepairReceived
from antecede.live.stability import Row
from antecede.live.transport import frames
from antecede.protocols.base import RemoteError
from antecede.protocols.flat import MessageBatch
from antecede.protocols.flooding import Flooding, FloodPacket
from antecede.protocols.freescale import Freescale
from antecede.protocols.freescale.packets import ExternalPacket
from antecede.protocols.mbcp import Mbcp

EVERYTHING = [(origin, 1, 1 << 62) for origin in range(8)]
DEEP = b"\x91" * 3_000
NUMBERS = [
    -(1 << 63),
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    1_000_000,
    1_000_002,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]
numbers = st.sampled_from(NUMBERS)
ENVELOPES = [
    b"", b"\xc1", DEEP, b"\x95\x00\xc2\xc0\xc4\x00" + DEEP, b"\x94\x02\xc3\x80\xc4\x01[",
    msgspec.msgpack.encode((1, True, {0: 1, 1: -1, 99: 5}, b"\xff")),
    msgspec.msgpack.encode((2, True, {0: (1 << 64) - 1}, b"[" * 3_000)),
    msgspec.msgpack.encode((-7, False, None, b"?")),
]  # fmt: skip
values: st.SearchStrategy[Any] = st.one_of(
    numbers, st.binary(max_size=5), st.sampled_from(ENVELOPES), st.none(), st.booleans(), st.text(max_size=3),
    st.just([]), st.just({}), st.dictionaries(numbers, numbers, max_size=3), st.lists(numbers, max_size=4),
)  # fmt: skip
chains = st.sampled_from([bytes(8), b"", bytes(9)])
spans = st.lists(st.tuples(numbers, numbers, numbers), max_size=3)


@st.composite
def spoiled(draw: st.DrawFn, data: bytes) -> bytes:
    """A packet with one field or some of its bytes changed."""
    how = draw(st.integers(0, 7))
    if how == 0:
        return draw(st.binary(max_size=40))
    if how == 1:
        at = draw(st.integers(0, len(data) - 1))
        return data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]
    if how == 2:
        return data[:2] + DEEP
    packet = msgspec.msgpack.decode(data)
    for _ in range(draw(st.integers(1, 3))):
        spoil(draw, packet)
    return msgspec.msgpack.encode(packet)


def spoil(draw: st.DrawFn, part: Any) -> None:
    """Change one place in a list of lists and maps, at any depth."""
    places = list(range(len(part))) if isinstance(part, list) else list(part)
    if not places:
        return
    place = draw(st.sampled_from(places))
    inner = part[place]
    if isinstance(inner, list | dict) and inner and draw(st.booleans()):
        spoil(draw, inner)
    elif isinstance(part, dict) and draw(st.booleans()):
        part[draw(numbers)] = part.pop(place)
    elif isinstance(part, list) and draw(st.integers(0, 9)) == 0:
        part.append(inner)
    else:
        part[place] = draw(values)


def state(core: Core) -> list[object]:
    """All state that a crash must not change once it is written."""
    windows = [window.to_bytes() for window in core.stability.received]
    return [
        core.protocol.save(),
        core.causes,
        core.sent,
        core.received,
        windows,
        core.application.delivered,
        list(core.application.unacked),
    ]


def retained(core: Core) -> list[object]:
    stability = core.stability
    return [
        stability.unstable_bytes,
        stability.undelivered_bytes,
        [sorted(entries) for entries in stability.unstable],
    ]


def logged(core: Core) -> int:
    """How many events of the next `Ready` are logged."""
    return sum(not isinstance(record, Delivered) for record in core._records)


def restarted(peer: Peer) -> None:
    """It restarts with the same state; pending deliveries could be delivered again, so they are consumed
    first."""
    peer.flush()
    if peer.core.application.attempts == 0 and peer.core.application.unacked:
        peer.take(0)
    before = state(peer.core)
    peer.kill()
    peer.revive()
    assert state(peer.core) == before


@pytest.mark.parametrize("protocol", LIVE)
@settings(max_examples=40)
@given(data=st.data())
def test_hostile_bytes_are_refused_and_the_member_continues_and_restarts(
    protocol: str, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, 6))
    with tempfile.TemporaryDirectory() as folder:
        group = Group(roster(protocol, size, data.draw(st.integers(0, 3**6)), ack_every=1), Path(folder))
        try:
            attack(group, data)
        finally:
            group.close()


def attack(group: Group, data: st.DataObject) -> None:
    for rank in range(len(group.peers)):
        group.broadcast(rank)
    for _ in range(2):
        for peer in group.peers:
            peer.flush()
            peer.take(group.now)
        for way in group.ways():
            group.carry(*way)
        group.broadcast(0)
        group.broadcast(0)
    victim = group.peers[data.draw(st.integers(0, len(group.peers) - 1), label="victim")]
    core = victim.core
    real = [
        packet
        for peer in group.peers
        for box in peer.core.outboxes.values()
        for packet in box.packets.values()
    ]
    accepted = False
    for _ in range(data.draw(st.integers(1, 6))):
        link = data.draw(st.sampled_from(core.partners))
        packet = data.draw(spoiled(data.draw(st.sampled_from(real))))
        before, rows = [*state(core), *retained(core)], logged(core)
        number = core.received[link] + 1
        try:
            matched = data.draw(st.integers(0, 4))
            match matched:
                case 0:
                    core.step(RepairReceived(link, packet, group.now, EVERYTHING))
                    accepted = accepted or logged(core) > rows
                case 1:
                    requested = data.draw(spans)
                    core.repair.validate(requested)
                    core.repair.reply(requested)
                case 2:
                    reports = data.draw(
                        st.dictionaries(
                            numbers, st.dictionaries(numbers, st.tuples(numbers, chains), max_size=3)
                        )
                    )
                    accepted = True
                    core.stability.merge(link, [Row(*report) for report in reports.items()])
                case _:
                    core.step(PacketReceived(link, number, packet, group.now))
                    accepted = True
                    assert core.received[link] == number
        except RemoteError:
            assert [*state(core), *retained(core)] == before or matched == 2
            assert logged(core) - rows in (0, 1)
        if data.draw(st.booleans()):
            victim.take(group.now)
    restarted(victim)
    while victim.take(group.now):
        pass
    group.broadcast(victim.rank)
    restarted(victim)
    if not accepted:
        for partner in victim.core.partners:
            group.cut(victim.rank, partner)
        group.settle()
        assert group.judged().verdict.missing == 0


@settings(max_examples=300)
@given(data=st.data())
def test_any_bytes_decode_to_a_frame_or_raise_a_remote_error(data: st.DataObject) -> None:
    real = [
        frames.Greeting(1, "g", "mbcp", ["a", "b"], "a", "b", [Life("s", 0)], [], 1, 3, bytes(16)),
        frames.Refusal("no"),
        frames.Heartbeat(), frames.Packets(1, [b"x"]), frames.Ack(3, bytes(16)), frames.Nack(2),
        frames.Progress([Row(0, {1: (2, bytes(8))})]),
        frames.RepairRequest(1, [(0, 1, 2)]), frames.RepairReply(1, [b"x"]),
    ]  # fmt: skip
    for frame in real:
        assert frames.decode(frames.encode(frame)) == frame
    try:
        frame = frames.decode(data.draw(spoiled(frames.encode(data.draw(st.sampled_from(real))))))
    except RemoteError:
        return
    assert frames.decode(frames.encode(frame)) == frame


@given(payload=st.binary(max_size=60) | st.sampled_from(ENVELOPES))
def test_any_payload_decodes_to_a_body(payload: bytes) -> None:
    decode_body(unwrap(payload))


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", DEEP, b"\x92\x01\xa1\xff", b"\x92\x05" + DEEP, b"\x92\x02\xdd\xff\xff\xff\xff"]
)
def test_bytes_that_are_not_a_frame_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteError):
        frames.decode(data)


def test_frames_that_are_too_long_are_refused_before_they_are_read() -> None:
    assert frames.read_length(frames.MAX_BYTES.to_bytes(4, "big")) == frames.MAX_BYTES
    with pytest.raises(RemoteError):
        frames.read_length((frames.MAX_BYTES + 1).to_bytes(4, "big"))
    assert frames.add_lengths([b"ab", b""]) == b"\0\0\0\2ab\0\0\0\0"


def test_a_super_peer_s_number_zero_is_refused(tmp_path: Path) -> None:
    """Zero is not a valid number, but a bit vector can express it."""
    group = Group(roster("freescale", 3, layout=3), tmp_path)
    external = group.peers[2].core
    assert group.roster.lines == ["m0", "m1 behind m0", "m2"]
    packet = ExternalPacket(b"", 0, 1, 1, 0, 0, {}, {}, OffsetBitmap(0, b"\1"))
    with pytest.raises(RemoteError):
        external.step(PacketReceived(0, 1, Freescale.encode(packet), 1))
    group.close()


@pytest.mark.parametrize(
    "rows",
    [{1: {0: -1}}, {1: {7: 1}}, {1: {-1: 1}}, {-1: {0: 1}}, {7: {0: 1}}, {1: {0: 2}}],
)
def test_impossible_progress_is_refused(rows: dict[int, dict[int, int]], tmp_path: Path) -> None:
    """Progress of unknown members or origins, or of messages not sent yet."""
    group = Group(roster("mbcp", 3), tmp_path)
    group.broadcast(0)
    group.peers[0].flush()
    with pytest.raises(RemoteError):
        group.peers[0].core.stability.merge(
            1,
            [
                Row(member, {origin: (count, bytes(8)) for origin, count in counts.items()})
                for member, counts in rows.items()
            ],
        )
    group.close()


@pytest.mark.parametrize(
    "span", [(-1, 1, 1), (3, 1, 1), (0, 0, 1), (0, 2, 1), (0, 1, 20_001), (0, 1, 1 << 62)]
)
def test_impossible_repair_requests_are_refused(span: tuple[int, int, int], tmp_path: Path) -> None:
    group = Group(roster("mbcp", 3), tmp_path)
    with pytest.raises(RemoteError):
        group.peers[0].core.repair.validate([span])
    group.peers[0].core.repair.validate([(0, 1, 1_000)])
    assert group.peers[0].core.repair.reply([(0, 1, 1_000)]) == []
    group.close()


def test_a_gap_between_packets_is_refused_and_duplicates_are_ignored(
    tmp_path: Path,
) -> None:
    group = Group(roster("mbcp", 2), tmp_path)
    group.broadcast(0)
    group.peers[0].flush()
    group.broadcast(0)
    group.peers[0].flush()
    first, second = group.peers[0].core.outboxes[1].packets.values()
    core = group.peers[1].core
    with pytest.raises(RemoteError, match="after packet 0"):
        core.step(PacketReceived(0, 2, second, 1))
    for number, packet, received in ((1, first, 1), (1, second, 1), (0, second, 1), (2, second, 2)):
        core.step(PacketReceived(0, number, packet, 1))
        assert core.received == {0: received}
        assert core.stability.received[0].base == received
    group.close()


def test_a_partly_duplicate_batch_is_retained_and_stored_with_its_new_messages(
    tmp_path: Path,
) -> None:
    """As a client in another language may send it."""
    group = Group(roster("mbcp", 3), tmp_path)
    bo = group.peers[1]
    packet = MessageBatch([wrap(f"{number}", number > 1, None) for number in (1, 2, 3)], 0, 1, {})
    bo.core.step(RepairReceived(2, Mbcp.encode(packet.split()[-1]), 1, EVERYTHING))
    assert list(bo.core.stability.received[0]) == [3]
    bo.core.step(PacketReceived(0, 1, Mbcp.encode(packet), 1))
    assert list(bo.core.stability.received[0]) == [1, 2, 3]
    bo.flush(checkpoint=True)
    before = bo.core.repair.reply([(0, 1, 3)])
    bo.kill()
    bo.revive()
    assert sorted(bo.core.repair.reply([(0, 1, 3)])) == sorted(before)
    while bo.take(2):
        pass
    for member in (0, 2):
        bo.core.stability.record_delivered(member, 0, 3)
    assert retained(bo.core) == [0, 0, [[], [], []]]
    group.close()


@pytest.mark.parametrize("protocol", ["flooding", "pc"])
def test_an_early_message_does_not_corrupt_the_delivery_counts(protocol: str, tmp_path: Path) -> None:
    """Where links alone keep the order, a partner that breaks it is believed; later messages are still
    counted."""
    group = Group(roster(protocol, 2), tmp_path)
    bo = group.peers[1]
    for number, seq in enumerate([2, 1, 3, 4], 1):
        packet = Flooding.encode(FloodPacket(wrap("x", False, None), 0, seq))
        bo.core.step(PacketReceived(0, number, packet, number))
        bo.flush()
        assert bo.take(number)
    bo.core.stability.record_delivered(0, 0, 4)
    assert bo.core.stability.matrix_clock[1] == [4, 0]
    assert retained(bo.core) == [0, 0, [[], []]]
    group.close()
