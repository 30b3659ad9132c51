"""Opening a queue from another computer, the two phases of a receive, and closing.

MS-MQQP 3.1.4.1 to 3.1.4.4, MS-MQMP 3.1.4.2.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanner.directory import EmbeddedDirectory
from lanner.model.enums import DirectoryOperationResult, RemoteReadState
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.rpc.pdu import AuthLevel
from lanner.security.access_masks import QueueAccess
from lanner.services.interfaces import mqmp, mqqp
from lanner.services.interfaces.mqmp import QMCOMM, CACCreateRemoteCursor, CACTransferBufferV1
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE
from lanner.wire.message import Message
from tests.services.remote_read_peer import CLIENT_ID, Fault, Read, Site, served, serving
from tests.services.site import ADDRESS, until
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_OPERATION,
    MQ_ERROR_INSUFFICIENT_RESOURCES,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
    NCA_FAULT_CONTEXT_MISMATCH,
    STATUS_INVALID_PARAMETER,
    STATUS_SHARING_VIOLATION,
)

OK = 0
BAD_STUB = 0x6F7
FAILURE = 0x8000_0000
BOTH = pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])


# Opening in two steps
# ---------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-1.4-1")
@pytest.mark.spec("MQQP-2.3-1")
@served
async def test_one_number_stands_for_the_open_queue_everywhere(site: Site) -> None:
    """The directory is not asked: it has no private queues."""
    peer = await site.peer()
    first = await peer.open_remote_queue()
    assert first[RETURNS] == OK
    assert first["pph_context"] != NULL_HANDLE
    assert first["pdw_context"] == first["ph_queue"] == first["dwp_queue"] != 0
    assert (await peer.open_queue(first["pdw_context"]))[RETURNS] == OK


@served
async def test_numbers_of_open_queues_cannot_be_guessed(site: Site) -> None:
    """They are the only key to a queue, and so are neither those of the engine nor in a row."""
    peer = await site.peer()
    numbers = [(await peer.open_remote_queue())["ph_queue"] for _ in range(50)]
    assert len({abs(one - other) for one, other in itertools.pairwise(numbers)}) == 49
    engine_handles = set(site.runtime.engine.opening.descriptors)
    assert engine_handles.isdisjoint(numbers)
    for handle in engine_handles:
        assert (await peer.open_queue(handle))[RETURNS] == MQ_ERROR_INVALID_PARAMETER


REFUSED: list[dict[str, Any]] = [
    {"p_queue_format": None},
    {"p_queue_format": QueueFormat(0, 0, 0, None)},
    {"p_queue_format": QueueFormat(6, 0, 0, DlId(CLIENT_ID, None))},
    {"p_queue_format": QueueFormat(7, 0, 0, MulticastId(0x010203EF, 8001))},
    {"p_queue_format": QueueFormat(3, 0, 0, "HTTP://localhost/msmq/private$/q")},
    {"p_queue_format": QueueFormat(3, 0, 0, "HTTPS://localhost/msmq/private$/q")},
    {"p_queue_format": QueueFormat(3, 0, 0, None)},
    {"p_queue_format": QueueFormat(3, 0, 0, "nonsense")},
    {"p_queue_format": QueueFormat(3, 0, 0, "OS:elsewhere\\private$\\q")},
    {"dw_desired_access": 0},
    {"dw_desired_access": 2},
    {"dw_desired_access": 0x21},
    {"dw_desired_access": 0x81},
    {"dw_share_mode": 2},
]


@pytest.mark.spec("MQQP-1.4-2")
@pytest.mark.parametrize("changes", REFUSED, ids=str)
@served
async def test_what_is_no_queue_to_read_from_is_not_opened(site: Site, changes: dict[str, Any]) -> None:
    peer = await site.peer()
    answer = await peer.open_remote_queue(**changes)
    assert answer[RETURNS] & FAILURE
    assert answer["pph_context"] == NULL_HANDLE
    assert len(site.queues) == 0
    assert not site.runtime.engine.opening.descriptors


@pytest.mark.spec("MQQP-1.4-2")
@served
async def test_a_distribution_list_is_not_opened_though_it_may_have_one_member(site: Site) -> None:
    directory = site.runtime.engine.directory
    assert isinstance(directory, EmbeddedDirectory)
    with site.runtime.lock:
        result, _ = directory.add_distribution_list("list", [r"DIRECT=OS:.\private$\q"], CLIENT_ID)
        assert result is DirectoryOperationResult.SUCCESS
        assert directory.resolve_distribution_list(CLIENT_ID, None)[1] == [r"DIRECT=OS:.\private$\q"]
    peer = await site.peer()
    answer = await peer.open_remote_queue(p_queue_format=QueueFormat(6, 0, 0, DlId(CLIENT_ID, None)))
    assert answer[RETURNS] & FAILURE
    assert len(site.queues) == 0


@served
async def test_a_bad_access_mode_comes_before_a_queue_that_is_not_there(site: Site) -> None:
    peer = await site.peer()
    assert (await peer.open_remote_queue("OS:.\\private$\\none", 2))[RETURNS] == MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    assert (await peer.open_remote_queue("OS:.\\private$\\none"))[RETURNS] == MQ_ERROR_QUEUE_NOT_FOUND


@pytest.mark.spec("MQQP-1.4-3")
@served
async def test_an_exclusive_open_excludes_readers_both_ways(site: Site) -> None:
    peer = await site.peer()
    first = await peer.opened(share=1)
    assert (await peer.open_remote_queue())[RETURNS] == STATUS_SHARING_VIOLATION
    assert await first.close() == OK
    await peer.opened()
    assert (await peer.open_remote_queue(share=1))[RETURNS] == STATUS_SHARING_VIOLATION


@pytest.mark.spec("MQQP-2.1-5")
@served
async def test_rights_are_asked_for_when_the_queue_is_opened_and_never_again(site: Site) -> None:
    site.create("closed", QueueAccess.GET_QUEUE_PROPERTIES)
    peer = await site.peer()
    assert (await peer.open_remote_queue("OS:.\\private$\\closed"))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    site.create("peeked", QueueAccess.PEEK_MESSAGE)
    assert (await peer.open_remote_queue("OS:.\\private$\\peeked"))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert (await peer.open_remote_queue("OS:.\\private$\\peeked", 0x20))[RETURNS] == OK
    _, two, _, _ = site.send(b"one", b"two", b"three", b"four")
    q = await peer.opened()
    site.set("q", security=_nobody())
    assert (await peer.open_remote_queue())[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert (await peer.open_remote_queue(access=0x20))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    # A caller with the number may read, on its own connection and from an unknown address.
    site.queues._queues[q.handle].peers.clear()
    other = await site.peer()
    assert (await q.begin(peer=other)).body == b"one"
    assert (await q.read(MQ_ACTION_PEEK_CURRENT)).body == b"two"
    assert (await q.look_up(two, 0x40000020)).body == b"two"
    assert (await q.read2()).body == b"three"
    assert await q.purge() == OK
    # A caller without it may not.
    wrong = q.handle ^ 1
    assert (await q.begin(peer=other, h_remote_queue=wrong, dw_queue=wrong)).status == MQ_ERROR_INVALID_PARAMETER
    assert await q.purge(h_queue=wrong) == MQ_ERROR_INVALID_HANDLE


def _nobody() -> bytes:
    from lanner.security.identity import SYSTEM
    from lanner.wire.security_descriptor import Acl, SecurityDescriptor

    return SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl(())).pack()


@pytest.mark.spec("MQQP-1.3.2-1")
@served
async def test_a_queue_opened_to_peek_only_peeks(site: Site) -> None:
    (lookup_id,) = site.send(b"one")
    q = await site.opened(access=0x20)
    assert (await q.read(MQ_ACTION_PEEK_CURRENT)).body == b"one"
    for status in (
        (await q.read()).status,
        (await q.read(timeout=5000)).status,
        (await q.read2()).status,
        (await q.look_up(lookup_id, 0x40000020)).status,
        await q.purge(),
    ):
        assert status == MQ_ERROR_ACCESS_DENIED
    assert site.count() == 1


@pytest.mark.spec("MQQP-3.1.4.3-2")
@served
async def test_an_open_names_its_queue(site: Site) -> None:
    peer = await site.peer()
    handle = (await peer.open_remote_queue())["ph_queue"]
    for changes in ({"p_queue": 0}, {"dwp_context": 0}, {"p_queue": 0, "dwp_context": 0}):
        answer = await peer.open_queue(handle, **changes)
        assert answer[RETURNS] == MQ_ERROR_INVALID_PARAMETER
        assert answer["ph_context"] == NULL_HANDLE
    below: Any = site.service.open_queue(None, None, 0, handle, handle, handle)  # type: ignore[arg-type] # never asked
    assert below == MQ_ERROR_INVALID_PARAMETER
    assert not list(site.queues.open_queue_entries)


@pytest.mark.spec("MQQP-3.1.4.3-3")
@served
async def test_both_names_of_the_queue_are_the_same(site: Site) -> None:
    peer = await site.peer()
    one = (await peer.open_remote_queue())["ph_queue"]
    other = (await peer.open_remote_queue())["ph_queue"]
    answer = await peer.open_queue(one, p_queue=other)
    assert (answer[RETURNS], answer["ph_context"]) == (MQ_ERROR_INVALID_PARAMETER, NULL_HANDLE)


@pytest.mark.spec("MQQP-3.1.4.3-4")
@pytest.mark.parametrize("h_queue", [0, 77, 0xFFFF_FFFF])
@served
async def test_h_queue_of_an_open_does_not_matter(site: Site, h_queue: int) -> None:
    peer = await site.peer()
    handle = (await peer.open_remote_queue())["ph_queue"]
    assert (await peer.open_queue(handle, h_queue=h_queue))[RETURNS] == OK


@pytest.mark.spec("MQQP-3.1.4.3-5", "MQQP-3.1.1.4-1")
@served
async def test_an_open_is_recorded_with_its_client(site: Site) -> None:
    peer = await site.peer()
    client_id = uuid.uuid4()
    handle = (await peer.open_remote_queue())["ph_queue"]
    answer = await peer.open_queue(handle, p_lic_guid=client_id)
    assert answer[RETURNS] == OK
    assert answer["ph_context"] != NULL_HANDLE
    (entry,) = site.queues.open_queue_entries
    assert (entry.open_queue_descriptor_handle, entry.client_id) == (handle, client_id)


@pytest.mark.spec("MQQP-3.1.4.3-1")
@served
async def test_dw_mqs_has_a_range(site: Site) -> None:
    peer = await site.peer()
    handle = (await peer.open_remote_queue())["ph_queue"]
    assert (await peer.open_queue(handle, dw_mqs=16))[RETURNS] == OK
    stub = mqqp.REMOTE_QM_OPEN_QUEUE.encode_request(
        {"p_lic_guid": CLIENT_ID, "dw_mqs": 16, "h_queue": handle, "p_queue": handle, "dwp_context": handle}
    )
    with pytest.raises(Fault) as fault:
        await peer.raw(QM2QM, 2, stub[:16] + struct.pack("<I", 17) + stub[20:])
    assert fault.value.status == BAD_STUB


@pytest.mark.spec("MQQP-3.1.4.3-6")
@served
async def test_a_hundred_clients_open_a_queue(site: Site) -> None:
    peer = await site.peer()
    for _ in range(100):
        handle = (await peer.open_remote_queue())["ph_queue"]
        assert (await peer.open_queue(handle, p_lic_guid=uuid.uuid4(), dw_mqs=0))[RETURNS] == OK
    assert len(list(site.queues.open_queue_entries)) == 100


@pytest.mark.spec("MQQP-3.1.4.3-7")
@served
async def test_a_queue_that_is_ready_stays_open_when_its_first_context_ends(site: Site) -> None:
    site.send(b"one")
    opener = await site.peer()
    first = await opener.open_remote_queue()
    reader = await site.peer()
    q = await site.opened()
    assert (await reader.open_queue(first["ph_queue"]))[RETURNS] == OK
    found = site.queues.find(first["ph_queue"], ADDRESS)
    assert found is not None
    assert found.descriptor.remote_read_state is RemoteReadState.READY_FOR_READ
    closed = await opener.call(QMCOMM, mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=first["pph_context"])
    assert closed["pph_context"] == NULL_HANDLE
    # And so does its rundown.
    second = await opener.open_remote_queue()
    assert (await reader.open_queue(second["ph_queue"]))[RETURNS] == OK
    await opener.close()
    for handle in (first["ph_queue"], second["ph_queue"]):
        read = await replace(q, peer=reader, handle=handle).read(MQ_ACTION_PEEK_CURRENT)
        assert read.body == b"one"


@served
async def test_a_queue_that_nobody_made_ready_closes_with_its_first_context(site: Site) -> None:
    peer = await site.peer()
    first = await peer.open_remote_queue(share=1)
    found = site.queues.find(first["ph_queue"], ADDRESS)
    assert found is not None
    assert found.descriptor.remote_read_state is RemoteReadState.OPENED
    await peer.call(QMCOMM, mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=first["pph_context"])
    assert (await peer.open_queue(first["ph_queue"]))[RETURNS] == MQ_ERROR_INVALID_PARAMETER
    again = await peer.open_remote_queue(share=1)
    assert again[RETURNS] == OK
    with pytest.raises(Fault) as fault:
        await peer.call(QMCOMM, mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=first["pph_context"])
    assert fault.value.status == NCA_FAULT_CONTEXT_MISMATCH
    closed = await peer.call(QMCOMM, mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=NULL_HANDLE)
    assert closed == {"pph_context": NULL_HANDLE}
    await peer.close()
    other = await site.peer()
    assert (await other.open_remote_queue(share=1))[RETURNS] == OK


@pytest.mark.spec("MQQP-3.1.4.3-8", "MQQP-3.1.4.1-10", "MQQP-3.1.4.10-2", "MQQP-3.1.4.11-2")
@served
async def test_nothing_is_read_before_the_second_step_of_an_open(site: Site) -> None:
    (lookup_id,) = site.send(b"one")
    q = await site.opened()
    peer = q.peer
    handle = (await peer.open_remote_queue())["ph_queue"]
    early = replace(q, handle=handle)
    assert (await early.read()).status == MQ_ERROR_INVALID_PARAMETER
    assert (await early.read(MQ_ACTION_PEEK_CURRENT, 5000)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await early.read2()).status == MQ_ERROR_INVALID_PARAMETER
    assert (await early.look_up(lookup_id, 0x40000020)).status == MQ_ERROR_INVALID_PARAMETER
    assert await early.purge() == MQ_ERROR_INVALID_HANDLE
    assert await early.cancel(1) == MQ_ERROR_INVALID_HANDLE
    assert site.count() == 1
    assert (await peer.call(QM2QM, mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=1))[RETURNS] == site.port
    assert (await peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION))["p_major"] == 6
    assert (await peer.open_queue(handle))[RETURNS] == OK
    assert (await early.read()).body == b"one"


@served
async def test_the_name_of_a_remote_queue_is_asked_for_in_vain(site: Site) -> None:
    peer = await site.peer()
    with pytest.raises(Fault) as fault:
        await peer.call(QMCOMM, mqmp.R_QM_GET_REMOTE_QUEUE_NAME, p_queue=1, lplp_remote_queue_name=None)
    assert fault.value.status == MQ_ERROR_ILLEGAL_OPERATION


# Receiving
# --------------------------------------------------------------------------------------------------


@BOTH
@served
async def test_open_receive_end_close(site: Site, syntax: Syntax) -> None:
    site.send(b"one", b"two")
    q = await site.opened(syntax=syntax)
    assert await q.receive() == b"one"
    assert site.count() == 1
    assert await q.receive() == b"two"
    assert await q.close() == OK
    assert len(site.queues) == 0


@pytest.mark.spec("MQQP-3.1.4.1-13")
@served
async def test_a_receive_takes_the_front_of_the_queue(site: Site) -> None:
    site.send(b"low", priority=1)
    site.send(b"first", b"second", priority=5)
    q = await site.opened()
    assert [await q.receive() for _ in range(3)] == [b"first", b"second", b"low"]


@pytest.mark.spec("MQQP-3.1.4.1-2", "MQQP-2.2.1.2-1", "MQQP-3.1.4.2-2", "MQQP-3.1.4.2-4")
@served
async def test_a_receive_gives_a_handle_that_its_end_takes(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    read = await q.read()
    assert read.status == OK
    assert read.context != NULL_HANDLE
    assert site.count() == 1
    assert await q.end(read) == OK
    assert site.count() == 0
    with pytest.raises(Fault) as fault:
        await q.end(read)
    assert fault.value.status == NCA_FAULT_CONTEXT_MISMATCH


@pytest.mark.spec("MQQP-3.1.4.1-14", "MQQP-3.1.4.2-3")
@served
async def test_a_received_message_is_locked_until_it_is_refused(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    other = await site.opened()
    read = await q.read()
    assert site.count() == 2
    second = await other.read()
    assert second.body == b"two"
    assert (await q.read()).status == MQ_ERROR_IO_TIMEOUT
    assert (await q.read(MQ_ACTION_PEEK_CURRENT)).status == MQ_ERROR_IO_TIMEOUT
    assert await q.end(read, ack=1) == OK
    assert await other.end(second, ack=1) == OK
    assert site.count() == 2
    assert [await other.receive(), await other.receive()] == [b"one", b"two"]


@pytest.mark.spec("MQQP-3.1.4.2-1")
@pytest.mark.parametrize("ack", [0, 3, 0xFFFF_FFFF])
@served
async def test_an_end_says_yes_or_no(site: Site, ack: int) -> None:
    site.send(b"one")
    q = await site.opened()
    read = await q.read()
    with pytest.raises(Fault) as fault:
        await q.peer.raw(QM2QM, 1, read.context + struct.pack("<I", ack))
    assert fault.value.status == BAD_STUB
    assert (await q.read()).status == MQ_ERROR_IO_TIMEOUT
    assert await q.end(read) == OK
    assert site.count() == 0


@pytest.mark.spec("MQQP-3.1.4.2-5", "MQQP-3.1.4.4-1")
@served
async def test_a_null_handle_is_no_handle(site: Site) -> None:
    q = await site.opened()
    assert await q.end(NULL_HANDLE) == MQ_ERROR_INVALID_HANDLE
    assert await replace(q, context=NULL_HANDLE).close() == MQ_ERROR_INVALID_HANDLE


@pytest.mark.spec("MQQP-3.1.4.2-6")
@served
async def test_the_end_of_a_receive_does_not_look_for_it_among_the_pending(site: Site) -> None:
    """The receive left the pending reads when it was answered.

    Another read that waits on the same queue is not affected.
    """
    site.send(b"one")
    q = await site.opened()
    read = await q.read()
    assert not list(site.queues.remote_read_entries)
    assert await q.end(read) == OK


@pytest.mark.spec("MQQP-3.1.4.2-7")
@served
async def test_the_end_of_a_receive_whose_message_is_free_again(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    read = await q.read()
    found = site.queues.find(q.handle, ADDRESS)
    assert found is not None
    (position,) = found.descriptor.unfinished_reads.values()
    with site.runtime.lock:
        site.runtime.engine.dequeue_message_end(found.descriptor, position, delete_message=False)
    assert await q.end(read) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert site.count() == 1


@pytest.mark.spec("MQQP-3.1.4.2-8", "MQQP-3.1.4.7-3")
@pytest.mark.parametrize("ack", [1, 2])
@served
async def test_a_purge_takes_what_is_locked_when_its_read_ends(site: Site, ack: int) -> None:
    site.send(b"one", b"two", b"three")
    q = await site.opened()
    read = await q.read()
    assert await q.purge() == OK
    assert site.count() == 1
    assert await q.end(read, ack) == OK
    assert site.count() == 0


@served
async def test_a_purge_is_in_the_audit_log(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    assert await q.purge() == OK
    lines = (site.runtime.path / "audit.log").read_text().splitlines()
    (record,) = (found for line in lines if (found := json.loads(line))["event"] == "purge queue")
    assert (record["who"], record["from"], record["messages"]) == ("ANONYMOUS LOGON", ADDRESS, 2)


@pytest.mark.spec("MQQP-3.1.4.7-1")
@served
async def test_only_an_open_queue_is_purged(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    handle = (await q.peer.open_remote_queue())["ph_queue"]
    for number in (0, 12345, handle):
        assert await q.purge(h_queue=number) == MQ_ERROR_INVALID_HANDLE
    assert site.count() == 1


@pytest.mark.spec("MQQP-3.1.4.2-9")
@served
async def test_what_was_not_acknowledged_goes_back_when_its_queue_is_closed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.send(b"one", b"two")
    peer = await site.peer()
    q = await peer.opened()
    read = await q.read()
    await q.read()
    assert await q.close() == OK
    again = await peer.opened()
    assert (await again.read(MQ_ACTION_PEEK_CURRENT)).body == b"one"
    assert await q.end(read) == MQ_ERROR_INVALID_HANDLE
    assert site.count() == 2
    # The rundown of the other handle has nothing left to do.
    await peer.close()
    await until(lambda: site.server.connections == 0)
    assert site.count() == 2
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.spec("MQQP-3.1.4.1-1")
@pytest.mark.parametrize("with_cursor", [False, True])
@served
async def test_a_peek_is_over_when_it_returns(site: Site, with_cursor: bool) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    cursor = await q.peer.create_cursor(q.handle) if with_cursor else 0
    reads = [await q.read(MQ_ACTION_PEEK_CURRENT, cursor=cursor)]
    if with_cursor:
        reads.append(await q.read(MQ_ACTION_PEEK_NEXT, cursor=cursor))
    for read, body in zip(reads, [b"one", b"two"], strict=False):
        assert read.body == body
        assert read.context == NULL_HANDLE
    assert site.count() == 2
    assert not list(site.queues.remote_read_entries)
    assert len(next(iter(site.server.groups._groups.values())).handles) == 2  # the two of the open


@pytest.mark.spec("MQQP-3.1.4.1-16")
@served
async def test_a_peek_without_a_cursor_looks_at_the_front(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    for _ in range(3):
        assert (await q.read(MQ_ACTION_PEEK_CURRENT)).body == b"one"


@pytest.mark.spec("MQQP-2.2.2.1-7", "MQQP-2.2.2.1-11", "MQQP-3.1.4.1-21")
@BOTH
@served
async def test_the_buffer_is_the_packet_of_the_message(site: Site, syntax: Syntax) -> None:
    site.send(b"the body", label="a label", app_specific=17)
    q = await site.opened(syntax=syntax)
    read = await q.read()
    desc = read.desc
    assert desc is not None
    packet = Message(read.packet)
    # BaseHeader.PacketSize, behind VersionNumber, Reserved, Flags and Signature.
    assert desc.dw_size == len(read.packet) == struct.unpack_from("<I", read.packet, 8)[0]
    assert (bytes(packet.body), packet.label, packet.application_tag) == (b"the body", "a label", 17)
    with site.runtime.lock:
        queue = site.operations.find(".\\private$\\q")
        (held,) = queue.held_positions.values()
    assert read.packet == held.record.packet


@pytest.mark.spec("MQQP-2.2.2.1-8", "MQQP-2.2.2.1-10")
@served
async def test_reserved_members_are_not_looked_at(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    told = [
        (await q.read(MQ_ACTION_PEEK_CURRENT, reserved=reserved, e_ack_nack=ack))
        for reserved in (0, 1, 0xFFFF_FFFF)
        for ack in (0, 1, 2)
    ]
    assert {read.body for read in told} == {b"one"}
    assert {read.desc.reserved for read in told if read.desc is not None} == {1}
    refused = await q.read(ul_action=5, reserved=7)
    assert refused.desc is not None
    assert refused.desc.reserved == 1


@pytest.mark.spec("MQQP-2.2.2.1-9")
@served
async def test_the_time_of_arrival_is_reported(site: Site) -> None:
    engine = site.runtime.engine
    engine.clocks.wall = lambda: 1_700_000_123.9
    site.send(b"one")
    engine.clocks.wall = lambda: 1_700_000_999.0
    q = await site.opened()
    for action in (MQ_ACTION_PEEK_CURRENT, MQ_ACTION_RECEIVE):
        desc = (await q.read(action)).desc
        assert desc is not None
        assert desc.dw_arrive_time == 1_700_000_123


@pytest.mark.spec("MQQP-2.2.2.1-12")
@BOTH
@served
async def test_the_largest_message_is_delivered_whole(site: Site, syntax: Syntax) -> None:
    body = bytes(range(256)) * ((4 << 20) // 256 - 4)
    site.send(body, recoverable=False)
    q = await site.opened(syntax=syntax)
    before = len(q.peer.fragments)
    read = await q.read()
    assert read.body == body
    assert read.desc is not None
    assert read.desc.dw_size <= 0x420000
    fragments = q.peer.fragments[before:]
    assert len(fragments) > 700
    assert max(fragments) <= 5840


@pytest.mark.spec("MQQP-3.1.4.1-3")
@served
async def test_what_fails_comes_without_a_message(site: Site) -> None:
    """This holds also if the client sent a buffer, which it should not."""
    q = await site.opened()
    wrong: list[dict[str, Any]] = [{}, {"ul_action": 5}, {"dw_queue": 0}]
    sent: list[dict[str, Any]] = [{}, {"dw_size": 3, "lp_buffer": b"abc"}]
    for one in wrong:
        for other in sent:
            read = await q.read(**one, **other)
            assert read.status & FAILURE
            assert read.context == NULL_HANDLE
            assert read.desc is not None
            assert (read.desc.dw_size, read.desc.lp_buffer) == (0, None)


@pytest.mark.spec("MQQP-3.1.4.1-4", "MQQP-3.1.4.10-1")
@served
async def test_a_read_without_a_descriptor(site: Site) -> None:
    q = await site.opened()
    below: Any = site.service.start_receive(None, None)  # type: ignore[arg-type] # never asked
    assert below == {RETURNS: MQ_ERROR_INVALID_HANDLE}
    for method, more in (
        (mqqp.REMOTE_QM_START_RECEIVE2, {}),
        (mqqp.REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID, {"lookup_id": 1}),
    ):
        read = await q._second(method, None, more)
        assert read == Read(MQ_ERROR_INVALID_HANDLE, NULL_HANDLE, None, sequential_id=0)


@pytest.mark.spec("MQQP-3.1.4.1-5", "MQQP-3.1.4.1-6", "MQQP-3.1.4.10-2", "MQQP-2.2.2.1-5")
@served
async def test_both_names_of_a_queue_in_a_read_are_the_same(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    other = await site.opened()
    for changes in ({"dw_queue": 0}, {"dw_queue": other.handle}, {"h_remote_queue": other.handle}):
        assert (await q.read(**changes)).status == MQ_ERROR_INVALID_PARAMETER
        assert (await q.read2(**changes)).status == MQ_ERROR_INVALID_PARAMETER
    unknown = q.handle ^ 1
    assert (await q.read(dw_queue=unknown, h_remote_queue=unknown)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await q.read()).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.1-12")
@served
async def test_checks_have_an_order(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    assert (await q.read(MQ_ACTION_PEEK_NEXT, dw_queue=0)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await q.read(MQ_ACTION_PEEK_NEXT, dw_queue=0, h_remote_queue=0)).status == MQ_ERROR_INVALID_PARAMETER
    # The cursor of a peek comes before whether the queue is open.
    unknown = q.handle ^ 1
    assert (
        await q.read(MQ_ACTION_PEEK_NEXT, dw_queue=unknown, h_remote_queue=unknown)
    ).status == STATUS_INVALID_PARAMETER


@pytest.mark.spec("MQQP-3.1.4.1-19")
@pytest.mark.parametrize("action", [1, 5, 0x4000_0010, 0x4000_0020, 0x8000_0002])
@served
async def test_an_action_that_is_none(site: Site, action: int) -> None:
    site.send(b"one")
    q = await site.opened()
    assert (await q.read(action)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await q.read2(action)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await q.read()).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.1-20")
@served
async def test_the_status_of_the_queue_is_reported_as_it_is(site: Site) -> None:
    site.create("gone")
    q = await site.opened("OS:.\\private$\\gone")
    site.delete("gone")
    assert (await q.read()).status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert (await q.read(MQ_ACTION_PEEK_CURRENT, 5000)).status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await q.purge() == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await q.close() == OK


@pytest.mark.spec("MQQP-3.1.4.10-5", "MQQP-2.2.2.2-3")
@BOTH
@served
async def test_a_second_kind_of_read_tells_the_sequential_id(site: Site, syntax: Syntax) -> None:
    lookup_ids = site.send(b"one", b"two", priority=1)
    assert all(lookup_id >> 56 == 6 for lookup_id in lookup_ids)
    q = await site.opened(syntax=syntax)
    peeked = await q.read2(MQ_ACTION_PEEK_CURRENT)
    assert (peeked.body, peeked.context) == (b"one", NULL_HANDLE)
    first = await q.read2()
    second = await q.read2()
    assert [first.body, second.body] == [b"one", b"two"]
    found = [read.sequential_id for read in (first, second)]
    assert found == [lookup_id & 0x00FF_FFFF_FFFF_FFFF for lookup_id in lookup_ids]
    assert peeked.sequential_id == first.sequential_id != second.sequential_id
    assert await q.end(first) == OK
    assert await q.end(second, ack=1) == OK
    assert site.lookup_ids() == lookup_ids[1:]
    failed = await q.read2(ul_action=7)
    assert (failed.status, failed.context, failed.sequential_id) == (MQ_ERROR_INVALID_PARAMETER, NULL_HANDLE, 0)


# Closing
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-3.1.4.4-2", "MQQP-3.1.4.4-4", "MQQP-3.1.4.4-5")
@served
async def test_closing_closes_the_queue_itself(site: Site) -> None:
    site.send(b"one")
    q = await site.opened(share=1)
    cursor = await q.peer.create_cursor(q.handle)
    other = await site.peer()
    assert (await other.open_remote_queue())[RETURNS] == STATUS_SHARING_VIOLATION
    assert await q.close() == OK
    assert (await q.read()).status == MQ_ERROR_INVALID_PARAMETER
    assert await q.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE
    assert not list(site.queues.open_queue_entries)
    assert not site.runtime.engine.opening.descriptors
    assert (await other.open_remote_queue(share=1))[RETURNS] == OK
    with pytest.raises(Fault) as fault:
        await q.close()
    assert fault.value.status == NCA_FAULT_CONTEXT_MISMATCH


@pytest.mark.spec("MQQP-3.1.1.5-1")
@served
async def test_opens_reads_and_closes_at_once_leave_nothing_behind(site: Site) -> None:
    site.send(*(b"%d" % number for number in range(60)))
    bodies: list[bytes] = []

    async def client() -> None:
        peer = await site.peer()
        for _ in range(3):
            q = await peer.opened()
            same = await peer.open_queue(q.handle)
            bodies.append(await q.receive())
            assert await q.close() == OK
            assert (await q.read()).status == MQ_ERROR_INVALID_PARAMETER
            assert await replace(q, context=same["ph_context"]).close() == OK

    await asyncio.gather(*(client() for _ in range(20)))
    assert len(set(bodies)) == 60
    assert not list(site.queues.open_queue_entries)
    assert not list(site.queues.remote_read_entries)
    assert len(site.queues) == 0
    assert site.count() == 0


@pytest.mark.spec("MQQP-3.1.1.3-1")
@served
async def test_fifty_receives_at_once_get_fifty_messages(site: Site) -> None:
    bodies = [b"%d" % number for number in range(50)]
    clients = [await site.opened() for _ in range(10)]
    waiting = [client.begin(timeout=60_000) for client in clients for _ in range(3)]
    await site.waiting(30)
    site.send(*bodies)
    reads = await asyncio.gather(*waiting, *(client.begin(timeout=60_000) for client in clients for _ in range(2)))
    assert sorted(read.body for read in reads) == sorted(bodies)
    assert len({read.context for read in reads}) == 50


@pytest.mark.spec("MQQP-1.4-4")
@served
async def test_a_cursor_is_made_whatever_the_buffer_is(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    buffers = (
        CACTransferBufferV1(2, CACCreateRemoteCursor()),
        CACTransferBufferV1(2, CACCreateRemoteCursor(1, 2, 3), p_class=7, ul_title_buffer_size_in_wchars=0),
    )
    for buffer in buffers:
        made = await q.peer.call(QMCOMM, mqmp.R_QM_CREATE_REMOTE_CURSOR, ptb1=buffer, h_queue=q.handle)
        assert made[RETURNS] == OK
        cursor = made["ph_cursor"]
        assert (await q.read(MQ_ACTION_PEEK_CURRENT, cursor=cursor)).body == b"one"
        assert (await q.read2(MQ_ACTION_PEEK_NEXT, cursor=cursor)).body == b"two"
        assert await q.close_cursor(cursor) == OK
    unknown = await q.peer.call(QMCOMM, mqmp.R_QM_CREATE_REMOTE_CURSOR, ptb1=buffers[0], h_queue=q.handle ^ 1)
    assert unknown[RETURNS] & FAILURE


@served
async def test_cursors_of_one_open_queue_have_a_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanner.services.queue_client_remote.MAX_CURSORS", 2)
    q = await site.opened()
    cursors = [await q.peer.create_cursor(q.handle) for _ in range(2)]
    arguments = {"ptb1": CACTransferBufferV1(2, CACCreateRemoteCursor()), "h_queue": q.handle}
    assert (await q.peer.call(QMCOMM, mqmp.R_QM_CREATE_REMOTE_CURSOR, **arguments))[
        RETURNS
    ] == MQ_ERROR_INSUFFICIENT_RESOURCES
    assert await q.close_cursor(cursors[0]) == OK
    assert (await q.peer.call(QMCOMM, mqmp.R_QM_CREATE_REMOTE_CURSOR, **arguments))[RETURNS] == OK


@served
async def test_a_client_without_room_for_a_handle_loses_no_message(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.send(b"one")
    q = await site.opened()
    monkeypatch.setattr("lanner.rpc.association.MAX_HANDLES", 2)
    with pytest.raises(Fault):
        await q.read()
    with pytest.raises(Fault):
        await q.peer.open_remote_queue()
    assert (await q.read(MQ_ACTION_PEEK_CURRENT)).body == b"one"
    assert len(site.queues) == 1


# Who is asked who it is
# ---------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-5-1", "MQQP-3.1.4.8-7")
def test_a_hardened_server_tells_the_anonymous_its_port_and_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, level=AuthLevel.CONNECT) as site:
            peer = await site.peer()
            assert (await peer.open_queue(1))[RETURNS] == MQ_ERROR_ACCESS_DENIED
            port = await peer.call(QM2QM, mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=1)
            assert port[RETURNS] == site.port
            with pytest.raises(Fault) as fault:
                await peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION)
            assert fault.value.status == MQ_ERROR_ACCESS_DENIED
            assert not list(site.queues.open_queue_entries)

    asyncio.run(run())
