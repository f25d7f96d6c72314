"""The readers of an encrypted group: public keys of members and phones, with the certificates that vouch for
them.

That a certificate has signed its reader's keys is verified once, when they are announced. That the group's
authority issued it, and that it is neither expired nor revoked, is verified whenever something is encrypted
for its reader. So the remembered state is the same in a replay, whenever that happens.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography import x509

from antecede.live.changing.reading_places import Places
from antecede.live.changing.secret_messages import MAX_READERS, Reader, ReaderId, SecrecyState, encode
from antecede.live.security import group_keys
from antecede.live.security.group_keys import ReaderKeys
from antecede.live.security.identity import Security
from antecede.protocols.base import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable

_TRUSTED_SECONDS = 1.0
"""How long a reader is trusted before its certificate is checked again."""


class _Certificate(msgspec.Struct, frozen=True):
    """A certificate issued by the group's authority."""

    name: str
    number: str
    expires: float
    """In seconds since 1970."""


class Readers:
    """The readers that one process knows; `state` has them."""

    def __init__(self, group: str, security: Security, places: Places) -> None:
        self._group, self._security, self._places = group, security, places
        self.state = SecrecyState()
        self._certificates: dict[bytes, _Certificate | None] = {}
        self._unusable: set[ReaderId] = set()
        self._trusted: dict[ReaderId, bytes] = {}
        self._looked_at = 0.0
        """When `_trusted` was computed; 0 if something has changed since."""

    # Known readers

    def add(self, reader: Reader, is_own: bool) -> bool:
        """A reader announces its keys; returns whether that is new. Raises a `RemoteError` if the keys are
        not proven."""
        if not is_own and not self.is_proven(reader):
            raise RemoteError(f"keys of {reader.name} for which no certificate of that name vouches")
        readers, own = self.state.readers, id_of(reader)
        before = readers.get(own)
        if before is not None and before.version >= reader.version:
            return False
        readers[own] = reader
        for other, each in readers.items():
            if reader.behind and each.behind and each.name == reader.name and other != own:
                self.mark_gone(other, each.version)  # a phone that has lost its store
        for first in [*readers][: max(0, len(readers) - MAX_READERS)]:
            del readers[first]
            self.state.gone.pop(first, None)
            self.state.epochs.pop(first, None)
        self.changed()
        return True

    def replace(self, readers: Iterable[Reader], gone: Mapping[ReaderId, int]) -> None:
        """Replace all readers by those that a newcomer's contact offers."""
        self.state.readers = {id_of(each): each for each in readers if self.is_proven(each)}
        self.state.gone = dict(gone)
        self.changed()

    def mark_gone(self, reader: ReaderId, version: int) -> None:
        if reader in self.state.readers:
            self.state.gone[reader] = max(version, self.state.gone.get(reader, -1))
        self.changed()

    def changed(self) -> None:
        """The set of readers has changed."""
        self._looked_at = 0.0

    def is_proven(self, reader: Reader) -> bool:
        """Whether a certificate of its name has signed its keys."""
        try:
            holder, key = self._security.verify_signing_certificate(reader.certificate, trusted=True)
        except (RemoteError, ValueError):
            return False
        statement = self.statement(reader)
        return holder.name == reader.name and group_keys.is_signed(
            key.public_bytes_raw(), statement, reader.signature
        )

    def verify(self, by: ReaderId, message: Any) -> Reader:
        """The reader who has signed a message, or a `RemoteError`."""
        reader = self.state.readers.get(by)
        if reader is None or not group_keys.is_signed(
            reader.signing_key, self.statement(message), message.signature
        ):
            raise RemoteError("its sender has not signed it, or is not known as a reader")
        return reader

    # Active readers

    def is_active(self, reader: ReaderId) -> bool:
        """Whether this reader is present now, as far as is known here."""
        found = self.state.readers.get(reader)
        if found is None or self.state.gone.get(reader, -1) >= found.version:
            return False
        return self._places.has(found)

    def trusted(self) -> dict[ReaderId, bytes]:
        """The readers that this process encrypts for, with their public keys."""
        if time.monotonic() - self._looked_at > _TRUSTED_SECONDS or not self._looked_at:
            self._looked_at = time.monotonic()
            self._trusted = {
                each: reader.decryption_key
                for each, reader in self.state.readers.items()
                if self.is_active(each) and self.is_trusted(each)
            }
        return self._trusted

    def is_trusted(self, reader: ReaderId) -> bool:
        """Whether a reader's certificate is valid now."""
        certificate = self.state.readers[reader].certificate
        if certificate not in self._certificates:
            if len(self._certificates) > MAX_READERS:
                self._certificates.clear()
            self._certificates[certificate] = self._issued(certificate)
        issued = self._certificates[certificate]
        if issued is None or reader in self._unusable or time.time() >= issued.expires:
            return False
        return not self._security.is_revoked(issued.name, issued.number)

    def _issued(self, certificate: bytes) -> _Certificate | None:
        try:
            holder, _ = self._security.verify_signing_certificate(certificate, is_current=False)
        except RemoteError:
            return None
        decoded = x509.load_der_x509_certificate(certificate)
        expires = decoded.not_valid_after_utc.timestamp()
        return _Certificate(holder.name, f"{decoded.serial_number:x}", expires)

    def exclude(self, readers: Iterable[ReaderId]) -> None:
        """Exclude readers whose keys cannot be used for encryption."""
        self._unusable.update(readers)
        self.changed()

    # Signing

    def announcement(self, name: str, keys: ReaderKeys, place: tuple[int, int], version: int) -> Reader:
        """This process's keys, signed."""
        certificate = self._security.signing_certificate
        reader = Reader(name, certificate, keys.decryption_key, keys.signing_key, *place, version)
        signature = self._security.signing_key.sign(self.statement(reader))
        return msgspec.structs.replace(reader, signature=signature)

    def statement(self, message: Any) -> bytes:
        """The bytes that the signature in a message covers."""
        unsigned = encode(msgspec.structs.replace(message, signature=b""))
        kind = type(message).__name__.encode()
        return b"antecede " + kind + b"\0" + self._group.encode() + b"\0" + unsigned


def id_of(reader: Reader) -> ReaderId:
    return group_keys.reader_id(reader.decryption_key, reader.signing_key)
