"""Members' signing keys, and the certificates that name their holders.

Every member has a signing key, phones included: `sign.key` (Ed25519) and `sign.pem` in its folder of keys.
Verifying a certificate costs one ECDSA verification, about a tenth of a millisecond: keep the result.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from antecede.errors import InputError
from antecede.live.security.certificates import MESSAGE_SIGNING, hosts_of
from antecede.live.security.identity import CA, SIGNING_CERTIFICATE, SIGNING_KEY, Identity, identity_of_uris
from antecede.live.security.revocation import Revocations
from antecede.protocols.base import RemoteError

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


def load_authorities(folder: Path) -> list[x509.Certificate]:
    """The authorities that a member's folder of keys trusts."""
    try:
        return x509.load_pem_x509_certificates((folder / CA).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"keys: {folder / CA}: {getattr(error, 'strerror', None) or error}") from error


def load_hosts(certificate: Path) -> list[str]:
    """The hosts that a certificate for TLS names."""
    try:
        return hosts_of(x509.load_pem_x509_certificate(certificate.read_bytes()))
    except ValueError as error:
        raise InputError(f"keys: {certificate}: {error}") from error


def load_signing_key(folder: Path) -> tuple[Ed25519PrivateKey, bytes]:
    """A member's signing key, and its certificate in DER."""
    try:
        key = serialization.load_pem_private_key((folder / SIGNING_KEY).read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / SIGNING_CERTIFICATE).read_bytes())
    except FileNotFoundError as error:
        remedy = "`antecede keys` adds it to folders that it has made before"
        raise InputError(f"keys: {error.filename} does not exist; {remedy}") from error
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"keys: {folder / SIGNING_KEY} and {SIGNING_CERTIFICATE}: {reason}") from error
    if not isinstance(key, Ed25519PrivateKey) or key.public_key() != certificate.public_key():
        raise InputError(
            f"keys: {folder / SIGNING_KEY} is not the Ed25519 key that {SIGNING_CERTIFICATE} is for"
        )
    return key, certificate.public_bytes(serialization.Encoding.DER)


def verify_signing_certificate(
    authorities: Sequence[x509.Certificate],
    der: bytes,
    revoked: Revocations | None = None,
    is_current: bool = True,
) -> tuple[Identity, Ed25519PublicKey]:
    """The holder of a signing certificate and its key, or a `RemoteError` that says what is wrong.

    Its dates are checked only if it must be currently valid (`is_current`).
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
        extensions = certificate.extensions
        key = certificate.public_key()
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except Exception as error:  # the parser documents no complete set of exceptions
        raise RemoteError("its signing certificate cannot be decoded") from error
    if not any(_has_issued(authority, certificate) for authority in authorities):
        raise RemoteError("its signing certificate is not by this group's authority")
    usages = _extension(extensions, x509.ExtendedKeyUsage)
    constraints = _extension(extensions, x509.BasicConstraints)
    if usages is None or list(usages) != [MESSAGE_SIGNING] or constraints is None or constraints.ca:
        raise RemoteError("its certificate is not one for signing messages")
    if not isinstance(key, Ed25519PublicKey):
        raise RemoteError("its signing certificate is for another kind of key than Ed25519")
    now = datetime.datetime.now(datetime.UTC)
    if is_current and now < not_before:
        raise RemoteError("its signing certificate is not valid yet")
    if is_current and now >= not_after:
        raise RemoteError("its signing certificate has expired")
    names = _extension(extensions, x509.SubjectAlternativeName)
    holder = identity_of_uris(names.get_values_for_type(x509.UniformResourceIdentifier) if names else [])
    if revoked is not None:
        revoked.check(holder.name, f"{certificate.serial_number:x}", "signing certificate")
    return holder, key


def read_signing_certificate(der: bytes) -> tuple[Identity, Ed25519PublicKey]:
    """The holder of a signing certificate that was verified before, and its key."""
    certificate = x509.load_der_x509_certificate(der)
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise RemoteError("its signing certificate is for another kind of key than Ed25519")
    names = _extension(certificate.extensions, x509.SubjectAlternativeName)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    return identity_of_uris(uris), key


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _extension(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
