"""Certificates of a group: the contents of each kind, and how they are made.

An authority signs two certificates for a member, under the same URI (`Identity.uri`). One is for TLS, with
the extended key usages of a server and a client; its key is ECDSA over P-256, because browsers do not accept
Ed25519. The other is for signing messages: its key is Ed25519, and its only extended key usage is
`MESSAGE_SIGNING`. TLS libraries refuse the second kind, and `verify_signing_certificate` the first, so
neither can stand in for the other.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from antecede.live.security.identity import Identity

MESSAGE_SIGNING = x509.ObjectIdentifier("2.25.187918018462137782176288607525544959300")
"""The extended key usage of certificates that sign messages: a UUID as an object identifier (X.667)."""
AUTHORITY_DAYS = 3650
_DAY = datetime.timedelta(days=1)


def create_authority(key: ec.EllipticCurvePrivateKey, subject: str) -> x509.Certificate:
    """The certificate of an authority, signed by itself."""
    name = _common_name(subject)
    return (
        _valid_for(AUTHORITY_DAYS)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


class Issuer:
    """An authority that issues certificates for the members of a group."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key, self._name = key, certificate.subject

    def issue_for_tls(
        self, key: ec.EllipticCurvePublicKey, holder: Identity, days: float, hosts: Sequence[str]
    ) -> x509.Certificate:
        """A certificate for TLS. Members compare the URI, browsers the `hosts`."""
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [_general_name(host) for host in dict.fromkeys(["localhost", "127.0.0.1", *hosts])]
        return self._issue(key, holder, days, usages, names)

    def issue_for_signing(self, key: Ed25519PublicKey, holder: Identity, days: float) -> x509.Certificate:
        """A certificate for signing messages, and for nothing else."""
        return self._issue(key, holder, days, [MESSAGE_SIGNING], [])

    def _issue(
        self,
        key: ec.EllipticCurvePublicKey | Ed25519PublicKey,
        holder: Identity,
        days: float,
        usages: list[x509.ObjectIdentifier],
        names: list[x509.GeneralName],
    ) -> x509.Certificate:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        alternative = [x509.UniformResourceIdentifier(holder.uri()), *names]
        return (
            _valid_for(days)
            .subject_name(_common_name(holder.name))
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The hosts that a TLS certificate names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _valid_for(days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    # Valid since yesterday: clocks differ.
    return x509.CertificateBuilder().not_valid_before(min(now, end) - _DAY).not_valid_after(end)


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
