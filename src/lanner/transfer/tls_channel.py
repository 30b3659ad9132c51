"""One end of a TLS connection, without its socket: ciphertext in, plaintext out, and the other way round.

The records are OpenSSL's work. The owner passes in what came, sends what `output` returns after
each call, and may read and write plaintext once `handshake` has returned True. TlsError says in
words why a connection is over.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import cast

from lanner.transfer.tls_errors import TlsError, words

# Not in the specification: what is encrypted at once; OpenSSL makes records of 16 KiB of it.
_CHUNK = 256 << 10


class TlsChannel:
    """TLS over two buffers."""

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
        """Return the bytes that are to be sent to the peer; they are handed out once."""
        return self._outgoing.read()

    def handshake(self) -> bool:
        """Go on with the handshake; return whether it is done.

        TlsError if it failed: `output` has the alert for the peer.
        """
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(words(error)) from error
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt what has come until the buffer is full; return the number of bytes, 0 if nothing whole has come."""
        if self._failure is not None:
            raise self._failure
        filled = 0
        try:
            while filled < len(buffer):
                # The stubs do not know that with a buffer it is a number of bytes.
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
            # What came before is genuine; the next call raises.
        return filled

    def write(self, data: Iterable[bytes]) -> None:
        """Encrypt bytes; `output` has them then."""
        whole = memoryview(b"".join(data))
        try:
            for start in range(0, len(whole), _CHUNK):
                self.session.write(whole[start : start + _CHUNK])
        except ssl.SSLError as error:
            raise TlsError(words(error)) from error

    def close(self) -> None:
        """Say goodbye (close_notify); nothing can be written afterwards."""
        try:
            self.session.unwrap()
        except (ssl.SSLError, OSError):
            # The peer's goodbye is not waited for; and before the handshake there is none.
            return
