"""The keys with which members sign messages and progress, as far as they are known here.

A member sends its signing certificate on every new connection, along with those that it has learned from
others, so each member learns the key of everybody whose messages it may receive. A certificate proves itself:
it names the member, and this group's authority has signed it.

The holder of an expired or revoked certificate cannot connect any more (`check_partner`). Messages that it
has signed before are still delivered, since some members have delivered them and sent messages that depend on
them. When a message was signed cannot be known: a revoked key counts until a message signed with the member's
next key arrives (`seals.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from antecede.errors import require
from antecede.live.security.identity import Security
from antecede.live.settings import Settings
from antecede.protocols.base import RemoteError

MAX_CERTIFICATE_BYTES = 4_096


def create_keyring(security: Security, settings: Settings, names: list[str]) -> Keyring | None:
    """A member's signing keys; None if its group does not sign."""
    if not security.is_on or not settings.sign:
        return None
    return Keyring(security, settings.group, names, names.index(settings.me))


class Keyring:
    """This member's signing key and everybody's certificates, by name; members are numbered by rank."""

    def __init__(self, security: Security, group: str, names: list[str], me: int) -> None:
        self._security, self._group, self._names = security, group, names
        self._context = self._context_of(group)
        self._me = names[me]
        self._keys: dict[str, dict[bytes, Any]] = {}
        """By raw bytes; several keys of one member, if its key was replaced."""
        self._serials: dict[tuple[str, bytes], set[str]] = {}
        """The serial numbers of the certificates of each key."""
        self._positions: dict[tuple[str, bytes], int] = {}
        """The DER certificates of each key."""
        self._certificates: list[bytes] = []
        self._own = b""
        self._invalid_signature: Any = require("cryptography.exceptions", "live").InvalidSignature
        self._x509: Any = require("cryptography.x509", "live")
        self._learn_own()

    @property
    def certificates(self) -> list[bytes]:
        """All known certificates in DER, in the order in which they were learned. This member's own is added
        as soon as it is renewed: members that know only its revoked one refuse it."""
        if self._own is not self._security.signing_certificate:
            self._learn_own()
        return self._certificates

    def _context_of(self, group: str) -> bytes:
        """The prefix of everything that is signed, so that signatures are valid in this group only."""
        return group.encode() + b"\0"

    def _name_of(self, member: int) -> str:
        return self._names[member]

    def _partner_name(self, partner: int) -> str:
        return self._names[partner]

    def _check_holder(self, name: str) -> None:
        if name not in self._names:
            raise RemoteError(f"a signing certificate of {name}, who is not in this group")

    def _learn_own(self) -> None:
        self._own = self._security.signing_certificate
        try:
            self.learn(self._own)
        except RemoteError:
            # Others will refuse it, and a warning was logged; the member starts nevertheless.
            self._add(self._me, self._security.signing_key.public_key(), self._own)

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        """A certificate has arrived; returns whether it is new. Raises a `RemoteError` if it is invalid."""
        if certificate in self._certificates:
            return False
        if len(certificate) > MAX_CERTIFICATE_BYTES:
            raise RemoteError(f"a certificate of {len(certificate)} bytes; {MAX_CERTIFICATE_BYTES} at most")
        holder, key = self._security.verify_signing_certificate(certificate, trusted, is_current=False)
        self._check_holder(holder.name)
        self._add(holder.name, key, certificate)
        return True

    def _add(self, name: str, key: Any, certificate: bytes) -> None:
        raw = key.public_bytes_raw()
        self._serials.setdefault((name, raw), set()).add(self._serial_of(certificate))
        if (position := self._positions.get((name, raw))) is not None:
            # With a shared secret each start issues a new certificate for the same key: only the latest is
            # kept.
            self._certificates[position] = certificate
            return
        self._positions[name, raw] = len(self._certificates)
        self._keys.setdefault(name, {})[raw] = key
        self._certificates.append(certificate)

    def _serial_of(self, certificate: bytes) -> str:
        return f"{self._x509.load_der_x509_certificate(certificate).serial_number:x}"

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """Raise if a partner shows certificates of its own, and none of them is currently valid."""
        reason: RemoteError | None = None
        for certificate in certificates:
            is_known = certificate in self._certificates
            try:
                holder, _ = self._security.verify_signing_certificate(certificate, is_known, is_current=False)
            except RemoteError:
                continue  # by another authority, perhaps from before the group's was replaced
            if holder.name == self._partner_name(member):
                try:
                    self._security.verify_signing_certificate(certificate)
                    return
                except RemoteError as error:
                    reason = error
        if reason is not None:
            raise reason

    def sign(self, statement: bytes) -> bytes:
        if self._own is not self._security.signing_certificate:
            self._learn_own()  # it was renewed
        signature: bytes = self._security.signing_key.sign(self._context + statement)
        return signature

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        """The member's key that has made this signature; None if none of the known ones has."""
        name = self._name_of(member)
        keys = self._keys.get(name)
        if keys is None:
            raise RemoteError(f"a message of {name}, whose signing certificate is not known")
        for raw, key in reversed(keys.items()):
            if self._is_by(key, statement, signature):
                return raw
        return None

    def newest_key(self, name: str) -> bytes | None:
        """The most recently learned key of a member that is not revoked."""
        for raw in reversed(self._keys.get(name, {})):
            serials = self._serials.get((name, raw), ())
            if not all(self._security.is_revoked(name, serial) for serial in serials):
                return raw
        return None

    def is_revoked(self, member: int, key: bytes) -> bool:
        """Whether a key was revoked: all its known certificates are."""
        name = self._name_of(member)
        serials = self._serials.get((name, key), ())
        return all(self._security.is_revoked(name, serial) for serial in serials)

    def _is_by(self, key: Any, statement: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, self._context + statement)
        except self._invalid_signature:
            return False
        return True


class StreamKeyring(Keyring):
    """The keyring of a dynamic group: members are numbered by stream, partners by link, and any holder of a
    certificate of the group's authority may become a member."""

    def __init__(
        self,
        security: Security,
        group: str,
        me: str,
        name_of: Callable[[int], str],
        partner_name: Callable[[int], str],
    ) -> None:
        self._name_of_stream, self._name_of_partner = name_of, partner_name
        super().__init__(security, group, [me], 0)

    def _context_of(self, group: str) -> bytes:
        # Signatures that a founder has made as the member of a fixed list with the same number are not valid
        # here.
        return group.encode() + b"\0streams\0"

    def _name_of(self, member: int) -> str:
        return self._name_of_stream(member)

    def _partner_name(self, partner: int) -> str:
        return self._name_of_partner(partner)

    def _check_holder(self, name: str) -> None:
        """Anybody's certificate may be needed."""

    @property
    def names(self) -> Iterable[str]:
        """The names whose certificates are known."""
        return self._keys

    def forget(self, name: str) -> None:
        """A member that returns shows its certificate again."""
        if name != self._me:
            for raw in self._keys.pop(name, {}):
                self._serials.pop((name, raw), None)
                self._certificates[self._positions.pop((name, raw))] = b""
