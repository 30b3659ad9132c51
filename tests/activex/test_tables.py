"""The generated tables of interfaces, checked against the document and the decisions on DISPIDs."""

from __future__ import annotations

import inspect

import pytest

import make_activex_tables
from lanner.activex import COCLASSES, tables
from lanner.com.constants import IID_IDISPATCH, IID_IUNKNOWN
from lanner.com.members import IDISPATCH, IUNKNOWN, Coclass, InterfaceTable
from lanner.com.objects import ComObject


def test_the_tables_are_what_the_generator_makes() -> None:
    assert make_activex_tables.TABLES.read_text() == make_activex_tables.make()


def test_there_are_as_many_as_the_document_has() -> None:
    assert len(tables.COCLASSES) == 15
    assert len({each.clsid for each in tables.COCLASSES}) == 15
    assert len({each.iid for each in tables.INTERFACES}) == len(tables.INTERFACES) == 44


@pytest.mark.parametrize("table", tables.INTERFACES, ids=repr)
@pytest.mark.spec("MQAC-3.1-2")
def test_vtables_have_no_holes_and_start_after_what_they_inherit(table: InterfaceTable) -> None:
    """Slots 0-2 are IUnknown's, 3-6 IDispatch's.

    The first member of each MSMQ interface is opnum 7.
    """
    first = 7 if table.is_dispatch else 3
    assert [member.opnum for member in table.members] == list(range(first, first + len(table.members)))
    # Nothing beyond the last slot, and nothing of IUnknown's, can be called.
    assert sorted(table.by_opnum) == list(range(3, first + len(table.members)))


@pytest.mark.parametrize("table", [each for each in tables.INTERFACES if each.is_dispatch], ids=repr)
@pytest.mark.spec("MQAC-3.1-8")
def test_a_name_has_one_dispid_and_a_dispid_one_name(table: InterfaceTable) -> None:
    """Get, put and putref of one property share one DISPID."""
    assert {len({member.dispid for member in members}) for members in table.by_name.values()} <= {1}
    assert {len({member.name for member in members}) for members in table.by_dispid.values()} <= {1}


@pytest.mark.spec("MQAC-3.1-8")
def test_the_ids_that_the_idl_fixes() -> None:
    events = {member.name: member.dispid for member in tables.DMSMQ_EVENT_EVENTS.members}
    assert events == {"Arrived": 0, "ArrivedError": 1}


@pytest.mark.spec("MQAC-3.2.4.2.7-1")
def test_the_opnums_of_properties() -> None:
    classes = {
        tables.MSMQ_APPLICATION: 14,
        tables.MSMQ_TRANSACTION_DISPENSER: 8,
        tables.MSMQ_COORDINATED_TRANSACTION_DISPENSER: 8,
        tables.MSMQ_TRANSACTION: 11,
        tables.MSMQ_QUEUE_INFO: 38,
        tables.MSMQ_QUEUE: 25,
        tables.MSMQ_DESTINATION: 20,
        tables.MSMQ_QUERY: 8,
        tables.MSMQ_QUEUE_INFOS: 9,
        tables.MSMQ_EVENT: 7,
        tables.MSMQ_MESSAGE: 73,
    }
    for coclass, opnum in classes.items():
        (member,) = (one for one in coclass.interfaces[-1].members if one.name == "Properties")
        assert (coclass.name, member.opnum) == (coclass.name, opnum)


def test_dispids_count_names_and_step_with_inheritance() -> None:
    queue = tables.IMSMQ_QUEUE.members
    assert [(member.name, member.dispid) for member in queue[:3]] == [
        ("Access", 0x60020000),
        ("ShareMode", 0x60020001),
        ("QueueInfo", 0x60020002),
    ]
    # A property's accessors count once.
    assert [member.dispid for member in tables.IMSMQ_MESSAGE.by_name["privlevel"]] == [0x60020001, 0x60020001]
    assert [member.dispid for member in tables.IMSMQ_MESSAGE.by_name["authlevel"]] == [0x60020002, 0x60020002]
    transaction = {member.name: member.dispid for member in tables.IMSMQ_TRANSACTION3.members}
    assert transaction["Transaction"] == 0x60020000
    assert transaction["InitNew"] == 0x60030000
    assert transaction["ITransaction"] == 0x60040000
    collection = {member.name: member.dispid for member in tables.IMSMQ_COLLECTION.members}
    assert collection["Item"] == 0
    assert collection["_NewEnum"] == -4


@pytest.mark.parametrize(
    ("name", "kind", "python"),
    [
        ("PathName", "propget", "get_path_name"),
        ("PathNameDNS", "propget", "get_path_name_dns"),
        ("ADsPath", "propput", "put_ads_path"),
        ("Destinations", "propputref", "putref_destinations"),
        ("Open", "method", "open"),
        ("IsOpen2", "propget", "get_is_open2"),
        ("Receive_v1", "method", "receive_v1"),
        ("MSMQVersionBuild", "propget", "get_msmq_version_build"),
        ("_NewEnum", "method", "get_new_enum"),
        ("Class", "propget", "get_class"),
        ("Import", "method", "import_"),
    ],
)
def test_python_names(name: str, kind: str, python: str) -> None:
    assert make_activex_tables.python_name(kind, name) == python


@pytest.mark.parametrize("coclass", tables.COCLASSES, ids=lambda each: each.name)
def test_every_coclass_has_its_class_whose_methods_fit_its_members(coclass: Coclass) -> None:
    made = COCLASSES[coclass.clsid]
    assert isinstance(made, type)
    assert made.__name__ == coclass.name
    assert issubclass(made, ComObject)
    assert made.interfaces == coclass.interfaces
    for table in coclass.interfaces:
        for member in table.members:
            method = getattr(made, member.python, None)
            if method is not None:
                count = len([parameter for parameter in member.parameters if parameter.is_in])
                # The object, the caller, the arguments.
                inspect.signature(method).bind(None, None, *[None] * count)


class Management(ComObject):
    interfaces = tables.MSMQ_QUEUE_MANAGEMENT.interfaces


class Event(ComObject):
    interfaces = tables.MSMQ_EVENT.interfaces


class Mark(ComObject):
    interfaces = (tables.ITRANSACTION,)


@pytest.mark.spec("MQAC-3.1-1")
def test_an_object_answers_for_its_interfaces_their_bases_and_what_all_have() -> None:
    obj = Management()
    assert obj.query_interface(IID_IUNKNOWN) is IUNKNOWN
    assert obj.query_interface(IID_IDISPATCH) is IDISPATCH
    assert obj.query_interface(tables.IMSMQ_QUEUE_MANAGEMENT.iid) is tables.IMSMQ_QUEUE_MANAGEMENT
    assert obj.query_interface(tables.IMSMQ_MANAGEMENT.iid) is tables.IMSMQ_MANAGEMENT
    assert obj.query_interface(tables.IMSMQ_QUEUE.iid) is None


@pytest.mark.parametrize("coclass", tables.COCLASSES, ids=lambda each: each.name)
@pytest.mark.spec("MQAC-3.1-1")
def test_every_coclass_lists_what_it_answers_for(coclass: Coclass) -> None:
    obj = type("Made", (ComObject,), {"interfaces": coclass.interfaces})()
    assert all(obj.query_interface(table.iid) is table for table in coclass.interfaces)
    assert obj.query_interface(IID_IDISPATCH) is IDISPATCH
    assert obj.query_interface(IID_IUNKNOWN) is IUNKNOWN


@pytest.mark.spec("MQAC-3.1-1")
def test_what_has_no_dispatch_interface_does_not_answer_for_it() -> None:
    """The transaction object behind MSMQTransaction offers no IDispatch."""
    assert Mark().query_interface(IID_IDISPATCH) is None
    assert Mark().query_interface(tables.ITRANSACTION.iid) is tables.ITRANSACTION


def test_idispatch_speaks_of_the_default_interface() -> None:
    assert Event().default_dispatch() is tables.IMSMQ_EVENT3
