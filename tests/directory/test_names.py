"""MS-MQDSSM 2.2.1, 2.2.5, 3.1.6.1.2.5: distinguished names, and queue names inside them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.directory.names import (
    HASH_TABLE,
    Naming,
    dn_key,
    escape,
    join_queue_name,
    parent_dn,
    queue_name_hash,
    rdn_values,
    split_pathname,
    split_queue_name,
    unescape,
)

NAMING = Naming("DC=example,DC=org")

# MS-MQMQ 2.1.1: the characters of a queue name.
queue_names = st.text(st.sampled_from("abcXYZ019!#$%&'()*-./:<=>?@[]^_`{|}~"), min_size=1, max_size=124)


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 0),
        (1, 0x82E0FE45),
        (2, 0x3302DCCD),
        (77, 0xFE3F6CD9),
        (128, 0x9B619023),
        (200, 0x81BBBB25),
        (255, 0x93E14A01),
    ],
)
def test_hash_table_is_the_printed_one(index: int, value: int) -> None:
    assert HASH_TABLE[index] == value


def test_hash_ignores_case_and_is_eight_digits() -> None:
    assert queue_name_hash("Orders") == queue_name_hash("oRDERS")
    # One character, by the steps of 2.2.5: high octet 0, then the low octet through the table.
    assert queue_name_hash("a") == f"{HASH_TABLE[0x61]:08x}"
    assert queue_name_hash("\u0101") == f"{HASH_TABLE[1] >> 8 ^ HASH_TABLE[1 ^ HASH_TABLE[1] & 0xFF]:08x}"


def test_a_name_of_63_characters_is_whole_and_one_of_64_is_split() -> None:
    assert split_queue_name("q" * 63) == ("q" * 63, "")
    child, extension = split_queue_name("q" * 64)
    assert child == "q" * 55 + "-" + queue_name_hash("q" * 64)
    assert len(child) == 64
    assert extension == "q" * 9


def test_special_characters_are_escaped() -> None:
    assert NAMING.queue("alpha\\a=b#c/d").startswith(r"CN=a\=b\#c/d,CN=msmq,")


@given(queue_names)
def test_split_names_come_back(name: str) -> None:
    assert join_queue_name(*split_queue_name(name)) == name


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1))
def test_any_name_survives_being_an_element(name: str) -> None:
    dn = f"CN={escape(name)},{NAMING.root}"
    assert unescape(rdn_values(dn)[0]) == name.lstrip(" ") or name.startswith(" ")
    assert parent_dn(dn) == NAMING.root


def test_names_of_the_objects() -> None:
    """MS-MQDSSM 2.2.1."""
    root = NAMING.root
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    assert NAMING.queue("alpha\\orders") == f"CN=orders,CN=msmq,CN=alpha,CN=Computers,{root}"
    assert NAMING.queue_manager("alpha") == f"CN=msmq,CN=alpha,CN=Computers,{root}"
    assert NAMING.computer("alpha") == f"CN=alpha,CN=Computers,{root}"
    assert NAMING.site("north") == f"CN=north,CN=Sites,CN=Configuration,{root}"
    assert NAMING.enterprise == f"CN=MsmqServices,CN=Services,CN=Configuration,{root}"
    assert NAMING.user("ann") == f"CN=ann,CN=Users,{root}"
    assert NAMING.routing_link(one, two) == f"CN={one.hex}{two.hex},{NAMING.enterprise}"
    assert NAMING.settings("alpha", "north") == (
        f"CN=MSMQ Settings,CN=alpha,CN=Servers,CN=north,CN=Sites,CN=Configuration,{root}"
    )
    assert NAMING.domain == "example.org"


def test_spelling_of_a_name_does_not_matter() -> None:
    assert dn_key("CN=msmq, CN=Alpha, CN=Computers, DC=example, DC=org") == dn_key(NAMING.queue_manager("alpha"))


@pytest.mark.parametrize("pathname", ["", "alpha", "\\q", "alpha\\", "alpha\\private$\\q", "alpha\\q;journal"])
def test_fail_not_a_public_queue(pathname: str) -> None:
    with pytest.raises(ValueError, match="public queue"):
        split_pathname(pathname)
