"""One LDAP connection to a directory server, always protected (MS-ADTS 5.1.1.1).

Either it is bound with GSS-SPNEGO and then sealed, or it is TLS from the start and bound with a
name and a password. It blocks, so it belongs in a thread of its own; the queue manager's loop never
waits for it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import spnego
from spnego.exceptions import SpnegoError

from lanner.directory.ldap.ber import BerError, complete_length
from lanner.directory.ldap.ldaps import Ldaps
from lanner.directory.ldap.messages import (
    SEARCH_ENTRY,
    SEARCH_REFERENCE,
    Control,
    FoundEntry,
    Request,
    Response,
    ResultCode,
    SaslBind,
    Scope,
    Search,
    SimpleBind,
    Unbind,
    pack,
    paged,
    unpack,
)

LDAP_PORT: Final = 389
CONNECT_TIMEOUT: Final = 5.0
# Not in the specification: seconds for an answer about one object. A server that accepts a
# connection and does not answer must not keep the next one from being tried.
ANSWER_TIMEOUT: Final = 15.0
# MS-MQDSSM 3.1.6.15 lets a server search for two minutes.
SEARCH_TIMEOUT: Final = 150.0
# A domain controller limits an answer to 1,000 objects.
PAGE_SIZE: Final = 500
# Not in the specification: the largest sealed block or message. A domain controller stops at 10
# MiB.
MAX_MESSAGE: Final = 16 << 20
_LENGTH: Final = struct.Struct(">I")
_MEANINGS: Final[dict[int, str]] = {
    ResultCode.INVALID_CREDENTIALS: "the name or the password is wrong",
    ResultCode.INSUFFICIENT_ACCESS_RIGHTS: "this account has no right to do that",
}


# Parts of the messages of MIT Kerberos.
_EXPLANATIONS: Final = {
    "No Kerberos credentials available": "there is no Kerberos ticket: run `kinit`, or name the account",
    "Clock skew too great": "the clocks of this computer and of the domain differ by more than five minutes",
    "Preauthentication failed": "the domain has another password for this account",
    "Cannot contact any KDC": "no domain controller answers on port 88",
}


class ConnectionFailed(Exception):
    """There is no connection, or it was lost before the answer came."""


class LdapRefused(Exception):
    """The server answered with a result code other than success."""

    def __init__(self, code: int, diagnostic: str, what: str) -> None:
        meaning = _MEANINGS.get(code, f"LDAP result {code}")
        super().__init__(f"{what}: {meaning}{f' ({diagnostic.strip()})' if diagnostic else ''}")
        self.code = code


@dataclass(frozen=True, slots=True)
class LogOn:
    """The account whose rights a connection has.

    `protocol` is one of pyspnego's; ntlm needs no Kerberos library.
    """

    user: str = ""
    password: str | None = field(default=None, repr=False)
    keytab: Path | None = None
    ticket_cache: str = ""
    protocol: str = "ntlm"
    # The principal for which this account acts (MS-SFU: constrained delegation, which the domain
    # must allow for the account); empty: itself. Kerberos only.
    acts_for: str = ""
    # Connect by TLS, and bind with the name and the password; None: seal the connection.
    ldaps: Ldaps | None = None

    def credential(self) -> Any:  # noqa: ANN401 - one of pyspnego's credential classes
        if self.keytab is not None:
            return spnego.KerberosKeytab(str(self.keytab), self.user)
        if self.password is not None:
            return spnego.Password(self.user, self.password)
        if not self.ticket_cache:
            # The cache of the process: KRB5CCNAME, or the default of the Kerberos library.
            return spnego.CredentialCache(self.user or None)
        return spnego.KerberosCCache(self.ticket_cache, self.user or None)

    def __str__(self) -> str:
        if self.acts_for:
            return f"{self.acts_for} (by {self.user})"
        return self.user or "the owner of the Kerberos tickets of this process (kinit)"


class LdapConnection:
    """One TCP connection, used by one thread at a time."""

    def __init__(self, host: str, address: str, port: int, log_on: LogOn) -> None:
        self.host = host
        self._ids = 0
        self._received = bytearray()
        self._context: Any = None
        if log_on.ldaps is not None:
            # The DNS records of a domain have the port of plain LDAP.
            port = log_on.ldaps.port
        try:
            self._socket = self._opened(address, port, log_on.ldaps)
        except OSError as error:
            raise ConnectionFailed(f"{host} ({address}) port {port}: {error}") from None
        try:
            if log_on.ldaps is None:
                self._bind(log_on)
            else:
                self._bind_simply(log_on)
        except BaseException:
            self._socket.close()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the server has closed the connection.

        Any data that it sends unasked is a notice of that.
        """
        try:
            self._socket.settimeout(0)
            return self._socket.recv(1) is not None
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(ANSWER_TIMEOUT)

    def _opened(self, address: str, port: int, ldaps: Ldaps | None) -> socket.socket:
        plain = socket.create_connection((address, port), CONNECT_TIMEOUT)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if ldaps is None else ldaps.secured(plain, self.host)
        except BaseException:
            plain.close()
            raise

    # Binding
    # ----------------------------------------------------------------------------------------------

    def _bind(self, log_on: LogOn) -> None:
        try:
            wanted = spnego.ContextReq.default | spnego.ContextReq.integrity | spnego.ContextReq.confidentiality
            context = _context(log_on, self.host, wanted)
            token = context.step()
            while True:
                answer = self._exchange(SaslBind(token or b""))[-1]
                if answer.code not in (ResultCode.SUCCESS, ResultCode.SASL_BIND_IN_PROGRESS):
                    raise LdapRefused(answer.code, answer.diagnostic, f"bind as {log_on} to {self.host}")
                if answer.token or not context.complete:
                    token = context.step(answer.token)
                if answer.code == ResultCode.SUCCESS:
                    break
            if not context.complete:
                raise ConnectionFailed(f"bind as {log_on} to {self.host}: the server ended the log-on too early")
            protection = spnego.ContextReq.integrity | spnego.ContextReq.confidentiality
            if context.context_attr & protection != protection:
                raise ConnectionFailed(f"bind as {log_on} to {self.host}: the server does not sign and seal")
        except _log_on_errors() as error:
            raise ConnectionFailed(f"bind as {log_on} to {self.host}: {_explained(str(error))}") from None
        self._context = context

    def _bind_simply(self, log_on: LogOn) -> None:
        what = f"bind as {log_on} to {self.host}"
        # Without a password it would be an anonymous bind, which succeeds (RFC 4513 5.1.2).
        if not log_on.user or not log_on.password:
            raise ConnectionFailed(f"{what}: LDAPS needs a name and a password (--user)")
        answer = self._exchange(SimpleBind(log_on.user, log_on.password))[-1]
        if answer.code != ResultCode.SUCCESS:
            raise LdapRefused(answer.code, answer.diagnostic, what)

    # Operations
    # -------------------------------------------------------------------------------------------

    def perform(self, request: Request, *controls: Control) -> None:
        """Perform any operation except a search. Raises LdapRefused unless it succeeds."""
        last = self._exchange(request, controls)[-1]
        if last.code != ResultCode.SUCCESS:
            raise LdapRefused(last.code, last.diagnostic, _described(request))

    def search(self, request: Search, *controls: Control) -> list[FoundEntry]:
        """Return every entry of an answer. References to other servers are skipped."""
        return self._found(request, controls)[0]

    def search_paged(self, request: Search, *controls: Control) -> Iterator[list[FoundEntry]]:
        """Yield every entry, page by page, without a limit."""
        cookie = b""
        while True:
            found, cookie = self._found(request, (*controls, paged(PAGE_SIZE, cookie)))
            yield found
            if not cookie:
                return

    def _found(self, request: Search, controls: Sequence[Control]) -> tuple[list[FoundEntry], bytes]:
        *found, last = self._exchange(request, controls)
        if last.code != ResultCode.SUCCESS:
            raise LdapRefused(last.code, last.diagnostic, _described(request))
        return [one.entry for one in found if one.entry is not None], last.cookie

    def close(self) -> None:
        """Unbind (MS-MQDSSM 3.1.6.21), if the server still listens."""
        with contextlib.suppress(OSError, SpnegoError):
            self._send(pack(self._next_id(), Unbind()))
        self._socket.close()

    # Messages
    # ---------------------------------------------------------------------------------------------

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _exchange(self, request: Request, controls: Sequence[Control] = ()) -> list[Response]:
        """Send a request and collect messages up to the one that ends it."""
        number = self._next_id()
        is_wide = isinstance(request, Search) and request.scope is Scope.SUBTREE
        timeout = SEARCH_TIMEOUT if is_wide else ANSWER_TIMEOUT
        deadline = time.monotonic() + timeout
        try:
            self._socket.settimeout(timeout)
            self._send(pack(number, request, controls))
            answers = []
            while True:
                answer = unpack(self._receive())
                if answer.message_id != number:
                    # RFC 4511 4.4.1: message number 0 is a notice of disconnection.
                    raise ConnectionFailed(
                        f"{self.host}: {answer.diagnostic or 'it sent a message that was not requested'}"
                    )
                answers.append(answer)
                if answer.tag == request.response:
                    return answers
                if answer.tag not in (SEARCH_ENTRY, SEARCH_REFERENCE):
                    raise ConnectionFailed(f"{self.host}: message {answer.tag:#04x} where an answer was expected")
                if time.monotonic() > deadline:
                    raise ConnectionFailed(f"{self.host}: no end of an answer in {timeout:.0f} s")
        except TimeoutError:
            raise ConnectionFailed(f"{self.host}: no answer in {timeout:.0f} s") from None
        except (OSError, BerError, SpnegoError) as error:
            raise ConnectionFailed(f"{self.host}: {error}") from None

    def _send(self, data: bytes) -> None:
        if self._context is not None:
            sealed = self._context.wrap(data, encrypt=True).data
            data = _LENGTH.pack(len(sealed)) + sealed
        self._socket.sendall(data)

    def _receive(self) -> bytes:
        while True:
            size = complete_length(self._received)
            if size is not None and size > MAX_MESSAGE:
                raise BerError(f"message of {size} octets: at most {MAX_MESSAGE}")
            if size is not None and size <= len(self._received):
                message = bytes(self._received[:size])
                del self._received[:size]
                return message
            self._received += self._unsealed() if self._context is not None else self._some()

    def _unsealed(self) -> bytes:
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if size > MAX_MESSAGE:
            raise BerError(f"sealed block of {size} octets: at most {MAX_MESSAGE}")
        unwrapped: bytes = self._context.unwrap(self._exactly(size)).data
        return unwrapped

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._some(size - len(data))
        return bytes(data)

    def _some(self, most: int = 1 << 16) -> bytes:
        data = self._socket.recv(most)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data


def _explained(text: str) -> str:
    """Return the message of a library with what it means, if that is known."""
    meaning = next((meaning for part, meaning in _EXPLANATIONS.items() if part in text), "")
    return f"{meaning} ({text})" if meaning else text


def _log_on_errors() -> tuple[type[Exception], ...]:
    """Return what pyspnego raises if a log-on fails.

    If an account gets no ticket, for example because its key is wrong, that is the error of krb5.
    """
    try:
        import krb5
    except ImportError:
        return (SpnegoError,)
    return (SpnegoError, krb5.Krb5Error)


def _context(log_on: LogOn, host: str, wanted: spnego.ContextReq) -> Any:  # noqa: ANN401 (pyspnego's)
    if not log_on.acts_for:
        return spnego.client(
            log_on.credential(), hostname=host, service="ldap", protocol=log_on.protocol, context_req=wanted
        )
    # Imported here: they come with the extra kerberos.
    import gssapi
    import krb5
    from spnego._gss import GSSAPIProxy

    try:
        kerberos = krb5.init_context()
        own = krb5.parse_name_flags(kerberos, log_on.user.encode())
        options = krb5.get_init_creds_opt_alloc(kerberos)
        # Only a forwardable ticket can be presented to the directory server.
        krb5.get_init_creds_opt_set_forwardable(options, True)
        ticket = krb5.get_init_creds_password(kerberos, own, options, password=(log_on.password or "").encode())
        cache = krb5.cc_new_unique(kerberos, b"MEMORY")
        krb5.cc_initialize(kerberos, cache, own)
        krb5.cc_store_cred(kerberos, cache, ticket)
        place = f"MEMORY:{(cache.name or b'').decode()}"
        credential = gssapi.Credentials(usage="initiate", store={"ccache": place}).impersonate(
            gssapi.Name(log_on.acts_for, gssapi.NameType.kerberos_principal)
        )
    except (gssapi.raw.GSSError, krb5.Krb5Error) as error:
        raise ConnectionFailed(f"{log_on.user} cannot act for {log_on.acts_for}: {error}") from None
    return GSSAPIProxy(hostname=host, service="ldap", context_req=wanted, _gssapi_credential=credential)


def _described(request: Request) -> str:
    name = getattr(request, "dn", None) or getattr(request, "base", "")
    return f"{type(request).__name__.lower()} {name}".strip()
