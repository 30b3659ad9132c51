"""TLS errors between two queue managers, in words for an operator."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Final

# X509_V_ERR_* of OpenSSL (x509_vfy.h): why this end rejects the other end's certificate.
_UNVERIFIED: Final = {
    2: "its issuer is unknown here",
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is self-signed and not in [peers]",
    19: "its authority is unknown here",
    20: "its authority is unknown here",
    21: "its authority is unknown here",
    24: "it was issued by a certificate that may not issue any",
    26: "it is for another purpose than TLS of servers and clients",
    66: "its key is too short",
    67: "its key is too short",
    68: "it is signed with a digest that is too weak",
}
# Alerts of the other end (RFC 8446 6.2), as OpenSSL names them.
_ALERTS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer wants a certificate, and has got none",
    "TLSV1_ALERT_UNKNOWN_CA": (
        "the peer does not know our certificate: pin it in the peer's [peers], or let its tls_authorities "
        "have our authority"
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer says that our certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer rejects our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer rejects our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the peer says that our certificate is for another purpose",
    "TLSV1_ALERT_ACCESS_DENIED": (
        "the peer does not accept our certificate: it is neither pinned there nor of an authority that it knows"
    ),
    "TLSV1_ALERT_DECRYPT_ERROR": "the peer could not verify our signature",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer has no TLS 1.3",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer has no version or algorithm of TLS in common with us",
    "SSLV3_ALERT_UNEXPECTED_MESSAGE": "the peer has got something else than it expected",
}
_LOCAL: Final = {
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "PACKET_LENGTH_TOO_LONG": "the peer does not speak TLS",
    "RECORD_LAYER_FAILURE": "the peer does not speak TLS",
    "HTTP_REQUEST": "the peer speaks HTTP, not TLS",
    "HTTPS_PROXY_REQUEST": "the peer speaks HTTP, not TLS",
    "UNSUPPORTED_PROTOCOL": "the peer has no TLS 1.3",
    "NO_SHARED_CIPHER": "the peer has no algorithm of TLS in common with us",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer has shown no certificate",
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "what came was changed on the way",
    "EE_KEY_TOO_SMALL": "the key of the certificate is too short",
}


class TlsError(OSError):
    """Raised if TLS with a peer fails, or the peer's certificate is not the expected one."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPROTO, text)

    def __str__(self) -> str:
        return str(self.strerror)


def words(error: OSError) -> str:
    """Return the meaning of a TLS error. ssl.SSLError is an OSError."""
    if isinstance(error, TlsError):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _UNVERIFIED.get(error.verify_code, error.verify_message)
        return f"the certificate of the peer is not accepted: {why}"
    if isinstance(error, ssl.SSLEOFError):
        return "the peer ended the connection in the middle of TLS"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        known = _ALERTS.get(reason) or _LOCAL.get(reason)
        return known or f"TLS failed: {reason.replace('_', ' ').lower() or error}"
    return error.strerror or (os.strerror(error.errno) if error.errno else type(error).__name__)
