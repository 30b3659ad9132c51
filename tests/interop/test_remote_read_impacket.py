"""Remote reads by impacket: its RPC client, its NTLM and stubs of its NDR classes.

The stubs are written from the published IDL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lanner.security.access_masks import QueueAccess
from tests.interop import impacket_stubs
from tests.interop.impacket_stubs import (
    DWORD,
    HANDLE,
    LEVELS,
    QM2QM,
    QMCOMM,
    QUEUE_FORMAT,
    Peer,
    call_class,
    dtypes,
    name_queue,
    ndr,
)
from tests.services.remote_read_peer import Site, serving
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_IO_TIMEOUT, MQ_INFORMATION_REMOTE_CANCELED

USER, PASSWORD = "alice", "Pass-word1"


class PQUEUE_FORMAT(ndr.NDRPOINTER):  # type: ignore[misc]  # noqa: N801
    referent = (("Data", QUEUE_FORMAT),)


class BUFFER(ndr.NDRUniConformantVaryingArray):  # type: ignore[misc]
    item = "c"


class PBUFFER(ndr.NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", BUFFER),)


class REMOTEREADDESC(ndr.NDRSTRUCT):  # type: ignore[misc]
    structure = (
        ("hRemoteQueue", DWORD),
        ("hCursor", DWORD),
        ("ulAction", DWORD),
        ("ulTimeout", DWORD),
        ("dwSize", DWORD),
        ("dwQueue", DWORD),
        ("dwRequestID", DWORD),
        ("Reserved", DWORD),
        ("dwArriveTime", DWORD),
        ("eAckNack", ndr.NDRUSHORT),
        ("lpBuffer", PBUFFER),
    )


class PREMOTEREADDESC(ndr.NDRPOINTER):  # type: ignore[misc]
    referent = (("Data", REMOTEREADDESC),)


class REMOTEREADDESC2(ndr.NDRSTRUCT):  # type: ignore[misc]
    structure = (("pRemoteReadDesc", PREMOTEREADDESC), ("SequentialId", ndr.NDRUHYPER))


OPEN_REMOTE = call_class(
    2,
    ("pQueueFormat", PQUEUE_FORMAT),
    ("dwCallingProcessID", DWORD),
    ("dwDesiredAccess", DWORD),
    ("dwShareMode", DWORD),
    ("pLicGuid", dtypes.GUID),
    ("dwMQS", DWORD),
)
OPEN_REMOTE_ANSWER = call_class(
    None,
    ("pphContext", HANDLE),
    ("pdwContext", DWORD),
    ("dwpQueue", DWORD),
    ("phQueue", DWORD),
    ("ErrorCode", DWORD),
)
OPEN = call_class(
    2, ("pLicGuid", dtypes.GUID), ("dwMQS", DWORD), ("hQueue", DWORD), ("pQueue", DWORD), ("dwpContext", DWORD)
)
HANDLE_ANSWER = call_class(None, ("phContext", HANDLE), ("ErrorCode", DWORD))
START = call_class(0, ("desc", REMOTEREADDESC))
START_ANSWER = call_class(None, ("pphContext", HANDLE), ("desc", REMOTEREADDESC), ("ErrorCode", DWORD))
START2 = call_class(9, ("desc2", REMOTEREADDESC2))
LOOK_UP = call_class(10, ("LookupId", ndr.NDRUHYPER), ("desc2", REMOTEREADDESC2))
START2_ANSWER = call_class(None, ("pphContext", HANDLE), ("desc2", REMOTEREADDESC2), ("ErrorCode", DWORD))
END = call_class(1, ("pphContext", HANDLE), ("dwAck", DWORD))
CLOSE = call_class(3, ("pphContext", HANDLE))
CANCEL = call_class(5, ("hQueue", DWORD), ("pQueue", DWORD), ("dwRequestID", DWORD))
PURGE = call_class(6, ("hQueue", DWORD))
PORT = call_class(7, ("dwPortType", DWORD))
VERSION = call_class(8)
VERSION_ANSWER = call_class(None, ("pMajor", ndr.NDRUSMALL), ("pMinor", ndr.NDRUSMALL), ("pBuildNumber", ndr.NDRUSHORT))
STATUS = call_class(None, ("ErrorCode", DWORD))


class Client:
    """qmcomm and qm2qm on one connection."""

    def __init__(self, port: int, level: int, password: str = PASSWORD, address: str = "127.0.0.1") -> None:
        self.qm2qm = impacket_stubs.connect(port, level, USER, password, address)
        self.qm2qm.bind(QM2QM)
        self.qmcomm = self.qm2qm.alter_ctx(QMCOMM)
        self.handle = 0
        self.request_id = 0

    def close(self) -> None:
        self.qm2qm.disconnect()

    @staticmethod
    def call(rpc: Peer, request: Peer, answer: Peer) -> Peer:
        rpc.call(request.opnum, request)
        return answer(rpc.recv())

    def open_remote(self, name: str, access: int = 1) -> Peer:
        request = OPEN_REMOTE()
        name_queue(request["pQueueFormat"], name)
        for member in ("dwCallingProcessID", "dwShareMode", "dwMQS"):
            request[member] = 0
        request["dwDesiredAccess"] = access
        request["pLicGuid"] = bytes(range(16))
        return self.call(self.qmcomm, request, OPEN_REMOTE_ANSWER)

    def open(self, name: str) -> Peer:
        """Both steps; the session handle."""
        first = self.open_remote(name)
        assert first["ErrorCode"] == 0, hex(first["ErrorCode"])
        self.handle = first["phQueue"]
        request = OPEN()
        request["pLicGuid"] = bytes(range(16))
        request["dwMQS"] = 0
        for member in ("hQueue", "pQueue", "dwpContext"):
            request[member] = self.handle
        second = self.call(self.qm2qm, request, HANDLE_ANSWER)
        assert second["ErrorCode"] == 0
        return second["phContext"]

    def desc(self, desc: Peer, action: int, timeout: int) -> None:
        self.request_id += 1
        desc["hRemoteQueue"] = desc["dwQueue"] = self.handle
        desc["ulAction"] = action
        desc["ulTimeout"] = timeout
        desc["dwRequestID"] = self.request_id
        for member in ("hCursor", "dwSize", "Reserved", "dwArriveTime", "eAckNack"):
            desc[member] = 0
        desc["lpBuffer"] = ndr.NULL

    def start(self, action: int = 0, timeout: int = 0) -> Peer:
        request = START()
        self.desc(request["desc"], action, timeout)
        return self.call(self.qm2qm, request, START_ANSWER)

    def start2(self, action: int = 0, lookup_id: int | None = None) -> Peer:
        request = START2() if lookup_id is None else LOOK_UP()
        if lookup_id is not None:
            request["LookupId"] = lookup_id
        request["desc2"]["SequentialId"] = 0
        self.desc(request["desc2"]["pRemoteReadDesc"], action, 0)
        return self.call(self.qm2qm, request, START2_ANSWER)

    def end(self, context: Peer, ack: int = 2) -> int:
        request = END()
        request["pphContext"] = context
        request["dwAck"] = ack
        answer = self.call(self.qm2qm, request, HANDLE_ANSWER)
        assert answer["phContext"] == bytes(20)
        status: int = answer["ErrorCode"]
        return status


def run(path: Path, test: Callable[[Site], None], *queues: str) -> None:
    """Run a blocking test against a server in this process; its queues are for alice alone."""

    async def main() -> None:
        async with serving(path, authenticates=True) as site:
            site.runtime.users.add(USER, PASSWORD)
            for name in queues:
                site.create(name, QueueAccess.GENERIC_ALL, site.runtime.users.sid(USER))
            await asyncio.to_thread(test, site)

    asyncio.run(main())


def body_of(buffer: Peer) -> bytes:
    from lanner.wire.message import Message

    return bytes(Message(b"".join(buffer)).body)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_a_remote_read_from_end_to_end(tmp_path: Path, level: int) -> None:
    def test(site: Site) -> None:
        name = "q" if level == LEVELS["none"] else "orders"
        large = bytes(range(256)) * 400
        site.send(b"one", large, b"three", queue=name)
        with closing(Client(site.port, level)) as client:
            version = client.call(client.qm2qm, VERSION(), VERSION_ANSWER)
            assert (version["pMajor"], version["pMinor"]) == (6, 1)
            port = PORT()
            port["dwPortType"] = 1
            assert client.call(client.qm2qm, port, STATUS)["ErrorCode"] == site.port
            session = client.open(f"OS:.\\private$\\{name}")
            peeked = client.start(0x80000000)
            assert (peeked["ErrorCode"], peeked["pphContext"]) == (0, bytes(20))
            assert body_of(peeked["desc"]["lpBuffer"]) == b"one"
            first = client.start()
            assert first["ErrorCode"] == 0
            assert first["desc"]["dwSize"] == len(first["desc"]["lpBuffer"])
            assert client.end(first["pphContext"]) == 0
            assert site.count(name) == 2
            second = client.start2()
            desc = second["desc2"]["pRemoteReadDesc"]
            assert body_of(desc["lpBuffer"]) == large
            assert second["desc2"]["SequentialId"] == site.lookup_ids(name)[0] & (1 << 56) - 1
            assert client.end(second["pphContext"], 1) == 0
            third = client.start2(0x40000022, (1 << 64) - 1)
            assert body_of(third["desc2"]["pRemoteReadDesc"]["lpBuffer"]) == b"three"
            assert client.end(third["pphContext"]) == 0
            purge = PURGE()
            purge["hQueue"] = client.handle
            assert client.call(client.qm2qm, purge, STATUS)["ErrorCode"] == 0
            assert site.count(name) == 0
            assert client.start(timeout=5)["ErrorCode"] == MQ_ERROR_IO_TIMEOUT
            close = CLOSE()
            close["pphContext"] = session
            closed = client.call(client.qm2qm, close, HANDLE_ANSWER)
            assert (closed["ErrorCode"], closed["phContext"]) == (0, bytes(20))
            assert len(site.queues) == 0

    run(tmp_path, test, "orders")


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_the_queue_opens_for_whom_it_is(tmp_path: Path, level: int) -> None:
    """The identity of the caller of R_QMOpenRemoteQueue decides."""

    def test(site: Site) -> None:
        site.create("others", QueueAccess.GENERIC_ALL)
        with closing(Client(site.port, level)) as client:
            is_known = level != LEVELS["none"]
            mine = client.open_remote("OS:.\\private$\\orders")["ErrorCode"]
            others = client.open_remote("OS:.\\private$\\others")["ErrorCode"]
            assert (mine, others) == ((0, MQ_ERROR_ACCESS_DENIED) if is_known else (MQ_ERROR_ACCESS_DENIED, 0))

    run(tmp_path, test, "orders")


def test_a_waiting_call_is_cancelled_from_another_connection(tmp_path: Path) -> None:
    def test(site: Site) -> None:
        with closing(Client(site.port, 6)) as client, closing(Client(site.port, 5)) as other:
            client.open("OS:.\\private$\\orders")
            request = START()
            client.desc(request["desc"], 0, 0xFFFFFFFF)
            client.qm2qm.call(request.opnum, request)
            while not list(site.queues.remote_read_entries):
                time.sleep(0.001)
            cancel = CANCEL()
            cancel["hQueue"] = cancel["pQueue"] = client.handle
            cancel["dwRequestID"] = client.request_id
            assert other.call(other.qm2qm, cancel, STATUS)["ErrorCode"] == 0
            assert START_ANSWER(client.qm2qm.recv())["ErrorCode"] == MQ_INFORMATION_REMOTE_CANCELED

    run(tmp_path, test, "orders")


def test_a_client_that_hangs_up_gives_its_message_back(tmp_path: Path) -> None:
    def test(site: Site) -> None:
        site.send(b"one", queue="orders")
        with closing(Client(site.port, 6)) as other:
            other.open("OS:.\\private$\\orders")
            with closing(Client(site.port, 6)) as client:
                client.open("OS:.\\private$\\orders")
                assert client.start()["ErrorCode"] == 0
                assert other.start()["ErrorCode"] == MQ_ERROR_IO_TIMEOUT
            read = other.start(timeout=60_000)
            assert body_of(read["desc"]["lpBuffer"]) == b"one"

    run(tmp_path, test, "orders")
