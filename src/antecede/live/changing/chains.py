"""The key chains of senders in an encrypted group, as far as one reader knows them."""

from __future__ import annotations

from collections.abc import Iterator

from antecede.live.changing.secret_messages import (
    MAX_INDEX,
    MAX_READERS,
    ChainLink,
    Cut,
    Due,
    Epoch,
    EpochId,
    ReaderId,
    SecrecyState,
)

_MAX_EPOCHS = 64
"""Per sender, unless messages are retained."""


class Chains:
    """`state` has the first known link of each chain."""

    def __init__(self) -> None:
        self.state = SecrecyState()
        self._tips: dict[EpochId, ChainLink] = {}
        """The last link used of each chain, so that the next one needs few steps."""

    def find(self, sender: ReaderId, epoch_id: EpochId) -> Epoch | None:
        return self.state.epochs.get(sender, {}).get(epoch_id)

    def all(self) -> Iterator[tuple[ReaderId, EpochId, Epoch]]:
        for sender, epochs in self.state.epochs.items():
            for epoch_id, epoch in epochs.items():
                yield sender, epoch_id, epoch

    def meet(
        self, sender: ReaderId, epoch_id: EpochId, position: int, is_past: bool, keeps_all: bool
    ) -> Epoch:
        """The epoch of a message, created if it is new. It becomes the sender's latest epoch."""
        epochs = self.state.epochs.setdefault(sender, {})
        epochs[epoch_id] = found = epochs.pop(epoch_id, None) or Epoch(position, is_past=is_past)
        if len(epochs) > _MAX_EPOCHS and not keeps_all:
            del epochs[next(iter(epochs))]
        return found

    def take_gift(self, sender: ReaderId, epoch_id: EpochId, link: ChainLink | None, position: int) -> None:
        """Another reader gives the key of an epoch, which may have ended already."""
        epoch = self.find(sender, epoch_id)
        if epoch is None:
            epoch = Epoch(position)
            before = self.state.epochs.get(sender, {})
            self.state.epochs[sender] = {epoch_id: epoch, **before}
        self.take(epoch, link)

    def take(self, epoch: Epoch, link: ChainLink | None) -> None:
        """Accept another reader's link of a chain, if it reaches further back; None means that it is lost."""
        if link is None:
            epoch.is_lost = True
        elif epoch.link is None or link.index < epoch.link.index:
            epoch.link = link

    def link(self, epoch_id: EpochId, epoch: Epoch, index: int) -> ChainLink | None:
        """A link of a chain; None if this reader cannot derive it."""
        if epoch.link is None or not epoch.link.index <= index <= MAX_INDEX:
            return None
        tip = self._tips.get(epoch_id)
        first = tip if tip is not None and epoch.link.index <= tip.index <= index else epoch.link
        if len(self._tips) > MAX_READERS:
            self._tips.clear()
        found = self._tips[epoch_id] = first.at(index)
        return found

    def current(self) -> list[tuple[ReaderId, EpochId, ChainLink | None, int]]:
        """The latest epoch of each sender, its next link, and that link's index."""
        found = []
        for sender, epochs in self.state.epochs.items():
            epoch_id, epoch = next(reversed(epochs.items()))
            link = None
            if epoch.link is not None:
                link = self.link(epoch_id, epoch, max(epoch.next, epoch.link.index))
            found.append((sender, epoch_id, link, epoch.next))
        return found

    def first_after(self, cut: Cut, sender: ReaderId, epoch_id: EpochId) -> int:
        """The first index of an epoch that is after a cut; -1 if none is."""
        order = [*self.state.epochs.get(sender, {})]
        for each, last, index in cut.epochs:
            if each == sender and last == epoch_id:
                return index
            if each == sender:
                is_after = last in order and order.index(epoch_id) > order.index(last)
                return 0 if is_after else -1
        return 0

    def begin_again(self, me: ReaderId) -> None:
        """This process becomes another member: messages delivered before may be delivered again."""
        for sender, _, epoch in self.all():
            if sender != me:
                epoch.next = 0

    def link_for(self, due: Due) -> ChainLink | None:
        """The key of an epoch for another reader; None if it is unknown here, or that reader may not have
        it."""
        epoch = self.find(due.sender, due.epoch)
        if epoch is None or epoch.link is None or due.first < 0:
            return None
        return self.link(due.epoch, epoch, max(due.first, epoch.link.index))

    def give_up_past(self) -> None:
        """No more keys for messages of the past will arrive."""
        for _, _, epoch in self.all():
            epoch.is_lost |= epoch.is_past and epoch.link is None
