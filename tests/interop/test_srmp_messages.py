"""Messages that came to another queue manager over HTTP, read by MS-MQRR.

The queue manager is scapy's RPC server with octets from the documents, because Lanner itself takes
no message over HTTP.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from lanner.client._async.mqrr_reader import MqrrReader
from lanner.client.remote_message import RemoteMessage, from_remote_read
from lanner.client.target import Target
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.ndr import Syntax
from lanner.wire.format_name import parse
from tests.interop.peers import ROOT
from tests.wire.srmp_packet import ABORTS, BODY, COMPOUND_MESSAGE, ENVELOPE, LABEL, SOAP

CLIENT_ID = uuid.UUID("7d9a1f00-0000-4000-8000-00000000c11e")
RR_NACK, RR_ACK = 1, 2
MQ_ACTION_RECEIVE, UNLIMITED = 0, 0xFFFF_FFFF
# A first section of the queues "cut" and "padded" ends in the middle of the body.
CAME = 8
READ = ["read", MQ_ACTION_RECEIVE, UNLIMITED]


class Foreign:
    """The server, in a process of its own."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        command = [sys.executable, "-W", "ignore", "-m", "tests.interop.scapy_srmp_server"]
        command.append("ndr64" if syntax is Syntax.NDR64 else "ndr")
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        (self._port,) = self._line()

    def _line(self) -> list[Any]:
        assert self.process.stdout is not None
        line: list[Any] = json.loads(self.process.stdout.readline())
        return line

    def receive(self, queue: str) -> RemoteMessage:
        return asyncio.run(self._receive(queue))

    async def _receive(self, queue: str) -> RemoteMessage:
        target = Target("127.0.0.1", port=self._port)
        async with await MqrrReader.connect(target, client_id=CLIENT_ID, syntaxes=(self._syntax,)) as reader:
            opened = await reader.open(parse(rf"DIRECT=OS:.\private$\{queue}"))
            try:
                return await opened.receive(0)
            finally:
                await opened.close()

    def got(self) -> list[list[Any]]:
        """Return the reads and acknowledgments before the queue was closed."""
        lines = [self._line()]
        while lines[-1] != ["close"]:
            lines.append(self._line())
        return lines[:-1]


@pytest.fixture(scope="module", params=[Syntax.NDR20, Syntax.NDR64])
def foreign(request: pytest.FixtureRequest) -> Iterator[Foreign]:
    if importlib.util.find_spec("msrpcs") is None:
        pytest.skip("scapy-rpc is not installed")
    server = Foreign(request.param)
    yield server
    with server.process as process:
        process.communicate(timeout=30)


@pytest.mark.spec("MQRR-2.2.5.1.2.1-1")
@pytest.mark.spec("MQRR-2.2.5.1.2.1-2")
@pytest.mark.spec("MQRR-2.2.5.1.2.1-3")
@pytest.mark.spec("MQRR-2.2.5.1.2.2-1")
@pytest.mark.spec("MQRR-2.2.5.1.2.2-2")
@pytest.mark.spec("MQRR-2.2.5.1.2.2-3")
@pytest.mark.spec("MQRR-2.2.5.1.2.2-4")
def test_a_message_over_http_is_read(foreign: Foreign) -> None:
    message = from_remote_read(foreign.receive("whole"))
    assert foreign.got() == [READ, ["end", RR_ACK]]
    assert message.soap_envelope == ENVELOPE
    assert message.soap_compound_message == COMPOUND_MESSAGE
    assert message.body == BODY
    assert (message.label, message.app_specific, message.abort_count) == (LABEL, 9, ABORTS)
    assert message.lookup_id == (7 - message.priority << 56) + 42
    copy = message.copy()
    assert (copy.body, copy.label) == (BODY, LABEL)


@pytest.mark.spec("MQRR-2.2.7-4")
@pytest.mark.spec("MQRR-2.2.7-5")
@pytest.mark.parametrize("queue", ["cut", "padded"])
def test_a_message_over_http_in_two_sections(foreign: Foreign, queue: str) -> None:
    got = foreign.receive(queue)
    assert foreign.got() == [READ, ["end", RR_ACK]]
    assert got.body == BODY[:CAME]
    message = got.message
    assert (message.body_size, message.label) == (len(BODY), LABEL)
    assert message.soap_envelope == ENVELOPE
    # What the second section has.
    assert (message.soap_header, message.soap_body) == SOAP
    assert from_remote_read(got).abort_count == ABORTS


@pytest.mark.spec("MQRR-2.2.7-4")
@pytest.mark.spec("MQRR-2.2.7-5")
@pytest.mark.parametrize("queue", ["long", "short", "mixed", "binary"])
def test_sections_that_end_elsewhere_are_given_back(foreign: Foreign, queue: str) -> None:
    with pytest.raises(RemoteProtocolError, match="Section"):
        foreign.receive(queue)
    assert foreign.got() == [READ, ["end", RR_NACK]]
