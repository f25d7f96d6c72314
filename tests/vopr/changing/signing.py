"""Signatures that are quick to compute, by name: as `vopr/signing.py` for fixed lists."""

from __future__ import annotations

from hashlib import blake2b

from antecede.live.changing.core import ChangingCore
from antecede.protocols.base import RemoteError

_CERTIFICATE = b"certificate of "


class NameKeyring:
    """One name's key, and the certificates that are known of others."""

    def __init__(self, core: ChangingCore) -> None:
        self._core, self._me = core, core.name
        self.certificates: list[bytes] = [_CERTIFICATE + core.name.encode()]

    def sign(self, statement: bytes) -> bytes:
        return signature_of(self._me, statement)

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        name = self._core.sealing.name_of(member)
        if _CERTIFICATE + name.encode() not in self.certificates:
            raise RemoteError(f"a message of {name}, whose signing certificate is not known")
        return b"its only key" if signature_of(name, statement) == signature else None

    def is_revoked(self, member: int, key: bytes) -> bool:
        return False

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """None of them expires here."""

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        if not certificate.startswith(_CERTIFICATE):
            raise RemoteError("a certificate that proves nothing")
        if certificate in self.certificates:
            return False
        self.certificates.append(certificate)
        return True

    @property
    def names(self) -> list[str]:
        return [each.removeprefix(_CERTIFICATE).decode() for each in self.certificates if each]

    def forget(self, name: str) -> None:
        certificate = _CERTIFICATE + name.encode()
        if name != self._me and certificate in self.certificates:
            self.certificates[self.certificates.index(certificate)] = b""


def signature_of(name: str, statement: bytes) -> bytes:
    return blake2b(statement, key=b"secret of " + name.encode()).digest()
