"""Kerberos for servers and clients (RFC 4121, MS-KILE 3.4.5), by gssapi through pyspnego.

RPC requires the DCE style. The module is optional: it needs the packages gssapi and krb5, and a
server needs a keytab of its computer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import gssapi
import krb5
from gssapi.raw import IOV, IOVBufferType, get_name_attribute, inquire_name
from gssapi.raw.ext_iov_mic import get_mic_iov_length
from spnego import ContextReq, Password
from spnego._gss import GSSAPIProxy
from spnego.exceptions import SpnegoError
from spnego.iov import BufferType

from lanner.rpc.pac import LogonInformation, read_logon_information
from lanner.rpc.pdu import SEC_TRAILER_SIZE, AuthLevel
from lanner.rpc.security import SecurityError
from lanner.security.identity import ANONYMOUS, Identity

_LOG = logging.getLogger(__name__)

# RFC 4121 4.1: the frame around an initial token. DCE style omits it, but some clients send it.
_FRAME: Final = bytes.fromhex("06092a864886f712010202")
_AP_REQ: Final = b"\x01\x00"
# The part of a PAC with the user's SIDs, by MIT Kerberos's name.
_LOGON_INFO: Final = b"urn:mspac:logon-info"
# KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN (RFC 4120 7.5.9), by the number that MIT Kerberos gives it.
_UNKNOWN_SERVICE: Final = "2529638919"

# A function that returns the identity of a principal. Its arguments are the name and, if the ticket
# has some, the domain's information.
Principals: TypeAlias = Callable[[str, LogonInformation | None], Identity | None]


class _Kerberos:
    """An established context of either side."""

    always_signs_headers: Final = False

    def __init__(self, proxy: GSSAPIProxy) -> None:
        self._proxy = proxy
        self.identity: Identity = ANONYMOUS

    @property
    def is_complete(self) -> bool:
        return self._proxy.complete

    @property
    def can_sign(self) -> bool:
        return bool(self._proxy.context_attr & ContextReq.integrity)

    @property
    def _context(self) -> gssapi.SecurityContext:
        context = self._proxy._context  # noqa: SLF001 (no other way to ask for sizes)
        if context is None:
            raise SecurityError("Kerberos: there is no context")
        return context

    def signature_size(self, *, seal: bool) -> int:
        if seal:
            return self._proxy.query_message_sizes().header
        iov = IOV(IOVBufferType.mic_token, b"", std_layout=False)
        get_mic_iov_length(self._context, iov)
        return len(iov[0].value or b"")

    def check_level(self, level: AuthLevel) -> None:
        if level == AuthLevel.PKT_PRIVACY and not self._proxy.context_attr & ContextReq.confidentiality:
            raise SecurityError("Kerberos: encryption was not agreed on")

    def sign_mechanisms(self, data: bytes) -> bytes:
        return self._proxy.sign(data)

    def verify_mechanisms(self, data: bytes, token: bytes) -> None:
        self._proxy.verify(data, token)

    def protect(self, header: bytes, stub: bytes, trailer: bytes, *, seal: bool, header_signing: bool) -> bytes:
        if not seal:
            token = self._proxy.sign(header + stub + trailer if header_signing else stub)
            return b"".join((header, stub, trailer, token))
        if header_signing:
            wrapped = self._proxy.wrap_iov(
                [(BufferType.sign_only, header), stub, (BufferType.sign_only, trailer), BufferType.header]
            )
            _, body, _, sealed = wrapped.buffers
        else:
            body, sealed = self._proxy.wrap_iov([stub, BufferType.header]).buffers
        return b"".join((header, body.data or b"", trailer, sealed.data or b""))

    def unprotect(self, pdu: bytes, start: int, stop: int, *, seal: bool, header_signing: bool) -> bytes:
        header, stub = pdu[:start], pdu[start:stop]
        trailer, token = pdu[stop : stop + SEC_TRAILER_SIZE], pdu[stop + SEC_TRAILER_SIZE :]
        if not seal:
            self._proxy.verify(header + stub + trailer if header_signing else stub, token)
            return stub
        if header_signing:
            unwrapped = self._proxy.unwrap_iov(
                [(BufferType.sign_only, header), stub, (BufferType.sign_only, trailer), (BufferType.header, token)]
            )
            body = unwrapped.buffers[1]
        else:
            body = self._proxy.unwrap_iov([stub, (BufferType.header, token)]).buffers[0]
        return body.data or b""


class KerberosAcceptor(_Kerberos):
    """A server's context."""

    def __init__(self, keytab: Path, principals: Principals | None) -> None:
        # pyspnego uses a keytab to log on as its owner. A server needs it to read the tickets of
        # clients.
        credential = gssapi.Credentials(usage="accept", store={"keytab": str(keytab)})
        super().__init__(GSSAPIProxy(usage="accept", context_req=ContextReq.dce_style, _gssapi_credential=credential))
        self._principals = principals

    def step(self, token: bytes, /) -> bytes | None:
        answer = self._proxy.step(_unframed(token))
        if self._proxy.complete:
            principal = self._proxy.client_principal or ""
            found = None if self._principals is None else self._principals(principal, self._logon_information())
            if found is None:
                raise SecurityError(f"Kerberos: {principal} has no account here", account=principal)
            self.identity = found
        return answer

    def _logon_information(self) -> LogonInformation | None:
        """Return the domain's information about the client; None if the ticket has no PAC."""
        name = self._context.initiator_name
        if name is None or _LOGON_INFO not in inquire_name(name).attrs:
            return None
        found = get_name_attribute(name, _LOGON_INFO)
        if not found.authenticated or not found.values:
            raise SecurityError("Kerberos: the signature of the ticket's PAC was not verified")
        return read_logon_information(found.values[0])


class KerberosInitiator(_Kerberos):
    """A client's context, which uses a password or the tickets of its user."""

    def __init__(self, user: str, password: str, host: str, level: AuthLevel) -> None:
        wanted = ContextReq.dce_style | ContextReq.mutual_auth
        if level >= AuthLevel.PKT:
            wanted |= ContextReq.integrity | ContextReq.replay_detect | ContextReq.sequence_detect
        if level == AuthLevel.PKT_PRIVACY:
            wanted |= ContextReq.confidentiality
        self._host = host
        credential = Password(user, password) if user else None
        try:
            super().__init__(GSSAPIProxy(credential, hostname=host, service="host", context_req=wanted))
        except krb5.Krb5Error as error:
            raise SecurityError(f"Kerberos: {user} gets no ticket: {error}") from None

    def step(self, token: bytes, /) -> bytes | None:
        try:
            return self._proxy.step(token or None)
        except SpnegoError as error:
            if _UNKNOWN_SERVICE not in str(error):
                raise
            raise SecurityError(
                f"Kerberos: the domain has no service host/{self._host}; name the computer as the domain does"
            ) from None


def _unframed(token: bytes) -> bytes:
    """Return an AP-REQ without the frame of RFC 2743 3.1."""
    if token[:1] != b"\x60":
        return token
    start = token.find(_FRAME + _AP_REQ, 0, 32)
    return token if start < 0 else token[start + len(_FRAME) + len(_AP_REQ) :]
