"""Output of `antecede keys`: what each certificate may be used for, renewal, revocation, and file modes."""

from __future__ import annotations

import datetime
import logging
import shutil
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antecede.errors import InputError
from antecede.live.operations.logs import Log
from antecede.live.security import keys
from antecede.live.security.certificates import Issuer, create_authority
from antecede.live.security.credentials import (
    load_authorities,
    load_signing_key,
    verify_signing_certificate,
)
from antecede.live.security.identity import Identity, Security, read_claims
from antecede.live.security.revocation import Revocations
from antecede.live.settings import Settings
from antecede.protocols.base import RemoteError

GROUP = "the room"


def make(folder: Path, days: float = 30) -> Path:
    keys.make_keys(folder, GROUP, ["ana", "sue"], ["phone"], days, {"sue": ["sue.example", "::1"]}, ["sue"])
    return folder


def der(path: Path) -> bytes:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


def log() -> Log:
    return Log(GROUP, "ana")


@pytest.mark.parametrize("name", ["ana", "sue", "phone"])
def test_every_member_has_a_signing_key_that_names_it(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "k")
    key, certificate = load_signing_key(folder / name)
    holder, public = verify_signing_certificate(load_authorities(folder / "ana"), certificate)
    assert holder == Identity(GROUP, name)
    public.verify(key.sign(b"a message"), b"a message")


def test_signing_and_tls_certificates_are_not_interchangeable(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    authorities = load_authorities(folder / "ana")
    with pytest.raises(RemoteError, match="not one for signing messages"):
        verify_signing_certificate(authorities, der(folder / "ana" / "certificate.pem"))
    with pytest.raises(RemoteError, match="not one for signing messages"):
        verify_signing_certificate(authorities, der(folder / "ca.pem"))
    for purpose in ("server", "client"):
        assert "unsuitable certificate purpose" in tls_error(folder, sign_pem_at=purpose)
    assert tls_error(folder, sign_pem_at="") == ""


def tls_error(folder: Path, sign_pem_at: str) -> str:
    """A TLS handshake in memory with a signing certificate at one end; returns the other end's error."""
    ends = {}
    for side, protocol in (("server", ssl.PROTOCOL_TLS_SERVER), ("client", ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(protocol)
        context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.pem")
        files = ("sign.pem", "sign.key") if side == sign_pem_at else ("certificate.pem", "key.pem")
        context.load_cert_chain(folder / "ana" / files[0], folder / "ana" / files[1])
        ends[side] = context
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ends["server"].wrap_bio(to_server, to_client, server_side=True)
    client = ends["client"].wrap_bio(to_client, to_server)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error)
    return ""


def forged(folder: Path, kind: str) -> bytes:
    """Invalid signing certificates."""
    key, other = load_signing_key(folder / "ana")[0], ec.generate_private_key(ec.SECP256R1())
    raw = (folder / "authority.key").read_bytes()
    authority = serialization.load_pem_private_key(raw, None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    right, ana = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), Identity(GROUP, "ana")
    same_name = right.subject.rfc4514_string().removeprefix("CN=")
    made = {
        "expired": lambda: Issuer(authority, right).issue_for_signing(key.public_key(), ana, -0.5),
        "other authority": lambda: Issuer(other, create_authority(other, same_name)).issue_for_signing(
            key.public_key(), ana, 30
        ),
        "nobody": lambda: without_a_name(authority, right, key),
    }
    if kind == "garbage":
        return b"\x30\x82\xff\xff" + b"x" * 100
    return made[kind]().public_bytes(serialization.Encoding.DER)


def without_a_name(
    authority: ec.EllipticCurvePrivateKey, issuer: x509.Certificate, key: Ed25519PrivateKey
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    right = Issuer(authority, issuer).issue_for_signing(key.public_key(), Identity(GROUP, "ana"), 30)
    builder = x509.CertificateBuilder(
        issuer_name=issuer.subject,
        subject_name=right.subject,
        public_key=key.public_key(),
        serial_number=7,
        not_valid_before=now - datetime.timedelta(days=1),
        not_valid_after=now + datetime.timedelta(days=1),
    )
    for extension in right.extensions:
        if not isinstance(extension.value, x509.SubjectAlternativeName):
            builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(authority, hashes.SHA256())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("expired", "its signing certificate has expired"),
        ("other authority", "its signing certificate is not by this group's authority"),
        ("nobody", "its certificate names no member of a group"),
        ("garbage", "its signing certificate cannot be decoded"),
    ],
)
def test_an_invalid_signing_certificate_is_refused_with_the_reason(
    tmp_path: Path, kind: str, words: str
) -> None:
    folder = make(tmp_path / "k")
    with pytest.raises(RemoteError, match=words):
        verify_signing_certificate(load_authorities(folder / "ana"), forged(folder, kind))


def test_a_truncated_or_altered_signing_certificate_is_only_ever_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    authorities, good = load_authorities(folder), load_signing_key(folder / "ana")[1]
    for place in range(0, len(good), 3):
        altered = good[:place] + bytes([good[place] ^ 0x21]) + good[place + 1 :]
        for data in (good[:place], altered):
            with pytest.raises(RemoteError):
                verify_signing_certificate(authorities, data)


def test_revoked_names_and_serial_numbers_apply_to_signing_certificates(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    authorities, (_, certificate) = load_authorities(folder), load_signing_key(folder / "phone")
    serial = x509.load_der_x509_certificate(certificate).serial_number
    revoked = Revocations(tmp_path / "revoked", log())
    verify_signing_certificate(authorities, certificate, revoked)
    for line, words in (
        ("phone", "phone was revoked"),
        (f"{serial:X}", "its signing certificate was revoked"),
    ):
        (tmp_path / "revoked").write_text(f"# a comment\n\n{line} # lost\n")
        assert revoked.refresh()
        with pytest.raises(RemoteError, match=words):
            verify_signing_certificate(authorities, certificate, revoked)
    (tmp_path / "revoked").unlink()
    assert revoked.refresh()
    verify_signing_certificate(authorities, certificate, revoked)


def test_a_bad_line_in_the_revocation_list_is_named_and_the_others_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked"
    path.write_bytes(b"phone\nhas a space\n\xff\xfe\nAB:CD:0F\n\x1b[2J\n" + b"x" * 500 + b"\nbo\n")
    with caplog.at_level(logging.WARNING, "antecede.live"):
        revoked = Revocations(path, log())
    assert [record.getMessage().split(": not a")[0] for record in caplog.records] == [
        f"keys: {path}, line {number}" for number in (2, 3, 5, 6)
    ]
    for name, number in (("phone", "1"), ("bo", "1"), ("cy", "abcd0f"), ("cy", "0ABCD0F")):
        with pytest.raises(RemoteError, match="revoked"):
            revoked.check(name, number, "certificate")
    revoked.check("cy", "abcd0", "certificate")


def test_renewing_keeps_the_keys_and_hosts_and_revoking_first_replaces_them(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    files = ("key.pem", "sign.key", "certificate.pem", "sign.pem", "token.key")
    before = {file: (folder / "sue" / file).read_bytes() for file in files}
    keys.renew(folder, "sue", 60)
    after = {file: (folder / "sue" / file).read_bytes() for file in files}
    assert [file for file in files if before[file] != after[file]] == ["certificate.pem", "sign.pem"]
    certificate = x509.load_pem_x509_certificate(after["certificate.pem"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "sue.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]

    keys.revoke(folder, "sue")
    keys.renew(folder, "sue", 60)
    again = {file: (folder / "sue" / file).read_bytes() for file in files}
    assert [file for file in files if after[file] == again[file]] == ["token.key"]
    revoked = Revocations(folder / "ana" / "revoked", log())
    authorities = load_authorities(folder)
    for pem in (before["sign.pem"], after["sign.pem"]):
        old = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
        with pytest.raises(RemoteError, match="its signing certificate was revoked"):
            verify_signing_certificate(authorities, old, revoked)
    verify_signing_certificate(authorities, load_signing_key(folder / "sue")[1], revoked)


def test_a_token_is_revoked_alone_or_with_its_name(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    first = (folder / "phone" / "token").read_text().strip()
    keys.renew(folder, "phone", 60)
    second = (folder / "phone" / "token").read_text().strip()
    sue = Security(Settings.create(group=GROUP, me="sue", keys=folder / "sue"))
    for token in (first, second):
        assert sue.verify_token(token).identity.name == "phone"
    keys.revoke(folder, read_claims(first).id)
    with pytest.raises(RemoteError, match="its token was revoked"):
        sue.verify_token(first)
    sue.verify_token(second)
    keys.revoke(folder, "phone")
    with pytest.raises(RemoteError, match="phone was revoked"):
        sue.verify_token(second)


def test_a_mistyped_revocation_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    with pytest.raises(InputError, match=r"nothing of this name or number was issued; .*issued lists"):
        keys.revoke(folder, "phoen")
    assert not (folder / "revoked").exists()


def test_a_member_added_later_gets_the_revocation_list(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    keys.revoke(folder, "phone")
    keys.make_keys(folder, GROUP, ["bo"], [], 30, {}, [])
    assert (folder / "bo" / "revoked").read_text() == "phone\n"


def test_secrets_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    keys.renew(folder, "phone", 10)
    modes = {path.relative_to(folder): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    public = {"ca.pem", "certificate.pem", "sign.pem", "revoked"}
    for path, mode in modes.items():
        wanted = 0o700 if (folder / path).is_dir() else 0o644 if path.name in public else 0o600
        assert (path, oct(mode)) == (path, oct(wanted))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_secrets_that_others_can_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make(tmp_path / "k")
    secrets = ["key.pem", "token.key", "sign.key"]
    with caplog.at_level(logging.WARNING, "antecede.live"):
        Security(Settings.create(group=GROUP, me="sue", keys=folder / "sue"))
        assert not caplog.records
        for file in secrets:
            (folder / "sue" / file).chmod(0o640)
        Security(Settings.create(group=GROUP, me="sue", keys=folder / "sue"))
    assert [record.getMessage().split(" (mode 640)")[0] for record in caplog.records] == [
        f"keys: other users can read or change {folder / 'sue' / file}" for file in secrets
    ]


def test_a_key_folder_of_an_earlier_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "authority.key").write_bytes(pem)
    with pytest.raises(InputError, match="as an earlier version made and browsers do not accept"):
        make(folder)
    shutil.copytree(folder / "ana", tmp_path / "old")
    (tmp_path / "old" / "sign.key").unlink()
    with pytest.raises(InputError, match=r"sign.key does not exist; `antecede keys` adds it"):
        Security(Settings.create(group=GROUP, me="ana", keys=tmp_path / "old"))


def test_a_certificate_that_has_expired_since_a_session_began_is_refused(tmp_path: Path) -> None:
    """A resumed TLS session reuses the first certificate without checking its dates."""
    folder = make(tmp_path / "k")
    ana = Security(Settings.create(group=GROUP, me="ana", keys=folder / "ana"))
    shown = {
        "subjectAltName": (("URI", Identity(GROUP, "sue").uri()),),
        "serialNumber": "0A",
        "notAfter": "Jan  1 00:00:00 2999 GMT",
    }
    assert ana.verify_certificate(shown).identity.name == "sue"
    with pytest.raises(RemoteError, match="its certificate expired"):
        ana.verify_certificate({**shown, "notAfter": "Jan  1 00:00:00 2020 GMT"})


def test_a_signing_certificate_of_another_group_is_refused(tmp_path: Path) -> None:
    """One authority may serve several groups."""
    folder = make(tmp_path / "k")
    keys.make_keys(folder, "another room", ["eve"], [], 30, {}, [])
    ana = Security(Settings.create(group=GROUP, me="ana", keys=folder / "ana"))
    assert ana.verify_signing_certificate(der(folder / "sue" / "sign.pem"))[0].name == "sue"
    with pytest.raises(RemoteError, match="is for group 'another room', not 'the room'"):
        ana.verify_signing_certificate(der(folder / "eve" / "sign.pem"))


def test_only_the_operator_can_issue_certificates_and_only_super_peers_tokens(tmp_path: Path) -> None:
    folder = make(tmp_path / "k")
    authority, token_key = (folder / "authority.key").read_bytes(), (folder / "token.key").read_bytes()
    for name in ("ana", "sue", "phone"):
        contents = [file.read_bytes() for file in (folder / name).iterdir()]
        assert authority not in contents
        assert (token_key in contents) == (name == "sue")
