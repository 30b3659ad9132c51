"""The root class of a .NET serialization stream (MS-NRBF), as BinaryMessageFormatter writes it.

Only the name is read, from the records before the first member. The stream is never deserialized,
because its author could then choose which classes are instantiated.
"""

from __future__ import annotations

import enum
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader


class RecordType(enum.IntEnum):
    """RecordTypeEnumeration (MS-NRBF 2.1.2.1), the records that can come before or at the root."""

    SERIALIZED_STREAM_HEADER = 0
    SYSTEM_CLASS_WITH_MEMBERS = 2
    CLASS_WITH_MEMBERS = 3
    SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES = 4
    CLASS_WITH_MEMBERS_AND_TYPES = 5
    BINARY_OBJECT_STRING = 6
    BINARY_ARRAY = 7
    BINARY_LIBRARY = 12
    ARRAY_SINGLE_PRIMITIVE = 15
    ARRAY_SINGLE_OBJECT = 16
    ARRAY_SINGLE_STRING = 17


class BinaryType(enum.IntEnum):
    """BinaryTypeEnumeration (MS-NRBF 2.1.2.2)."""

    PRIMITIVE = 0
    STRING = 1
    OBJECT = 2
    SYSTEM_CLASS = 3
    CLASS = 4
    OBJECT_ARRAY = 5
    STRING_ARRAY = 6
    PRIMITIVE_ARRAY = 7


# PrimitiveTypeEnumeration (MS-NRBF 2.1.2.3); 17 and 18 are not element types.
_PRIMITIVES: Final = {
    1: "System.Boolean",
    2: "System.Byte",
    3: "System.Char",
    5: "System.Decimal",
    6: "System.Double",
    7: "System.Int16",
    8: "System.Int32",
    9: "System.Int64",
    10: "System.SByte",
    11: "System.Single",
    12: "System.TimeSpan",
    13: "System.DateTime",
    14: "System.UInt16",
    15: "System.UInt32",
    16: "System.UInt64",
}
_CLASSES: Final = frozenset(
    (
        RecordType.SYSTEM_CLASS_WITH_MEMBERS,
        RecordType.CLASS_WITH_MEMBERS,
        RecordType.SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES,
        RecordType.CLASS_WITH_MEMBERS_AND_TYPES,
    )
)
_FIXED_NAMES: Final = {
    RecordType.BINARY_OBJECT_STRING: "System.String",
    RecordType.ARRAY_SINGLE_OBJECT: "System.Object[]",
    RecordType.ARRAY_SINGLE_STRING: "System.String[]",
}
_FIXED_ELEMENTS: Final = {
    BinaryType.STRING: "System.String",
    BinaryType.OBJECT: "System.Object",
    BinaryType.OBJECT_ARRAY: "System.Object[]",
    BinaryType.STRING_ARRAY: "System.String[]",
}
# BinaryArrayTypeEnumeration (MS-NRBF 2.4.1.1): types from SingleOffset to RectangularOffset have
# lower bounds.
_FIRST_OFFSET_ARRAY: Final = 3
_LAST_ARRAY: Final = 5
# Not in the specification: the common language runtime's limit on array dimensions.
MAX_RANK: Final = 32
# Not in the specification: libraries before the root, one for each assembly of its members.
MAX_LIBRARIES: Final = 256
# Not in the specification: bytes of a name. The name of a generic class contains those of its
# arguments, including their assemblies.
MAX_NAME: Final = 0x4000


def read_header(reader: Reader) -> int:
    """Read a SerializationHeaderRecord (MS-NRBF 2.6.1) and return RootId.

    Raise RemoteProtocolError if the stream begins differently.
    """
    record = reader.u8("RecordTypeEnum")
    root = reader.u32("RootId")
    reader.u32("HeaderId")  # "MUST be ignored on read"
    version = reader.u32("MajorVersion"), reader.u32("MinorVersion")
    if record != RecordType.SERIALIZED_STREAM_HEADER or version != (1, 0):
        raise RemoteProtocolError(f"SerializationHeaderRecord: type {record}, version {version}; 0 and (1, 0) expected")
    return root


def read_root_name(reader: Reader, root: int) -> str:
    """Read the records up to the root object and return the name of its class.

    Raise RemoteProtocolError if there is none, or if a record is malformed.
    """
    record = reader.u8("RecordTypeEnum")
    libraries = 0
    while record == RecordType.BINARY_LIBRARY:
        libraries += 1
        if libraries > MAX_LIBRARIES:
            raise RemoteProtocolError(f"more than {MAX_LIBRARIES} BinaryLibrary records before the root object")
        reader.u32("LibraryId")
        _string(reader, "LibraryName")
        record = reader.u8("RecordTypeEnum")
    if record not in frozenset(RecordType) or record == RecordType.SERIALIZED_STREAM_HEADER:
        raise RemoteProtocolError(f"record of type {record} where the root object begins")
    identifier = reader.u32("ObjectId")
    if identifier != root:
        raise RemoteProtocolError(f"the first object is {identifier}, the root object {root}")
    if record in _CLASSES:
        return _string(reader, "ClassInfo.Name")
    if record == RecordType.BINARY_ARRAY:
        return _array_name(reader)
    if record == RecordType.ARRAY_SINGLE_PRIMITIVE:
        reader.u32("ArrayInfo.Length")
        return f"{_primitive(reader)}[]"
    return _FIXED_NAMES[RecordType(record)]


def _array_name(reader: Reader) -> str:
    """Read a BinaryArray record (MS-NRBF 2.4.3.1) from BinaryArrayTypeEnum on."""
    kind = reader.u8("BinaryArrayTypeEnum")
    rank = reader.u32("Rank")
    if kind > _LAST_ARRAY or not 1 <= rank <= MAX_RANK:
        raise RemoteProtocolError(
            f"BinaryArray: type {kind}, rank {rank}; at most {_LAST_ARRAY} and 1 to {MAX_RANK} expected"
        )
    reader.take(4 * rank * (2 if kind >= _FIRST_OFFSET_ARRAY else 1), "Lengths and LowerBounds")
    element = reader.u8("TypeEnum")
    if element in (BinaryType.SYSTEM_CLASS, BinaryType.CLASS):
        name = _string(reader, "AdditionalTypeInfo")
    elif element in (BinaryType.PRIMITIVE, BinaryType.PRIMITIVE_ARRAY):
        name = _primitive(reader) + ("[]" if element == BinaryType.PRIMITIVE_ARRAY else "")
    elif element in frozenset(BinaryType):
        name = _FIXED_ELEMENTS[BinaryType(element)]
    else:
        raise RemoteProtocolError(f"BinaryArray: TypeEnum {element}")
    return f"{name}[{',' * (rank - 1)}]"


def _primitive(reader: Reader) -> str:
    number = reader.u8("PrimitiveTypeEnum")
    if number not in _PRIMITIVES:
        raise RemoteProtocolError(f"PrimitiveTypeEnum {number}")
    return _PRIMITIVES[number]


def _string(reader: Reader, what: str) -> str:
    """Read a LengthPrefixedString (MS-NRBF 2.1.1.6) that contains a name."""
    size = 0
    for place in range(5):
        byte = reader.u8(what)
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    else:
        raise RemoteProtocolError(f"{what}: a length of more than five bytes")
    if size > MAX_NAME:
        raise RemoteProtocolError(f"{what}: {size} bytes, at most {MAX_NAME} are read")
    try:
        name = reader.take(size, what).decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"{what}: {error.reason} at byte {error.start}") from None
    if not name or not name.isprintable():
        raise RemoteProtocolError(f"{what}: empty, or characters that no name has")
    return name
