"""Lanner's propagation token, which names a branch of a distributed transaction.

It is for other queue managers: R_QMEnlistRemoteTransaction carries it where Windows carries the
token of MS-DTCO 2.2.5.4. It grants no rights: a queue manager ties the branch to the user who
presents the token.

| Octets | Field |
|---|---|
| 4 | the letters `LNR1` |
| 16 | the coordinator, a GUID in packet order (MS-DTYP 2.3.4.2) |
| 16 | the transaction, likewise; pTransactionId repeats these octets |
| 1 | the length of the next field, 1 to 64 |
| 1 to 64 | the name of the resource, in ASCII |
"""

from __future__ import annotations

from typing import Final

from lanner.model.branches import Branch, check_resource_name
from lanner.model.errors import InvalidParameter, RemoteProtocolError
from lanner.wire.reader import Reader

_SIGNATURE: Final = b"LNR1"


def pack_token(branch: Branch) -> bytes:
    """Return the token of a branch."""
    name = branch.resource.encode("ascii")
    return b"".join(
        (_SIGNATURE, branch.coordinator.bytes_le, branch.transaction.bytes_le, len(name).to_bytes(1, "little"), name)
    )


def unpack_token(token: bytes) -> Branch | None:
    """Return the branch of a token, or None if it is not one of Lanner's."""
    reader = Reader(token)
    try:
        if reader.take(len(_SIGNATURE), "signature") != _SIGNATURE:
            return None
        coordinator, transaction = reader.guid("coordinator"), reader.guid("transaction")
        name = reader.take(reader.take(1, "length")[0], "resource").decode("ascii")
        reader.expect_end("propagation token")
        return Branch(coordinator, transaction, check_resource_name(name))
    except (RemoteProtocolError, InvalidParameter, UnicodeDecodeError):
        return None
