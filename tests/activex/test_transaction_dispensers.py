"""MSMQTransactionDispenser and MSMQCoordinatedTransactionDispenser (MC-MQAC 3.6, 3.7)."""

from __future__ import annotations

import pytest

from lanner.activex.tables import MSMQ_COORDINATED_TRANSACTION_DISPENSER, MSMQ_TRANSACTION_DISPENSER
from lanner.activex.transaction_dispensers import MSMQCoordinatedTransactionDispenser, MSMQTransactionDispenser
from lanner.com.constants import E_NOTIMPL
from lanner.com.members import Coclass
from lanner.com.objects import ComObject
from tests.activex.world import World


@pytest.mark.spec("MQAC-3.6.4-1")
@pytest.mark.parametrize("coclass", [MSMQ_TRANSACTION_DISPENSER, MSMQ_COORDINATED_TRANSACTION_DISPENSER])
def test_revisions_and_what_they_return(coclass: Coclass) -> None:
    """3.6.4: slot 7, and from the second revision on 8; the transaction is of the same revision."""
    assert [[member.opnum for member in table.members] for table in coclass.interfaces] == [[7], [7, 8], [7, 8]]
    returned = [table.members[0].parameters[-1].type for table in coclass.interfaces]
    assert returned == ["IMSMQTransaction**", "IMSMQTransaction2**", "IMSMQTransaction3**"]


@pytest.mark.spec("MQAC-3.2.4.2.7-1")
@pytest.mark.parametrize("coclass", [MSMQTransactionDispenser, MSMQCoordinatedTransactionDispenser])
def test_properties_are_not_implemented(world: World, coclass: type[ComObject]) -> None:
    assert world.status(coclass(world.environment), "get_properties") == E_NOTIMPL  # type: ignore[call-arg]


@pytest.mark.spec("MQAC-3.6.4.1.1-1")
def test_each_transaction_is_one_of_the_queue_manager(world: World) -> None:
    """A fresh GUID, in TransactionCollection."""
    collection = world.engine.queue_manager.transaction_collection
    dispenser = MSMQTransactionDispenser(world.environment)
    one, other = (world.call(dispenser, "begin_transaction", revision=revision) for revision in (1, 3))
    assert one.transaction.is_internal
    assert one.transaction.identifier != other.transaction.identifier
    assert {one.transaction.identifier, other.transaction.identifier} <= collection.keys()
    world.objects.extend((one, other))
