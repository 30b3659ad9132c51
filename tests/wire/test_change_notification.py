"""Change Notification Messages (MS-MQCN 2.2), as octets written out from the document."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence

import pytest

from lanner.model.errors import RemoteProtocolError
from lanner.wire.change_notification import (
    ChangeNotificationMessage,
    NotificationBody,
    NotificationCommand,
    NotificationEvent,
    NotificationUpdate,
)
from lanner.wire.notification_values import pack_value, pack_values, property_type, read_value
from lanner.wire.property_ids import DeletionProperty, MachineProperty, QueueProperty
from lanner.wire.reader import Reader
from lanner.wire.vartypes import VT

QUEUE = uuid.UUID("01234567-89ab-cdef-0011-223344556677")
QUEUE_OCTETS = bytes.fromhex("67452301 ab89 efcd 0011223344556677")
MASTER = uuid.UUID("aabbccdd-eeff-0102-0304-05060708090a")
MASTER_OCTETS = bytes.fromhex("ddccbbaa ffee 0201 030405060708090a")
RESERVED = bytes(24)

TEXT = (
    "<Notification><Event>1</Event><ObjectGuid>01234567-89AB-CDEF-0011-223344556677</ObjectGuid>"
    "<DomainController>dc1.mq.test</DomainController></Notification>"
)
BODY = NotificationBody(NotificationEvent.CREATE_QUEUE, QUEUE, "dc1.mq.test")


def wide(text: str) -> bytes:
    return text.encode("utf-16-le")


def update_octets(identifiers: Sequence[int], values: bytes, command: int = 1, name: str | None = None) -> bytes:
    """A Notification Update, field by field."""
    front = bytes((command, 1)) + QUEUE_OCTETS if name is None else bytes((command, 0)) + wide(name + "\0")
    listed = b"".join(one.to_bytes(4, "little") for one in identifiers)
    return front + MASTER_OCTETS + RESERVED + bytes((len(identifiers),)) + listed + values


def parsed(data: bytes) -> NotificationUpdate:
    return NotificationUpdate.read(Reader(data))


# Values (2.2.1-2.2.3)
# ----------------------------------------------------------------------------------------------

VALUES = [
    (VT.I1, -2, "fe"),
    (VT.UI1, 0xFE, "fe"),
    (VT.I2, -2, "feff"),
    (VT.UI2, 0xFFFE, "feff"),
    (VT.I4, -2, "feffffff"),
    (VT.UI4, 0xFFFFFFFE, "feffffff"),
    (VT.I8, -2, "feffffffffffffff"),
    (VT.UI8, 0xFFFFFFFFFFFFFFFE, "feffffffffffffff"),
    (VT.CLSID, QUEUE, "67452301ab89efcd0011223344556677"),
]


@pytest.mark.spec("MQCN-2.2.3-2", "MQCN-2.2.1-1")
@pytest.mark.parametrize(("vt", "value", "octets"), VALUES)
def test_numbers_and_guids_are_little_endian(vt: VT, value: object, octets: str) -> None:
    assert pack_value(vt, value) == bytes.fromhex(octets)
    assert read_value(Reader(bytes.fromhex(octets)), vt, "value") == value


@pytest.mark.spec("MQCN-2.2.3.3-1")
def test_a_boolean_is_two_octets() -> None:
    for value, octets in ((True, b"\xff\xff"), (False, b"\0\0")):
        assert pack_value(VT.BOOL, value) == octets
        assert read_value(Reader(octets), VT.BOOL, "value") is value


@pytest.mark.spec("MQCN-2.2.3.10-1")
def test_a_string_ends_with_a_null_and_has_no_length() -> None:
    for value, octets in (("", "0000"), ("aé", "6100e9000000")):
        assert pack_value(VT.LPWSTR, value) == bytes.fromhex(octets)
        assert read_value(Reader(bytes.fromhex(octets)), VT.LPWSTR, "value") == value


@pytest.mark.spec("MQCN-2.2.3.11-1")
def test_a_blob_is_counted() -> None:
    for value, octets in ((b"", "00000000"), (b"\1\2\3", "03000000010203")):
        assert pack_value(VT.BLOB, value) == bytes.fromhex(octets)
        assert read_value(Reader(bytes.fromhex(octets)), VT.BLOB, "value") == value


@pytest.mark.spec("MQCN-2.2.3.13-1")
def test_a_vector_counts_its_elements() -> None:
    cases: list[tuple[int, list[object], str]] = [
        (VT.VECTOR | VT.UI4, [1, 2], "02000000 01000000 02000000"),
        (VT.VECTOR | VT.CLSID, [QUEUE], "01000000" + QUEUE_OCTETS.hex()),
        (VT.VECTOR | VT.LPWSTR, ["a", ""], "02000000 61000000 0000"),
        (property_type(MachineProperty.CNS), [], "00000000"),
    ]
    for vt, value, octets in cases:
        assert pack_value(vt, value) == bytes.fromhex(octets)
        assert read_value(Reader(bytes.fromhex(octets)), vt, "value") == value


@pytest.mark.parametrize("octets", ["ffffffff", "02000000" + QUEUE_OCTETS.hex()])
def test_a_vector_that_is_longer_than_the_body_is_refused_before_it_is_read(octets: str) -> None:
    with pytest.raises(RemoteProtocolError, match="bytes follow"):
        read_value(Reader(bytes.fromhex(octets)), VT.VECTOR | VT.CLSID, "value")


@pytest.mark.spec("MQCN-2.2.3-1", "MQCN-2.2.3-3")
def test_values_follow_each_other_without_types_and_padding() -> None:
    """A VT_UI1 and a VT_UI4 take five octets; what they are follows from their identifiers."""
    packed = pack_values((QueueProperty.JOURNAL, QueueProperty.QUOTA), (1, 0x01020304))
    assert packed == bytes.fromhex("01 04030201")
    found = parsed(update_octets((QueueProperty.JOURNAL, QueueProperty.QUOTA), packed))
    assert found.property_values == (1, 0x01020304)


QUEUE_TYPES = {
    VT.CLSID: (101, 102, 115),
    VT.LPWSTR: (103, 108, 125, 126),
    VT.UI1: (104, 111, 113, 114),
    VT.UI4: (105, 107, 112),
    VT.I2: (106,),
    VT.I4: (109, 110),
    VT.BLOB: (1101,),
}
MACHINE_TYPES = {
    VT.CLSID: (201, 202),
    VT.BLOB: (206, 1201),
    VT.VECTOR | VT.CLSID: (207,),
    VT.UI4: (214, 215, 220),
    VT.LPWSTR: (216,),
    VT.I4: (218,),
    VT.UI1: (219, 1403, 1404),
}


@pytest.mark.spec("MQCN-2.2.2.1-1", "MQCN-2.2.2.1-2", "MQCN-2.2.2.1-4")
def test_the_type_of_a_value_follows_from_its_identifier() -> None:
    for types in (QUEUE_TYPES, MACHINE_TYPES):
        for vt, identifiers in types.items():
            assert {property_type(one) for one in identifiers} == {vt}
    assert (QueueProperty.PATHNAME, MachineProperty.SECURITY) == (103, 1201)


SAMPLES: dict[int, tuple[object, bytes]] = {
    VT.CLSID: (QUEUE, QUEUE_OCTETS),
    VT.LPWSTR: ("x", b"x\0\0\0"),
    VT.UI1: (1, b"\1"),
    VT.UI4: (7, b"\7\0\0\0"),
    VT.I2: (-1, b"\xff\xff"),
    VT.I4: (-1, b"\xff\xff\xff\xff"),
    VT.BLOB: (b"!", b"\1\0\0\0!"),
    VT.VECTOR | VT.CLSID: ([QUEUE], b"\1\0\0\0" + QUEUE_OCTETS),
}


@pytest.mark.spec("MQCN-2.2.2.1-1", "MQCN-2.2.2.1-2", "MQCN-2.2.2-1")
def test_each_property_is_written_and_read_with_its_type() -> None:
    for types in (QUEUE_TYPES, MACHINE_TYPES):
        for vt, identifiers in types.items():
            value, octets = SAMPLES[vt]
            for one in identifiers:
                data = update_octets((one,), octets)
                found = parsed(data)
                assert (found.property_ids, found.property_values) == ((one,), (value,))
                assert found.pack() == data


@pytest.mark.spec("MQCN-2.2.2-1")
def test_an_identifier_is_four_octets_least_significant_first() -> None:
    data = parsed(update_octets((QueueProperty.PATHNAME, QueueProperty.SECURITY), b"\0\0\0\0\0\0")).pack()
    assert data[59:67] == bytes.fromhex("67000000 4d040000")


@pytest.mark.spec("MQCN-2.2.2-3")
@pytest.mark.parametrize("identifier", [0, 1, 27, 100, 120, 999, 0xFFFFFFFF])
def test_an_unknown_identifier_gives_its_value_no_length(identifier: int) -> None:
    with pytest.raises(RemoteProtocolError, match="no such property"):
        parsed(update_octets((identifier,), bytes(64)))


# Change Notification Message (2.2.4)
# -------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-2.2.4-1", "MQCN-2.2.4-4", "MQCN-2.2.4-7", "MQCN-3.3.5.3-7")
def test_a_message_of_version_2() -> None:
    message = ChangeNotificationMessage.of_body(BODY)
    assert message.pack() == b"\x02\x01" + wide(TEXT)
    assert message.pack()[:6] == bytes.fromhex("02 01 3c00 4e00")
    body = message.message_body()
    assert len(body) == 2 + len(message.data) + 1
    assert body[:-1] == message.pack()
    assert ChangeNotificationMessage.unpack(body).notification_body == BODY


@pytest.mark.spec("MQCN-2.2.4-4", "MQCN-2.2.4-6")
def test_updates_of_version_1_follow_each_other_without_padding() -> None:
    """The second one begins at an odd offset."""
    first = parsed(update_octets((QueueProperty.JOURNAL,), b"\1"))
    second = parsed(update_octets((QueueProperty.QUOTA,), b"\7\0\0\0"))
    message = ChangeNotificationMessage.of_updates(first, second)
    octets = b"\x01\x02" + update_octets((104,), b"\1") + update_octets((105,), b"\7\0\0\0")
    assert message.pack() == octets
    assert list(ChangeNotificationMessage.unpack(octets).updates()) == [first, second]
    odd = [parsed(update_octets((QueueProperty.QUOTA,), b"\7\0\0\0")), first]
    sent = ChangeNotificationMessage.of_updates(*odd).pack()
    assert len(odd[0].pack()) % 2 == 1
    assert list(ChangeNotificationMessage.unpack(sent).updates()) == odd


@pytest.mark.spec("MQCN-3.2.5-1")
def test_as_many_updates_are_read_as_the_message_says() -> None:
    update = parsed(update_octets((QueueProperty.JOURNAL,), b"\1"))
    data = update.pack() * 255
    for count in (0, 1, 254, 255):
        found = list(ChangeNotificationMessage(1, count, data + b"behind").updates())
        assert found == [update] * count
    with pytest.raises(ValueError, match="at most 255"):
        ChangeNotificationMessage.of_updates(*[update] * 256)


@pytest.mark.spec("MQCN-3.2.5-4")
@pytest.mark.parametrize("body", [b"", b"\1", b"\2"])
def test_a_body_shorter_than_two_octets_is_none(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ChangeNotificationMessage.unpack(body)


# Notification Body (2.2.5)
# -----------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-2.2.5-1", "MQCN-2.2.5-2", "MQCN-2.2.5-3", "MQCN-2.2.5-6", "MQCN-2.2.5-7", "MQCN-2.2.5-14")
def test_a_body_is_the_text_of_the_abnf_and_nothing_else() -> None:
    """No declaration, no byte order mark, no terminator; hexadecimal digits in upper case."""
    assert BODY.pack() == wide(TEXT)
    assert NotificationBody.unpack(wide(TEXT)) == BODY


@pytest.mark.spec("MQCN-3.3.5.1-1")
@pytest.mark.parametrize("event", list(NotificationEvent))
def test_an_event_is_one_character(event: NotificationEvent) -> None:
    octets = NotificationBody(event, QUEUE, "dc1").pack()
    assert octets.decode("utf-16-le")[14:30] == f"<Event>{int(event)}</Event>"
    assert [int(one) for one in NotificationEvent] == [1, 2, 3, 4]
    assert NotificationBody.unpack(octets).event is event


@pytest.mark.spec("MQCN-2.2.5-4")
def test_the_space_that_the_abnf_prints_is_accepted() -> None:
    assert NotificationBody.unpack(wide(TEXT.replace("</ObjectGuid>", "</ObjectGuid >"))) == BODY


@pytest.mark.spec("MQCN-2.2.5-8")
def test_digits_of_either_case_are_accepted() -> None:
    assert NotificationBody.unpack(wide(TEXT.replace("89AB-CDEF", "89ab-cDeF"))) == BODY


@pytest.mark.spec("MQCN-2.2.5-15", "MQCN-3.3.5.3-9", "MQCN-3.3.5.3-8")
@pytest.mark.parametrize("end", [b"", b"\0\0", b"\0", b"\x3c", b"\xff", b"\0\0\0", b"\0\0\x3c", b"\0\0\xff"])
def test_a_null_and_a_spare_octet_may_follow(end: bytes) -> None:
    assert NotificationBody.unpack(wide(TEXT) + end) == BODY


@pytest.mark.spec("MQCN-2.2.5-10")
@pytest.mark.parametrize("name", ["!", "~", "x" * 256, r"\\dc1.mq.test"])
def test_names_of_directory_servers(name: str) -> None:
    body = NotificationBody(NotificationEvent.CHANGE_QUEUE, QUEUE, name)
    assert NotificationBody.unpack(body.pack()) == body


@pytest.mark.spec("MQCN-2.2.5-10")
@pytest.mark.parametrize("name", ["", "x" * 257, "a b", "a\tb", "a\x7f", "dç", "a<b"])
def test_a_name_that_is_none_is_not_sent(name: str) -> None:
    with pytest.raises(ValueError, match="DomainController"):
        NotificationBody(NotificationEvent.CHANGE_QUEUE, QUEUE, name)


MALFORMED = {
    "empty": "",
    "cut": TEXT[:-1],
    "not closed": TEXT.replace("</Event>", ""),
    "no event": TEXT.replace("<Event>1</Event>", ""),
    "no guid": TEXT.replace("<ObjectGuid>01234567-89AB-CDEF-0011-223344556677</ObjectGuid>", ""),
    "no server": TEXT.replace("<DomainController>dc1.mq.test</DomainController>", ""),
    "empty server": TEXT.replace("dc1.mq.test", ""),
    "long server": TEXT.replace("dc1.mq.test", "x" * 257),
    "blank in server": TEXT.replace("dc1.mq.test", "dc1 mq"),
    "braces": TEXT.replace("01234567", "{01234567").replace("556677<", "556677}<"),
    "short guid": TEXT.replace("223344556677", "22334455667"),
    "other digits": TEXT.replace("01234567", "0123456G"),
    "declaration": '<?xml version="1.0"?>' + TEXT,
    "document type": '<!DOCTYPE x [<!ENTITY e "1">]>' + TEXT.replace(">1<", ">&e;<"),
    "byte order mark": "\ufeff" + TEXT,
    "element in server": TEXT.replace("dc1.mq.test", "<x>dc1</x>"),
    "two bodies": TEXT + TEXT,
    "other order": TEXT.replace("<Event>1</Event>", "").replace(
        "<DomainController>", "<Event>1</Event><DomainController>"
    ),
    "two nulls": TEXT + "\0\0",
}


@pytest.mark.spec("MQCN-2.2.5-16")
@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_does_not_follow_the_abnf_is_no_body(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        NotificationBody.unpack(wide(text))


@pytest.mark.spec("MQCN-3.3.5.1-2")
@pytest.mark.parametrize("event", ["0", "5", "12", "", "x", "11"])
def test_another_event_is_no_body(event: str) -> None:
    with pytest.raises(RemoteProtocolError):
        NotificationBody.unpack(wide(TEXT.replace(">1<", f">{event}<")))


@pytest.mark.parametrize("data", [b"\0\xd8" * 3, bytes(1 << 20)])
def test_octets_that_are_no_text_are_no_body(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        NotificationBody.unpack(data)


# Notification Update (2.2.6)
# ---------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-2.2.6-1", "MQCN-2.2.6-13", "MQCN-2.2.6-14", "MQCN-2.2.1-1")
def test_an_update_by_guid() -> None:
    update = NotificationUpdate(
        NotificationCommand.CHANGE, None, QUEUE, MASTER, (QueueProperty.QUOTA, QueueProperty.JOURNAL), (7, 1)
    )
    data = update.pack()
    assert data[:2] == b"\x01\x01"
    assert data[2:18] == QUEUE_OCTETS
    assert data[18:34] == MASTER_OCTETS
    assert data[34:58] == RESERVED
    assert data[58] == 2
    assert data[59:67] == bytes.fromhex("69000000 68000000")
    assert data[67:] == bytes.fromhex("07000000 01")
    assert parsed(data) == update


@pytest.mark.spec("MQCN-2.2.6-2", "MQCN-2.2.6-7")
@pytest.mark.parametrize("name", [r"BETA\orders", r"b\q"])
def test_an_update_by_path_name(name: str) -> None:
    update = NotificationUpdate(NotificationCommand.CREATE, name, None, MASTER, (QueueProperty.QUOTA,), (7,))
    data, size = update.pack(), len(name)
    assert data[:2] == b"\x00\x00"
    assert data[2 : 2 * size + 4] == wide(name) + b"\0\0"
    assert data[2 * size + 4 : 2 * size + 20] == MASTER_OCTETS
    assert data[2 * size + 20 : 2 * size + 44] == RESERVED
    assert data[2 * size + 44] == 1
    assert data[2 * size + 45 :] == bytes.fromhex("69000000 07000000")
    assert parsed(data) == update


@pytest.mark.spec("MQCN-2.2.6-12")
def test_the_reserved_octets_mean_nothing() -> None:
    plain = update_octets((QueueProperty.QUOTA,), b"\7\0\0\0")
    other = plain[:34] + bytes(range(1, 25)) + plain[58:]
    assert parsed(other) == parsed(plain)


@pytest.mark.spec("MQCN-2.2.6-4")
@pytest.mark.parametrize(("command", "use_guid"), [(3, 1), (0xFF, 0), (0, 2), (1, 0xFF)])
def test_another_command_or_use_guid_is_malformed(command: int, use_guid: int) -> None:
    with pytest.raises(RemoteProtocolError, match="expected"):
        parsed(bytes((command, use_guid)) + bytes(100))


@pytest.mark.spec("MQCN-2.2.6-15")
def test_no_octet_outside_the_body_is_read() -> None:
    """Every truncation of an update is malformed, whichever of its parts is cut."""
    whole = update_octets(
        (QueueProperty.PATHNAME, QueueProperty.SECURITY, MachineProperty.CNS),
        wide("x\0") + b"\2\0\0\0ab" + b"\1\0\0\0" + QUEUE_OCTETS,
        0,
        r"BETA\q",
    )
    assert parsed(whole).property_values == ("x", b"ab", [QUEUE])
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            parsed(whole[:size])


@pytest.mark.spec("MQCN-2.2.6-13")
def test_at_most_255_properties() -> None:
    update = NotificationUpdate(NotificationCommand.CHANGE, None, QUEUE, MASTER, (104,) * 255, (1,) * 255)
    assert parsed(update.pack()) == update
    with pytest.raises(ValueError, match="at most 255"):
        NotificationUpdate(NotificationCommand.CHANGE, None, QUEUE, MASTER, (104,) * 256, (1,) * 256).pack()


@pytest.mark.spec("MQCN-3.3.5.2-18", "MQCN-3.3.5.2-22")
def test_the_message_for_a_deleted_queue() -> None:
    update = NotificationUpdate(
        NotificationCommand.DELETE, None, QUEUE, MASTER, (DeletionProperty.SCOPE, DeletionProperty.OBJTYPE), (1, 1)
    )
    data = update.pack()
    assert len(data) == 69
    assert data[58:] == bytes.fromhex("02 7B050000 7C050000 01 01")
    message = ChangeNotificationMessage.of_updates(update)
    assert (len(message.pack()), len(message.message_body())) == (71, 72)


@pytest.mark.spec("MQCN-3.2.5.1-5")
def test_the_type_of_the_object_of_an_update() -> None:
    for identifier, kind in {1101: 1, 1201: 2, 1001: 0, 126: 1, 219: 2, 1000: 10, 301: 3}.items():
        for command in (NotificationCommand.CREATE, NotificationCommand.CHANGE):
            update = NotificationUpdate(command, None, QUEUE, MASTER, (identifier, 105), (b"", 7))
            assert update.object_type == kind


@pytest.mark.spec("MQCN-3.2.5.1-28", "MQCN-3.2.5.1-32", "MQCN-3.2.5.1-8")
def test_the_type_of_a_deleted_object_is_its_second_value() -> None:
    def kind(values: tuple[int, ...], command: NotificationCommand = NotificationCommand.DELETE) -> int | None:
        return NotificationUpdate(command, None, QUEUE, MASTER, (1403, 1404)[: len(values)], values).object_type

    assert [kind((1, 1)), kind((1, 2)), kind((1,)), kind(())] == [1, 2, None, None]
    assert kind((), NotificationCommand.CHANGE) is None


def test_any_octets_are_read_or_refused() -> None:
    """Each octet of an update is changed to several values.

    The result is a value or RemoteProtocolError.
    """
    whole = update_octets((QueueProperty.PATHNAME, QueueProperty.SECURITY), wide("x\0") + b"\2\0\0\0ab", 0, r"B\q")
    for at, value in itertools.product(range(len(whole)), (0, 1, 0x7F, 0x80, 0xFF)):
        data = whole[:at] + bytes((value,)) + whole[at + 1 :]
        try:
            assert isinstance(parsed(data), NotificationUpdate)
        except RemoteProtocolError:
            continue
