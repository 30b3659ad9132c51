"""Two sessions without a network between them, on one clock, and packets for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import DeliveryGuarantee
from lanner.transfer.events import Event, SessionOpened
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from lanner.wire.base_header import BaseHeader
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import DirectFormatName, FormatName
from lanner.wire.internal_header import EstablishConnectionHeader, InternalHeader, PacketType, pack_internal
from lanner.wire.reader import Reader
from lanner.wire.session_header import SessionHeader

OURS = UUID("11111111-2222-3333-4444-555555555555")
THEIRS = UUID("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
DIRECT = DirectFormatName(r"TCP:127.0.0.2\private$\orders")
SETTINGS = TransferSettings()
DATA = Path(__file__).parent.parent / "data" / "mqqb_frames.json"
FRAMES = {
    frame["frame"]: bytes.fromhex(frame.get("hex_completed", frame["hex"]))
    for frame in json.loads(DATA.read_text())["frames"]
}


class Clock:
    """A clock that the test advances."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def everybody(_: EstablishConnectionHeader) -> bool:
    return True


def initiator(
    clock: Clock, remote_guid: UUID = GUID_NULL, settings: TransferSettings = SETTINGS, **options: bool
) -> Session:
    return Session.initiate(own_guid=OURS, remote_guid=remote_guid, settings=settings, monotonic=clock, **options)


def acceptor(
    clock: Clock,
    settings: TransferSettings = SETTINGS,
    admit: Callable[[EstablishConnectionHeader], bool] = everybody,
    **options: bool,
) -> Session:
    return Session.accept(own_guid=THEIRS, settings=settings, monotonic=clock, admit=admit, **options)


def out(session: Session) -> bytes:
    return b"".join(session.data_to_send())


@dataclass
class Pair:
    """An initiator and an acceptor with the handshake done."""

    clock: Clock = field(default_factory=Clock)
    settings: TransferSettings = SETTINGS
    their_settings: TransferSettings | None = None
    remote_guid: UUID = GUID_NULL

    def __post_init__(self) -> None:
        self.ours = initiator(self.clock, self.remote_guid, self.settings)
        self.theirs = acceptor(self.clock, self.their_settings or self.settings)
        opened = [event for _ in range(2) for event in self.exchange()]
        assert opened == [SessionOpened(), SessionOpened()]
        assert self.ours.state is self.theirs.state is SessionState.OPEN

    def exchange(self) -> list[Event]:
        """Carry what either has to say to the other, once."""
        events = self.theirs.receive(out(self.ours))
        return events + self.ours.receive(out(self.theirs))

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds


def message(
    body: bytes = b"body",
    *,
    recoverable: bool = False,
    destination: FormatName = DIRECT,
    transaction: int | None = None,
    ordinal: int = 1,
    **properties: Any,  # noqa: ANN401 - any property
) -> bytes:
    return build(
        MessageProperties(
            body=body,
            delivery_guarantee=DeliveryGuarantee.RECOVERABLE if recoverable else DeliveryGuarantee.EXPRESS,
            **properties,
        ),
        source=OURS,
        ordinal=ordinal,
        sent_time=1_700_000_000,
        destination=destination,
        transaction=transaction,
    )


def session_ack(header: SessionHeader) -> bytes:
    return pack_internal(InternalHeader.of(PacketType.SESSION_ACK), header)


def with_session_header(packet: bytes, header: SessionHeader) -> bytes:
    return packet[:2] + bytes((packet[2] | 0x10,)) + packet[3:] + header.pack()


def split(data: bytes) -> list[bytes]:
    """The packets of a stream, each with the SessionHeader that follows it."""
    packets = []
    while data:
        size = BaseHeader.unpack(Reader(data)).stream_size
        packets.append(data[:size])
        data = data[size:]
    return packets


def headers(data: bytes) -> list[SessionHeader]:
    """The SessionHeaders in a stream, alone and behind messages."""
    return [SessionHeader.unpack(Reader(packet, len(packet) - 16)) for packet in split(data) if packet[2] & 0x10]
