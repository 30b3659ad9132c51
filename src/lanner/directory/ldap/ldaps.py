"""LDAP over TLS, on a port of its own (MS-ADTS 5.1.1.2).

A simple bind sends the password itself, so the server must prove its name first: no setting turns
that off.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

LDAPS_PORT: Final = 636
# X509_V_ERR_HOSTNAME_MISMATCH of OpenSSL.
_HOST_NAME_MISMATCH: Final = 62
_SETTING: Final = "directory.tls_authorities (lanner domain join --tls-authorities)"


class LdapsError(OSError):
    """There is no TLS connection, or the server has not proved its name."""


@dataclass(frozen=True, slots=True)
class Ldaps:
    """The domain whose controllers are told a password, and the authorities that vouch for them."""

    domain: str
    # A PEM file; None: the authorities that this machine trusts.
    authorities: Path | None = None
    port: int = LDAPS_PORT

    def secured(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Return a TLS connection over a TCP connection. Raises OSError."""
        # Forged DNS may name a host of the attacker, which has a valid certificate for itself.
        if not f".{host}".casefold().endswith(f".{self.domain}".casefold()):
            raise LdapsError(f"the password is sent only to hosts of the domain {self.domain}")
        context = self._context()
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code == _HOST_NAME_MISMATCH:
                raise LdapsError(
                    f"its certificate has another name ({error.verify_message}): give the domain controller a "
                    "certificate with its DNS name"
                ) from None
            raise LdapsError(
                f"its certificate is not trusted ({error.verify_message}) by {self.authorities or 'this machine'}: "
                f"name the file with the certificate of its authority in {_SETTING}"
            ) from None
        except TimeoutError:
            raise
        except OSError as error:
            raise LdapsError(
                f"it does not answer with TLS ({error}): a domain controller without a certificate offers no LDAPS, "
                "and neither does the port of plain LDAP"
            ) from None

    def _context(self) -> ssl.SSLContext:
        # Such a context verifies the certificate and the name of the host.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.authorities is None:
            context.load_default_certs()
            return context
        try:
            context.load_verify_locations(self.authorities)
        except OSError as error:
            raise LdapsError(f"no certificate can be read from {self.authorities} ({error}): {_SETTING}") from None
        return context
