"""Contents that only some members can read: encrypted once, with a key that is encrypted for each of them.

The recipients' keys are their signing keys, converted to X25519: the map from Ed25519 is that of RFC 7748, as
in libsodium's `crypto_sign_ed25519_pk_to_curve25519`. So anybody with a member's signing certificate can
encrypt for it, and nothing else has to be issued or exchanged. Each content has an ephemeral key of its own,
which is then discarded, so its sender's key does not open it. ChaCha20-Poly1305 under keys that are used
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from antecede.protocols.base import LocalError

_P = (1 << 255) - 19
_NONCE = bytes(12)
"""Each key encrypts one text."""


class SealedBox(msgspec.Struct, frozen=True, array_like=True):
    """A content, encrypted."""

    ephemeral: bytes
    """The sender's public key, used for this content alone."""
    keys: list[bytes]
    """The key of the content, encrypted for each recipient."""
    content: bytes


def seal(content: bytes, recipients: Sequence[bytes], context: bytes) -> SealedBox:
    """Encrypt for the holders of these Ed25519 public keys; opening requires the same `context`."""
    ephemeral, key = X25519PrivateKey.generate(), ChaCha20Poly1305.generate_key()
    public = ephemeral.public_key().public_bytes_raw()
    keys = []
    for each in recipients:
        recipient = montgomery(each)
        try:
            shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient))
        except ValueError as error:  # a point of low order, which no honest member uses
            raise LocalError("send: the key of an addressee cannot be used; nothing was broadcast") from error
        keys.append(ChaCha20Poly1305(_derive(shared, public, recipient)).encrypt(_NONCE, key, None))
    return SealedBox(public, keys, ChaCha20Poly1305(key).encrypt(_NONCE, content, context))


def open_box(box: SealedBox, position: int, signing_key: Ed25519PrivateKey, context: bytes) -> bytes | None:
    """The content, for the recipient at a position; None if it is not for the holder of this key."""
    private = X25519PrivateKey.from_private_bytes(
        hashlib.sha512(signing_key.private_bytes_raw()).digest()[:32]
    )
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(box.ephemeral))
        derived = _derive(shared, box.ephemeral, private.public_key().public_bytes_raw())
        key = ChaCha20Poly1305(derived).decrypt(_NONCE, box.keys[position], None)
        return ChaCha20Poly1305(key).decrypt(_NONCE, box.content, context)
    except (InvalidTag, ValueError, IndexError):
        return None


def montgomery(public: bytes) -> bytes:
    """The X25519 public key that corresponds to an Ed25519 public key: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return ((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(32, "little")


def _derive(shared: bytes, ephemeral: bytes, recipient: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, b"antecede addressed message\0" + ephemeral + recipient).derive(shared)
