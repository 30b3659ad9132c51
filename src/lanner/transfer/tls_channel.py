"""One end of a TLS connection, without its socket: it converts ciphertext and plaintext.

OpenSSL does the work. The owner passes in received bytes, sends what `output` returns after each
call, and may read and write plaintext once `handshake` has returned True. The text of a TlsError
tells why a connection has ended.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import cast

from lanner.transfer.tls_errors import TlsError, words

# Not in the specification: bytes encrypted at once. OpenSSL makes records of 16 KiB of them.
_CHUNK = 256 << 10


class TlsChannel:
    """TLS over two memory buffers."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.session = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self.is_ended = False  # the peer has sent its last byte
        self._failure: TlsError | None = None

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes of the connection."""
        self._incoming.write(data)

    def output(self) -> bytes:
        """Return the bytes to send to the peer. They are returned once."""
        return self._outgoing.read()

    def handshake(self) -> bool:
        """Continue the handshake; return whether it is done.

        Raises TlsError if it failed; `output` then has the alert for the peer.
        """
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(words(error)) from error
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt received data until the buffer is full; return the number of bytes.

        It is 0 if there is no complete record.
        """
        if self._failure is not None:
            raise self._failure
        filled = 0
        try:
            while filled < len(buffer):
                # The stubs do not declare that the result is a number of bytes if a buffer is
                # passed.
                count = cast("int", self.session.read(len(buffer) - filled, cast("bytearray", buffer[filled:])))
                if not count:
                    self.is_ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            self._failure = TlsError(words(error))
            if not filled:
                raise self._failure from error
            # The data before it are genuine; the next call raises.
        return filled

    def write(self, data: Iterable[bytes]) -> None:
        """Encrypt data; `output` then has the result."""
        whole = memoryview(b"".join(data))
        try:
            for start in range(0, len(whole), _CHUNK):
                self.session.write(whole[start : start + _CHUNK])
        except ssl.SSLError as error:
            raise TlsError(words(error)) from error

    def close(self) -> None:
        """Send close_notify. Nothing can be written afterwards."""
        try:
            self.session.unwrap()
        except (ssl.SSLError, OSError):
            # The peer's close_notify is not awaited; before the handshake there is none.
            return
