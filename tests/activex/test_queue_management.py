"""MSMQQueueManagement (MC-MQAC 3.4, 2.2.4.1): the journal, and who sends transactional messages."""

from __future__ import annotations

from uuid import UUID

import pytest

from lanner.activex.collection import MSMQCollection
from lanner.activex.queue_management import MSMQQueueManagement
from lanner.com.automation.values import MISSING, SafeArray, Variant
from lanner.model.errors import AccessDenied
from lanner.model.live import IncomingTransactionalTransferInfo
from lanner.security.identity import ANONYMOUS
from lanner.wire.propvariant import PropVariant
from lanner.wire.vartypes import VT
from tests.activex.managed import FAR, FarManager
from tests.activex.world import World
from tests.statuses import MQ_ERROR

Q = r"DIRECT=OS:.\private$\q"
SENDER = UUID("00112233-4455-6677-8899-aabbccddeeff")
ANOTHER = UUID("ffeeddcc-bbaa-9988-7766-554433221100")


def managed(world: World, **attributes: object) -> MSMQQueueManagement:
    with world.held() as h:
        h.create("q", **attributes)  # type: ignore[arg-type]  # the test's own choice
        h.open("q")
    found = MSMQQueueManagement(world.environment)
    world.call(found, "init", MISSING, MISSING, Variant(VT.BSTR, Q))
    return found


@pytest.mark.spec("MQAC-3.4.4.1.1-1")
def test_the_journal_is_counted(world: World) -> None:
    found = managed(world, journaling=True)
    assert world.call(found, "get_journal_message_count") == 0
    assert world.call(found, "get_bytes_in_journal") == Variant(VT.UI8, 0)
    with world.held() as h:
        for body in (b"one", b"two", b"three"):
            h.send("q", body)
        assert h.receive("q") == b"one"
        assert h.receive("q") == b"two"
        journal = h.queue("q").journal_queue
        assert journal is not None
        total = journal.total_bytes
    assert world.call(found, "get_journal_message_count") == 2
    assert total
    assert world.call(found, "get_bytes_in_journal") == Variant(VT.UI8, total)


def collections(world: World, variant: Variant) -> list[dict[str, Variant]]:
    """Return the result of EodGetReceiveInfo as plain dictionaries."""
    assert variant.vt == VT.ARRAY | VT.VARIANT
    assert isinstance(variant.value, SafeArray)
    assert (variant.value.vt, len(variant.value.bounds)) == (VT.VARIANT, 1)
    keys = ("QueueFormatName", "SenderID", "SeqID", "SeqNo", "LastAccessTime", "RejectCount")
    found = []
    for element in variant.value.elements:
        assert isinstance(element, Variant)
        assert element.vt == VT.DISPATCH
        assert isinstance(element.value, MSMQCollection)
        assert world.call(element.value, "get_count") == len(keys)
        found.append({key: world.call(element.value, "item", Variant(VT.BSTR, key)) for key in keys})
    return found


@pytest.mark.spec("MQAC-2.2.4.1-1", "MQAC-3.4.4.1.3-1")
def test_each_sender_has_a_collection(world: World) -> None:
    found = managed(world, transactional=True)
    assert collections(world, world.call(found, "eod_get_receive_info")) == []
    with world.held() as h:
        queue = h.queue("q")
        for sender, sequence, number in ((SENDER, 0xFFFF_FFFE_0000_0001, 0xFFFF_FFFF), (ANOTHER, 5, 2)):
            queue.incoming_transactional_transfer_info[sender, Q] = IncomingTransactionalTransferInfo(
                queue, Q, sender, sequence, number, last_access_time=1_700_000_000, reject_count=3
            )
    first, second = collections(world, world.call(found, "eod_get_receive_info"))
    assert first == {
        "QueueFormatName": Variant(VT.BSTR, Q),
        "SenderID": Variant(VT.BSTR, "{00112233-4455-6677-8899-AABBCCDDEEFF}"),
        "SeqID": Variant(VT.UI8, 0xFFFF_FFFE_0000_0001),
        "SeqNo": Variant(VT.I4, -1),
        "LastAccessTime": Variant(VT.I4, 1_700_000_000),
        "RejectCount": Variant(VT.I4, 3),
    }
    assert second["SenderID"] == Variant(VT.BSTR, f"{{{ANOTHER}}}".upper())
    assert (second["SeqID"], second["SeqNo"]) == (Variant(VT.UI8, 5), Variant(VT.I4, 2))


@pytest.mark.spec("MQAC-3.3.4.1.4-2")
@pytest.mark.parametrize("member", ["get_journal_message_count", "get_bytes_in_journal", "eod_get_receive_info"])
def test_what_fails_is_reported(world: World, member: str) -> None:
    assert world.status(managed(world), member, by=ANONYMOUS) == AccessDenied.status


@pytest.mark.parametrize(
    "told",
    [
        (PropVariant.vector(VT.LPWSTR, ["q"]),),
        tuple(PropVariant(VT.UI4, 1) for _ in range(6)),
        (
            PropVariant.vector(VT.LPWSTR, ["q"]),
            PropVariant.vector(VT.CLSID, [SENDER, ANOTHER]),
            PropVariant.vector(VT.UI8, [1]),
            PropVariant.vector(VT.UI4, [1]),
            PropVariant.vector(VT.I4, [1]),
            PropVariant.vector(VT.UI4, [1]),
        ),
    ],
)
def test_another_computer_may_tell_nonsense(world: World, told: object) -> None:
    FarManager(world, EOD_SOURCE_INFO=told)  # type: ignore[arg-type]  # whatever it tells
    found = MSMQQueueManagement(world.environment)
    world.call(found, "init", Variant(VT.BSTR, FAR), MISSING, Variant(VT.BSTR, Q))
    assert world.status(found, "eod_get_receive_info") == MQ_ERROR


def test_a_queue_elsewhere_without_senders_has_no_collections(world: World) -> None:
    FarManager(world)
    found = MSMQQueueManagement(world.environment)
    world.call(found, "init", Variant(VT.BSTR, FAR), MISSING, Variant(VT.BSTR, Q))
    assert collections(world, world.call(found, "eod_get_receive_info")) == []
