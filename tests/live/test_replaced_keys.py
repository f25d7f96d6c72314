"""Bo's keys were stolen, revoked and replaced: the thief's signatures no longer count as Bo's.

The thief is nobody's partner, since its certificate is revoked. So Eve, who is a member, passes on what it
signs.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from core_group import Peer, roster

from antecede.live.envelope import wrap
from antecede.live.events import CertificateLearned, PacketReceived, ProgressReceived, RepairReceived
from antecede.live.seals import RevokedKeyError, Seals, chain_value
from antecede.live.security import keys
from antecede.live.security.identity import Security
from antecede.live.security.signing import Keyring
from antecede.live.settings import Settings
from antecede.live.stability import Row
from antecede.live.transport.frames import Evidence
from antecede.live.transport.links import Links
from antecede.protocols.flat import DependencyPacket

ANA, BO, EVE = range(3)
NAMES = ["m0", "m1", "m2", "m3"]


def keyring(folder: Path, me: int) -> Keyring:
    peers = [name for name in NAMES if name != NAMES[me]]
    settings = Settings.create(group="room", me=NAMES[me], listen=":0", peers=peers, keys=folder)
    return Keyring(Security(settings), "room", NAMES, me)


class Story:
    """Ana, and the keys of Bo before and after."""

    def __init__(self, folder: Path, protocol: str) -> None:
        made = folder / "keys"
        keys.make_keys(made, "room", NAMES, [], 30, {}, [])
        shutil.copytree(made / NAMES[BO], folder / "stolen")
        keys.revoke(made, NAMES[BO])
        keys.renew(made, NAMES[BO], 30)
        self.thief, self.bo = keyring(folder / "stolen", BO), keyring(made / NAMES[BO], BO)
        self.ana = Peer(roster(protocol, 4), ANA, folder, own=False, sync=False, signed=True)
        self.ana.kill(sudden=False)
        self.ana_keys = made / NAMES[ANA]
        self.start()
        for certificate in self.thief.certificates + self.bo.certificates:
            self.ana.core.step(CertificateLearned(certificate, 0))

    def start(self) -> None:
        self.ana.signatures = keyring(self.ana_keys, ANA)  # type: ignore[assignment]
        self.ana.start()

    def restart(self, checkpoint: bool) -> None:
        self.ana.flush(checkpoint)
        self.ana.kill()
        self.start()

    def packet(self, by: Keyring, seq: int, word: str) -> bytes:
        """Bo's message number `seq`, after others that say the same."""
        previous = bytes(32)
        for number in range(1, seq):
            previous = chain_value(previous, wrap(f"true {number}", number > 1, {}))
        content = wrap(f"{word} {seq}", seq > 1, {})
        (payload,) = Seals(by).seal(BO, seq, [content], previous, in_one_packet=True)
        return self.ana.core.protocol.encode(DependencyPacket(payload, BO, seq, {}))

    def repair(self, packet: bytes) -> None:
        self.ana.core.step(RepairReceived(EVE, packet, 0, [(BO, 1, 9)]))

    def received(self) -> list[int]:
        return [seq for seq in range(1, 9) if seq in self.ana.core.stability.received[BO]]


@pytest.fixture(params=["mbcp", "vcube"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    return Story(tmp_path, request.param)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_replaced_key_is_valid_only_for_earlier_messages(story: Story, checkpoint: bool) -> None:
    """Also after a restart; a relay is not disconnected, since it may not know of the revocation."""
    story.repair(story.packet(story.bo, 3, "true"))
    story.repair(story.packet(story.thief, 4, "I resign"))
    assert story.received() == [3]
    story.restart(checkpoint)
    story.repair(story.packet(story.thief, 5, "I resign"))
    assert story.received() == [3]
    story.repair(story.packet(story.thief, 1, "true"))  # from before the key was replaced
    story.repair(story.packet(story.thief, 2, "true"))
    story.repair(story.packet(story.bo, 4, "true"))
    assert story.received() == [1, 2, 3, 4]


def test_a_message_signed_with_a_replaced_key_is_refused_on_its_member_s_link(story: Story) -> None:
    core = story.ana.core
    core.step(PacketReceived(BO, 1, story.packet(story.bo, 1, "true"), 0))
    with pytest.raises(RevokedKeyError, match="message 2 of member 1 is signed with a revoked key"):
        core.step(PacketReceived(BO, 2, story.packet(story.thief, 2, "I resign"), 0))


def test_a_relay_forwarding_a_message_signed_with_a_replaced_key_is_not_disconnected(tmp_path: Path) -> None:
    story = Story(tmp_path, "vcube")
    for number, packet in enumerate(
        [
            story.packet(story.bo, 1, "true"),
            story.packet(story.thief, 2, "I resign"),
            story.packet(story.bo, 2, "true"),
        ],
        1,
    ):
        story.ana.core.step(PacketReceived(EVE, number, packet, 0))
    chain = story.ana.core.received_chain[EVE]
    story.restart(checkpoint=False)
    assert (story.ana.core.received[EVE], story.ana.core.received_chain[EVE]) == (3, chain)
    assert story.received() == [1, 2]
    assert story.ana.core.equivocators == {}


def test_statements_signed_with_a_revoked_key_do_not_prove_equivocation(story: Story) -> None:
    """Otherwise the thief of a key could have its owner refused for good."""
    story.repair(story.packet(story.bo, 1, "true"))
    thief = Seals(story.thief)
    for word in (b"yes", b"no"):
        thief.seal(BO, 1, [word], bytes(32), in_one_packet=True)
        Links(story.ana.core, Counter()).by_peer[EVE].receive(Evidence(BO, thief.statements(BO)), 0.0, 0)
    assert story.ana.core.equivocators == {}


def test_progress_that_is_signed_with_a_revoked_key_frees_nothing(story: Story) -> None:
    core = story.ana.core
    core.broadcast("for Bo", 0)
    story.ana.flush()
    counts = {ANA: (1, core.stability.history[ANA][1][:8])}
    for by, count in ((story.thief, 0), (story.bo, 1)):
        row = Row(BO, counts, Seals(by).sign_progress(BO, counts))
        core.step(ProgressReceived(EVE, [row]))
        assert core.stability.matrix_clock[BO][ANA] == count
