"""A peer that knows the handshake and then says, or does not say, what it likes."""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from typing import Any, Self

from lanner.model.enums import DeliveryGuarantee
from lanner.transfer.events import UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.sid import EVERYONE
from tests.adversity.network import PORT

GUID = uuid.UUID("5717a4e0-0000-4000-8000-000000000001")
_PATIENCE = 20.0  # seconds


class Stranger:
    """One connection and, once `open` has been called, a session."""

    def __init__(self, connection: socket.socket, session: Session) -> None:
        self.connection = connection
        self.session = session
        self.received: list[bytes] = []
        connection.settimeout(_PATIENCE)

    @classmethod
    def connect(
        cls, source: str, target: str, settings: TransferSettings | None = None, *, guid: uuid.UUID = GUID
    ) -> Self:
        connection = socket.create_connection((target, PORT), _PATIENCE, source_address=(source, 0))
        session = Session.initiate(own_guid=guid, settings=settings or TransferSettings(), monotonic=time.monotonic)
        return cls(connection, session)

    @classmethod
    def accept(
        cls, listening: socket.socket, settings: TransferSettings | None = None, *, guid: uuid.UUID = GUID
    ) -> Self:
        """Wait for the other side to come."""
        listening.settimeout(_PATIENCE)
        connection, _ = listening.accept()
        session = Session.accept(
            own_guid=guid, settings=settings or TransferSettings(), monotonic=time.monotonic, admit=lambda _: True
        )
        return cls(connection, session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def open(self) -> Self:
        """Do the handshake, as either side."""
        self.flush()
        while self.session.state is not SessionState.OPEN:
            self.listen()
        return self

    def flush(self) -> None:
        self.connection.sendall(b"".join(self.session.data_to_send()))

    def listen(self) -> None:
        """Read what has arrived, and answer it."""
        data = self.connection.recv(1 << 16)
        assert data, f"the connection has ended, state {self.session.state}"
        events = self.session.receive(data)
        arrived = [event for event in events if isinstance(event, UserMessagesReceived)]
        self.received += [packet for event in arrived for packet in event.packets]
        if arrived:
            self.session.allow_acknowledgment(arrived[-1].last_number)
        self.flush()

    def say(self, data: bytes) -> None:
        """Whatever it is; the other side may have ended the connection already."""
        with contextlib.suppress(ConnectionError):
            self.connection.sendall(data)

    def wait_for_end(self) -> None:
        """Until the other side ends the connection."""
        with contextlib.suppress(ConnectionError):
            while self.connection.recv(1 << 16):
                pass


def message(
    to: str,
    body: bytes = b"from a stranger",
    *,
    ordinal: int = 1,
    recoverable: bool = True,
    source: uuid.UUID = GUID,
    sequence: TxSequenceID | None = None,
    number: int = 1,
    **properties: Any,  # noqa: ANN401 (of MessageProperties)
) -> bytes:
    """A UserMessage without fault; with a sequence it is transactional."""
    mode = DeliveryGuarantee.RECOVERABLE if recoverable else DeliveryGuarantee.EXPRESS
    content = MessageProperties(
        body=body, label="stranger", delivery_guarantee=mode, sender_identifier=EVERYONE.pack(), **properties
    )
    if sequence is not None:
        content.transactional_message_sequence_identifier = sequence
        content.transaction_sequence_number = number
        content.transaction_previous_sequence_number = number - 1
    return build(
        content,
        source=source,
        ordinal=ordinal,
        sent_time=int(time.time()),
        destination=parse(to),
        transaction=None if sequence is None else 7,
    )
