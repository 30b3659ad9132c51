"""The parts of the RPC client that `async_client` and `blocking_client` share. They do no I/O."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lanner.model.errors import LannerError
from lanner.rpc.client_connection import MAX_FRAGMENT, Answered, Bound, ClientConnection
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.interface import Interface, Method
from lanner.rpc.ndr import ByteOrder, Syntax, Value
from lanner.rpc.pdu import NDR20, NDR64, AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials

# Small fragments have no advantage on a Unix socket.
_LOCAL_FRAGMENT: Final = 0xFFF8
_SYNTAXES: Final = {Syntax.NDR20: NDR20, Syntax.NDR64: NDR64}
_BY_IDENTIFIER: Final = {identifier: syntax for syntax, identifier in _SYNTAXES.items()}


# Connecting
# --------------------------------------------------------------------------------------------------


def tcp_core(
    host: str, port: int, credentials: Credentials | None, auth_type: AuthType, level: AuthLevel, assoc_group_id: int
) -> ClientConnection:
    return ClientConnection(
        credentials=credentials,
        auth_type=auth_type,
        level=level,
        host=host,
        peer=f"{host} port {port}",
        assoc_group_id=assoc_group_id,
        max_fragment=MAX_FRAGMENT,
    )


def unix_core(path: Path, assoc_group_id: int) -> ClientConnection:
    return ClientConnection(peer=str(path), assoc_group_id=assoc_group_id, max_fragment=_LOCAL_FRAGMENT)


def connect_timed_out(place: str, timeout: float | None) -> TimeoutError:
    """Return the error of a connection that was not established in time."""
    return TimeoutError(f"{place} did not accept a connection within {timeout or 0:g} s")


# Calling
# --------------------------------------------------------------------------------------------------


def proposed(interface: Interface, syntaxes: tuple[Syntax, ...] | None) -> tuple[SyntaxId, tuple[SyntaxId, ...]]:
    """Return the arguments of a bind. By default they name NDR, which every server supports."""
    wanted = syntaxes or ((Syntax.NDR20,) if Syntax.NDR20 in interface.syntaxes else interface.syntaxes)
    return SyntaxId(interface.uuid, *interface.version), tuple(_SYNTAXES[one] for one in wanted)


def accepted(bound: Bound) -> Syntax:
    """Return the transfer syntax that the server chose."""
    return _BY_IDENTIFIER[bound.transfer_syntax]


def decoded(method: Method, answer: Answered, arguments: dict[str, Value], syntax: Syntax) -> dict[str, Value]:
    order: ByteOrder = "little" if answer.is_little else "big"
    return method.decode_response(answer.stub, arguments, syntax, order)


# Failing
# --------------------------------------------------------------------------------------------------


def check_process(process: int) -> None:
    """Raise RpcConnectionError in a process other than the one that connected.

    Parent and child would write to one socket, each with its own sequence numbers, and each would
    read answers that the other waits for.
    """
    here = os.getpid()
    if here != process:
        raise RpcConnectionError(f"the connection was made in process {process}; connect again in this one, {here}")


def connection_failed(error: OSError) -> RpcConnectionError:
    """Return the error of a socket that has failed."""
    return RpcConnectionError(f"the connection failed: {error}")


def broken_off(error: BaseException) -> RpcConnectionError:
    """Return the error of a connection on which a PDU was only partly signed or sent.

    How much of it was is unknown, so the server would reject all later PDUs.
    """
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RpcConnectionError(f"the connection was given up: {what} in the middle of a PDU; connect again")


def repeated(error: LannerError) -> LannerError:
    """Return another instance of the error that ended a connection, for another caller to raise.

    Callers that raised the same instance would add to each other's tracebacks.
    """
    again = type(error)(*error.args)
    again.__cause__ = error
    return again


def closed() -> RpcConnectionError:
    return RpcConnectionError("the connection was closed")


def hung_up() -> RpcConnectionError:
    return RpcConnectionError("the server hung up")
