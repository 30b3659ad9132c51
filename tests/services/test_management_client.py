"""Lanner's own client of qmmgmt (MS-MQMR 3.2.4).

The peers are Lanner's server and one that answers as the test prescribes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.errors import StatusError
from lanner.rpc import async_client
from lanner.rpc.blocking_client import BoundInterface, connect_tcp
from lanner.rpc.ndr import BadStub, Value
from lanner.rpc.pdu import NDR20, SyntaxId
from lanner.rpc.server import RpcServer
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO
from lanner.services.management_client import (
    action_arguments,
    check_status,
    get_info_arguments,
    get_info_values,
    management_object,
)
from lanner.wire.format_name import parse
from lanner.wire.property_ids import ManagementMachineProperty as Machine
from lanner.wire.property_ids import ManagementQueueProperty as Property
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.vartypes import VT
from tests.rpc.raw_interface import RawInterface
from tests.services.managed import MACHINE, Managed, managed, queue_object
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_QUEUE_NOT_FOUND, MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL

Q = r"DIRECT=OS:.\private$\q"
REMOTE = r"DIRECT=OS:BETA\private$\far"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Managed]:
    with managed(tmp_path / "data") as manager:
        yield manager


@pytest.fixture
def bound(manager: Managed) -> Iterator[BoundInterface]:
    with manager.unlocked():
        client = connect_tcp("127.0.0.1", manager.port, timeout=30)
        interface = client.bind(QMMGMT)
    yield interface
    client.close()


def test_objects() -> None:
    assert management_object(None) == MACHINE
    assert management_object(parse(REMOTE)) == queue_object(REMOTE)


def test_a_client_asks_and_acts(manager: Managed, bound: BoundInterface) -> None:
    manager.h.create("q")
    manager.h.send(REMOTE)
    with manager.unlocked():
        asked = get_info_arguments(parse(Q), [Property.PATHNAME, Property.MESSAGE_COUNT, Property.NEXTHOPS])
        values = get_info_values(bound.call(R_QM_MGMT_GET_INFO, **asked))
        assert values == (PropVariant(VT.LPWSTR, r"ALPHA\private$\q"), PropVariant(VT.UI4, 0), NULL)
        check_status(bound.call(R_QM_MGMT_ACTION, **action_arguments(parse(REMOTE), "PAUSE")))
        asked = get_info_arguments(parse(REMOTE), [Property.STATE])
        assert get_info_values(bound.call(R_QM_MGMT_GET_INFO, **asked)) == (PropVariant(VT.LPWSTR, "ONHOLD"),)
        check_status(bound.call(R_QM_MGMT_ACTION, **action_arguments(None, "DISCONNECT")))
    assert not manager.h.engine.queue_manager.connection_active


def test_many_calls_at_once_on_one_connection(manager: Managed) -> None:
    manager.h.create("q")

    async def ask() -> list[dict[str, Value]]:
        async with await async_client.connect_tcp("127.0.0.1", manager.port) as client:
            bound = await client.bind(QMMGMT)
            asked = get_info_arguments(parse(Q), [Property.MESSAGE_COUNT])
            act = action_arguments(None, "TIDY")
            calls = [bound.call(R_QM_MGMT_GET_INFO, **asked), bound.call(R_QM_MGMT_ACTION, **act)] * 1
            calls += [bound.call(R_QM_MGMT_GET_INFO, **asked) for _ in range(50)]
            return await asyncio.gather(*calls)

    with manager.unlocked():
        answers = asyncio.run(ask())
    assert [answer["returns"] for answer in answers] == [0] * 52


def test_a_failure_is_an_exception(manager: Managed, bound: BoundInterface) -> None:
    with manager.unlocked():
        results = bound.call(R_QM_MGMT_GET_INFO, **get_info_arguments(parse(Q), [Property.STATE]))
        with pytest.raises(StatusError) as refused:
            get_info_values(results)
        assert refused.value.status == MQ_ERROR_QUEUE_NOT_FOUND


class Other:
    """A foreign server that answers every call with the same octets."""

    def __init__(self, manager: Managed) -> None:
        self._manager = manager
        self.answer = b""
        syntax = SyntaxId(QMMGMT.uuid, 1)
        handlers = dict.fromkeys((0, 1), lambda _: self.answer)
        self._server = RpcServer([RawInterface(syntax, handlers, transfer_syntaxes=(NDR20,))])
        self.port = manager.run(self._server.listen_tcp("127.0.0.1", 0))

    def close(self) -> None:
        self._manager.run(self._server.stop())


@pytest.fixture
def other(manager: Managed) -> Iterator[Other]:
    server = Other(manager)
    yield server
    server.close()


@pytest.mark.spec("MQMR-3.2.4-1")
def test_codes_and_values_are_passed_on_as_they_came(manager: Managed, other: Other) -> None:
    asked = get_info_arguments(None, [Machine.CONNECTED, Machine.TYPE])
    # Of types and with texts that no document has for these properties.
    strange = (PropVariant(VT.UI8, 7), PropVariant(VT.LPWSTR, "whatever it says"))
    with manager.unlocked(), connect_tcp("127.0.0.1", other.port, timeout=30) as client:
        bound = client.bind(QMMGMT)
        for status in (0, 1, MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL):
            other.answer = R_QM_MGMT_GET_INFO.encode_response({"ap_var": strange, "returns": status}, asked)
            results = bound.call(R_QM_MGMT_GET_INFO, **asked)
            assert results["returns"] == status
            assert get_info_values(results) == strange
        for status in (MQ_ERROR_ACCESS_DENIED, 0x80070005, 0xFFFFFFFF):
            # Whatever stands in the out values of a failure is not told.
            other.answer = R_QM_MGMT_GET_INFO.encode_response({"ap_var": strange, "returns": status}, asked)
            with pytest.raises(StatusError) as refused:
                get_info_values(bound.call(R_QM_MGMT_GET_INFO, **asked))
            assert refused.value.status == status
            other.answer = status.to_bytes(4, "little")
            with pytest.raises(StatusError) as refused:
                check_status(bound.call(R_QM_MGMT_ACTION, **action_arguments(None, "TIDY")))
            assert refused.value.status == status


@pytest.mark.spec("MQMR-3.2.4-2")
def test_an_answer_that_breaks_the_declaration_ends_the_call_and_not_the_connection(
    manager: Managed, other: Other
) -> None:
    asked = get_info_arguments(None, [Machine.TYPE])
    good = R_QM_MGMT_GET_INFO.encode_response({"ap_var": (PropVariant(VT.BLOB, b"abcd"),), "returns": 0}, asked)
    # Four octets at NULL; too short; too long; another count; another tag.
    bad = [
        good[:24] + bytes(4) + good[36:],
        good[:-1],
        good + bytes(16),
        b"\2" + good[1:],
        good[:16] + b"\x13" + good[17:],
    ]
    with manager.unlocked(), connect_tcp("127.0.0.1", other.port, timeout=30) as client:
        bound = client.bind(QMMGMT)
        for other.answer in bad:
            with pytest.raises(BadStub) as refused:
                bound.call(R_QM_MGMT_GET_INFO, **asked)
            assert refused.value.status == 0x6F7
        other.answer = good
        assert get_info_values(bound.call(R_QM_MGMT_GET_INFO, **asked)) == (PropVariant(VT.BLOB, b"abcd"),)
