"""Authentication: by certificate between servers, by token for phones, by a shared secret in small groups.

A certificate names the group and the member that holds it, as a URI in its subject alternative name; the host
at either end does not matter. A token contains the same and an expiry time, signed with a key that super
peers have. A shared secret stands for a certificate authority: each holder issues its own certificate and
token, so the secret keeps strangers out, and its holders are trusted not to impersonate each other.

A `Proof` is what a partner has shown. It may end before the connection does, by expiry or revocation.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import ipaddress
import os
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec

from antecede.errors import InputError, require
from antecede.live.operations.logs import Log
from antecede.live.security.revocation import REVOKED, Revocations
from antecede.live.settings import Settings
from antecede.protocols.base import RemoteError
from antecede.temporary_folders import temporary_folder

CA, CERTIFICATE, KEY, TOKEN, TOKEN_KEY = "ca.pem", "certificate.pem", "key.pem", "token", "token.key"
SIGNING_KEY, SIGNING_CERTIFICATE = "sign.key", "sign.pem"
WEB_CERTIFICATE, WEB_KEY = "web.pem", "web.key"
"""Files in a member's folder of keys. The last two are optional, at a super peer: a certificate that browsers
trust anyway, which it then shows at its WebSocket port instead of its own."""
_SCHEME = "antecede:"


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The holder of a certificate or a token."""

    group: str
    name: str

    def uri(self) -> str:
        return f"{_SCHEME}{quote(self.group, safe='')}/{quote(self.name, safe='')}"


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    name: str
    expires: int
    """Seconds since 1970."""
    id: str
    """The id by which this token alone can be revoked."""


class Proof(msgspec.Struct, frozen=True):
    """How a partner has proven its name, and how long that is valid."""

    identity: Identity
    kind: Literal["certificate", "token"]
    number: str
    """The certificate's serial number, in hexadecimal, or the token's id."""
    expires: float
    """Seconds since 1970."""


def issue(key: bytes, group: str, name: str, expires: int, token_id: str) -> str:
    """A token for one name in one group, valid until a time."""
    claims = msgspec.json.encode(Token(group, name, expires, token_id))
    return f"{_to_text(claims)}.{_to_text(_sign(key, claims))}"


def verify_token(key: bytes, token: str, now: float) -> Proof:
    """The holder of a token, or a `RemoteError` that says why it is not valid."""
    claims, dot, signature = token.partition(".")
    try:
        raw, signed = _to_bytes(claims), _to_bytes(signature)
    except ValueError as error:
        raise RemoteError("its token is not a token") from error
    if not dot or not hmac.compare_digest(signed, _sign(key, raw)):
        raise RemoteError("its token was not signed for this group")
    try:
        decoded = msgspec.json.decode(raw, type=Token)
    except msgspec.DecodeError as error:
        raise RemoteError("its token cannot be decoded") from error
    if now >= decoded.expires:
        raise RemoteError(f"its token expired {_ago(now - decoded.expires)} ago")
    return Proof(Identity(decoded.group, decoded.name), "token", decoded.id, decoded.expires)


def read_claims(token: str) -> Token:
    """The claims of a token, with its signature not verified: for its holder, not for a verifier."""
    return msgspec.json.decode(_to_bytes(token.partition(".")[0]), type=Token)


def _sign(key: bytes, claims: bytes) -> bytes:
    return hmac.new(key, b"antecede token\n" + claims, hashlib.sha256).digest()


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _to_bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _ago(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds > 7200 else f"{seconds:.0f} s"


class Security:
    """A member's credentials, and what it requires of others. Without credentials, links are insecure."""

    def __init__(self, settings: Settings) -> None:
        self.server: ssl.SSLContext | None = None
        self.client: ssl.SSLContext | None = None
        self.web: ssl.SSLContext | None = None
        self.token = ""
        """The token that a member behind a super peer shows; empty for others."""
        self.token_key: bytes | None = None
        self.signing_key: Any = None
        """An `Ed25519PrivateKey`, if links are secure."""
        self.signing_certificate = b""
        """Its certificate, in DER."""
        self.hosts: list[str] = []
        """The hosts that this member's certificate names, for browsers."""
        self._authorities: list[Any] = []
        self._revoked: Revocations | None = None
        self._group = settings.group
        self._folder: Path | None = None
        self._versions: list[int] = []
        self._log = Log(settings.group, settings.me)
        if settings.keys is not None and settings.secret is not None:
            raise InputError("keys and secret: give only one of them")
        if settings.keys is not None:
            folder = Path(settings.keys)
            self._folder, self._versions = folder, _versions(folder)
            self._from_folder(folder)
            self._revoked = Revocations(folder / REVOKED, self._log)
            _refuse_keys_of_others(folder, Identity(settings.group, settings.me))
            if not (folder / CERTIFICATE).exists():
                _refuse_unreachable(settings)
            for file in (CERTIFICATE, SIGNING_CERTIFICATE):
                _warn_if_expired(folder / file, self._log)
            for file in (KEY, TOKEN, TOKEN_KEY, SIGNING_KEY, WEB_KEY):
                _warn_if_readable(folder / file, self._log)
        elif settings.secret is not None:
            self._from_secret(settings)
            _warn_if_readable(Path(settings.secret), self._log)
        else:
            _refuse_insecure(settings)

    @property
    def is_on(self) -> bool:
        return self.client is not None

    def _from_folder(self, folder: Path) -> None:
        if not (folder / CA).exists():
            raise InputError(f"keys: {folder} has no {CA}; `antecede keys` makes such folders")
        if not (folder / CERTIFICATE).exists() and not (folder / TOKEN).exists():
            raise InputError(
                f"keys: {folder} has neither {CERTIFICATE} nor {TOKEN}; name the folder of one member, "
                f"such as {folder / 'ana'}"
            )
        credentials: Any = require("antecede.live.security.credentials", "live")
        self._authorities = credentials.load_authorities(folder)
        self.signing_key, self.signing_certificate = credentials.load_signing_key(folder)
        self.client = _client_context(folder / CA)
        if (folder / CERTIFICATE).exists():
            for context in (self._server_context(folder / CA), self.client):
                _load(context, folder / CERTIFICATE, folder / KEY)
            self.hosts = credentials.load_hosts(folder / CERTIFICATE)
        if (folder / TOKEN).exists():
            self.token = (folder / TOKEN).read_text().strip()
        if (folder / TOKEN_KEY).exists():
            self.token_key = (folder / TOKEN_KEY).read_bytes()
        if self.server is not None and self.token_key is not None:
            self.web = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.web.minimum_version = ssl.TLSVersion.TLSv1_2
            _load(self.web, *_web_files(folder))
            self.hosts = credentials.load_hosts(_web_files(folder)[0])

    def _from_secret(self, settings: Settings) -> None:
        keys: Any = require("antecede.live.security.keys", "live")
        secret = _read_secret(Path(settings.secret or ""))
        with temporary_folder("keys") as folder:  # OpenSSL reads keys only from files
            mine = Identity(settings.group, settings.me)
            keys.keys_from_secret(secret, mine, folder, is_phone=settings.is_phone)
            self._from_folder(folder)

    def _server_context(self, ca: Path) -> ssl.SSLContext:
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.minimum_version = ssl.TLSVersion.TLSv1_3
        self.server.load_verify_locations(ca)
        self.server.verify_mode = ssl.CERT_REQUIRED
        return self.server

    # Verifying others

    def verify_token(self, token: str) -> Proof:
        """Verify a token and return its holder, or raise a `RemoteError`."""
        if self.token_key is None:
            raise RemoteError("it shows a token, and this member cannot verify any")
        return self._unless_revoked(verify_token(self.token_key, token, time.time()))

    def verify_certificate(self, certificate: Any) -> Proof:
        """The holder of a certificate shown to TLS, or a `RemoteError`."""
        proof = self._unless_revoked(verify_certificate(certificate))
        self.check(proof)  # a resumed TLS session does not check the time again
        return proof

    def verify_signing_certificate(
        self, der: bytes, trusted: bool = False, is_current: bool = True
    ) -> tuple[Identity, Any]:
        """The holder of a signing certificate and its `Ed25519PublicKey`; or a `RemoteError`.

        A `trusted` one was verified before. One that need not be current may have expired or been revoked.
        """
        credentials: Any = require("antecede.live.security.credentials", "live")
        if trusted:
            holder, key = credentials.read_signing_certificate(der)
        else:
            revoked = self._revoked if is_current else None
            holder, key = credentials.verify_signing_certificate(self._authorities, der, revoked, is_current)
        if holder.group != self._group:
            raise RemoteError(f"its signing certificate is for group '{holder.group}', not '{self._group}'")
        return holder, key

    def is_revoked(self, name: str, number: str) -> bool:
        """Whether a name, or its signing certificate with this serial number, is revoked."""
        try:
            if self._revoked is not None:
                self._revoked.check(name, number, "signing certificate")
        except RemoteError:
            return True
        return False

    def _unless_revoked(self, proof: Proof) -> Proof:
        if self._revoked is not None:
            self._revoked.refresh()
            self._revoked.check(proof.identity.name, proof.number, proof.kind)
        return proof

    # Reloading

    def refresh(self) -> None:
        """Reload files that have changed in the folder of keys: the list of revocations, and renewed keys.

        Costs a few `stat`s. Existing connections keep the credentials that they were made with.
        """
        if self._folder is None or self._revoked is None:
            return
        self._revoked.refresh()
        versions = _versions(self._folder)
        if versions == self._versions:
            return
        self._versions = versions
        try:
            for context in (self.server, self.client):
                if context is not None and (self._folder / CERTIFICATE).exists():
                    _load(context, self._folder / CERTIFICATE, self._folder / KEY)
            if self.web is not None:
                _load(self.web, *_web_files(self._folder))
            if (self._folder / TOKEN).exists():
                self.token = (self._folder / TOKEN).read_text().strip()
            if self.token_key is not None:
                self.token_key = (self._folder / TOKEN_KEY).read_bytes()
            credentials: Any = require("antecede.live.security.credentials", "live")
            self.signing_key, self.signing_certificate = credentials.load_signing_key(self._folder)
        except (InputError, OSError) as error:
            # Possibly only half of the files are copied yet; the next change is noticed too.
            self._log.warning("%s; the ones read before stay in use", error)
        else:
            self._log.info("keys: %s has changed and was read again", self._folder)

    def check(self, proof: Proof) -> None:
        """Raise a `RemoteError` if the proof of a connected partner is no longer valid."""
        if time.time() >= proof.expires:
            raise RemoteError(f"its {proof.kind} expired")
        if self._revoked is not None:
            self._revoked.check(proof.identity.name, proof.number, proof.kind)


def _web_files(folder: Path) -> tuple[Path, Path]:
    """The certificate and the key of a WebSocket port."""
    if (folder / WEB_CERTIFICATE).exists():
        return folder / WEB_CERTIFICATE, folder / WEB_KEY
    return folder / CERTIFICATE, folder / KEY


def _versions(folder: Path) -> list[int]:
    """Values that change when a file is replaced."""
    files = (CERTIFICATE, KEY, TOKEN, TOKEN_KEY, SIGNING_CERTIFICATE, SIGNING_KEY, WEB_CERTIFICATE, WEB_KEY)
    return [_changed_at(folder / file) for file in files]


def _changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0  # it may be being replaced right now


def _warn_if_readable(file: Path, log: Log) -> None:
    """Warn about a secret that other users of this machine can read."""
    if os.name == "posix" and file.exists() and (mode := file.stat().st_mode & 0o777) & 0o077:
        log.warning("keys: other users can read or change %s (mode %03o): chmod 600 %s", file, mode, file)


def _refuse_keys_of_others(folder: Path, mine: Identity) -> None:
    """The others refuse a member that shows the keys of somebody else, however often it tries."""
    for file in (CERTIFICATE, SIGNING_CERTIFICATE, TOKEN):
        if (folder / file).exists() and (holder := _holder(folder / file)) not in (None, mine):
            name, group = (holder.name, holder.group) if holder is not None else ("", "")
            raise InputError(
                f"keys: {folder / file} is for {name} of group '{group}', and this is {mine.name} of group "
                f"'{mine.group}'; give it a folder of its own, which `antecede keys` makes"
            )


def _holder(file: Path) -> Identity | None:
    """Whom a certificate or a token is for; None if it does not say so."""
    try:
        if file.name == TOKEN:
            claims = read_claims(file.read_text().strip())
            return Identity(claims.group, claims.name)
        return identity_of_uris(_uris(_load_certificate(file)))
    except (ValueError, msgspec.DecodeError, RemoteError):
        return None


def _load_certificate(file: Path) -> Any:
    x509: Any = require("cryptography.x509", "live")
    return x509.load_pem_x509_certificate(file.read_bytes())


def _uris(certificate: Any) -> list[str]:
    x509: Any = require("cryptography.x509", "live")
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names.get_values_for_type(x509.UniformResourceIdentifier))


def _refuse_unreachable(settings: Settings) -> None:
    """A phone with a token can only call where tokens are checked: members' other ports want certificates."""
    for what, member in settings.called():
        is_called = settings.behind in (None, member.name)
        if is_called and member.at is not None and not member.at.startswith("wss://"):
            raise InputError(
                f"{what}: {settings.me} has a token and no certificate, so {member.name} lets it in only at "
                f"its `web`; write {member.name}@wss://host:port with the port of that, not {member.at}"
            )


def _warn_if_expired(certificate: Path, log: Log) -> None:
    """Warn at once about a certificate that others will refuse."""
    if not certificate.exists():
        return
    if _load_certificate(certificate).not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        log.warning("keys: %s has expired: others will refuse it", certificate)


def _client_context(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Members are identified by name, not by host: see `identity`.
    context.check_hostname = False
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as error:
        raise InputError(f"keys: {ca}: {error}") from error
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise InputError(f"keys: {certificate} and {key.name}: {error}") from error


def _read_secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise InputError(
            f"secret: {path}: {error.strerror}; it must name a file, as `antecede keys --secret` makes"
        ) from error
    if len(secret) < 20:
        raise InputError(
            f"secret: {path} has {len(secret)} characters; it needs at least 20 that nobody can guess"
        )
    return secret


def verify_certificate(certificate: Any) -> Proof:
    """The holder of a certificate that TLS has verified, as `getpeercert` describes it."""
    shown = certificate or {}
    holder = identity_of_uris([value for kind, value in shown.get("subjectAltName", ()) if kind == "URI"])
    expires = ssl.cert_time_to_seconds(shown["notAfter"])
    return Proof(holder, "certificate", shown["serialNumber"], expires)


def identity_of_uris(uris: Iterable[str]) -> Identity:
    """The identity that the URIs of a certificate name."""
    for uri in uris:
        if uri.startswith(_SCHEME):
            group, _, name = uri.removeprefix(_SCHEME).partition("/")
            return Identity(unquote(group), unquote(name))
    raise RemoteError("its certificate names no member of a group")


def _refuse_insecure(settings: Settings) -> None:
    if settings.insecure:
        return
    for what in ("listen", "advertise", "web"):
        where = getattr(settings, what)
        if where is not None and not _is_loopback(where):
            raise InputError(
                f"{what}: {where} is open to others and nothing is encrypted; give keys or a secret, or set "
                "`insecure` to true"
            )
    for what, member in settings.called():
        if member.at is not None and not _is_loopback(member.at):
            raise InputError(
                f"{what}: {member.name} at {member.at} would be reached without encryption; give keys or a "
                "secret, or set `insecure` to true"
            )


def _is_loopback(where: str) -> bool:
    host = where.removeprefix("ws://").partition("/")[0].rpartition(":")[0].strip("[]")
    if host in ("", "localhost"):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
