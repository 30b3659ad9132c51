"""The log of calls: one record for each request and each answer, on client and server.

There is none while it is off.
"""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from lanner.rpc import blocking_client
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.pdu import SyntaxId
from tests.rpc.loops import run
from tests.rpc.served import NOTES, RAW, Notes, served, until
from tests.rpc.serving import ANSWER, ECHO, serving

LOG = "lanner.rpc.call_log"
OPEN = NOTES.by_name["Open"]


def records(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the text of the records without the number of the association, which varies."""
    found = [record for record in caplog.records if record.name == LOG]
    assert all(record.levelno == logging.DEBUG for record in found)
    return [re.sub(r"association 0x[0-9a-f]{8}", "association A", record.getMessage()) for record in found]


def test_a_call_is_logged_on_both_sides_with_names_sizes_peer_and_association(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, LOG)

    ports = []

    async def main() -> None:
        async with served(Notes()) as (server, port), await connect_tcp("127.0.0.1", port) as client:
            ports.append(port)
            bound = await client.bind(NOTES)
            caplog.clear()
            await bound.call(OPEN, text="secret")
            association = f"association {client.assoc_group_id:#010x}"
            assert all(association in record.getMessage() for record in caplog.records if record.name == LOG)
            assert len(server.groups) == 1

    run(main())
    (port,) = ports
    size = len(OPEN.encode_request({"text": "secret"}))
    assert records(caplog) == [
        f"sent request to 127.0.0.1 port {port}, association A, call 2: notes Open, {size} bytes",
        f"received request from 127.0.0.1, association A, call 2: notes Open, {size} bytes",
        "sent response to 127.0.0.1, association A, call 2: notes Open, 24 bytes",
        f"received response from 127.0.0.1 port {port}, association A, call 2: notes Open, 24 bytes",
    ]
    assert "secret" not in caplog.text


def test_a_fault_is_logged_with_its_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOG)

    async def main() -> None:
        async with served(Notes()) as (_, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES)
            caplog.clear()
            with pytest.raises(RpcFault):
                await bound.call(NOTES.by_name["Fail"], status=int(FaultStatus.ACCESS_DENIED))
            with pytest.raises(RpcFault):
                await bound.call_raw(4, b"")

    run(main())
    found = records(caplog)
    assert "sent fault to 127.0.0.1, association A, call 2: notes Fail, ACCESS_DENIED" in found
    assert "received request from 127.0.0.1, association A, call 3: notes opnum 4, 0 bytes" in found
    assert "sent fault to 127.0.0.1, association A, call 3: notes opnum 4, NCA_OP_RNG_ERROR" in found
    assert len(found) == 8


def test_a_request_that_is_refused_before_it_is_a_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOG)

    async def main() -> None:
        async with served(Notes()) as (_, port), await connect_tcp("127.0.0.1", port) as client:
            await client.bind(NOTES)
            client._core._interfaces[77] = RAW.uuid
            with pytest.raises(RpcFault):
                await client.request(77, 0, b"")

    run(main())
    assert "sent fault to 127.0.0.1, association A, call 2: refused request, NCA_UNK_IF" in records(caplog)


def test_an_abandoned_call_leaves_no_name_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOG)

    async def main() -> None:
        notes = Notes()
        async with served(notes) as (server, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES)
            waiting = asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=1))
            await until(lambda: 1 in notes.waiting)
            (connection,) = server._connections
            assert connection._core is not None
            logs = [connection._core._log, client._core._log]
            assert [list(log._names.values()) for log in logs if log is not None] == [["notes Wait"]] * 2
            waiting.cancel()
            await until(lambda: notes.cancelled == [1])
            assert [log._names for log in logs if log is not None] == [{}, {}]

    run(main())


def test_the_blocking_client_logs_the_same_and_an_interface_without_a_declaration_has_its_uuid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, LOG)
    with serving() as server, blocking_client.connect_tcp("127.0.0.1", server.port, timeout=10) as client:
        client.bind_raw(SyntaxId(ECHO.uuid, 1)).call_raw(ANSWER, b"1234")
    found = [text for text in records(caplog) if f"port {server.port}" in text]
    assert found == [
        f"sent request to 127.0.0.1 port {server.port}, association A, call 2: {ECHO.uuid} opnum 0, 4 bytes",
        f"received response from 127.0.0.1 port {server.port}, association A, call 2: {ECHO.uuid} opnum 0, 4 bytes",
    ]


def test_nothing_is_kept_or_made_while_the_log_is_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with served(Notes()) as (server, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES)
            await bound.call(OPEN, text="milk")
            (connection,) = server._connections
            assert connection._core is not None
            assert connection._core._log is None
            assert client._core._log is None

    run(main())
    assert records(caplog) == []
