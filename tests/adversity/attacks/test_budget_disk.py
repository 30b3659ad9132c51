"""A stranger who fills a queue: others still have room, and nothing is lost without a word."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import pytest

import lanner
from lanner.model.enums import DeliveryGuarantee
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from lanner.wire.sid import EVERYONE
from tests.adversity.attacks.limited_service import MIB, PASSWORD, LimitedService, Session1801, add_user, until

QUOTA = 16 * MIB
SETTINGS = (
    f"[quota]\nqueue_manager_kb = {QUOTA // 1024}\nqueue_share = 0.25\npeer_share = 0.5\nstrangers_share = 0.75\n"
)


def fill(service: LimitedService, source: str, queue: str, size: int) -> None:
    """Send so many bytes to a queue in messages of 64 KiB, as far as they are taken."""
    with Session1801(service, source) as stranger:
        to = parse(rf"DIRECT=TCP:{service.address}\private$\{queue}")
        stranger.connection.settimeout(10)
        with contextlib.suppress(OSError):
            for ordinal in range(1, size // 65536 + 1):
                properties = MessageProperties(
                    body=bytes(65000),
                    delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
                    sender_identifier=EVERYONE.pack(),
                )
                sent = int(time.time())
                stranger.connection.sendall(
                    build(properties, source=stranger.guid, ordinal=ordinal, sent_time=sent, destination=to)
                )
                if ordinal % 32 == 0:
                    # The window: go on when it says so.
                    stranger.connection.recv(65536)


def used(service: LimitedService, *queues: str) -> int:
    """Bytes of the bodies that are in queues."""
    with service.manager() as manager:
        return sum(65000 * manager.open(queue).count() for queue in queues)


def test_a_stranger_cannot_fill_the_quota_of_all(tmp_path: Path) -> None:
    with LimitedService(tmp_path, settings=SETTINGS) as service:
        with service.manager() as manager:
            for name in ("a", "b", "c", "d"):
                manager.create_queue(name)
        # One queue has its share.
        fill(service, "127.9.6.1", "a", QUOTA)
        assert QUOTA // 8 < used(service, "a") <= QUOTA // 4
        # One address has its share, whatever it calls itself.
        fill(service, "127.9.6.1", "b", QUOTA)
        fill(service, "127.9.6.1", "c", QUOTA)
        assert QUOTA // 4 < used(service, "a", "b", "c") <= QUOTA // 2
        shown = service.limit("bytes of messages")
        assert shown["greatest_peer"] == "127.9.6.1"
        assert QUOTA // 4 < shown["greatest"] <= shown["per_peer"] == QUOTA // 2
        # All strangers have theirs.
        for last in range(2, 6):
            fill(service, f"127.9.6.{last}", "c", QUOTA)
            fill(service, f"127.9.6.{last}", "d", QUOTA)
        assert used(service, "a", "b", "c", "d") <= QUOTA * 3 // 4
        # Programs of this computer have room.
        with service.manager() as manager:
            manager.open("a").send_many(lanner.Message(body=bytes(65000), recoverable=True) for _ in range(32))
            refused = manager.status()["refused"]
        assert any(one["class"] == "nack_queue_exceed_quota" for one in refused), refused
        service.check()


def test_what_a_peer_has_is_known_after_a_restart_and_when_it_is_received(tmp_path: Path) -> None:
    settings = SETTINGS.replace("queue_share = 0.25", "queue_share = 1.0")
    with LimitedService(tmp_path, settings=settings) as service:
        with service.manager() as manager:
            manager.create_queue("a")
            manager.create_queue("b")
        fill(service, "127.9.6.1", "a", QUOTA)
        before = used(service, "a")
        assert QUOTA // 4 < before <= QUOTA // 2
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(30)
    with LimitedService(tmp_path, settings=settings) as service:
        fill(service, "127.9.6.1", "b", QUOTA)
        assert used(service, "a", "b") <= QUOTA // 2
        with service.manager() as manager:
            manager.open("a").purge()
        fill(service, "127.9.6.1", "b", QUOTA)
        until(lambda: QUOTA // 4 < used(service, "b") <= QUOTA // 2)
        service.check()


def test_a_user_without_rights_makes_no_outgoing_queues_without_end(tmp_path: Path) -> None:
    with LimitedService(tmp_path, settings="[transfer]\nmax_queues_per_user = 3\n") as service:
        for name in ("bob", "carol"):
            add_user(service, name)

        def send(manager: lanner.QueueManager, number: int) -> None:
            manager.open(rf"DIRECT=TCP:127.9.9.{number}\private$\q").send(lanner.Message(body=b"x", recoverable=True))

        with lanner.connect(service.address, "bob", PASSWORD) as bob:
            for number in range(1, 4):
                send(bob, number)
            with pytest.raises(lanner.errors.InsufficientResources, match="max_queues_per_user"):
                send(bob, 4)
            send(bob, 1)
        with lanner.connect(service.address, "carol", PASSWORD) as carol:
            send(carol, 4)
        with service.manager() as root:
            for number in range(5, 10):
                send(root, number)
        service.check()
