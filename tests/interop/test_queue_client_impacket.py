"""The queue client by impacket: its RPC client, its NTLM, its NDR engine.

The small methods are written down again in its words, from MS-MQMP 6. The transfer buffer has sixty
members; it is translated from our declaration, and only the marshalling is impacket's.
"""

from __future__ import annotations

import asyncio
import importlib
import struct
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lanner.model.enums import DeliveryGuarantee
from lanner.rpc.interface import RETURNS, Method
from lanner.services.interfaces import mqmp
from lanner.services.queue_client_buffers import packet_of, receive_buffer, send_buffer
from lanner.services.queue_client_receiving import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_RECEIVE
from lanner.wire.builder import MessageProperties
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from tests.interop import impacket_stubs
from tests.interop.impacket_stubs import (
    DWORD,
    HANDLE,
    QMCOMM,
    QMCOMM2,
    QUEUE_FORMAT,
    Peer,
    call_class,
    dtypes,
    name_queue,
    ndr,
    rpcrt,
)
from tests.services.queue_client_peer import Site, serving
from tests.statuses import MQ_ERROR_IO_TIMEOUT, MQ_ERROR_QUEUE_EXISTS

translated: Peer = importlib.import_module("tests.services.test_interfaces_impacket")

USER = "root"
LEVELS = {name: level for name, level in impacket_stubs.LEVELS.items() if name != "none"}
PATH = r".\private$\made"
NAME = r"OS:.\private$\made"
RECEIVE, SEND = 1, 2
CONTEXT_MISMATCH = "nca_s_fault_context_mismatch"


class DWORDS(ndr.NDRUniConformantArray):  # type: ignore[misc]
    item = "<L"


class VariantUnion(ndr.NDRUNION):  # type: ignore[misc]
    commonHdr = (("tag", ndr.NDRUSHORT),)  # noqa: N815
    notAlign = True  # noqa: N815
    union = {17: ("bVal", ndr.NDRUSMALL)}  # noqa: RUF012


class VARIANT(ndr.NDRSTRUCT):  # type: ignore[misc]
    structure = (
        ("vt", ndr.NDRUSHORT),
        ("wReserved1", ndr.NDRUSMALL),
        ("wReserved2", ndr.NDRUSMALL),
        ("wReserved3", ndr.NDRULONG),
        ("u", VariantUnion),
    )

    def getAlignment(self) -> int:  # noqa: N802
        return 8


class PWSTR(ndr.NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", dtypes.LPWSTR),)


CREATE = call_class(
    6,
    ("dwObjectType", DWORD),
    ("lpwcsPathName", dtypes.WSTR),
    ("SDSize", DWORD),
    ("pSecurityDescriptor", DWORD),
    ("cp", DWORD),
    ("aProp", DWORDS),
    ("apVarCount", DWORD),
    ("apVar", VARIANT),
)
STATUS = call_class(None, ("ErrorCode", DWORD))
ENLIST = call_class(16, ("pUow", dtypes.GUID))
HANDLE_ANSWER = call_class(None, ("handle", HANDLE), ("ErrorCode", DWORD))
COMMIT = call_class(17, ("phIntXact", HANDLE))
CLOSE = call_class(20, ("phQueue", HANDLE))
OPEN = call_class(
    19,
    ("pQueueFormat", QUEUE_FORMAT),
    ("dwDesiredAccess", DWORD),
    ("dwShareMode", DWORD),
    ("hRemoteQueue", DWORD),
    ("lplpRemoteQueueName", PWSTR),
    ("dwpQueue", DWORD),
    ("pLicGuid", dtypes.GUID),
    ("lpClientName", dtypes.WSTR),
    ("dwRemoteProtocol", DWORD),
    ("dwpRemoteContext", DWORD),
)


class Client:
    """qmcomm and qmcomm2 on one connection."""

    def __init__(
        self, port: int, level: int, user: str = USER, password: str = f"{USER}-secret", address: str = "127.0.0.1"
    ) -> None:
        self._qmcomm = impacket_stubs.connect(port, level, user, password, address)
        self._qmcomm.bind(QMCOMM)
        self._qmcomm2 = self._qmcomm.alter_ctx(QMCOMM2)

    def close(self) -> None:
        self._qmcomm.disconnect()

    def call(self, request: Peer, answer: Peer) -> Peer:
        self._qmcomm.call(request.opnum, request.getData())
        return answer(self._qmcomm.recv())

    def call2(self, method: Method, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        """Its octets for our declaration, and back."""
        stub = translated.marshalled([each for each in method.parameters if each.is_in], arguments)
        self._qmcomm2.call(method.opnum, stub)
        return method.decode_response(self._qmcomm2.recv(), arguments)

    def create(self) -> int:
        request = CREATE()
        request["dwObjectType"] = 1
        request["lpwcsPathName"] = f"{PATH}\0"
        request["SDSize"] = request["pSecurityDescriptor"] = 0
        request["cp"] = request["apVarCount"] = 1
        request["aProp"] = [113]  # PROPID_Q_TRANSACTION
        request["apVar"]["vt"] = request["apVar"]["u"]["tag"] = 17
        request["apVar"]["wReserved1"] = request["apVar"]["wReserved2"] = request["apVar"]["wReserved3"] = 0
        request["apVar"]["u"]["bVal"] = 1
        return int(self.call(request, STATUS)["ErrorCode"])

    def open(self, access: int) -> tuple[bytes, int]:
        request = OPEN()
        name_queue(request["pQueueFormat"], NAME)
        request["dwDesiredAccess"] = access
        for name in ("dwShareMode", "hRemoteQueue", "dwpQueue", "dwRemoteProtocol", "dwpRemoteContext"):
            request[name] = 0
        request["lplpRemoteQueueName"] = ndr.NULL
        request["pLicGuid"] = bytes(range(16))
        request["lpClientName"] = "client\0"
        self._qmcomm.call(request.opnum, request.getData())
        null, context, handle, status = struct.unpack("<II20sI", self._qmcomm.recv())
        assert (null, status) == (0, 0)
        return handle, context

    def close_queue(self, handle: bytes) -> int:
        request = CLOSE()
        request["phQueue"] = handle
        answer = self.call(request, HANDLE_ANSWER)
        assert answer["handle"] == bytes(20)
        return int(answer["ErrorCode"])

    def begin(self, uow: uuid.UUID) -> bytes:
        request = ENLIST()
        request["pUow"] = uow.bytes_le
        answer = self.call(request, HANDLE_ANSWER)
        assert answer["ErrorCode"] == 0
        return bytes(answer["handle"])

    def commit(self, handle: bytes) -> int:
        request = COMMIT()
        request["phIntXact"] = handle
        answer = self.call(request, HANDLE_ANSWER)
        assert answer["handle"] == bytes(20)
        return int(answer["ErrorCode"])

    def send(self, handle: bytes, properties: MessageProperties, uow: uuid.UUID) -> dict[str, Any]:
        null = MessageIdentifier(uuid.UUID(int=0), 0)
        buffer = send_buffer(properties, uow)
        return self.call2(mqmp.RPC_AC_SEND_MESSAGE_EX, h_queue=handle, ptb=buffer, p_message_id=null)

    def receive(self, context: int, action: int = MQ_ACTION_RECEIVE, timeout: int = 0) -> tuple[int, Message | None]:
        buffer = receive_buffer(action=action, timeout=timeout, body_size=100, security_size=16)
        results = self.call2(mqmp.RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=context, ptb=buffer)
        status = results[RETURNS]
        return status, None if status else Message(packet_of(results["ptb"]))


def _use(port: int, level: int) -> None:
    with closing(Client(port, level)) as client:
        assert client.create() == 0
        assert client.create() == MQ_ERROR_QUEUE_EXISTS
        sender, _ = client.open(SEND)
        reader, context = client.open(RECEIVE)
        uow = uuid.uuid4()
        begun = client.begin(uow)
        sent = MessageProperties(
            body=b"from impacket", label="label", delivery_guarantee=DeliveryGuarantee.RECOVERABLE, application_tag=9
        )
        results = client.send(sender, sent, uow)
        assert results[RETURNS] == 0
        assert client.receive(context) == (MQ_ERROR_IO_TIMEOUT, None)
        assert client.commit(begun) == 0
        for action in (MQ_ACTION_PEEK_CURRENT, MQ_ACTION_RECEIVE):
            status, message = client.receive(context, action, 1000)
            assert status == 0
            assert message is not None
            assert (message.body, message.label, message.application_tag) == (b"from impacket", "label", 9)
            assert message.identifier == results["p_message_id"]
            assert message.first_in_transaction
            assert message.last_in_transaction
        assert client.close_queue(sender) == client.close_queue(reader) == 0
        with pytest.raises(rpcrt.DCERPCException, match=CONTEXT_MISMATCH):
            client.close_queue(reader)


def _leave(port: int) -> None:
    """Send in a transaction, and hang up."""
    with closing(Client(port, LEVELS["privacy"])) as client:
        assert client.create() == 0
        sender, _ = client.open(SEND)
        uow = uuid.uuid4()
        client.begin(uow)
        assert client.send(sender, MessageProperties(body=b"undone"), uow)[RETURNS] == 0


async def _over(site: Site) -> None:
    while len(site.queue_client.handles) or len(site.queue_client.transactions):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("level", LEVELS)
def test_impacket_creates_opens_sends_receives_commits_and_closes(tmp_path: Path, level: str) -> None:
    async def run() -> None:
        async with serving(tmp_path) as site:
            site.add_user(USER, is_administrator=True)
            await asyncio.to_thread(_use, site.port, LEVELS[level])
            await _over(site)
            assert site.operations.find(PATH).transactional
            assert site.count("made") == 0

    asyncio.run(run())


def test_what_impacket_leaves_behind_is_cleared_away(tmp_path: Path) -> None:
    """MS-MQMP 3.1.7.1, 3.1.7.3: queues are closed, transactions aborted."""

    async def run() -> None:
        async with serving(tmp_path) as site:
            site.add_user(USER, is_administrator=True)
            await asyncio.to_thread(_leave, site.port)
            await _over(site)
            assert site.count("made") == 0

    asyncio.run(run())
