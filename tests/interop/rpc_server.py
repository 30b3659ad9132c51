"""An RPC server for other implementations' clients, run as a process of its own.

Run as `python -m tests.interop.rpc_server ADDRESS PORT FOLDER`. It has the endpoint mapper, the
management interface, an echo, and the one operation of netlogon that Samba's tests fragment. Its
users are in FOLDER. It prints the port it listens on, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from uuid import UUID

import uvloop

from lanner.rpc.calls import ServerCall
from lanner.rpc.connection import ConnectionLimits
from lanner.rpc.endpoint_mapper import EndpointMapper
from lanner.rpc.mgmt import MgmtInterface
from lanner.rpc.pac import LogonInformation
from lanner.rpc.pdu import NDR20, SyntaxId
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer, ServerLimits
from lanner.security.identity import Identity
from lanner.security.users import UserFile
from tests.rpc.raw_interface import RawInterface

USER = "alice"
PASSWORD = "Pass-word1"
DOMAIN = "MQ"
REALM = "MQ.TEST"
# rpcecho, which Samba knows too: EchoData is opnum 1. Ours gives back the stub, whatever it is.
ECHO = SyntaxId(UUID("60a15ec5-4de8-11d7-a637-005056a20182"), 1)
NETLOGON = SyntaxId(UUID("12345678-1234-abcd-ef00-01234567cffb"), 1)
NETR_SERVER_REQ_CHALLENGE = 4
MAX_SECURITY_CONTEXTS = 32


async def _later(call: ServerCall) -> bytes:
    await asyncio.sleep(0)
    return call.stub


def make_server(folder: Path, keytab: Path | None = None) -> RpcServer:
    users = UserFile(folder / "users.json")
    if users.identity(USER) is None:
        users.add(USER, PASSWORD)

    def principal(name: str, logon: LogonInformation | None) -> Identity | None:
        return users.identity(name.partition("@")[0])

    security = ServerSecurity(
        users, TargetNames("QM1", DOMAIN, "qm1.mq.test", "mq.test"), keytab=keytab, principals=principal
    )
    server = RpcServer(
        [
            RawInterface(ECHO, {0: lambda call: call.stub, 1: _later}, name="echo"),
            # A challenge and ERROR_SUCCESS; what stands behind the parameters is not looked at, as
            # on Windows.
            RawInterface(NETLOGON, {NETR_SERVER_REQ_CHALLENGE: lambda _: bytes(12)}, transfer_syntaxes=(NDR20,)),
        ],
        users=users,
        providers=security,
        limits=ServerLimits(connection=ConnectionLimits(max_security_contexts=MAX_SECURITY_CONTEXTS)),
    )
    server.register(MgmtInterface(server))
    server.register(EndpointMapper(server))
    return server


async def serve(address: str, port: int, folder: Path, keytab: Path | None) -> None:
    server = make_server(folder, keytab)
    found = await server.listen_tcp(address, port, step=0)
    print(found, flush=True)  # noqa: T201 (what it is asked for)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]) if sys.argv[4:] else None))
