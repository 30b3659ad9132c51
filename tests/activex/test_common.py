"""Rules for every coclass.

Covered: error codes (MC-MQAC 1.8), messages that expire (3.1.6.1.1) and the coclasses themselves
(1.9).
"""

from __future__ import annotations

import uuid

import pytest

from lanner.activex import COCLASSES
from lanner.activex.queue import MSMQQueue
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.transaction_dispensers import MSMQTransactionDispenser
from lanner.com import constants
from lanner.com.automation.values import MISSING, Variant
from lanner.com.objects import ComObject
from lanner.model.errors import StatusError
from lanner.wire.vartypes import VT
from tests.activex.world import World
from tests.engine.harness import Harness

# MS-ERREF 2.1: C, the bit of vendors other than Microsoft.
CUSTOMER = 0x2000_0000
NOW = Variant(VT.I4, 0)


@pytest.mark.spec("MQAC-1.8-1")
def test_codes_of_our_own_have_the_customer_bit() -> None:
    ours = {status for status, error in StatusError.by_status.items() if error.spec_name.startswith("LANNER_")}
    assert ours
    assert all(status & CUSTOMER for status in ours)
    assert not any(status & CUSTOMER for status in StatusError.by_status.keys() - ours)
    codes = [value for name, value in vars(constants).items() if name.partition("_E_")[1] and isinstance(value, int)]
    assert len(codes) > 20
    assert not any(code & CUSTOMER for code in codes)


def test_every_coclass_can_be_made(world: World) -> None:
    """Every coclass can be released before it is used."""

    async def make_and_release() -> None:
        for clsid, coclass in COCLASSES.items():
            made = world.environment.create(clsid)
            assert isinstance(made, ComObject)
            assert type(made) is coclass
            assert made.interfaces
            made.released()

    world.run(make_and_release())
    assert len(COCLASSES) == 15
    assert world.environment.create(uuid.uuid4()) is None


class TestTimeToBeReceived:
    @pytest.fixture(params=[False, True])
    def transactional(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    def opened(self, world: World) -> MSMQQueue:
        made = MSMQQueueInfo(world.environment)
        made.format_name = r"DIRECT=OS:.\private$\q"
        queue = world.call(made, "open", 1, 0)
        assert isinstance(queue, MSMQQueue)
        world.objects.append(queue)
        return queue

    def dead_letters(self, world: World) -> tuple[list[bytes], list[bytes]]:
        """Return the dead letters of the plain and of the transactional dead-letter queue."""
        with world.held() as h:
            manager = h.engine.queue_manager.identifier
            return h.bodies(f"MACHINE={manager};DEADLETTER"), h.bodies(f"MACHINE={manager};DEADXACT")

    def deliver(self, h: Harness, *, transactional: bool) -> None:
        h.create("q", transactional=transactional)
        transaction = h.begin() if transactional else None
        h.send(body=b"x", transaction=transaction, time_to_be_received=10, negative_journaling_requested=True)
        if transaction is not None:
            h.commit(transaction)

    @pytest.mark.spec("MQAC-3.1.6.1.1-1")
    @pytest.mark.parametrize("end", ["abort", "commit"])
    def test_a_locked_message_stays_until_its_transaction_ends(
        self, world: World, transactional: bool, end: str
    ) -> None:
        with world.held() as h:
            self.deliver(h, transactional=transactional)
        queue = self.opened(world)
        transaction = world.call(MSMQTransactionDispenser(world.environment), "begin_transaction")
        world.objects.append(transaction)
        world.call(queue, "receive", Variant(VT.DISPATCH, transaction))
        world.tick(1000)
        with world.held() as h:
            assert h.queue().message_count == 1
        assert self.dead_letters(world) == ([], [])
        world.call(transaction, end)
        assert world.call(queue, "peek", MISSING, MISSING, NOW) is None
        dead = [b"x"] if end == "abort" else []
        assert self.dead_letters(world) == (([], dead) if transactional else (dead, []))

    @pytest.mark.spec("MQAC-3.1.6.1.1-2", "MQAC-3.1.6.1.1-3")
    def test_the_dead_letter_queue_of_its_kind(self, world: World, transactional: bool) -> None:
        """A message of this queue manager's own, in a transactional queue and in another."""
        with world.held() as h:
            self.deliver(h, transactional=transactional)
        queue = self.opened(world)
        world.tick(9)
        assert world.call(queue, "peek", MISSING, MISSING, NOW) is not None
        world.tick(2)
        assert world.call(queue, "peek", MISSING, MISSING, NOW) is None
        assert self.dead_letters(world) == (([], [b"x"]) if transactional else ([b"x"], []))

    @pytest.mark.spec("MQAC-3.1.6.1.1-2", "MQAC-3.1.6.1.1-3")
    def test_a_message_of_another_computer(self, world: World, transactional: bool) -> None:
        """Out of a transactional queue it is no dead letter here: its own computer keeps one."""
        with world.held() as h:
            queue = h.create("q", transactional=transactional)
            message = h.message(
                b"x",
                transaction=1 if transactional else None,
                time_to_be_received=10,
                negative_journaling_requested=True,
            )
            h.engine.enqueue_message(queue, message)
            assert queue.message_count == 1
        world.tick(11)
        with world.held() as h:
            assert h.bodies() == []
        assert self.dead_letters(world) == (([], []) if transactional else ([b"x"], []))
