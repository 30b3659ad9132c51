"""Internal certificates with their private keys, one per user (MS-MQDMPR 3.1.1.19).

They are in a file of the data directory. The queue manager makes one for a local user who requests
authenticated messages and has no certificate of its own.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Final

from lanner.security.certificates import CertificateWithKey, generate_certificate
from lanner.security.private_files import PrivateFileError, locked, read_private, write_private

FILE_VERSION: Final = 1
# In the data directory.
CERTIFICATE_FILE: Final = "certificates.json"


class InternalCertificates:
    """The file. Every call sees its newest content."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def find(self, sid: str) -> CertificateWithKey | None:
        """Return the certificate of the user with that SID."""
        return self._read().get(sid)

    def find_or_create(self, sid: str, name: str, now: dt.datetime) -> CertificateWithKey:
        """Return the certificate of the user; make and store one if there is none yet."""
        found = self.find(sid)
        if found is not None:
            return found
        with locked(self.path):
            every = self._read()
            if sid not in every:
                every[sid] = generate_certificate(name, now)
                write_private(self.path, _dump(every))
            return every[sid]

    def remove(self, sid: str) -> None:
        """Forget the user's certificate, so that a new one is made."""
        with locked(self.path):
            every = self._read()
            if every.pop(sid, None) is not None:
                write_private(self.path, _dump(every))

    def _read(self) -> dict[str, CertificateWithKey]:
        data = read_private(self.path)
        if data is None:
            return {}
        try:
            content = json.loads(data)
            if content["version"] != FILE_VERSION:
                raise ValueError(content["version"])
            return {
                sid: CertificateWithKey(bytes.fromhex(one["certificate"]), bytes.fromhex(one["private_key"]))
                for sid, one in content["certificates"].items()
            }
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # The error itself may quote a private key.
            raise PrivateFileError(
                f"{self.path} holds no usable certificates ({type(error).__name__}): restore it, or remove it to make "
                "new ones"
            ) from None


def _dump(certificates: dict[str, CertificateWithKey]) -> bytes:
    content = {
        sid: {"certificate": one.certificate.hex(), "private_key": one.private_key.hex()}
        for sid, one in certificates.items()
    }
    return json.dumps({"version": FILE_VERSION, "certificates": content}, indent=1).encode()
