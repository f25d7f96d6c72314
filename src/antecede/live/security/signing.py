"""The keys with which members sign messages and progress, as far as they are known here.

A member sends its signing certificate with every new connection, and those that it has learned from others,
so each member gets to know the key of everybody whose messages it may receive. A certificate proves itself:
it names the member, and this group's authority has signed it.

A certificate that has expired or been revoked does not let its holder connect any more (`check_partner`).
What the holder has signed before is still delivered: some members have it, and what they say depends on it.
When that was cannot be known: a revoked key counts until its member is heard with another one (`seals.py`).
"""

from __future__ import annotations

from typing import Any

from antecede.errors import require
from antecede.live.security.identity import Security
from antecede.live.settings import Settings
from antecede.protocols.base import RemoteError

MAX_CERTIFICATE_BYTES = 4_096


def create_keyring(security: Security, settings: Settings, names: list[str]) -> Keyring | None:
    """With which a member signs; None if its group does not."""
    if not security.is_on or not settings.sign:
        return None
    return Keyring(security, settings.group, names, names.index(settings.me))


class Keyring:
    """This member's signing key and everybody's certificates, by rank."""

    def __init__(self, security: Security, group: str, names: list[str], me: int) -> None:
        self._security, self._group, self._names = security, group, names
        self._context = group.encode() + b"\0"
        self._me = me
        self._keys: dict[int, dict[bytes, Any]] = {}
        """By their raw bytes; several of one member, if its key was replaced."""
        self._serials: dict[tuple[int, bytes], set[str]] = {}
        """The serial numbers of the certificates of each key."""
        self._positions: dict[tuple[int, bytes], int] = {}
        """Of the certificates of keys."""
        self.certificates: list[bytes] = []
        """In DER, all that are known, in the order in which they came to be."""
        self._invalid_signature: Any = require("cryptography.exceptions", "live").InvalidSignature
        self._x509: Any = require("cryptography.x509", "live")
        self._learn_own(me)

    def _learn_own(self, me: int) -> None:
        try:
            self.learn(self._security.signing_certificate)
        except RemoteError:
            # Others will refuse it, and this member has been warned; it starts nevertheless.
            self._add(me, self._security.signing_key.public_key(), self._security.signing_certificate)

    def learn(self, certificate: bytes, trusted: bool = False) -> int | None:
        """A certificate has arrived; whose it is, if that is news. A `RemoteError` if it proves nothing."""
        if certificate in self.certificates:
            return None
        if len(certificate) > MAX_CERTIFICATE_BYTES:
            raise RemoteError(f"a certificate of {len(certificate)} bytes; {MAX_CERTIFICATE_BYTES} at most")
        holder, key = self._security.verify_signing_certificate(certificate, trusted, is_current=False)
        if holder.name not in self._names:
            raise RemoteError(f"a signing certificate of {holder.name}, who is not in this group")
        member = self._names.index(holder.name)
        self._add(member, key, certificate)
        return member

    def _add(self, member: int, key: Any, certificate: bytes) -> None:
        raw = key.public_bytes_raw()
        self._serials.setdefault((member, raw), set()).add(self._serial_of(certificate))
        if (position := self._positions.get((member, raw))) is not None:
            # With a shared secret each start issues a certificate for the same key: only the latest is kept.
            self.certificates[position] = certificate
            return
        self._positions[member, raw] = len(self.certificates)
        self._keys.setdefault(member, {})[raw] = key
        self.certificates.append(certificate)

    def _serial_of(self, certificate: bytes) -> str:
        return f"{self._x509.load_der_x509_certificate(certificate).serial_number:x}"

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """Raise if a partner shows certificates of its own, and none of them is valid now."""
        reason: RemoteError | None = None
        for certificate in certificates:
            is_known = certificate in self.certificates
            try:
                holder, _ = self._security.verify_signing_certificate(certificate, is_known, is_current=False)
            except RemoteError:
                continue  # of another authority, perhaps from before the group's was replaced
            if holder.name == self._names[member]:
                try:
                    self._security.verify_signing_certificate(certificate)
                    return
                except RemoteError as error:
                    reason = error
        if reason is not None:
            raise reason

    def sign(self, statement: bytes) -> bytes:
        if self._security.signing_certificate not in self.certificates:
            self._learn_own(self._me)  # it was renewed
        signature: bytes = self._security.signing_key.sign(self._context + statement)
        return signature

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        """The key of the member with which this was signed; None if with none of those that are known."""
        keys = self._keys.get(member)
        if keys is None:
            raise RemoteError(f"a message of {self._names[member]}, whose signing certificate is not known")
        for raw, key in reversed(keys.items()):
            if self._is_by(key, statement, signature):
                return raw
        return None

    def is_revoked(self, member: int, key: bytes) -> bool:
        """Whether a key was revoked: all certificates of it that are known."""
        name = self._names[member]
        serials = self._serials.get((member, key), ())
        return all(self._security.is_revoked(name, serial) for serial in serials)

    def _is_by(self, key: Any, statement: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, self._context + statement)
        except self._invalid_signature:
            return False
        return True
