"""The cryptography of end-to-end encryption: sender keys, as in Signal's groups.

Each reader has an X25519 and an Ed25519 key pair, made for this group and kept in its store; its signing
certificate vouches for both. A sender encrypts each message under the next key of a *chain*: HMAC yields the
message's key and the next link, so a holder of a link can decrypt from there on, and nothing earlier. The
first link of a chain is random, and is sent to each reader encrypted with a key that HKDF derives from an
ephemeral X25519 key. Contents are encrypted with ChaCha20-Poly1305.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
SEED_BYTES = 32
ID_BYTES = 16
NONCE_BYTES = 12
_ONCE = bytes(NONCE_BYTES)
"""The nonce of keys that encrypt only one text."""


class ReaderKeys:
    """The private keys of a reader."""

    def __init__(self, seed: bytes) -> None:
        self._decryption = X25519PrivateKey.from_private_bytes(_hash(b"antecede reader decrypts\0", seed))
        self._signing = Ed25519PrivateKey.from_private_bytes(_hash(b"antecede reader signs\0", seed))
        self.decryption_key = self._decryption.public_key().public_bytes_raw()
        self.signing_key = self._signing.public_key().public_bytes_raw()
        self.id = reader_id(self.decryption_key, self.signing_key)

    def sign(self, statement: bytes) -> bytes:
        return self._signing.sign(statement)

    def unwrap(self, ephemeral: bytes, wrapped: bytes, context: bytes) -> bytes | None:
        """Decrypt what was encrypted for this reader; None if it was not, or is damaged."""
        try:
            shared = self._decryption.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            key = _derive(shared, ephemeral, self.decryption_key)
            return ChaCha20Poly1305(key).decrypt(_ONCE, wrapped, context)
        except (InvalidTag, ValueError):
            return None


def reader_id(decryption_key: bytes, signing_key: bytes) -> bytes:
    return _hash(b"antecede reader\0", decryption_key + signing_key)[:ID_BYTES]


def new_seed() -> bytes:
    return secrets.token_bytes(SEED_BYTES)


def is_signed(signing_key: bytes, statement: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(signing_key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


# Keys for recipients


def wrap(
    contents: Mapping[bytes, bytes], keys: Mapping[bytes, bytes], context: bytes
) -> tuple[bytes, dict[bytes, bytes]]:
    """Encrypt a content for each recipient, by id; returns an ephemeral public key, and the contents. `keys`
    are the recipients' public keys.

    Recipients with an unusable key, which no honest one has, are left out.
    """
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    wrapped = {}
    for each, content in contents.items():
        try:
            shared = private.exchange(X25519PublicKey.from_public_bytes(keys[each]))
        except ValueError:
            continue
        key = _derive(shared, public, keys[each])
        wrapped[each] = ChaCha20Poly1305(key).encrypt(_ONCE, content, context)
    return public, wrapped


def _derive(shared: bytes, ephemeral: bytes, recipient: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, None, b"antecede group key\0" + ephemeral + recipient).derive(shared)


# Chains


def new_chain() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def epoch_of(chain: bytes) -> bytes:
    """The id of an epoch: a hash of the beginning of its chain, so an epoch cannot have a second chain."""
    return _hash(b"antecede epoch\0", chain)[:ID_BYTES]


def encrypt(key: bytes, content: bytes, context: bytes) -> bytes:
    # The nonce is random, because a store that was restored from a copy reuses links.
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(_message_key(key)).encrypt(nonce, content, context)


def decrypt(key: bytes, data: bytes, context: bytes) -> bytes | None:
    """None if it was modified, or encrypted under another link."""
    try:
        nonce, encrypted = data[:NONCE_BYTES], data[NONCE_BYTES:]
        return ChaCha20Poly1305(_message_key(key)).decrypt(nonce, encrypted, context)
    except (InvalidTag, ValueError):
        return None


def _message_key(key: bytes) -> bytes:
    return hmac.digest(key, b"message", "sha256")


def _hash(purpose: bytes, data: bytes) -> bytes:
    return hashlib.sha256(purpose + data).digest()
