"""Makes Chromium trust an authority: writes a certificate into the NSS database of a home folder.

    python trust_authority.py HOME CA_DER

Equivalent to `certutil -A -t C,,`, with the library that Chromium itself needs: the tool is a separate
package.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_TRUSTED_TO_ISSUE_SERVERS = (1 << 4) | (1 << 3)


class SecItem(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("data", ctypes.c_char_p), ("length", ctypes.c_uint))


class CertTrust(ctypes.Structure):
    _fields_ = (("ssl", ctypes.c_uint), ("email", ctypes.c_uint), ("signing", ctypes.c_uint))


def trust(home: Path, certificate: bytes) -> None:
    folder = home / ".pki" / "nssdb"
    folder.mkdir(parents=True, mode=0o700)
    nss = ctypes.CDLL("libnss3.so")
    for name in ("PK11_GetInternalKeySlot", "CERT_GetDefaultCertDB", "CERT_NewTempCertificate"):
        getattr(nss, name).restype = ctypes.c_void_p
    _require(nss.NSS_InitReadWrite(f"sql:{folder}".encode()), "opening the database")
    slot, database = (
        ctypes.c_void_p(nss.PK11_GetInternalKeySlot()),
        ctypes.c_void_p(nss.CERT_GetDefaultCertDB()),
    )
    if nss.PK11_NeedUserInit(slot):
        _require(nss.PK11_InitPin(slot, None, b""), "setting no password")
    item = SecItem(0, certificate, len(certificate))
    made = ctypes.c_void_p(nss.CERT_NewTempCertificate(database, ctypes.byref(item), None, 0, 1))
    _require(nss.PK11_ImportCert(slot, made, ctypes.c_ulong(0), b"antecede", 0), "importing the certificate")
    marks = CertTrust(_TRUSTED_TO_ISSUE_SERVERS, 0, 0)
    _require(nss.CERT_ChangeCertTrust(database, made, ctypes.byref(marks)), "trusting it")
    nss.CERT_DestroyCertificate(made)
    nss.PK11_FreeSlot(slot)
    _require(nss.NSS_Shutdown(), "closing the database")


def _require(status: int, what: str) -> None:
    if status:
        sys.exit(f"{what} failed")


if __name__ == "__main__":
    trust(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes())
