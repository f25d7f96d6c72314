"""Who is let in: certificates between servers, tokens for phones and browsers, a shared key for the small.

A certificate says of which group its holder is and by what name, as a URI in its subject alternative name;
the host that a connection comes from or goes to says nothing. A token says the same and when it ends, signed
with a key that super peers have. A shared key stands for an authority: whoever has it makes a certificate for
itself, so it keeps strangers out, and holders of the key are trusted not to take each other's names.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from antecede.errors import InputError, require
from antecede.live.operations.logs import Log
from antecede.live.settings import Settings
from antecede.protocols.base import RemoteError

CA, CERTIFICATE, KEY, TOKEN, TOKEN_KEY = "ca.pem", "certificate.pem", "key.pem", "token", "token.key"
"""What a member's folder of keys may hold."""
_SCHEME = "antecede:"


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a certificate or a token says of its holder."""

    group: str
    name: str

    def uri(self) -> str:
        return f"{_SCHEME}{quote(self.group, safe='')}/{quote(self.name, safe='')}"


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    name: str
    expires: int
    """Seconds since 1970."""


def issue(key: bytes, group: str, name: str, expires: int) -> str:
    """A token for one name in one group, until a time."""
    said = msgspec.json.encode(Token(group, name, expires))
    return f"{_text(said)}.{_text(_signed(key, said))}"


def checked(key: bytes, token: str, now: float) -> Identity:
    """Who holds a token, or why it is not good."""
    said, dot, signature = token.partition(".")
    try:
        raw, signed = _bytes(said), _bytes(signature)
    except ValueError as error:
        raise RemoteError("its token is no token") from error
    if not dot or not hmac.compare_digest(signed, _signed(key, raw)):
        raise RemoteError("its token was not signed for this group")
    try:
        found = msgspec.json.decode(raw, type=Token)
    except msgspec.DecodeError as error:
        raise RemoteError("its token says nothing that can be read") from error
    if now >= found.expires:
        raise RemoteError(f"its token expired {_ago(now - found.expires)} ago")
    return Identity(found.group, found.name)


def _signed(key: bytes, said: bytes) -> bytes:
    return hmac.new(key, b"antecede token\n" + said, hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _ago(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds > 7200 else f"{seconds:.0f} s"


class Security:
    """A member's means: what to show and what to ask for. Without any, links are plain."""

    def __init__(self, settings: Settings) -> None:
        self.server: ssl.SSLContext | None = None
        self.client: ssl.SSLContext | None = None
        self.web: ssl.SSLContext | None = None
        self.token = ""
        self.token_key: bytes | None = None
        if settings.keys is not None and settings.secret is not None:
            raise InputError("keys and secret: give one of them")
        if settings.keys is not None:
            self._from_folder(Path(settings.keys))
            _doubt(Path(settings.keys) / CERTIFICATE, Identity(settings.group, settings.me))
        elif settings.secret is not None:
            self._from_secret(settings)
        else:
            _refuse_plain(settings)

    @property
    def is_on(self) -> bool:
        return self.client is not None

    def _from_folder(self, folder: Path) -> None:
        if not (folder / CA).exists():
            raise InputError(f"keys: {folder} has no {CA}; antecede keys makes such folders")
        if not (folder / CERTIFICATE).exists() and not (folder / TOKEN).exists():
            raise InputError(
                f"keys: {folder} has neither {CERTIFICATE} nor {TOKEN}; name the folder of one member, "
                f"such as {folder / 'ana'}"
            )
        self.client = _client(folder / CA)
        if (folder / CERTIFICATE).exists():
            for context in (self._serve(folder / CA), self.client):
                _load(context, folder / CERTIFICATE, folder / KEY)
        if (folder / TOKEN).exists():
            self.token = (folder / TOKEN).read_text().strip()
        if (folder / TOKEN_KEY).exists():
            self.token_key = (folder / TOKEN_KEY).read_bytes()
        if self.server is not None and self.token_key is not None:
            self.web = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.web.minimum_version = ssl.TLSVersion.TLSv1_2
            _load(self.web, folder / CERTIFICATE, folder / KEY)

    def _from_secret(self, settings: Settings) -> None:
        keys: Any = require("antecede.live.security.keys", "live")
        secret = _secret(Path(settings.secret or ""))
        with tempfile.TemporaryDirectory(prefix="antecede-keys-") as name:
            folder = Path(name)
            keys.from_secret(secret, Identity(settings.group, settings.me), folder)
            self._from_folder(folder)

    def _serve(self, ca: Path) -> ssl.SSLContext:
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.minimum_version = ssl.TLSVersion.TLSv1_3
        self.server.load_verify_locations(ca)
        self.server.verify_mode = ssl.CERT_REQUIRED
        return self.server


def _doubt(certificate: Path, mine: Identity) -> None:
    """Say at once what others will refuse."""
    told = Log(mine.group, mine.name)
    if not certificate.exists():
        return
    x509: Any = require("cryptography.x509", "live")
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    if mine.uri() not in uris:
        said = ", ".join(uris) or "nobody"
        told.warning("keys: %s is for %s, not for %s: others will refuse it", certificate, said, mine.uri())
    if found.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        told.warning("keys: %s has expired: others will refuse it", certificate)


def _client(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A name in the group is what counts, not the host that it happens to be at: see `identity`.
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


def _secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise InputError(
            f"secret: {path}: {error.strerror}; it is a file, as antecede keys --secret makes"
        ) from error
    if len(secret) < 20:
        raise InputError(f"secret: {path} has {len(secret)} characters; 20 at least, not guessable")
    return secret


def identity(certificate: Any) -> Identity:
    """Of which group and by what name the holder of a verified certificate is."""
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        if kind == "URI" and value.startswith(_SCHEME):
            group, _, name = value.removeprefix(_SCHEME).partition("/")
            return Identity(unquote(group), unquote(name))
    raise RemoteError("its certificate says no name in a group")


def _refuse_plain(settings: Settings) -> None:
    if settings.plain:
        return
    for what in ("listen", "web"):
        where = getattr(settings, what)
        if where is not None and not _is_loopback(where):
            raise InputError(
                f"{what}: {where} is open to others and nothing is encrypted; give keys or a secret, or say "
                "plain = true"
            )
    for member in settings.members():
        if member.at is not None and not _is_loopback(member.at):
            raise InputError(
                f"peers: {member.name} at {member.at} would be called in plain text; give keys or a secret, "
                "or say plain = true"
            )


def _is_loopback(where: str) -> bool:
    host = where.removeprefix("ws://").partition("/")[0].rpartition(":")[0].strip("[]")
    if host in ("", "localhost"):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
