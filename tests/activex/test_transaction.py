"""MSMQTransaction and the transaction object behind it (MC-MQAC 3.8, 3.9)."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from lanner.activex.coordinated import CoordinatedTransactions
from lanner.activex.environment import Environment
from lanner.activex.tables import IMSMQ_TRANSACTION, IMSMQ_TRANSACTION2, IMSMQ_TRANSACTION3, ITRANSACTION
from lanner.activex.transaction import (
    MSMQTransaction,
    TransactionImpl,
    XactTransInfo,
    resolve_transaction,
)
from lanner.activex.transaction_dispensers import MSMQCoordinatedTransactionDispenser, MSMQTransactionDispenser
from lanner.com.automation.values import EMPTY, MISSING, Variant
from lanner.com.constants import E_INVALIDARG, E_NOTIMPL, IID_IDISPATCH
from lanner.com.objects import ComCall, ComError, ComObject
from lanner.engine.tables import COORDINATOR
from lanner.host.coordinator import Coordinator
from lanner.model.enums import OperationType
from lanner.model.errors import DtcConnect
from lanner.model.live import Transaction
from lanner.wire.vartypes import VT
from tests.activex.messages import receive
from tests.activex.world import World, status_of
from tests.coordinators import HeardCoordinator
from tests.statuses import (
    MQ_ERROR_DTC_CONNECT,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    MQ_ERROR_TRANSACTION_USAGE,
    XACT_E_NOTSUPPORTED,
)

BYREF = VT.BYREF


def yes(vt: int = VT.BOOL) -> Variant:
    return Variant(vt, value=True)


def no() -> Variant:
    return Variant(VT.BOOL, value=False)


def i4(value: int) -> Variant:
    return Variant(VT.I4, value)


def begin(world: World) -> MSMQTransaction:
    transaction = world.call(MSMQTransactionDispenser(world.environment), "begin_transaction")
    assert isinstance(transaction, MSMQTransaction)
    world.objects.append(transaction)
    return transaction


def unit(world: World, transaction: MSMQTransaction) -> Transaction:
    """The queue manager's own."""
    assert transaction.transaction is not None
    return world.engine.queue_manager.transaction_collection[transaction.transaction.identifier]


def bodies(world: World, name: str = "q") -> list[bytes]:
    with world.held() as h:
        return h.bodies(name)


@pytest.fixture
def queue(world: World) -> World:
    with world.held() as h:
        h.create("q", transactional=True)
    return world


class TestRevisions:
    @pytest.mark.spec("MQAC-3.9.4-1")
    def test_each_revision_has_its_own_slots(self) -> None:
        """3.9.4: 7 to 9; 10 and 11; 12."""
        assert [member.opnum for member in IMSMQ_TRANSACTION.members] == [7, 8, 9]
        assert [member.opnum for member in IMSMQ_TRANSACTION2.members] == [7, 8, 9, 10, 11]
        assert [member.opnum for member in IMSMQ_TRANSACTION3.members] == [7, 8, 9, 10, 11, 12]
        assert MSMQTransaction.interfaces == (IMSMQ_TRANSACTION, IMSMQ_TRANSACTION2, IMSMQ_TRANSACTION3)

    @pytest.mark.spec("MQAC-3.9.4.1.1-1", "MQAC-3.2.4.2.7-1")
    def test_transaction_and_properties_are_not_implemented(self, world: World) -> None:
        transaction = begin(world)
        assert world.status(transaction, "get_transaction") == E_NOTIMPL
        assert world.status(transaction, "get_properties") == E_NOTIMPL

    @pytest.mark.spec("MQAC-3.8.4.1-1", "MQAC-3.1-1")
    def test_the_transaction_object_takes_no_remote_calls(self, world: World) -> None:
        """3.8.4.1: ITransaction "does not receive remote calls".

        The object implements only IUnknown and ITransaction.
        """
        transaction = TransactionImpl(world.environment, is_internal=True)
        assert transaction.query_interface(ITRANSACTION.iid) is ITRANSACTION
        assert not ITRANSACTION.is_remote
        assert not any(hasattr(transaction, member.python) for member in ITRANSACTION.members)
        assert transaction.query_interface(IID_IDISPATCH) is None


class TestCommit:
    @pytest.mark.spec("MQAC-3.8.4.1.1-3", "MQAC-3.9.4.1.2-1")
    def test_commit_does_all_at_once(self, world: World) -> None:
        """After a commit, sent messages are present and received ones are gone and in the journal.

        Without arguments, it is a plain commit.
        """
        with world.held() as h:
            h.create("q", transactional=True, journaling=True)
            first = h.begin()
            h.send(body=b"old", transaction=first)
            h.commit(first)
        transaction = begin(world)
        with world.held() as h:
            assert h.receive(transaction=unit(world, transaction)) == b"old"
            h.send(body=b"new", transaction=unit(world, transaction))
            assert h.bodies() == []
        assert world.call(transaction, "commit") is None
        assert bodies(world) == [b"new"]
        with world.held() as h:
            assert h.bodies(r"DIRECT=OS:.\private$\q;journal") == [b"old"]
            assert h.store.pending_batch() <= h.store.synced

    @pytest.mark.spec("MQAC-3.8.4.1.1-1", "MQAC-3.9.4.1.2-1")
    @pytest.mark.parametrize(
        "arguments",
        [
            (yes(),),
            (MISSING, i4(1)),
            (MISSING, i4(0)),
            (MISSING, i4(2), i4(1)),
            (Variant(BYREF | VT.BOOL, value=True),),
        ],
    )
    def test_what_internal_transactions_cannot_do_leaves_them_pending(
        self, queue: World, arguments: tuple[Variant, ...]
    ) -> None:
        transaction = begin(queue)
        with queue.held() as h:
            h.send(body=b"x", transaction=unit(queue, transaction))
        assert queue.status(transaction, "commit", *arguments) == XACT_E_NOTSUPPORTED
        assert bodies(queue) == []
        assert queue.status(transaction, "commit", Variant(VT.BOOL, value=False), i4(2), i4(0)) == 0
        assert bodies(queue) == [b"x"]

    @pytest.mark.spec("MQAC-3.8.4.1.1-2", "MQAC-3.8.4.1.2-1")
    @pytest.mark.parametrize("end", ["commit", "abort"])
    def test_an_ended_transaction_cannot_end_again(self, world: World, end: str) -> None:
        transaction = begin(world)
        assert world.status(transaction, end) == 0
        assert transaction.transaction is not None
        assert transaction.transaction.is_committed_or_aborted
        assert world.status(transaction, "commit") == MQ_ERROR_TRANSACTION_SEQUENCE
        assert world.status(transaction, "abort") == MQ_ERROR_TRANSACTION_SEQUENCE
        # The other check comes first.
        assert world.status(transaction, "commit", yes()) == XACT_E_NOTSUPPORTED

    @pytest.mark.spec("MQAC-3.9.4.1.2-2")
    def test_an_object_without_a_transaction_has_nothing_to_end(self, world: World) -> None:
        transaction = MSMQTransaction(world.environment)
        assert world.status(transaction, "commit") == E_INVALIDARG
        assert world.status(transaction, "abort") == E_INVALIDARG


class TestAbort:
    @pytest.mark.spec("MQAC-3.8.4.1.2-2", "MQAC-3.9.4.1.3-1")
    def test_abort_undoes_sends_and_receives(self, queue: World) -> None:
        with queue.held() as h:
            first = h.begin()
            for body in (b"1", b"2", b"3"):
                h.send(body=body, transaction=first)
            h.commit(first)
        transaction = begin(queue)
        with queue.held() as h:
            assert h.receive(transaction=unit(queue, transaction)) == b"1"
            h.send(body=b"4", transaction=unit(queue, transaction))
            assert h.bodies() == [b"2", b"3"]
        assert queue.call(transaction, "abort") is None
        assert bodies(queue) == [b"1", b"2", b"3"]

    @pytest.mark.spec("MQAC-3.8.4.1.2-1", "MQAC-3.9.4.1.3-1")
    @pytest.mark.parametrize("arguments", [(yes(),), (MISSING, yes())])
    def test_retaining_and_asynchronous_aborts_are_not_supported(
        self, world: World, arguments: tuple[Variant, ...]
    ) -> None:
        transaction = begin(world)
        assert world.status(transaction, "abort", *arguments) == XACT_E_NOTSUPPORTED
        assert not unit(world, transaction).is_over
        no = Variant(VT.BOOL, value=False)
        assert world.status(transaction, "abort", no, no) == 0


class TestInformation:
    @pytest.mark.spec("MQAC-3.8.4.1.3-1", "MQAC-2.2.3.2-1")
    def test_internal_transactions_tell_their_identifier_alone(self, world: World) -> None:
        transaction = TransactionImpl(world.environment, is_internal=True)
        info = world.run(transaction.transaction_info())
        assert info == XactTransInfo(transaction.identifier, 0, 0, 0, 0, 0, 0)
        assert len(info.uow.bytes_le) == 16


class TestInitNew:
    @pytest.mark.spec("MQAC-3.9.4.2.1-3", "MQAC-3.9.4.3.1-1")
    @pytest.mark.parametrize("vt", [VT.UNKNOWN, VT.DISPATCH, BYREF | VT.UNKNOWN, BYREF | VT.DISPATCH])
    def test_an_attached_transaction_is_the_same_one(self, queue: World, vt: int) -> None:
        """Sent through one object, committed through the other."""
        one, other = begin(queue), MSMQTransaction(queue.environment)
        assert queue.call(other, "get_i_transaction") == EMPTY
        given = queue.call(one, "get_i_transaction")
        assert given.vt == VT.UNKNOWN
        assert given.value is one.transaction
        assert queue.call(other, "init_new", Variant(vt, given.value)) is None
        assert queue.call(other, "get_i_transaction").value is given.value
        with queue.held() as h:
            h.send(body=b"x", transaction=unit(queue, other))
        assert queue.status(other, "commit") == 0
        assert bodies(queue) == [b"x"]
        assert queue.status(one, "commit") == MQ_ERROR_TRANSACTION_SEQUENCE

    @pytest.mark.spec("MQAC-3.9.4.2.1-1")
    def test_an_object_that_has_one_takes_no_other(self, world: World) -> None:
        one, other = begin(world), begin(world)
        given = world.call(one, "get_i_transaction")
        assert world.status(other, "init_new", given) == MQ_ERROR_TRANSACTION_USAGE
        assert other.transaction is not one.transaction

    @pytest.mark.spec("MQAC-3.9.4.2.1-2")
    @pytest.mark.parametrize(
        "make",
        [
            lambda _: i4(1),
            lambda _: Variant(BYREF | VT.I4, 1),
            lambda _: Variant(VT.I8, 1),
            lambda _: Variant(BYREF | VT.I8, 1),
            lambda _: Variant(VT.BSTR, "x"),
            lambda _: EMPTY,
            lambda _: Variant(VT.UNKNOWN, None),
            lambda world: Variant(VT.DISPATCH, begin(world)),
            lambda _: Variant(VT.UNKNOWN, ComObject()),
        ],
    )
    def test_what_is_no_transaction_is_refused(self, world: World, make: Callable[[World], Variant]) -> None:
        transaction = MSMQTransaction(world.environment)
        assert world.status(transaction, "init_new", make(world)) == E_INVALIDARG
        assert world.call(transaction, "get_i_transaction") == EMPTY


class TestLife:
    def test_a_transaction_that_nobody_has_any_more_is_aborted(self, queue: World) -> None:
        with queue.held() as h:
            first = h.begin()
            h.send(body=b"x", transaction=first)
            h.commit(first)
        transaction = MSMQTransactionDispenser(queue.environment).begin_transaction(call(queue))
        with queue.held() as h:
            h.receive(transaction=unit(queue, transaction))
        assert bodies(queue) == []
        transaction.released()
        assert bodies(queue) == [b"x"]

    def test_the_last_of_several_holders_counts(self, queue: World) -> None:
        one = MSMQTransactionDispenser(queue.environment).begin_transaction(call(queue))
        other = MSMQTransaction(queue.environment)
        given = queue.call(one, "get_i_transaction")
        queue.call(other, "init_new", given)
        pending = unit(queue, one)
        one.released()
        given.value.released()
        assert not pending.is_over
        other.released()
        assert pending.is_over

    def test_an_object_that_a_client_still_holds_keeps_its_transaction(self, queue: World) -> None:
        one = MSMQTransactionDispenser(queue.environment).begin_transaction(call(queue))
        given = queue.call(one, "get_i_transaction")
        pending = unit(queue, one)
        one.released()
        assert not pending.is_over
        given.value.released()
        assert pending.is_over

    def test_a_committed_one_stays_committed(self, queue: World) -> None:
        transaction = MSMQTransactionDispenser(queue.environment).begin_transaction(call(queue))
        with queue.held() as h:
            h.send(body=b"x", transaction=unit(queue, transaction))
        queue.call(transaction, "commit")
        transaction.released()
        assert bodies(queue) == [b"x"]


def call(world: World) -> ComCall:
    """A call of which nothing is asked."""
    del world
    return None  # type: ignore[return-value]


@pytest.fixture
def coordinated(queue: World) -> World:
    """A queue manager with its coordinator, as the daemon makes them."""
    with queue.held() as h:
        queue.engine.dtc.coordinator = HeardCoordinator(h.store)
    queue.environment.transaction_manager = CoordinatedTransactions(queue.engine, queue.environment.committer)
    return queue


def heard(world: World) -> list[tuple[str, uuid.UUID]]:
    """Return the answers that the coordinator got from the queue manager."""
    coordinator = world.engine.dtc.coordinator
    assert isinstance(coordinator, HeardCoordinator)
    return coordinator.heard


def begin_coordinated(world: World) -> MSMQTransaction:
    transaction = world.call(MSMQCoordinatedTransactionDispenser(world.environment), "begin_transaction")
    assert isinstance(transaction, MSMQTransaction)
    return transaction


class TestExternal:
    @pytest.mark.spec("MQAC-3.7.4.1.1-1")
    def test_without_a_manager_there_is_none(self, world: World) -> None:
        dispenser = MSMQCoordinatedTransactionDispenser(world.environment)
        assert world.status(dispenser, "begin_transaction") == DtcConnect.status == MQ_ERROR_DTC_CONNECT

    @pytest.mark.spec("MQAC-3.7.4.1.1-1")
    def test_begun_by_the_coordinator_and_enlisted_under_its_identifier(self, coordinated: World) -> None:
        transaction = begin_coordinated(coordinated)
        found = unit(coordinated, transaction)
        assert coordinated.engine.queue_manager.transaction_collection == {found.identifier: found}
        other = begin_coordinated(coordinated)
        assert unit(coordinated, other).identifier != found.identifier

    @pytest.mark.spec("MQAC-3.7.4.1.1-1")
    def test_a_coordinator_without_its_log_begins_nothing(self, coordinated: World) -> None:
        engine = coordinated.engine
        with coordinated.held() as h:
            engine.store.table(COORDINATOR).put(uuid.uuid4().bytes, b"no document")
            engine.dtc.coordinator = Coordinator(h.store)
        dispenser = MSMQCoordinatedTransactionDispenser(coordinated.environment)
        assert coordinated.status(dispenser, "begin_transaction") == MQ_ERROR_DTC_CONNECT
        assert engine.queue_manager.transaction_collection == {}

    @pytest.mark.spec("MQAC-3.8.4.1.1-4")
    @pytest.mark.parametrize("tc", [0, 1, 2])
    def test_commit_goes_through_the_coordinator(self, coordinated: World, tc: int) -> None:
        """Its event ends the queue manager's transaction, and what was sent is there."""
        transaction = begin_coordinated(coordinated)
        pending = unit(coordinated, transaction)
        with coordinated.held() as h:
            h.send(body=b"x", transaction=pending)
        assert coordinated.status(transaction, "commit", no(), i4(tc), i4(0)) == 0
        assert heard(coordinated) == [("committed", pending.identifier)]
        assert pending.is_over
        assert bodies(coordinated) == [b"x"]

    @pytest.mark.spec("MQAC-3.8.4.1.1-4")
    @pytest.mark.parametrize("is_async", [True, False])
    def test_abort_goes_through_the_coordinator(self, coordinated: World, *, is_async: bool) -> None:
        transaction = begin_coordinated(coordinated)
        pending = unit(coordinated, transaction)
        with coordinated.held() as h:
            h.send(body=b"x", transaction=pending)
        assert coordinated.status(transaction, "abort", no(), yes() if is_async else no()) == 0
        assert heard(coordinated) == [("aborted", pending.identifier)]
        assert pending.is_over
        assert bodies(coordinated) == []

    @pytest.mark.spec("MQAC-3.8.4.1.1-5")
    @pytest.mark.parametrize("end", ["commit", "abort"])
    def test_what_the_coordinator_refuses_has_not_ended(self, coordinated: World, end: str) -> None:
        """It supports no retaining: the transaction stays open, and can still be ended."""
        transaction = begin_coordinated(coordinated)
        assert coordinated.status(transaction, end, yes()) == XACT_E_NOTSUPPORTED
        assert transaction.transaction is not None
        assert not transaction.transaction.is_committed_or_aborted
        assert not unit(coordinated, transaction).is_over
        assert coordinated.status(transaction, end) == 0
        assert transaction.transaction.is_committed_or_aborted

    @pytest.mark.spec("MQAC-3.8.4.1.1-5")
    @pytest.mark.parametrize("end", ["commit", "abort"])
    def test_one_that_the_queue_manager_has_aborted_cannot_end_again(self, coordinated: World, end: str) -> None:
        transaction = begin_coordinated(coordinated)
        with coordinated.held() as h:
            h.engine.transaction_abort(unit(coordinated, transaction).identifier)
        assert coordinated.status(transaction, end) == MQ_ERROR_TRANSACTION_SEQUENCE
        assert transaction.transaction is not None
        assert not transaction.transaction.is_committed_or_aborted

    @pytest.mark.spec("MQAC-3.11.4.1.14-7")
    def test_one_that_the_queue_manager_does_not_know_yet_is_added(self, coordinated: World) -> None:
        """Before the dequeue, which is part of it then."""
        with coordinated.held() as h:
            first = h.begin()
            h.send(body=b"x", transaction=first)
            h.commit(first)
        manager = coordinated.environment.transaction_manager
        assert manager is not None
        identifier = coordinated.run(manager.begin())
        impl = TransactionImpl(coordinated.environment, identifier, is_internal=False)
        transaction = MSMQTransaction(coordinated.environment, impl)
        collection = coordinated.engine.queue_manager.transaction_collection
        assert identifier not in collection
        assert receive(coordinated, r"DIRECT=OS:.\private$\q", Variant(VT.DISPATCH, transaction)) is not None
        (operation,) = collection[identifier].transactional_operations
        assert operation.operation_type is OperationType.DEQUEUE
        assert coordinated.status(transaction, "commit") == 0
        assert bodies(coordinated) == []

    def test_one_that_no_client_has_is_aborted(self, coordinated: World) -> None:
        transaction = begin_coordinated(coordinated)
        pending = unit(coordinated, transaction)
        transaction.released()
        assert pending.is_over

    def test_the_coordinator_knows_its_details(self, coordinated: World) -> None:
        transaction = begin_coordinated(coordinated)
        assert transaction.transaction is not None
        identifier = transaction.transaction.identifier
        assert coordinated.run(transaction.transaction.transaction_info()) == XactTransInfo(identifier)


def resolve(environment: Environment, variant: Variant) -> Transaction | None:
    return resolve_transaction(environment, variant).transaction


class TestArguments:
    @pytest.mark.spec("MQAC-3.11.4.1.14-6")
    @pytest.mark.parametrize("variant", [MISSING, i4(1), i4(2), Variant(VT.I2, 1)])
    def test_without_a_context_transaction_there_is_none(self, queue: World, variant: Variant) -> None:
        argument = resolve_transaction(queue.environment, variant)
        assert argument.transaction is None
        assert not argument.is_single_message

    def test_a_single_message_has_a_transaction_of_its_own(self, queue: World) -> None:
        argument = resolve_transaction(queue.environment, i4(3))
        assert argument.is_single_message
        assert argument.transaction is None

    @pytest.mark.parametrize("vt", [VT.DISPATCH, BYREF | VT.DISPATCH])
    def test_an_object_means_its_transaction(self, queue: World, vt: int) -> None:
        transaction = begin(queue)
        assert resolve(queue.environment, Variant(vt, transaction)) is unit(queue, transaction)
        in_variable = Variant(BYREF | VT.VARIANT, Variant(VT.DISPATCH, transaction))
        assert resolve(queue.environment, in_variable) is unit(queue, transaction)

    @pytest.mark.parametrize(
        "variant",
        [
            i4(4),
            i4(-1),
            EMPTY,
            Variant(VT.NULL),
            Variant(VT.BSTR, "0"),
            Variant(VT.R8, 0.0),
            Variant(VT.BOOL, value=True),
        ],
    )
    def test_anything_else_is_an_error(self, queue: World, variant: Variant) -> None:
        with pytest.raises(ComError) as caught:
            resolve(queue.environment, variant)
        assert status_of(caught.value) == E_INVALIDARG

    def test_an_ended_transaction_takes_nothing_more(self, queue: World) -> None:
        transaction = begin(queue)
        queue.call(transaction, "commit")
        with pytest.raises(Exception, match="has ended") as caught:
            resolve(queue.environment, Variant(VT.DISPATCH, transaction))
        assert status_of(caught.value) == MQ_ERROR_TRANSACTION_SEQUENCE
