"""Checks of the messages that a client sends to gRPC, made while their octets pass.

Arrow's server accepts messages of any length, decompresses them, and reads a whole message before
authentication. pyarrow has no setting for that. So this module parses the frames of HTTP/2 on the
way (RFC 9113 6.1; gRPC over HTTP/2): a message that is too long or compressed ends the connection,
and unfinished messages are counted.

It reads only frames with data, and decodes no HTTP header.
"""

from __future__ import annotations

import struct
from typing import Final

from lanner.spark.flight.arrow_headers import Fields, MessageRefused

_PREFACE_SIZE: Final = 24
_FRAME_HEADER: Final = 9
_DATA, _RST_STREAM = 0, 3
_END_STREAM, _PADDED = 0x1, 0x8
_MAX_STREAM: Final = 0x7FFF_FFFF
# Compressed flag and length: the prefix of a gRPC message.
_prefix = struct.Struct(">BI")
# Not in the specification: unfinished messages of one connection.
_MAX_MESSAGES: Final = 1000


class _Message:
    """A message that has arrived in part."""

    __slots__ = ("came", "fields", "head", "left")

    def __init__(self) -> None:
        self.head = b""
        self.left = 0
        self.came = 0
        self.fields: Fields | None = None


class Messages:
    """The messages of one client, from the HTTP/2 preface on. Errors raise MessageRefused."""

    def __init__(self, limit: int) -> None:
        """Refuse messages of more than `limit` octets."""
        self._limit = limit
        # Octets of unfinished messages.
        self.unfinished = 0
        self._skipped = _PREFACE_SIZE
        self._head = b""
        self._kind = self._flags = self._stream = 0
        # Octets of the current frame that have not arrived, and of the padding at its end.
        self._left = self._padding = 0
        self._is_padding_next = False
        # By stream number.
        self._messages: dict[int, _Message] = {}

    def take(self, data: memoryview) -> None:
        at, end = 0, len(data)
        while at < end:
            if self._skipped:
                step = min(self._skipped, end - at)
                self._skipped -= step
                at += step
            elif self._left:
                step = min(self._left, end - at)
                self._payload(data[at : at + step])
                at += step
            else:
                step = min(_FRAME_HEADER - len(self._head), end - at)
                self._head += data[at : at + step]
                at += step
                if len(self._head) == _FRAME_HEADER:
                    self._begin_frame()

    def _begin_frame(self) -> None:
        head, self._head = self._head, b""
        self._left = int.from_bytes(head[:3], "big")
        self._kind, self._flags = head[3], head[4]
        self._stream = int.from_bytes(head[5:], "big") & _MAX_STREAM
        self._padding = 0
        if self._kind == _RST_STREAM:
            self._end_stream()
        elif self._kind == _DATA:
            self._is_padding_next = bool(self._flags & _PADDED)
            if not self._left:
                self._end_frame()
        if self._kind != _DATA:
            self._skipped, self._left = self._left, 0

    def _payload(self, part: memoryview) -> None:
        self._left -= len(part)
        if self._is_padding_next:
            self._is_padding_next = False
            self._padding = part[0]
            if self._padding > self._left + len(part) - 1:
                raise MessageRefused("a frame has more padding than octets")
            part = part[1:]
        # The padding is at the end of the frame.
        self._octets(part[: max(len(part) - max(self._padding - self._left, 0), 0)])
        if not self._left:
            self._end_frame()

    def _end_frame(self) -> None:
        if self._flags & _END_STREAM:
            self._end_stream()

    def _end_stream(self) -> None:
        message = self._messages.pop(self._stream, None)
        if message is not None:
            self.unfinished -= message.came

    def _octets(self, part: memoryview) -> None:
        """Handle octets of the messages of a stream."""
        messages, stream = self._messages, self._stream
        while part:
            message = messages.get(stream)
            if message is None:
                if len(messages) >= _MAX_MESSAGES:
                    raise MessageRefused(f"{_MAX_MESSAGES} messages at a time")
                message = messages[stream] = _Message()
            if message.fields is None:
                step = min(_prefix.size - len(message.head), len(part))
                message.head += part[:step]
                if len(message.head) == _prefix.size:
                    self._begin_message(message)
            else:
                step = min(message.left, len(part))
                message.fields.take(part[:step])
                message.left -= step
            message.came += step
            self.unfinished += step
            part = part[step:]
            if message.fields is not None and not message.left:
                del messages[stream]
                self.unfinished -= message.came

    def _begin_message(self, message: _Message) -> None:
        flag, size = _prefix.unpack(message.head)
        if flag:
            raise MessageRefused("a message is compressed by gRPC: send it without compression")
        if size > self._limit:
            raise MessageRefused(f"a message of {size} octets, at most {self._limit}: send smaller batches")
        message.left = size
        message.fields = Fields(size)
