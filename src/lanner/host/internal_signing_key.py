"""The internal certificate that a queue manager makes for a local user (MS-MQDMPR 3.1.1.19)."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from lanner.model.errors import NoInternalUserCert
from lanner.security.signing import SigningKey

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.security.identity import Identity
    from lanner.security.internal_certificates import InternalCertificates


def internal_signing_key(engine: Engine, certificates: InternalCertificates, identity: Identity) -> SigningKey:
    """Return the key of a user's internal certificate; make and register one if there is none.

    Takes the lock itself. The creation of a key takes time.
    """
    if identity.is_anonymous:
        raise NoInternalUserCert(f"{identity.name} has no account, so there is no internal certificate for it")
    made = certificates.find_or_create(str(identity.sid), identity.name, dt.datetime.now(dt.UTC))
    with engine.store.lock:
        engine.register_certificate(identity, made.certificate, is_internal=True)
    return SigningKey.load(made.certificate, made.private_key)
