"""The address of a queue manager, our identity there, and the mapping of failures to our errors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lanner.model.errors import (
    AccessDenied,
    GenericError,
    InvalidHandle,
    RemoteMachineNotAvailable,
    RemoteProtocolError,
    ServiceNotAvailable,
    SharingViolation,
    StatusError,
    StatusSharingViolation,
    status_error,
)
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthType
from lanner.rpc.security import Credentials, SecurityError

_AUTHENTICATION: Final[dict[str, AuthType]] = {
    "ntlm": AuthType.WINNT,
    "negotiate": AuthType.GSS_NEGOTIATE,
    "kerberos": AuthType.GSS_KERBEROS,
}
_FAILURE: Final = 0x8000_0000


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a queue manager, and our identity there."""

    # None: on this machine, behind the Unix socket of `data`.
    host: str | None
    data: Path | None = None
    port: int | None = None
    credentials: Credentials | None = None
    auth_type: AuthType = AuthType.WINNT
    timeout: float = 20.0
    # For a program that serves many users: makes a connected socket, and returns the request that
    # logs one of the users on through it (services/log_on.py).
    connected: Callable[[], socket.socket] | None = None
    log_on: Callable[[], Mapping[str, str]] | None = None

    @classmethod
    def of(
        cls,
        host: str | None,
        user: str | None,
        password: str | None,
        data: str | Path | None,
        *,
        domain: str,
        port: int | None,
        authentication: str,
        timeout: float,
    ) -> Target:
        """Return the target of `connect`'s arguments; ValueError if they do not go together."""
        if authentication not in _AUTHENTICATION:
            raise ValueError(f"authentication {authentication!r}: one of {', '.join(_AUTHENTICATION)}")
        if host is None:
            if user is not None or password is not None:
                raise ValueError("a user without a host: on this machine the kernel identifies you")
            return cls(None, Path(os.environ.get("LANNER_DATA", "data") if data is None else data), timeout=timeout)
        if data is not None:
            raise ValueError("give a host, or the data directory of a queue manager on this machine")
        auth_type = _AUTHENTICATION[authentication]
        credentials = None
        if user is not None or auth_type is AuthType.GSS_KERBEROS:
            credentials = Credentials(user or "", password or "", domain)
        return cls(host, None, port, credentials, auth_type, timeout)

    @property
    def place(self) -> str:
        """The host or the directory, for error texts."""
        if self.connected is not None:
            return "the queue manager"
        return str(self.data) if self.host is None else self.host


def local_failure(directory: Path, error: OSError) -> StatusError:
    """Return the reason why the socket of a data directory cannot be used."""
    if isinstance(error, PermissionError):
        return AccessDenied(f"the queue manager of {directory} belongs to another user: run as that user, or as root")
    if isinstance(error, (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)):
        return ServiceNotAvailable(
            f"no queue manager runs on {directory}: `lanner serve --data {directory}` starts one"
        )
    return ServiceNotAvailable(f"{directory}: the queue manager cannot be reached: {error.strerror or error}")


@contextmanager
def translated(what: str, *, has_texts: bool = False) -> Iterator[None]:
    """Raise failures to reach a queue manager as the errors that a queue manager has.

    `has_texts`: the queue manager sends the texts of its errors, so they stay as they are.
    """
    try:
        yield
    except (StatusSharingViolation, SharingViolation) as error:
        if has_texts:
            raise
        # R_QMOpenRemoteQueue of MS-MQMP has its own code for this; MS-MQRR does not.
        raise SharingViolation(f"{what} is open elsewhere, exclusively or in another way that excludes this") from error
    except StatusError as error:
        text = error.default_text()
        if error.args[0] == text and not has_texts:
            # A bare status: its text should name the object.
            raise status_error(error.status, f"{what}: {text}") from error
        raise
    except RpcFault as fault:
        if fault.status in StatusError.by_status:
            raise status_error(fault.status, f"{what}: {fault}") from fault
        if fault.status == FaultStatus.ACCESS_DENIED:
            raise AccessDenied(f"{what}: {fault}; did you give a user, and the right password?") from fault
        if fault.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH:
            raise InvalidHandle(f"{what}: {fault}") from fault
        raise GenericError(f"{what}: {fault}") from fault
    except SecurityError as error:
        raise AccessDenied(f"{what}: {error}") from error
    except (RpcConnectionError, RemoteProtocolError, OSError) as error:
        raise RemoteMachineNotAvailable(f"{what}: {error}") from error


@contextmanager
def first_contact(target: Target) -> Iterator[None]:
    """Raise failures of the first call to a queue manager, as `translated` does.

    If access was denied and the caller did not log on, the error says so.
    """
    with translated(target.place):
        try:
            yield
        except (AccessDenied, RpcFault) as error:
            is_denied = isinstance(error, AccessDenied) or error.status in (
                AccessDenied.status,
                FaultStatus.ACCESS_DENIED,
            )
            if not is_denied or target.host is None or (target.credentials is not None and target.credentials.user):
                raise
            raise AccessDenied(
                f"{target.place} serves only callers that log on: "
                "give a user and a password (--user on the command line, user= and password= in Python)"
            ) from error


def check(results: Mapping[str, Any]) -> None:
    """Raise the exception of a failed call."""
    status: int = results[RETURNS]
    if status & _FAILURE:
        raise status_error(status)
