"""Which keys a reader of an encrypted group gives to other readers."""

from __future__ import annotations

from collections.abc import Callable

from antecede.live.changing.chains import Chains
from antecede.live.changing.secret_messages import ChainLink, Epoch, EpochId, ReaderId, SecrecyState

Gift = dict[tuple[ReaderId, EpochId], ChainLink | None]
"""By sender and epoch; None for a key that is unknown here, or that the receiver may not have."""


def collect_gifts(
    state: SecrecyState,
    chains: Chains,
    me: ReaderId,
    is_active: Callable[[ReaderId], bool],
    is_owed: Callable[[ReaderId, Epoch | None], bool],
) -> dict[ReaderId, Gift]:
    """The keys that are due and known here. Keys that this reader is still waiting for itself are passed on
    later."""
    found: dict[ReaderId, Gift] = {}
    for due in state.due:
        epoch = chains.find(due.sender, due.epoch)
        is_here = epoch is None or epoch.is_complete or due.is_asked
        if is_here or not is_owed(due.sender, epoch):
            gift = found.setdefault(due.to, {})
            if due.epoch:
                gift[due.sender, due.epoch] = chains.link_for(due)
    own = state.epochs.get(me, {})
    if any(epoch.owed for epoch in own.values()):
        places = {reader.address: each for each, reader in state.readers.items() if is_active(each)}
        for epoch_id, epoch in own.items():
            for address, index in epoch.owed.items():
                if address in places:
                    gift, link = found.setdefault(places[address], {}), chains.link(epoch_id, epoch, index)
                    if gift.get((me, epoch_id)) is None:  # otherwise the whole epoch is due already
                        gift[me, epoch_id] = link
    return {to: gift for to, gift in found.items() if to in state.readers}
