"""Making keys for small groups: a certificate authority, certificates for servers, tokens for phones.

A larger organisation has its own authority; its certificates need the URI of `Identity.uri` as a subject
alternative name, and the extended key usages of a server and a client.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import secrets
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from antecede.errors import InputError
from antecede.live.security.identity import CA, CERTIFICATE, KEY, TOKEN, TOKEN_KEY, Identity, issue

_AUTHORITY_KEY = "authority.key"
_DAY = datetime.timedelta(days=1)
_LONG = 3650


def make_keys(
    folder: Path,
    group: str,
    servers: list[str],
    phones: list[str],
    days: float,
    hosts: dict[str, list[str]],
    supers: list[str],
) -> list[Path]:
    """A folder of keys for each member; the authority's own key stays in `folder`.

    Only `supers` get the key that verifies tokens, since whoever has it can issue tokens too. Run again, it
    makes what is missing and leaves the rest, so members can be added.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = _authority_key(folder / _AUTHORITY_KEY)
    if not (folder / CA).exists():
        _write(folder / CA, _pem(_authority(key, f"antecede {group}")), secret=False)
    issuer = _subject(folder / CA)
    token_key = _token_key(folder / TOKEN_KEY)
    folders = []
    for name in servers:
        mine = folder / name
        if (mine / CERTIFICATE).exists():
            continue
        mine.mkdir(exist_ok=True)
        _copy(folder / CA, mine / CA)
        _write_certificate(mine, key, issuer, Identity(group, name), days, hosts.get(name, []))
        folders.append(mine)
    for name in supers:
        _write(folder / name / TOKEN_KEY, token_key, secret=True)
    for name in phones:
        mine = folder / name
        mine.mkdir(exist_ok=True)
        _copy(folder / CA, mine / CA)
        token = issue(token_key, group, name, int(time.time() + days * 86_400))
        _write(mine / TOKEN, token.encode() + b"\n", secret=True)
        folders.append(mine)
    return folders


def keys_from_secret(secret: bytes, who: Identity, folder: Path) -> None:
    """A certificate from the authority that a shared secret stands for: everybody who has it derives the
    same."""
    seed = hashlib.scrypt(secret, salt=b"antecede " + who.group.encode(), n=2**14, r=8, p=1, dklen=64)
    key = Ed25519PrivateKey.from_private_bytes(seed[:32])
    authority = _authority(key, f"antecede {who.group} by a shared key")
    _write(folder / CA, _pem(authority), secret=False)
    _write_certificate(folder, key, authority.subject, who, _LONG, [])
    _write(folder / TOKEN_KEY, seed[32:], secret=True)


def new_secret(path: Path) -> None:
    """A shared secret that nobody can guess."""
    if path.exists():
        raise InputError(f"{path} exists; a new shared secret would lock out whoever has the old one")
    _write(path, secrets.token_urlsafe(32).encode() + b"\n", secret=True)


def _authority_key(path: Path) -> Ed25519PrivateKey:
    if path.exists():
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"{path} holds another kind of key")
        return key
    key = Ed25519PrivateKey.generate()
    _write(path, _private(key), secret=True)
    return key


def _subject(path: Path) -> x509.Name:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).subject
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _token_key(path: Path) -> bytes:
    if not path.exists():
        _write(path, secrets.token_bytes(32), secret=True)
    return path.read_bytes()


def _authority(key: Ed25519PrivateKey, subject: str) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    name = _named(subject)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _LONG * _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_uses(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )


def _write_certificate(
    folder: Path,
    authority: Ed25519PrivateKey,
    issuer: x509.Name,
    who: Identity,
    days: float,
    hosts: list[str],
) -> None:
    key = Ed25519PrivateKey.generate()
    now = datetime.datetime.now(datetime.UTC)
    places: list[x509.GeneralName] = [x509.UniformResourceIdentifier(who.uri())]
    for host in ["localhost", "127.0.0.1", *hosts]:
        try:
            places.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            places.append(x509.DNSName(host))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(who.name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_uses(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
        .sign(authority, None)
    )
    _write(folder / KEY, _private(key), secret=True)
    _write(folder / CERTIFICATE, _pem(certificate), secret=False)


def _uses(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_bytes(), secret=False)


def _write(path: Path, data: bytes, secret: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
