"""MSMQCollection (MC-MQAC 3.15)."""

from __future__ import annotations

import pytest

from lanner.activex.collection import MSMQCollection
from lanner.activex.tables import IMSMQ_COLLECTION
from lanner.com.automation.enumerators import IENUM_VARIANT
from lanner.com.automation.values import EMPTY, Variant
from lanner.com.constants import E_INVALIDARG, IID_IENUMVARIANT, S_FALSE
from lanner.model.errors import InvalidParameter
from lanner.wire.vartypes import VT
from tests.activex.world import World

VALUES = {
    "SeqID": Variant(VT.UI8, 0xFFFF_FFFF_FFFF_FFFF),
    "SeqNo": Variant(VT.I4, -1),
    "Name": Variant(VT.BSTR, "q"),
}


def text(value: str | None) -> Variant:
    return Variant(VT.BSTR, value)


@pytest.mark.spec("MQAC-3.15.4.1.1-1")
def test_an_item_is_found_by_its_key(world: World) -> None:
    collection = MSMQCollection(world.environment, VALUES)
    for key, value in VALUES.items():
        assert world.call(collection, "item", text(key)) == value
    for other in ("none", "seqid", "", None):
        assert world.status(collection, "item", text(other)) == InvalidParameter.status
    # By reference, as scripts pass their variables.
    assert world.call(collection, "item", Variant(VT.BYREF | VT.BSTR, "Name")) == VALUES["Name"]
    assert world.call(collection, "item", Variant(VT.BYREF | VT.VARIANT, text("Name"))) == VALUES["Name"]


@pytest.mark.parametrize("index", [Variant(VT.I4, 1), EMPTY, Variant(VT.ARRAY | VT.UI1, b"Name")])
def test_a_key_is_text(world: World, index: Variant) -> None:
    assert world.status(MSMQCollection(world.environment, VALUES), "item", index) == E_INVALIDARG


@pytest.mark.spec("MQAC-3.15.4.1.2-1")
def test_a_collection_that_a_client_makes_is_empty(world: World) -> None:
    assert world.call(MSMQCollection(world.environment, VALUES), "get_count") == 3
    made = MSMQCollection(world.environment)
    assert made.query_interface(IMSMQ_COLLECTION.iid) is IMSMQ_COLLECTION
    assert world.call(made, "get_count") == 0
    assert world.status(made, "item", text("SeqNo")) == InvalidParameter.status


@pytest.mark.spec("MQAC-3.15.4.1.3-1")
def test_the_elements_can_be_enumerated(world: World) -> None:
    enumerator = world.call(MSMQCollection(world.environment, VALUES), "get_new_enum")
    assert enumerator.query_interface(IID_IENUMVARIANT) is IENUM_VARIANT
    result = world.call(enumerator, "next", 10)
    assert result.hresult == S_FALSE
    assert result.value == (tuple(VALUES.values()), 3)


def test_an_enumeration_continues_when_the_collection_is_let_go(world: World) -> None:
    collection = MSMQCollection(world.environment, VALUES)
    enumerator = world.call(collection, "get_new_enum")
    collection.released()
    assert world.call(enumerator, "next", 1).value == ((VALUES["SeqID"],), 1)
    # A client that asks the enclosing object again gets the property as it was.
    assert world.call(collection, "get_count") == 3
