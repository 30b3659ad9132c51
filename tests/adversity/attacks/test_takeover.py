"""Take over another user's queue without an account, over real TCP.

The service answers anonymous callers here, so that only the access lists protect the messages. The
attacker takes ownership or rewrites the list, receives, and deletes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import lanner
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.security.access_masks import QueueAccess
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.transfer.settings import TransferSettings
from lanner.wire.message import Message as Packet
from lanner.wire.property_ids import QueueProperty
from lanner.wire.propvariant import PropVariant
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, SecurityInformation, allow
from lanner.wire.sid import ANONYMOUS_LOGON, EVERYONE
from lanner.wire.vartypes import VT
from tests.client.peers import free_address
from tests.contract.service import Service
from tests.services.queue_client_peer import Peer, queue_object
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_INVALID_OWNER

QUEUE = r"DIRECT=OS:.\private$\orders"
# Anonymous callers are let in: the access list alone must stop them.
SETTINGS = """
[rpc]
requires_authentication = false
"""
EVERYTHING = Acl(
    (allow(EVERYONE, QueueAccess.GENERIC_ALL), allow(ANONYMOUS_LOGON, QueueAccess.GENERIC_ALL)),
)
RECEIVE, SEND, PEEK = 1, 2, 0x20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Run a service with a queue that root has made, and one message in it."""
    service = Service(tmp_path / "data", SETTINGS)
    with lanner.connect(data=service.data) as manager:
        manager.create_queue("orders").send("hands off")
    yield service
    service.close()


def left(service: Service) -> list[object]:
    with lanner.connect(data=service.data) as manager:
        return [message.value for message in manager.open("orders")]


@asynccontextmanager
async def nobody(service: Service) -> AsyncIterator[Peer]:
    """Connect without credentials."""
    client = await connect_tcp(service.address, service.port)
    try:
        yield Peer(client, await client.bind(QMCOMM), await client.bind(QMCOMM2))
    finally:
        await client.close()


def attack(service: Service, steps: Callable[[Peer], Coroutine[object, object, None]]) -> None:
    async def run() -> None:
        async with nobody(service) as peer:
            await steps(peer)

    asyncio.run(run())


async def set_security(peer: Peer, descriptor: SecurityDescriptor, parts: SecurityInformation) -> int:
    data = descriptor.pack()
    return await peer.status(
        mqmp.R_QM_SET_OBJECT_SECURITY_INTERNAL,
        p_object_format=queue_object(QUEUE),
        security_information=int(parts),
        sd_size=len(data),
        p_security_descriptor=data,
    )


def test_the_anonymous_cannot_rewrite_the_list_of_a_queue_that_root_made(service: Service) -> None:
    """Until now S-1-5-7 owned such a queue, and an owner may rewrite the list."""

    async def steps(peer: Peer) -> None:
        for descriptor, parts in (
            (SecurityDescriptor(dacl=EVERYTHING), SecurityInformation.DACL),
            (SecurityDescriptor(owner=ANONYMOUS_LOGON), SecurityInformation.OWNER),
            (
                SecurityDescriptor(owner=EVERYONE, dacl=EVERYTHING),
                SecurityInformation.OWNER | SecurityInformation.DACL,
            ),
        ):
            assert await set_security(peer, descriptor, parts) == MQ_ERROR_ACCESS_DENIED
        for access in (RECEIVE, PEEK):
            assert (await peer.open_queue(QUEUE, access))[RETURNS] == MQ_ERROR_ACCESS_DENIED
        assert await peer.status(mqmp.R_QM_DELETE_OBJECT, p_object_format=queue_object(QUEUE)) == MQ_ERROR_ACCESS_DENIED

    attack(service, steps)
    assert left(service) == ["hands off"]


def test_the_anonymous_learns_nothing_about_a_queue(service: Service) -> None:
    async def steps(peer: Peer) -> None:
        results = await peer.call(
            mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL,
            p_object_format=queue_object(QUEUE),
            requested_information=int(SecurityInformation.OWNER | SecurityInformation.DACL),
            n_length=1024,
        )
        assert results[RETURNS] == MQ_ERROR_ACCESS_DENIED

    attack(service, steps)


def test_the_anonymous_makes_no_queue(service: Service) -> None:
    async def steps(peer: Peer) -> None:
        status = await peer.status(
            mqmp.R_QM_CREATE_OBJECT_INTERNAL,
            dw_object_type=1,
            lpwcs_path_name=r".\private$\mine",
            sd_size=0,
            p_security_descriptor=None,
            cp=1,
            a_prop=(QueueProperty.LABEL,),
            ap_var=(PropVariant(VT.LPWSTR, "mine"),),
        )
        assert status == MQ_ERROR_ACCESS_DENIED

    attack(service, steps)


def test_the_anonymous_gets_no_ownership_even_where_a_list_gives_it(service: Service) -> None:
    """A list that an operator opened to all is as far as it goes: S-1-5-7 never owns."""
    with lanner.connect(data=service.data) as manager:
        manager.open("orders").grant("Anonymous", "full")

    async def steps(peer: Peer) -> None:
        for owner in (ANONYMOUS_LOGON, EVERYONE):
            status = await set_security(peer, SecurityDescriptor(owner=owner), SecurityInformation.OWNER)
            assert status in (MQ_ERROR_INVALID_OWNER, MQ_ERROR_ACCESS_DENIED)

    attack(service, steps)
    with lanner.connect(data=service.data) as manager:
        assert manager.open("orders").access().owner == "Administrators"


def test_an_anonymous_session_of_lanners_own_interface_sends_and_no_more(service: Service) -> None:
    with lanner.connect(service.address) as manager:
        queue = manager.open("orders")
        queue.send("from nobody")
        for act in (
            queue.receive,
            queue.peek,
            queue.purge,
            queue.access,
            lambda: queue.grant("Anonymous", "full"),
            lambda: queue.set_owner("Anonymous"),
            lambda: manager.delete_queue("orders"),
            lambda: queue.set(label="mine"),
            lambda: manager.create_queue("mine"),
        ):
            with pytest.raises((lanner.errors.AccessDenied, lanner.errors.InvalidOwner)):
                act()
    assert left(service) == ["hands off", "from nobody"]


def test_the_systems_own_queues_belong_to_nobody_without_an_account(service: Service) -> None:
    async def steps(peer: Peer) -> None:
        for name in (
            r"DIRECT=OS:.\system$;deadletter",
            r"DIRECT=OS:.\system$;deadxact",
            r"DIRECT=OS:.\system$;journal",
            r"DIRECT=OS:.\private$\order_queue$",
            r"DIRECT=OS:.\private$\notify_queue$",
            r"DIRECT=OS:.\private$\admin_queue$",
        ):
            for access in (RECEIVE, PEEK):
                assert (await peer.open_queue(name, access))[RETURNS] == MQ_ERROR_ACCESS_DENIED, name

    attack(service, steps)


# Senders of a workgroup
# -----------------------------------------------------------------------------------


def test_a_message_without_a_sender_reaches_a_queue_with_the_default_list(service: Service, tmp_path: Path) -> None:
    """Messages of a Windows workgroup computer have no SecurityHeader.

    Lanner's own messages have none either.
    """
    with lanner.QueueManager(
        tmp_path / "other", "BETA", bind=free_address(), transfer=TransferSettings(peers={"ALPHA": service.address})
    ) as other:
        other.open(r"DIRECT=OS:ALPHA\private$\orders").send("from a workgroup")
        with lanner.connect(data=service.data) as manager:
            queue = manager.open("orders")
            assert queue.receive(timeout=30).value == "hands off"
            received = queue.receive(timeout=30)
    assert received.value == "from a workgroup"
    assert not Packet(received.packet).has_security_header
    assert received.sender_id == b""
