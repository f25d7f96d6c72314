"""Making keys for small groups: a certificate authority, certificates for servers, tokens for phones.

A larger organisation has its own authority; `certificates.py` says what its certificates need.

The folder of a group contains the authority's key, the key of tokens, and `issued`, with a line for
everything that was issued: the holder's name, the kind, its serial number or id, and its last day. It also
contains a folder for each member, to be moved to that member. Secrets are created readable by their owner
only, and nothing is overwritten, except by `renew`.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antecede.errors import InputError
from antecede.live.security import certificates
from antecede.live.security.identity import (
    CA,
    CERTIFICATE,
    KEY,
    SIGNING_CERTIFICATE,
    SIGNING_KEY,
    TOKEN,
    TOKEN_KEY,
    Identity,
    identity_of_uris,
    issue,
)
from antecede.live.security.revocation import REVOKED, normalize_id, read_entries

ISSUED = "issued"
_AUTHORITY_KEY = "authority.key"
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


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

    Only `supers` get the key that verifies tokens, since its holders can issue tokens too. Run again, it
    creates what is missing and leaves the rest unchanged, so members can be added. Returns the folders that
    have changed.
    """
    names = list(dict.fromkeys([*servers, *phones]))
    for name in names:
        _refuse_other_group(folder / name, group)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / _AUTHORITY_KEY).exists():
        _create(folder / _AUTHORITY_KEY, certificates.private_pem(ec.generate_private_key(ec.SECP256R1())))
    if not (folder / CA).exists():
        authority = certificates.create_authority(_authority_key(folder), f"antecede {group}")
        _create(folder / CA, certificates.certificate_pem(authority), mode=0o644)
    if not (folder / TOKEN_KEY).exists():
        _create(folder / TOKEN_KEY, secrets.token_bytes(32))
    changed = []
    for name in names:
        member = _MemberFolder(folder, Identity(group, name), days)
        if name in servers:
            member.add_certificate(hosts.get(name, []))
        if name in phones:
            member.add_token()
        if name in supers:
            member.add_token_key()
        member.add_signing_key()
        if member.has_changed:
            changed.append(folder / name)
    return changed


def _refuse_other_group(folder: Path, group: str) -> None:
    """A member's folder is for one group, and is not changed."""
    if (folder / SIGNING_CERTIFICATE).exists():
        holder = _holder(folder / SIGNING_CERTIFICATE)
        if holder.group != group:
            raise InputError(
                f"{folder} has keys for group '{holder.group}', not '{group}'; write --group {holder.group}, "
                "or make keys for another group in a folder of its own"
            )


def _holder(certificate: Path) -> Identity:
    names = _load_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return identity_of_uris(names.value.get_values_for_type(x509.UniformResourceIdentifier))


def renew(folder: Path, name: str, days: float) -> None:
    """New certificates and a new token for a member, with the same group, hosts and keys as before.

    If the member's name was revoked because somebody else may have its keys, it gets new keys, all its
    previous credentials are revoked instead, and the name is valid again.
    """
    mine = folder / name
    if not (mine / SIGNING_CERTIFICATE).exists():
        raise InputError(f"{mine} has no {SIGNING_CERTIFICATE}: there is nothing to renew")
    holder = _holder(mine / SIGNING_CERTIFICATE)
    if holder.name != name:
        raise InputError(f"{mine / SIGNING_CERTIFICATE} is for {holder.name}, not for {name}")
    entries = _revoked(folder)
    member = _MemberFolder(folder, holder, days, replace=True)
    if name in entries:
        earlier = [number for who, number in _issued(folder) if who == name]
        _write_revoked(folder, [entry for entry in entries if entry != name] + earlier)
        member.forget_keys()
    if (mine / CERTIFICATE).exists():
        member.add_certificate(certificates.hosts_of(_load_certificate(mine / CERTIFICATE)))
    if (mine / TOKEN).exists():
        member.add_token()
    member.add_signing_key()


def revoke(folder: Path, entry: str) -> list[Path]:
    """Add a name, a serial number or a token's id to the file `revoked` of every member's folder here.

    Returns those files: they are to be copied to the members, which reload them while they run.
    """
    issued = _issued(folder)
    numbers = {normalize_id(number) for _, number in issued}
    if entry not in {name for name, _ in issued} and normalize_id(entry) not in numbers:
        raise InputError(
            f"--revoke {entry}: nothing of this name or number was issued; {folder / ISSUED} lists what was"
        )
    entries = _revoked(folder)
    return _write_revoked(folder, entries if entry in entries else [*entries, entry])


def keys_from_secret(secret: bytes, who: Identity, folder: Path, is_phone: bool) -> None:
    """Certificates from the authority that a shared secret stands for, and for a phone a token. All holders
    of the secret derive the same authority, and a member derives the same signing key at every start."""
    seed = hashlib.scrypt(secret, salt=b"antecede " + who.group.encode(), n=2**14, r=8, p=1, dklen=112)
    scalar = 1 + int.from_bytes(seed[:48], "big") % (_P256_ORDER - 1)
    key = ec.derive_private_key(scalar, ec.SECP256R1())
    authority = certificates.create_authority(key, f"antecede {who.group} by a shared key")
    _create(folder / _AUTHORITY_KEY, certificates.private_pem(key))
    _create(folder / CA, certificates.certificate_pem(authority), mode=0o644)
    _create(folder / TOKEN_KEY, seed[48:80])
    member = _MemberFolder(folder, who, certificates.AUTHORITY_DAYS, inside=folder)
    member.add_certificate([])
    if is_phone:
        member.add_token()
    signing_seed = hmac.new(seed[80:], b"antecede signing\n" + who.name.encode(), hashlib.sha256).digest()
    member.add_signing_key(Ed25519PrivateKey.from_private_bytes(signing_seed))


def new_secret(path: Path) -> None:
    """Write a random shared secret."""
    if path.exists():
        raise InputError(f"{path} exists; a new shared secret would lock out whoever has the old one")
    _create(path, secrets.token_urlsafe(32).encode() + b"\n")


class _MemberFolder:
    """A member's folder; each method adds what is missing, or with `replace`, issues it anew."""

    def __init__(
        self,
        group_folder: Path,
        holder: Identity,
        days: float,
        replace: bool = False,
        inside: Path | None = None,
    ) -> None:
        self._group_folder, self._holder, self._days, self._replace = group_folder, holder, days, replace
        self._folder = inside or group_folder / holder.name
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._issuer = certificates.Issuer(_authority_key(group_folder), _load_certificate(group_folder / CA))
        self.has_changed = False
        for file in (CA, REVOKED):
            if (group_folder / file).exists() and not (self._folder / file).exists():
                self._put(file, (group_folder / file).read_bytes(), mode=0o644)

    def forget_keys(self) -> None:
        for file in (KEY, SIGNING_KEY):
            (self._folder / file).unlink(missing_ok=True)

    def add_certificate(self, hosts: Sequence[str]) -> None:
        """The TLS key and its certificate."""
        if self._has(CERTIFICATE):
            return
        key = _load_tls_key(self._folder / KEY)
        if key is None:
            key = ec.generate_private_key(ec.SECP256R1())
            self._put(KEY, certificates.private_pem(key))
        try:
            made = self._issuer.issue_for_tls(key.public_key(), self._holder, self._days, hosts)
        except ValueError as error:
            raise InputError(f"--host: {error}") from error
        self._record("certificate", made)
        self._put(CERTIFICATE, certificates.certificate_pem(made), mode=0o644)

    def add_signing_key(self, key: Ed25519PrivateKey | None = None) -> None:
        """The key that signs messages, and its certificate."""
        if self._has(SIGNING_CERTIFICATE):
            return
        stored = _load_signing_key(self._folder / SIGNING_KEY)
        if stored is None:
            stored = key or Ed25519PrivateKey.generate()
            self._put(SIGNING_KEY, certificates.private_pem(stored))
        made = self._issuer.issue_for_signing(stored.public_key(), self._holder, self._days)
        self._record("signing-certificate", made)
        self._put(SIGNING_CERTIFICATE, certificates.certificate_pem(made), mode=0o644)

    def add_token(self) -> None:
        if self._has(TOKEN):
            return
        expires, token_id = int(time.time() + self._days * 86_400), secrets.token_hex(8)
        key = (self._group_folder / TOKEN_KEY).read_bytes()
        token = issue(key, self._holder.group, self._holder.name, expires, token_id)
        self._record_line("token", token_id, datetime.datetime.fromtimestamp(expires, datetime.UTC))
        self._put(TOKEN, token.encode() + b"\n")

    def add_token_key(self) -> None:
        if not (self._folder / TOKEN_KEY).exists():
            self._put(TOKEN_KEY, (self._group_folder / TOKEN_KEY).read_bytes())

    def _has(self, file: str) -> bool:
        return not self._replace and (self._folder / file).exists()

    def _record(self, kind: str, made: x509.Certificate) -> None:
        self._record_line(kind, f"{made.serial_number:x}", made.not_valid_after_utc)

    def _record_line(self, kind: str, number: str, expires: datetime.datetime) -> None:
        """Called before the file is written, so that everything issued can be revoked."""
        line = f"{self._holder.name} {kind} {number} {expires:%Y-%m-%d}\n"
        handle = os.open(self._group_folder / ISSUED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(line)

    def _put(self, file: str, data: bytes, mode: int = 0o600) -> None:
        self.has_changed = True
        (_replace if self._replace else _create)(self._folder / file, data, mode)


def _authority_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    key = _load_tls_key(folder / _AUTHORITY_KEY)
    if key is None:
        raise InputError(f"{folder / _AUTHORITY_KEY} is missing: without it nothing can be issued")
    return key


def _load_tls_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    key = _load_key(path)
    if key is not None and not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(
            f"{path} holds another kind of key, as an earlier version made and browsers do not accept; "
            "move the folder away and make new keys"
        )
    return key


def _load_signing_key(path: Path) -> Ed25519PrivateKey | None:
    key = _load_key(path)
    if key is not None and not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} holds another kind of key than Ed25519")
    return key


def _load_key(path: Path) -> object | None:
    if not path.exists():
        return None
    try:
        return serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: {error}") from error


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _issued(folder: Path) -> list[tuple[str, str]]:
    """Names and numbers of everything that was issued."""
    if not (folder / ISSUED).exists():
        raise InputError(f"{folder / ISSUED} does not exist: {folder} is not a folder of a group's keys")
    lines = [line.split() for line in (folder / ISSUED).read_text().splitlines()]
    return [(line[0], line[2]) for line in lines if len(line) == 4]


def _revoked(folder: Path) -> list[str]:
    path = folder / REVOKED
    return read_entries(path.read_bytes())[0] if path.exists() else []


def _write_revoked(folder: Path, entries: list[str]) -> list[Path]:
    data = "".join(f"{entry}\n" for entry in entries).encode()
    files = [folder / REVOKED, *(ca.parent / REVOKED for ca in sorted(folder.glob(f"*/{CA}")))]
    for file in files:
        _replace(file, data, mode=0o644)
    return files


def _create(path: Path, data: bytes, mode: int = 0o600) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise InputError(f"{path} exists, and is not overwritten") from error
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Atomically: a concurrent reader sees the old file or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    _create(new, data, mode)
    new.replace(path)
