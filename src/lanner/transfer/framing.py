"""Framing: cutting a stream into packets (MS-MQQB 2.1.1, 3.1.5.1.2; MS-MQMQ 2.2.19.1).

Version, signature and size are checked as soon as a packet's BaseHeader is complete, before any of
the packet is kept. So no peer can make this end buffer more than the largest legal packet, and no
peer can make it buffer more than a handshake packet before the handshake is done.
"""

from __future__ import annotations

from collections.abc import Iterator

from lanner.model.errors import RemoteProtocolError
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire.base_header import BaseHeader
from lanner.wire.packet_runs import Shape, equal_packets
from lanner.wire.reader import Reader

# MS-MQQB 2.2.2, 2.2.3, 2.2.6: the only sizes of packets with IN set.
CONNECTION_PARAMETERS_SIZE = 32
SESSION_ACK_SIZE = 36
ESTABLISH_CONNECTION_SIZE = 572
_INTERNAL_SIZES = frozenset((CONNECTION_PARAMETERS_SIZE, SESSION_ACK_SIZE, ESTABLISH_CONNECTION_SIZE))


class PacketStream:
    """The byte stream of one connection.

    The session sets two attributes. While `user_messages_allowed` is false, UserMessages are
    rejected by their first bytes. `shape` is the shape of a validated UserMessage, which others may
    equal.
    """

    __slots__ = ("_cut", "shape", "user_messages_allowed")

    def __init__(self) -> None:
        self._cut = bytearray()  # the beginning of a packet that is not complete
        self.user_messages_allowed = False
        self.shape: Shape | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the stream ends within a packet."""
        return bool(self._cut)

    @property
    def unfinished(self) -> int:
        """Bytes of an incomplete packet."""
        return len(self._cut)

    def end(self) -> None:
        """Discard the bytes of an incomplete packet."""
        self._cut.clear()

    def runs(self, data: bytes | bytearray | memoryview) -> Iterator[tuple[list[bytes], bool]]:
        """Yield the packets that `data` completes, as (packets, whether they have the shape).

        Packets of another shape come one at a time, each with the SessionHeader that follows it.
        The attributes above are read anew for each run. Raises RemoteProtocolError for a bad
        header; the stream is unusable after that.
        """
        view = memoryview(data)
        end = len(view)
        position = 0
        if self._cut:
            packet, position = self._complete(view)
            if packet:
                yield [packet], bool(self._equal(packet, 0)[0])
        while end - position >= at.BASE_HEADER_SIZE:
            packets, position = self._equal(view, position)
            if packets:
                yield packets, True
                continue
            version, flags, signature, size = fields.base_header(view, position)
            # The common packets are checked here: a UserMessage without SessionHeader, and an
            # internal packet.
            is_common = (
                version == at.VERSION_NUMBER
                and signature == at.SIGNATURE
                and (
                    size in _INTERNAL_SIZES
                    if flags & at.IN
                    else not flags & at.BASE_SH
                    and self.user_messages_allowed
                    and at.MINIMUM_SIZE <= size <= at.MAX_PACKET_SIZE
                )
            )
            if not is_common:
                size = self._stream_size(view[position : position + at.BASE_HEADER_SIZE].tobytes())
            if size > end - position:
                break
            yield [view[position : position + size].tobytes()], False
            position += size
        if position < end:
            self._cut += view[position:]

    def _equal(self, data: bytes | memoryview, position: int) -> tuple[list[bytes], int]:
        """Return the packets at a position that have the shape, and the position after them."""
        if self.shape is None or not self.user_messages_allowed:
            return [], position
        return equal_packets(data, position, *self.shape)

    def _complete(self, view: memoryview) -> tuple[bytes, int]:
        """Return the packet that was incomplete, and how many bytes of the view it took.

        The packet is empty if it is still incomplete.
        """
        cut = self._cut
        position = 0
        if len(cut) < at.BASE_HEADER_SIZE:
            position = min(at.BASE_HEADER_SIZE - len(cut), len(view))
            cut += view[:position]
            if len(cut) < at.BASE_HEADER_SIZE:
                return b"", position
        missing = self._stream_size(bytes(cut[: at.BASE_HEADER_SIZE])) - len(cut)
        taken = min(missing, len(view) - position)
        cut += view[position : position + taken]
        packet = b""
        if taken == missing:
            packet = bytes(cut)
            cut.clear()
        return packet, position + taken

    def _stream_size(self, header: bytes) -> int:
        """Return how many bytes of the stream the packet with this BaseHeader takes."""
        base = BaseHeader.unpack(Reader(header))
        if base.is_internal:
            if base.packet_size not in _INTERNAL_SIZES:
                raise RemoteProtocolError(
                    f"BaseHeader.PacketSize: {base.packet_size} of an internal packet is not 32, 36 or 572"
                )
        elif not self.user_messages_allowed:
            raise RemoteProtocolError("UserMessage: the session is not OPEN")
        elif base.packet_size < at.MINIMUM_SIZE:
            raise RemoteProtocolError(
                f"BaseHeader.PacketSize: {base.packet_size} of a UserMessage is below {at.MINIMUM_SIZE}"
            )
        return base.stream_size
