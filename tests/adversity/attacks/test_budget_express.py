"""A peer that fills the memory with express messages.

The peer has to wait, other senders continue, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

import lanner
from lanner import errors
from lanner.model.enums import DeliveryGuarantee
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from lanner.wire.sid import EVERYONE
from tests.adversity.attacks.limited_service import MIB, LimitedService, Session1801, until

LIMIT = 32 * MIB
COUNT = 48
# Without shares: this is about what happens when there is no memory left.
SETTINGS = "[quota]\nexpress_mb = 32\npeer_share = 1.0\nstrangers_share = 1.0\n"
RESOURCE = "bytes of express messages in memory"


def packets(service: LimitedService, stranger: Session1801, queue: str, mode: DeliveryGuarantee, count: int) -> bytes:
    """Messages of a mebibyte each."""
    to = parse(rf"DIRECT=TCP:{service.address}\private$\{queue}")
    properties = MessageProperties(body=bytes(MIB), delivery_guarantee=mode, sender_identifier=EVERYONE.pack())
    sent = int(time.time())
    return b"".join(
        build(properties, source=stranger.guid, ordinal=ordinal, sent_time=sent, destination=to)
        for ordinal in range(1, count + 1)
    )


def test_express_messages_of_a_peer_wait_and_stop_nobody_else(tmp_path: Path) -> None:
    with LimitedService(tmp_path, settings=SETTINGS) as service, service.manager() as manager:
        flooded, kept = manager.create_queue("flooded"), manager.create_queue("kept")
        with Session1801(service, "127.9.7.1") as stranger, Session1801(service, "127.9.7.2") as other:
            everything = packets(service, stranger, "flooded", DeliveryGuarantee.EXPRESS, COUNT)
            flood = threading.Thread(target=stranger.connection.sendall, args=(everything,))
            flood.start()
            until(lambda: service.limit(RESOURCE)["refused"] > 0)
            shown = service.limit(RESOURCE)
            assert LIMIT - 2 * MIB < shown["used"] <= shown["limit"] == LIMIT
            assert flooded.count() == 31
            # Recoverable messages come and go, of peers and of programs here.
            other.connection.sendall(packets(service, other, "kept", DeliveryGuarantee.RECOVERABLE, 2))
            until(lambda: kept.count() == 2)
            kept.send(lanner.Message(body=b"mine", recoverable=True))
            with pytest.raises(errors.InsufficientResources, match="messages of other computers wait for it"):
                kept.send(b"express")
            # All of them arrive on the same session once there is a reader.
            for _ in range(COUNT):
                assert len(flooded.receive(30).body) == MIB
            flood.join(30)
            assert not flood.is_alive()
            until(lambda: service.limit(RESOURCE)["used"] == 0)
            kept.send(b"express")
        assert "flow control is on for express messages" in service.log.read_text()


def test_one_stranger_leaves_memory_to_the_others(tmp_path: Path) -> None:
    """A peer has a share of the memory, as it has of the quota, and its session ends.

    Local programs and other computers continue to send express messages.
    """
    with (
        LimitedService(tmp_path, settings="[quota]\nexpress_mb = 32\n") as service,
        service.manager() as manager,
    ):
        flooded, kept = manager.create_queue("flooded"), manager.create_queue("kept")
        with Session1801(service, "127.9.7.1") as stranger, Session1801(service, "127.9.7.2") as other:
            with contextlib.suppress(OSError):
                stranger.connection.sendall(packets(service, stranger, "flooded", DeliveryGuarantee.EXPRESS, COUNT))
            until(lambda: flooded.count() == 15)
            other.connection.sendall(packets(service, other, "kept", DeliveryGuarantee.EXPRESS, 2))
            until(lambda: kept.count() == 2)
            kept.send(b"express")
        until(lambda: "quota.peer_share" in service.log.read_text())
        assert "flow control is on" not in service.log.read_text()
        assert flooded.count() == 15
