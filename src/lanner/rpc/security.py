"""Security contexts of connections: token exchange, then signatures (MS-RPCE 3.3.1.5.2).

The mechanisms are in `ntlm`, `kerberos` and `negotiate`. They need the optional package pyspnego,
and are imported when first used. This module has their interfaces for connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from lanner.model.errors import LannerError
from lanner.rpc.pac import LogonInformation
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.security.audit import AuditLog
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.logons import Logons

_LOG = logging.getLogger(__name__)
_NO_KERBEROS: Final = (
    "Kerberos needs packages that are not installed: install them with `pip install 'lanner[kerberos]'`"
)


class SecurityError(LannerError):
    """The security provider refuses a token or a signature, or cannot provide a level."""

    def __init__(self, message: str, *, account: str = "") -> None:
        """Create the error. `account` is the name that the client gave for the logon."""
        super().__init__(message)
        self.account = account


class LogonDelayed(Exception):
    """A password cannot be verified yet, because earlier ones were wrong.

    Nothing has changed.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"in {seconds:.1f} s")
        self.seconds = seconds


class Mechanism(Protocol):
    """One context of NTLM or Kerberos. Any exception that it raises is a refusal."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def can_sign(self) -> bool: ...

    @property
    def always_signs_headers(self) -> bool:
        """Whether a signature covers the whole PDU, whatever was agreed about header signing."""

    def signature_size(self, *, seal: bool) -> int: ...

    def step(self, token: bytes, /) -> bytes | None: ...

    def check_level(self, level: AuthLevel) -> None:
        """Raise SecurityError if the negotiated features do not provide this level."""

    def sign_mechanisms(self, data: bytes) -> bytes:
        """Sign SPNEGO's list of mechanisms."""

    def verify_mechanisms(self, data: bytes, token: bytes) -> None: ...

    def protect(self, header: bytes, stub: bytes, trailer: bytes, *, seal: bool, header_signing: bool) -> bytes:
        """Return a PDU as it is sent, with its token at the end.

        `header` is everything before the stub, `trailer` the sec_trailer.
        """

    def unprotect(self, pdu: bytes, start: int, stop: int, *, seal: bool, header_signing: bool) -> bytes:
        """Return the original stub of a PDU, which has it from `start` to `stop`."""


class _Steps(Protocol):
    """An exchange of tokens: a mechanism, or SPNEGO around one."""

    @property
    def is_complete(self) -> bool: ...

    def step(self, token: bytes, /) -> bytes | None: ...


class Context:
    """One side of a security context at its authentication level."""

    __slots__ = ("_mechanism", "_mechanism_of", "_seal", "_size", "_steps", "level")

    def __init__(self, steps: _Steps, mechanism_of: Callable[[], Mechanism], level: AuthLevel) -> None:
        self._steps = steps
        self._mechanism_of = mechanism_of
        self._mechanism: Mechanism | None = None
        self.level = level
        self._seal = level == AuthLevel.PKT_PRIVACY
        self._size: int | None = None

    @property
    def is_complete(self) -> bool:
        return self._mechanism is not None

    @property
    def identity(self) -> Identity:
        return ANONYMOUS if self._mechanism is None else self._mechanism.identity

    def step(self, token: bytes) -> bytes:
        """Return the answer to a token, empty if there is none.

        Raises SecurityError if authentication fails. After LogonDelayed the same step must be
        repeated.
        """
        try:
            answer = self._steps.step(token)
            if self._steps.is_complete:
                mechanism = self._mechanism_of()
                mechanism.check_level(self.level)
                self._mechanism = mechanism
        except (SecurityError, LogonDelayed):
            raise
        except Exception as error:
            # Untrusted bytes reach the parsers of other libraries, which may raise anything.
            raise SecurityError(f"{type(error).__name__}: {error}") from error
        return answer or b""

    @property
    def always_signs_headers(self) -> bool:
        return self._ready.always_signs_headers

    @property
    def signature_size(self) -> int:
        """The size in bytes of the authentication token of every PDU."""
        if self._size is None:
            self._size = self._ready.signature_size(seal=self._seal)
        return self._size

    @property
    def _ready(self) -> Mechanism:
        if self._mechanism is None:
            raise SecurityError("the security context is not complete")
        return self._mechanism

    def protect(self, header: bytes, stub: bytes, trailer: bytes, *, header_signing: bool) -> bytes:
        mechanism = self._mechanism or self._ready
        return mechanism.protect(header, stub, trailer, seal=self._seal, header_signing=header_signing)

    def unprotect(self, pdu: bytes, start: int, stop: int, *, header_signing: bool) -> bytes:
        try:
            mechanism = self._mechanism or self._ready
            return mechanism.unprotect(pdu, start, stop, seal=self._seal, header_signing=header_signing)
        except SecurityError:
            raise
        except Exception as error:
            raise SecurityError(f"{type(error).__name__}: {error}") from error


class SecurityProviders(Protocol):
    """The security providers of a server (MS-RPCE 3.1.3.1.1)."""

    @property
    def audit(self) -> AuditLog:
        """The log of failed logons."""

    def accept(self, auth_type: int, level: AuthLevel, peer: str = "") -> Context | None:
        """Return a new context for a client at an address; None if the type is not offered."""


class NtlmAccounts(Protocol):
    """The accounts of NTLM, as UserFile implements them."""

    def nt_hash(self, name: str) -> bytes | None: ...

    def identity(self, name: str) -> Identity | None: ...


@dataclass(frozen=True, slots=True)
class TargetNames:
    """The names of this computer in a challenge (MS-NLMP 2.2.2.1)."""

    computer: str
    domain: str
    dns_computer: str = ""
    dns_domain: str = ""


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """NTLM for the accounts of a file, Kerberos if there is a keytab, and SPNEGO around both."""

    accounts: NtlmAccounts
    names: TargetNames
    keytab: Path | None = None
    # Returns the identity of a Kerberos principal. Without it, principals are refused.
    principals: Callable[[str, LogonInformation | None], Identity | None] | None = field(default=None, repr=False)
    audit: AuditLog = field(default_factory=AuditLog)
    # Counts wrong passwords.
    logons: Logons = field(default_factory=Logons, repr=False)
    # Refuse clients of NTLM whose messages have no integrity code (MS-NLMP 3.2.5.1.2).
    requires_mic: bool = False

    def __post_init__(self) -> None:
        # Imported before the first client connects, because it takes a third of a second.
        if self.accept(AuthType.GSS_NEGOTIATE, AuthLevel.CONNECT) is None:
            _LOG.warning("no client can authenticate: pyspnego cannot be used")

    def accept(self, auth_type: int, level: AuthLevel, peer: str = "") -> Context | None:
        try:
            if auth_type in (AuthType.WINNT, AuthType.DEFAULT):
                ntlm = self._ntlm(peer)
                return Context(ntlm, lambda: ntlm, level)
            if auth_type == AuthType.GSS_KERBEROS and self.keytab is not None:
                kerberos = self._kerberos()
                return Context(kerberos, lambda: kerberos, level)
            if auth_type == AuthType.GSS_NEGOTIATE:
                return self._negotiate(level, peer)
        except ImportError as error:
            _LOG.warning("authentication type %d cannot be offered: %s (%s)", auth_type, _NO_KERBEROS, error)
        except Exception as error:  # noqa: BLE001 (raised by libraries, for example if the keytab is missing)
            _LOG.error("authentication type %d cannot be offered: %s", auth_type, error)
        return None

    def _ntlm(self, peer: str) -> Mechanism:
        from lanner.rpc.ntlm import NtlmAcceptor

        return NtlmAcceptor(self.accounts, self.names, self.logons, peer, requires_mic=self.requires_mic)

    def _kerberos(self) -> Mechanism:
        from lanner.rpc.kerberos import KerberosAcceptor

        if self.keytab is None:
            raise SecurityError("Kerberos: there is no keytab")
        return KerberosAcceptor(self.keytab, self.principals)

    def _negotiate(self, level: AuthLevel, peer: str) -> Context:
        from lanner.rpc.negotiate import KERBEROS_OID, MS_KERBEROS_OID, NTLM_OID, NegotiateAcceptor

        mechanisms: dict[str, Callable[[], Mechanism]] = {NTLM_OID: partial(self._ntlm, peer)}
        if self.keytab is not None:
            mechanisms |= {MS_KERBEROS_OID: self._kerberos, KERBEROS_OID: self._kerberos}
        negotiator = NegotiateAcceptor(mechanisms)
        return Context(negotiator, lambda: negotiator.mechanism, level)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity that a client claims: a user of a domain or of the server, or anonymous.

    The proof is a password or its NT hash.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    domain: str = ""
    nt_hash: bytes | None = field(default=None, repr=False)

    def initiate(self, auth_type: AuthType, level: AuthLevel, host: str) -> Context:
        """Return a client's context."""
        from lanner.rpc.negotiate import NTLM_OID, NegotiateInitiator
        from lanner.rpc.ntlm import NtlmInitiator

        if auth_type == AuthType.GSS_KERBEROS:
            try:
                from lanner.rpc.kerberos import KerberosInitiator
            except ImportError as error:
                raise SecurityError(f"{_NO_KERBEROS} ({error})") from error

            kerberos = KerberosInitiator(self.user, self.password, host, level)
            return Context(kerberos, lambda: kerberos, level)
        ntlm = NtlmInitiator(self, level, host)
        if auth_type == AuthType.WINNT:
            return Context(ntlm, lambda: ntlm, level)
        if auth_type == AuthType.GSS_NEGOTIATE:
            negotiator = NegotiateInitiator([(NTLM_OID, ntlm)])
            return Context(negotiator, lambda: negotiator.mechanism, level)
        raise SecurityError(f"authentication type {auth_type.name} is not known")
