from __future__ import annotations

import pytest

from lanner.model.errors import RemoteProtocolError
from lanner.wire.simple_blob import SimpleBlob

BLOB = bytes.fromhex("01020000 10660000 00a40000") + bytes(range(64))


@pytest.mark.spec("QQB-2.4.2-1")
@pytest.mark.parametrize("algorithm", [0x660E, 0x660F, 0x6610, 0x6602, 0x6801])
def test_layout(algorithm: int) -> None:
    data = BLOB[:4] + algorithm.to_bytes(4, "little") + BLOB[8:]
    blob = SimpleBlob(algorithm, bytes(range(64)))
    assert blob.pack() == data
    assert SimpleBlob.unpack(data) == blob


@pytest.mark.spec("QQB-2.4.2-3")
@pytest.mark.parametrize("size", [64, 128, 256])
def test_the_key_is_as_long_as_the_field(size: int) -> None:
    """The figure draws 256 bytes; keys of 512 and 1024 bits make 64 and 128."""
    assert SimpleBlob.unpack(BLOB[:12] + bytes(size)).encrypted_key == bytes(size)


@pytest.mark.parametrize("size", range(12))
def test_fail_when_cut(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        SimpleBlob.unpack(BLOB[:size])


@pytest.mark.parametrize("place", [0, 1, 8, 9, 10, 11])
def test_fail_on_another_constant(place: int) -> None:
    data = bytearray(BLOB)
    data[place] ^= 1
    with pytest.raises(RemoteProtocolError):
        SimpleBlob.unpack(bytes(data))
