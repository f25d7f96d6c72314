"""Signatures that are quick to compute: every member has a secret that no other uses."""

from __future__ import annotations

from hashlib import blake2b

from antecede.protocols.base import RemoteError

_CERTIFICATE = b"certificate of "


class SimulatedKeyring:
    """One member's key, and the certificates that it has learned of."""

    def __init__(self, me: int) -> None:
        self._me, self._known = me, {me}
        self.certificates: list[bytes] = [_CERTIFICATE + b"%d" % me]

    def sign(self, statement: bytes) -> bytes:
        return _signature(self._me, statement)

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        if member not in self._known:
            raise RemoteError(f"a message of member {member}, whose certificate is not known")
        return b"its only key" if _signature(member, statement) == signature else None

    def is_revoked(self, member: int, key: bytes) -> bool:
        return False

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """None of them expires here."""

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        if certificate in self.certificates:
            return False
        rank = certificate.removeprefix(_CERTIFICATE)
        if len(rank) == len(certificate) or not rank.isdigit():
            raise RemoteError("a certificate that proves nothing")
        self.certificates.append(certificate)
        self._known.add(int(rank))
        return True


def _signature(member: int, statement: bytes) -> bytes:
    return blake2b(statement, key=b"secret %d" % member).digest()
