"""User certificates in the directory as documents: list, register, remove. For administrators."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.directory.topology import Signer, signers
from lanner.host.long_reads import read_apart
from lanner.model.errors import GenericError, IllegalUser, InvalidParameter
from lanner.security.identity import Identity
from lanner.services.request_fields import Request, text_of
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from lanner.engine import Engine

Document = dict[str, Any]


class CertificateDocuments:
    """The certificates in the directory of one queue manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Handlers that read all of the directory; the store's lock is not held.
        self.slow_questions: dict[str, Callable[[Identity, Request], object]] = {"certificates": self._list}
        self.orders: dict[str, Callable[[Identity, Request], object]] = {
            "register certificate": self._register,
            "remove certificate": self._remove,
        }

    def _list(self, identity: Identity, request: Request) -> list[Document]:
        del identity, request
        return [self._document(signer, one) for signer, one in self._found()]

    def _found(self) -> list[tuple[Signer, bytes]]:
        with read_apart(self._engine) as directory:
            return [(signer, one) for signer in signers(directory) for one in signer.certificates]

    def _document(self, signer: Signer, octets: bytes) -> Document:
        """Describe a certificate: its owner, subject, issuer and validity."""
        owner = {"user": signer.name or signer.sid, "sid": signer.sid, "sha256": hashlib.sha256(octets).hexdigest()}
        try:
            found = x509.load_der_x509_certificate(octets)
            return owner | {
                "subject": found.subject.rfc4514_string(),
                "issuer": found.issuer.rfc4514_string(),
                "not_valid_before": found.not_valid_before_utc.isoformat(),
                "not_valid_after": found.not_valid_after_utc.isoformat(),
            }
        except ValueError:
            # Active Directory does not check the values that other programs write. An administrator
            # needs this one in the list to remove it.
            unknown = dict.fromkeys(("issuer", "not_valid_before", "not_valid_after"), "")
            return owner | unknown | {"subject": "(not a certificate)"}

    def _register(self, identity: Identity, request: Request) -> None:
        """Register a user's certificate so that receivers can find it.

        The owner is the caller unless the request has a `sid`.
        """
        engine = self._engine
        resolve = engine.settings.resolve_identity
        try:
            certificate = x509.load_pem_x509_certificate(text_of(request, "certificate").encode())
            sid = text_of(request, "sid") if "sid" in request else None
            owner = identity if sid is None else resolve and resolve(Sid.parse(sid))
        except ValueError as error:
            raise InvalidParameter(str(error)) from None
        if owner is None:
            raise IllegalUser(f"no account here has the SID {sid}")
        if not engine.register_certificate(owner, certificate.public_bytes(Encoding.DER)):
            raise GenericError(f"the directory refused the certificate of {owner.name}")

    def _remove(self, identity: Identity, request: Request) -> Document:
        """Remove a certificate by its fingerprint or an unambiguous prefix of it."""
        wanted = text_of(request, "sha256").lower().replace(":", "")
        found = [
            (signer, octets, document)
            for signer, octets in self._found()
            if (document := self._document(signer, octets))["sha256"].startswith(wanted)
        ]
        if len(found) != 1 or not wanted:
            many = f"{len(found)} certificates have" if len(found) > 1 else "no certificate has"
            raise InvalidParameter(f"{many} the fingerprint {wanted[:80]!r}; `lanner certificate list` shows them")
        signer, octets, document = found[0]
        owner = Identity(signer.name, Sid.parse(signer.sid))
        if not self._engine.unregister_certificate(owner, octets):
            raise GenericError(f"the directory did not remove the certificate of {document['user']}")
        self._engine.audit.done("remove certificate", identity, user=document["user"], sha256=document["sha256"])
        return document
