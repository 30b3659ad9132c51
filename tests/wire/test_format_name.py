from __future__ import annotations

import itertools
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import QueueType
from lanner.model.errors import IllegalFormatname
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MachineFormatName,
    MulticastFormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueFormatType,
    QueueSuffixType,
    parse,
)
from lanner.wire.path_name import PathName
from tests.wire.samples import element_names

TEXT = "01020304-0506-0708-090a-0b0c0d0e0f10"
GUID = UUID(TEXT)


@pytest.mark.spec("MQMQ-2.1.4-1")
class TestIdentifiers:
    def test_public(self) -> None:
        assert parse(f"PUBLIC={TEXT}") == PublicFormatName(GUID)
        assert str(parse(f"PUBLIC={TEXT}")) == f"PUBLIC={TEXT}"
        assert str(parse(f"public={TEXT.upper()}")) == f"PUBLIC={TEXT}"

    @pytest.mark.parametrize(
        ("digits", "number"), [("1", 1), ("f02", 0xF02), ("00000f02", 0xF02), ("FFFFFFFF", 0xFFFF_FFFF), ("10", 0x10)]
    )
    def test_private_numbers_are_hexadecimal(self, digits: str, number: int) -> None:
        name = parse(f"PRIVATE={TEXT}\\{digits}")
        assert name == PrivateFormatName(GUID, number)
        assert str(name) == f"PRIVATE={TEXT}\\{number:08x}"
        assert parse(str(name)) == name
        journal = parse(f"PRIVATE={TEXT}\\{digits};journal")
        assert journal == PrivateFormatName(GUID, number, is_journal=True)
        assert str(journal) == f"PRIVATE={TEXT}\\{number:08x};JOURNAL"

    @given(st.uuids(), st.integers(0, 0xFFFF_FFFF), st.booleans())
    def test_names_read_back(self, guid: UUID, number: int, is_journal: bool) -> None:
        for name in (PublicFormatName(guid, is_journal), PrivateFormatName(guid, number, is_journal)):
            assert parse(str(name)) == name
            assert str(parse(str(name))) == str(name)

    @pytest.mark.parametrize(
        "text",
        [
            "PUBLIC=",
            "PUBLIC=01020304",
            f"PUBLIC={{{TEXT}}}",
            f"PUBLIC={TEXT.replace('-', '')}",
            f"PUBLIC={TEXT}x",
            f"PUBLIC={TEXT};DEADLETTER",
            f"PUBLIC={TEXT};sub",
            f"PRIVATE={TEXT}",
            f"PRIVATE={TEXT}\\",
            f"PRIVATE={TEXT}\\xyz",
            f"PRIVATE={TEXT}\\123456789",
            f"PRIVATE={TEXT}/12",
            f"PRIVATE={TEXT}\\12;DEADXACT",
            f"PRIVATE={TEXT}\\0x12",
        ],
    )
    def test_what_is_neither_is_refused(self, text: str) -> None:
        with pytest.raises(IllegalFormatname):
            parse(text)


@pytest.mark.spec("MQMQ-2.1.2-1")
class TestDirect:
    @pytest.mark.parametrize("protocol", ["TCP", "OS", "IPX", "tcp", "Os"])
    @pytest.mark.parametrize("prefix", ["", "PRIVATE$\\", "private$\\"])
    @pytest.mark.parametrize("journal", ["", ";JOURNAL", ";journal"])
    def test_native_protocols(self, protocol: str, prefix: str, journal: str) -> None:
        text = f"{protocol}:10.0.0.1\\{prefix}Orders{journal}"
        name = parse(f"DIRECT={text}")
        assert isinstance(name, DirectFormatName)
        assert name.text == text  # the packet's form has no prefix
        assert str(name) == f"DIRECT={text}"
        assert name.protocol == protocol.upper()
        assert name.address == name.host == "10.0.0.1"
        assert name.queue_part is not None
        assert name.queue_part.queue_type is (QueueType.PRIVATE if prefix else QueueType.PUBLIC)
        assert name.queue_part.name == "Orders"
        assert name.queue_part.is_journal is bool(journal)
        assert name.is_read_only is bool(journal)
        assert name.path_name == PathName("10.0.0.1", name.queue_part.queue_type, "Orders", None, bool(journal))

    @pytest.mark.parametrize("protocol", ["HTTP", "HTTPS"])
    @pytest.mark.parametrize("port", ["", ":8080"])
    @pytest.mark.parametrize("queue", ["\\private$\\orders", "/private$/orders", "/PRIVATE$/orders"])
    def test_http(self, protocol: str, port: str, queue: str) -> None:
        text = f"{protocol}://server.example{port}/MSMQ{queue}"
        name = DirectFormatName(text)
        assert str(name) == f"DIRECT={text}"
        assert name.host == "server.example"
        assert name.address == f"//server.example{port}/MSMQ"
        assert name.queue_part is not None
        assert name.queue_part.queue_type is QueueType.PRIVATE
        assert name.queue_part.name == "orders"

    def test_an_http_address_has_2048_characters_at_most(self) -> None:
        address = "//server/".ljust(2048, "x")
        assert DirectFormatName(f"HTTP:{address}").address == address
        with pytest.raises(IllegalFormatname, match="at most 2048"):
            DirectFormatName(f"HTTP:{address}x")

    def test_an_address_that_its_own_host_maps(self) -> None:
        name = DirectFormatName("https://[2001:db8::1]:443/some/alias")
        assert name.queue_part is None
        assert name.path_name is None
        assert name.host == "2001:db8::1"
        assert name.suffix is QueueSuffixType.NONE

    @pytest.mark.parametrize("queue", ["JOURNAL", "DEADLETTER", "DEADXACT", "deadxact"])
    def test_machine_queues(self, queue: str) -> None:
        name = parse(f"DIRECT=OS:server\\SYSTEM$;{queue}")
        assert name.suffix is QueueSuffixType[queue.upper()]
        assert name.is_read_only
        with pytest.raises(IllegalFormatname, match="no system queue"):
            parse("DIRECT=OS:server\\SYSTEM$;OTHER")

    def test_subqueues(self) -> None:
        name = parse(r"DIRECT=OS:.\private$\orders;poison")
        assert isinstance(name, DirectFormatName)
        assert name.suffix is QueueSuffixType.SUBQUEUE
        assert not name.is_read_only
        assert name.is_on_this_computer
        assert name.queue_part is not None
        assert name.queue_part.subqueue == "poison"

    def test_an_ipv6_address(self) -> None:
        name = DirectFormatName(r"TCP:fe80::1\private$\q")
        assert name.address == "fe80::1"

    def test_from_a_path_name(self) -> None:
        assert str(DirectFormatName.to_path(PathName.parse(r"server\private$\q"))) == r"DIRECT=OS:server\private$\q"

    def test_names_have_no_case_but_keep_their_spelling(self) -> None:
        one, other = DirectFormatName("OS:Server\\Orders"), DirectFormatName("os:server\\orders")
        assert one.key == other.key
        assert one != other
        assert len({one, other, DirectFormatName("OS:Server\\Orders")}) == 2

    def test_names_that_other_computers_gave_are_accepted(self) -> None:
        """A peer's queue may have a name that MS-MQMQ 2.1.1 would not let us make."""
        for queue in ("my orders", "bestellungen-für", "+plus"):
            assert str(DirectFormatName(f"OS:server\\{queue}")) == f"DIRECT=OS:server\\{queue}"

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("DIRECT=", "does not begin with"),
            ("DIRECT=server\\q", "does not begin with"),
            ("DIRECT=FTP:server\\q", "does not begin with"),
            ("DIRECT=OS:server", "backslash"),
            ("DIRECT=OS:\\q", "backslash"),
            ("DIRECT=OS:server\\", "no queue name"),
            ("DIRECT=OS:server\\private$", "no queue name"),
            ("DIRECT=OS:server\\a\\b", "backslash inside"),
            ("DIRECT=OS:server\\a;b;c", "second semicolon"),
            ("DIRECT=OS:server\\a\nb", "at character 11"),
            ("DIRECT=OS:" + "s" * 257 + "\\q", "at most 256"),
            ("DIRECT=OS:s\\" + "q" * 125, "at most 124"),
            ("DIRECT=HTTP:server/msmq/q", "must follow the protocol"),
            ("DIRECT=HTTP://server/msmq/a/b/c", "backslash inside"),
        ],
    )
    def test_what_is_wrong_is_reported(self, text: str, problem: str) -> None:
        with pytest.raises(IllegalFormatname, match=problem):
            parse(text)


class TestOtherKinds:
    @pytest.mark.parametrize(
        ("text", "name", "kind"),
        [
            (f"DL={TEXT}", DistributionListFormatName(GUID), QueueFormatType.DL),
            (f"DL={TEXT}@example.com", DistributionListFormatName(GUID, "example.com"), QueueFormatType.DL),
            (f"MACHINE={TEXT}", MachineFormatName(GUID), QueueFormatType.MACHINE),
            (f"MACHINE={TEXT};JOURNAL", MachineFormatName(GUID, QueueSuffixType.JOURNAL), QueueFormatType.MACHINE),
            (
                f"MACHINE={TEXT};DEADLETTER",
                MachineFormatName(GUID, QueueSuffixType.DEADLETTER),
                QueueFormatType.MACHINE,
            ),
            (f"MACHINE={TEXT};DEADXACT", MachineFormatName(GUID, QueueSuffixType.DEADXACT), QueueFormatType.MACHINE),
            (f"CONNECTOR={TEXT}", ConnectorFormatName(GUID), QueueFormatType.CONNECTOR),
            (f"CONNECTOR={TEXT};XACTONLY", ConnectorFormatName(GUID, is_transactional=True), QueueFormatType.CONNECTOR),
            ("MULTICAST=224.0.0.1:0", MulticastFormatName("224.0.0.1", 0), QueueFormatType.MULTICAST),
            (
                "MULTICAST=239.255.255.255:65535",
                MulticastFormatName("239.255.255.255", 65535),
                QueueFormatType.MULTICAST,
            ),
            (f"PUBLIC={TEXT};JOURNAL", PublicFormatName(GUID, is_journal=True), QueueFormatType.PUBLIC),
        ],
    )  # fmt: skip
    def test_each_reads_and_writes(self, text: str, name: FormatName, kind: QueueFormatType) -> None:
        assert FormatName.parse(text) == name
        assert str(name) == text
        assert parse(text.lower()).key == name.key
        assert name.queue_format_type is kind
        assert name.elements == (name,)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "orders",
            "server\\orders",
            "QUEUE=1",
            f"DL={TEXT}@",
            f"DL={TEXT}@a b",
            f"MACHINE={TEXT};XACTONLY",
            f"CONNECTOR={TEXT};JOURNAL",
            "MULTICAST=223.0.0.1:1801",
            "MULTICAST=240.0.0.1:1801",
            "MULTICAST=224.0.0.256:1801",
            "MULTICAST=224.0.0.01:1801",
            "MULTICAST=224.0.0.1",
            "MULTICAST=224.0.0.1:65536",
            "MULTICAST=224.0.0.1:",
        ],
    )
    def test_what_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(IllegalFormatname):
            parse(text)


@pytest.mark.spec("MQMQ-2.1.7-1")
class TestMultipleElement:
    KINDS = (
        r"DIRECT=OS:server\private$\q",
        f"PUBLIC={TEXT}",
        f"PRIVATE={TEXT}\\00000012",
        f"DL={TEXT}@domain",
        f"CONNECTOR={TEXT}",
        "MULTICAST=224.1.2.3:1801",
    )
    READ_ONLY = (
        r"DIRECT=OS:server\q;JOURNAL",
        r"DIRECT=OS:server\SYSTEM$;DEADLETTER",
        r"DIRECT=OS:server\SYSTEM$;DEADXACT",
        r"DIRECT=OS:server\SYSTEM$;JOURNAL",
        f"PUBLIC={TEXT};JOURNAL",
        f"PRIVATE={TEXT}\\12;JOURNAL",
        f"MACHINE={TEXT};DEADXACT",
        f"MACHINE={TEXT};JOURNAL",
        f"MACHINE={TEXT}",
    )

    def test_any_two_kinds_together(self) -> None:
        for one, other in itertools.product(self.KINDS, repeat=2):
            name = parse(f"{one},{other}")
            assert isinstance(name, MultipleElementFormatName)
            assert name.elements == (parse(one), parse(other))
            assert str(name) == f"{one},{other}"
            assert not name.is_read_only

    def test_journals_and_dead_letter_queues_are_refused(self) -> None:
        for one, other in itertools.product(self.KINDS, self.READ_ONLY):
            for text in (f"{one},{other}", f"{other},{one}"):
                with pytest.raises(IllegalFormatname, match="cannot be an element"):
                    parse(text)

    @pytest.mark.parametrize("text", [f"PUBLIC={TEXT},", f",PUBLIC={TEXT}", f"PUBLIC={TEXT}, PUBLIC={TEXT}", ","])
    def test_empty_elements_and_spaces_are_refused(self, text: str) -> None:
        with pytest.raises(IllegalFormatname):
            parse(text)

    def test_lists_do_not_nest(self) -> None:
        pair = MultipleElementFormatName((PublicFormatName(GUID), PublicFormatName(GUID)))
        with pytest.raises(IllegalFormatname):
            MultipleElementFormatName((pair,))
        with pytest.raises(IllegalFormatname):
            MultipleElementFormatName(())

    @given(st.lists(element_names, min_size=2, max_size=5))
    def test_lists_read_back(self, names: list[FormatName]) -> None:
        name = MultipleElementFormatName(tuple(names))
        assert parse(str(name)) == name


@given(
    st.text(max_size=60)
    | st.sampled_from(("DIRECT=", "PUBLIC=", "PRIVATE=", "DL=", "MULTICAST=")).flatmap(
        lambda kind: st.text(max_size=50).map(lambda rest: kind + rest)
    )
)
def test_any_text_is_a_format_name_or_refused(text: str) -> None:
    try:
        name = parse(text)
    except IllegalFormatname:
        return
    assert parse(str(name)) == name
    assert hash(parse(str(name))) == hash(name)
