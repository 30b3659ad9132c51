"""The signing key of the user of a data directory on this machine."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from lanner.security.identity import SYSTEM
from lanner.security.internal_certificates import CERTIFICATE_FILE, InternalCertificates
from lanner.security.signing import SigningKey

if TYPE_CHECKING:
    from pathlib import Path


def internal_key(data: Path) -> SigningKey:
    """Return the key of the internal certificate of the system.

    A user who can open the socket of a data directory can also read its certificates; its queue
    manager treats that user as the system.
    """
    certificates = InternalCertificates(data / CERTIFICATE_FILE)
    made = certificates.find_or_create(str(SYSTEM.sid), SYSTEM.name, dt.datetime.now(dt.UTC))
    return SigningKey.load(made.certificate, made.private_key)
