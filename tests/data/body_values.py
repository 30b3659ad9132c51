"""Bodies as Windows programs write them, and what they hold: one table for every decoder of bodies.

The bytes are written by hand, from MS-OAUT 2.2.24 to 2.2.27, MS-DTYP 2.3, MS-NRBF and the
documentation of System.Messaging and XmlSerializer. None comes from an encoder of Lanner.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID


class Sample(NamedTuple):
    """A body, the kind that it is recognised as, its value, and its type as the body names it."""

    name: str
    body_type: int
    body: bytes
    kind: str
    value: object
    type_name: str | None = None


class Broken(NamedTuple):
    """A body that is bytes for a reason; `reason` is a part of its text."""

    name: str
    body_type: int
    body: bytes
    reason: str
    type_name: str | None = None


def _utc(*fields: int) -> dt.datetime:
    return dt.datetime(*fields, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


def _local(*fields: int) -> dt.datetime:
    return dt.datetime(*fields)  # type: ignore[arg-type]  # noqa: DTZ001 (a DATE has no zone)


def _hex(text: str) -> bytes:
    return bytes.fromhex(text)


_GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
# As in a packet: the first three fields little-endian (MS-DTYP 2.3.4.2).
_GUID_BYTES = _hex("33221100 5544 7766 8899 aabbccddeeff")
# What XmlSerializer writes before an element, and on the root of everything but a simple type.
_DECLARATION = b'<?xml version="1.0"?>\r\n'
_SCHEMAS = b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema"'

SCALARS = [
    Sample("I1", 16, _hex("80"), "integer", -128, "VT_I1"),
    Sample("UI1", 17, _hex("ff"), "integer", 255, "VT_UI1"),
    Sample("I2", 2, _hex("feff"), "integer", -2, "VT_I2"),
    Sample("UI2", 18, _hex("feff"), "integer", 65534, "VT_UI2"),
    Sample("I4", 3, _hex("2a000000"), "integer", 42, "VT_I4"),
    Sample("I4, least", 3, _hex("00000080"), "integer", -(2**31), "VT_I4"),
    Sample("UI4", 19, _hex("ffffffff"), "integer", 2**32 - 1, "VT_UI4"),
    Sample("I8", 20, _hex("0100000000002000"), "integer", 2**53 + 1, "VT_I8"),
    Sample("I8, negative", 20, _hex("ffffffffffffffff"), "integer", -1, "VT_I8"),
    Sample("UI8", 21, _hex("ffffffffffffffff"), "integer", 2**64 - 1, "VT_UI8"),
    Sample("INT", 22, _hex("ffffffff"), "integer", -1, "VT_INT"),
    Sample("UINT", 23, _hex("ffffffff"), "integer", 2**32 - 1, "VT_UINT"),
    Sample("R4", 4, _hex("0000c03f"), "real", 1.5, "VT_R4"),
    Sample("R8", 5, _hex("9a9999999999b9bf"), "real", -0.1, "VT_R8"),
    Sample("R8, infinite", 5, _hex("000000000000f07f"), "real", float("inf"), "VT_R8"),
    Sample("BOOL, true", 11, _hex("ffff"), "boolean", True, "VT_BOOL"),
    Sample("BOOL, true of C", 11, _hex("0100"), "boolean", True, "VT_BOOL"),
    Sample("BOOL, false", 11, _hex("0000"), "boolean", False, "VT_BOOL"),
    Sample("BOOL, one byte", 11, _hex("ff"), "boolean", True, "VT_BOOL"),
    Sample("BOOL, one byte, false", 11, _hex("00"), "boolean", False, "VT_BOOL"),
    # The examples of MS-OAUT 2.2.24 and 2.2.25.
    Sample("CY", 6, _hex("14cd000000000000"), "decimal", Decimal("5.25"), "VT_CY"),
    Sample("CY, least", 6, _hex("0000000000000080"), "decimal", Decimal("-922337203685477.5808"), "VT_CY"),
    Sample("DATE", 7, _hex("0000000000001540"), "date", _local(1900, 1, 4, 6), "VT_DATE"),
    Sample("DATE, epoch", 7, _hex("0000000000000000"), "date", _local(1899, 12, 30), "VT_DATE"),
    Sample("DATE, 45000.5", 7, _hex("0000000010f9e540"), "date", _local(2023, 3, 15, 12), "VT_DATE"),
    # The example of DateTime.FromOADate.
    Sample("DATE, -1.25", 7, _hex("000000000000f4bf"), "date", _local(1899, 12, 29, 6), "VT_DATE"),
    Sample("DECIMAL", 14, _hex("0000 02 00 00000000 3930000000000000"), "decimal", Decimal("123.45"), "VT_DECIMAL"),
    Sample(
        "DECIMAL, least",
        14,
        _hex("0000 00 80 ffffffff ffffffffffffffff"),
        "decimal",
        Decimal(-79228162514264337593543950335),
        "VT_DECIMAL",
    ),
    Sample("FILETIME", 64, _hex("00803ed5deb19d01"), "date", _utc(1970, 1, 1), "VT_FILETIME"),
    Sample("CLSID", 72, _GUID_BYTES, "guid", _GUID, "VT_CLSID"),
    Sample("ERROR", 10, _hex("1b000ec0"), "error", 0xC00E001B, "VT_ERROR"),
    Sample("HRESULT", 25, _hex("05400080"), "error", 0x80004005, "VT_HRESULT"),
    Sample("NULL", 1, b"", "null", None, "VT_NULL"),
]

TEXTS = [
    Sample("BSTR", 8, _hex("6700 7200 fc00 df00 6500"), "text", "grüße", "VT_BSTR"),
    Sample("BSTR, empty", 8, b"", "text", "", "VT_BSTR"),
    Sample("BSTR, outside of the BMP", 8, _hex("3dd8 00de"), "text", "\U0001f600", "VT_BSTR"),
    Sample("BSTR of digits", 8, _hex("3400 3200"), "text", "42", "VT_BSTR"),
    # ActiveXMessageFormatter writes a String so.
    Sample("LPWSTR", 31, _hex("6800 6900"), "text", "hi", "VT_LPWSTR"),
    Sample("LPWSTR, terminated", 31, _hex("6800 6900 0000"), "text", "hi", "VT_LPWSTR"),
    Sample("LPWSTR, one terminator of two", 31, _hex("6800 0000 0000"), "text", "h\0", "VT_LPWSTR"),
    Sample("LPWSTR that is XML", 31, _hex("3c00 6100 2f00 3e00"), "text", "<a/>", "VT_LPWSTR"),
    Sample("LPSTR", 30, b"caf\xe9", "text", "café", "VT_LPSTR"),
    Sample("LPSTR, terminated", 30, b"hi\0", "text", "hi", "VT_LPSTR"),
]

ARRAYS = [
    # Byte arrays: Visual Basic writes the first, ActiveXMessageFormatter the second.
    Sample("ARRAY of UI1", 0x2011, _hex("0001ff"), "bytes", b"\x00\x01\xff", "VT_ARRAY|VT_UI1"),
    Sample("VECTOR of UI1", 0x1011, _hex("0001ff"), "bytes", b"\x00\x01\xff", "VT_VECTOR|VT_UI1"),
    Sample("BLOB", 65, _hex("0001ff"), "bytes", b"\x00\x01\xff", "VT_BLOB"),
    Sample("VECTOR of I4", 0x1003, _hex("01000000 ffffffff"), "array", [1, -1], "VT_VECTOR|VT_I4"),
    Sample("ARRAY of I2, empty", 0x2002, b"", "array", [], "VT_ARRAY|VT_I2"),
    Sample("ARRAY of BOOL", 0x200B, _hex("ffff 0000"), "array", [True, False], "VT_ARRAY|VT_BOOL"),
    Sample("VECTOR of CLSID", 0x1048, _GUID_BYTES, "array", [_GUID], "VT_VECTOR|VT_CLSID"),
    Sample(
        "ARRAY of CY",
        0x2006,
        _hex("14cd000000000000 f0d8ffffffffffff"),
        "array",
        [Decimal("5.25"), Decimal(-1)],
        "VT_ARRAY|VT_CY",
    ),
]

_OBJECT = _GUID_BYTES + b"state"
OBJECTS = [
    Sample("STREAMED_OBJECT", 68, _OBJECT, "streamed_object", _OBJECT, str(_GUID)),
    Sample("UNKNOWN", 13, _OBJECT, "streamed_object", _OBJECT, str(_GUID)),
    Sample("DISPATCH", 9, _OBJECT, "streamed_object", _OBJECT, str(_GUID)),
    # The signature of a compound file (MS-CFB 2.2).
    Sample("STORED_OBJECT", 69, _hex("d0cf11e0a1b11ae1"), "stored_object", _hex("d0cf11e0a1b11ae1")),
]

XML = [
    Sample("string", 0, _DECLARATION + b"<string>hi</string>", "xml", "hi", "string"),
    Sample("string, line feed", 0, b'<?xml version="1.0"?>\n<string>hi</string>', "xml", "hi", "string"),
    Sample("string, bare", 0, b"<string>hi</string>", "xml", "hi", "string"),
    Sample(
        "string, with BOM",
        0,
        b"\xef\xbb\xbf" + _DECLARATION + b"<string>gr\xc3\xbc\xc3\x9fe</string>",
        "xml",
        "grüße",
        "string",
    ),
    Sample("string, empty", 0, _DECLARATION + b"<string />", "xml", "", "string"),
    Sample("string, white space", 0, b"<string> a\n b </string>", "xml", " a\n b ", "string"),
    Sample(
        "string, escaped", 0, b"<string>&lt;a&gt; &amp; &#xD;&#x1F600;</string>", "xml", "<a> & \r\U0001f600", "string"
    ),
    Sample("string, CDATA", 0, b"<string><![CDATA[<a>]]>b</string>", "xml", "<a>b", "string"),
    Sample("string, UTF-16", 0, _hex("fffe 3c00 6100 3e00 fc00 3c00 2f00 6100 3e00"), "xml", "ü", "a"),
    Sample("string, UTF-16 big-endian", 0, _hex("feff 003c 0061 003e 00fc 003c 002f 0061 003e"), "xml", "ü", "a"),
    Sample(
        "string, Latin-1", 0, b'<?xml version="1.0" encoding="ISO-8859-1"?><string>\xfc</string>', "xml", "ü", "string"
    ),
    Sample(
        "string, Windows-1252",
        0,
        b'<?xml version="1.0" encoding="windows-1252"?><string>\x80</string>',
        "xml",
        "€",
        "string",
    ),
    Sample("string, null", 0, _DECLARATION + b"<string " + _SCHEMAS + b' xsi:nil="true" />', "xml", None, "string"),
    Sample("boolean", 0, _DECLARATION + b"<boolean>true</boolean>", "xml", True, "boolean"),
    Sample("byte", 0, _DECLARATION + b"<byte>-128</byte>", "xml", -128, "byte"),
    Sample("unsignedByte", 0, _DECLARATION + b"<unsignedByte>255</unsignedByte>", "xml", 255, "unsignedByte"),
    Sample("short", 0, _DECLARATION + b"<short>-32768</short>", "xml", -32768, "short"),
    Sample("unsignedShort", 0, _DECLARATION + b"<unsignedShort>65535</unsignedShort>", "xml", 65535, "unsignedShort"),
    Sample("int", 0, _DECLARATION + b"<int>42</int>", "xml", 42, "int"),
    Sample("int, white space", 0, _DECLARATION + b"<int>\n 42 </int>", "xml", 42, "int"),
    Sample("unsignedInt", 0, _DECLARATION + b"<unsignedInt>4294967295</unsignedInt>", "xml", 2**32 - 1, "unsignedInt"),
    Sample("long", 0, _DECLARATION + b"<long>-9223372036854775808</long>", "xml", -(2**63), "long"),
    Sample(
        "unsignedLong",
        0,
        _DECLARATION + b"<unsignedLong>18446744073709551615</unsignedLong>",
        "xml",
        2**64 - 1,
        "unsignedLong",
    ),
    Sample("float", 0, _DECLARATION + b"<float>1.5</float>", "xml", 1.5, "float"),
    Sample(
        "double",
        0,
        _DECLARATION + b"<double>-1.7976931348623157E+308</double>",
        "xml",
        -1.7976931348623157e308,
        "double",
    ),
    Sample("double, infinite", 0, _DECLARATION + b"<double>-INF</double>", "xml", float("-inf"), "double"),
    Sample(
        "decimal",
        0,
        _DECLARATION + b"<decimal>-79228162514264337593543950335</decimal>",
        "xml",
        Decimal(-79228162514264337593543950335),
        "decimal",
    ),
    Sample("decimal, fraction", 0, _DECLARATION + b"<decimal>19.90</decimal>", "xml", Decimal("19.90"), "decimal"),
    Sample(
        "dateTime",
        0,
        _DECLARATION + b"<dateTime>2024-05-06T07:08:09.1234567</dateTime>",
        "xml",
        _local(2024, 5, 6, 7, 8, 9, 123456),
        "dateTime",
    ),
    Sample(
        "dateTime, UTC",
        0,
        _DECLARATION + b"<dateTime>2024-05-06T07:08:09Z</dateTime>",
        "xml",
        _utc(2024, 5, 6, 7, 8, 9),
        "dateTime",
    ),
    Sample(
        "dateTime, zone",
        0,
        _DECLARATION + b"<dateTime>2024-05-06T07:08:09.5+02:00</dateTime>",
        "xml",
        _utc(2024, 5, 6, 5, 8, 9, 500_000),
        "dateTime",
    ),
    Sample(
        "dateTime, DateTime.MinValue",
        0,
        b"<dateTime>0001-01-01T00:00:00</dateTime>",
        "xml",
        _local(1, 1, 1),
        "dateTime",
    ),
    Sample("guid", 0, _DECLARATION + b"<guid>00112233-4455-6677-8899-aabbccddeeff</guid>", "xml", _GUID, "guid"),
    Sample("char", 0, _DECLARATION + b"<char>65</char>", "xml", "A", "char"),
    Sample(
        "base64Binary", 0, _DECLARATION + b"<base64Binary>AAH/</base64Binary>", "xml", b"\x00\x01\xff", "base64Binary"
    ),
    Sample("base64Binary, empty", 0, _DECLARATION + b"<base64Binary />", "xml", b"", "base64Binary"),
    Sample(
        "ArrayOfString",
        0,
        _DECLARATION
        + b"<ArrayOfString "
        + _SCHEMAS
        + b'>\r\n  <string>a</string>\r\n  <string xsi:nil="true" />\r\n  <string></string>\r\n</ArrayOfString>',
        "xml",
        ["a", None, ""],
        "ArrayOfString",
    ),
    Sample(
        "ArrayOfInt",
        0,
        _DECLARATION + b"<ArrayOfInt " + _SCHEMAS + b">\r\n  <int>1</int>\r\n  <int>-2</int>\r\n</ArrayOfInt>",
        "xml",
        [1, -2],
        "ArrayOfInt",
    ),
    Sample("ArrayOfInt, empty", 0, _DECLARATION + b"<ArrayOfInt " + _SCHEMAS + b" />", "xml", [], "ArrayOfInt"),
    Sample(
        "ArrayOfArrayOfInt",
        0,
        b"<ArrayOfArrayOfInt><ArrayOfInt><int>1</int><int>2</int></ArrayOfInt><ArrayOfInt /></ArrayOfArrayOfInt>",
        "xml",
        [[1, 2], []],
        "ArrayOfArrayOfInt",
    ),
    Sample(
        "ArrayOfAnyType",
        0,
        _DECLARATION
        + b"<ArrayOfAnyType "
        + _SCHEMAS
        + b'><anyType xsi:type="xsd:int">1</anyType><anyType xsi:type="xsd:string">1</anyType>'
        + (
            b'<anyType xmlns:q1="http://microsoft.com/wsdl/types/" xsi:type="q1:guid">'
            b"00112233-4455-6677-8899-aabbccddeeff</anyType>"
        )
        + b"</ArrayOfAnyType>",
        "xml",
        [1, "1", _GUID],
        "ArrayOfAnyType",
    ),
    Sample(
        "ArrayOfOrder",
        0,
        b"<ArrayOfOrder><Order><Id>7</Id></Order><Order><Id>8</Id></Order></ArrayOfOrder>",
        "xml",
        [{"Id": "7"}, {"Id": "8"}],
        "ArrayOfOrder",
    ),
    Sample(
        "a class that is named like an array",
        0,
        b"<ArrayOfX><a>1</a><b>2</b></ArrayOfX>",
        "xml",
        {"a": "1", "b": "2"},
        "ArrayOfX",
    ),
    Sample(
        "an object",
        0,
        _DECLARATION
        + b"<Order "
        + _SCHEMAS
        + (
            b">\r\n  <Id>7</Id>\r\n  <Customer>\r\n    <Name>M&amp;S</Name>\r\n"
            b'    <Vat xsi:nil="true" />\r\n  </Customer>\r\n'
        )
        + b"  <Tags>\r\n    <string>new</string>\r\n    <string>paid</string>\r\n  </Tags>\r\n"
        + b'  <Extra xsi:type="xsd:decimal">1.50</Extra>\r\n</Order>',
        "xml",
        {
            "Id": "7",
            "Customer": {"Name": "M&S", "Vat": None},
            "Tags": {"string": ["new", "paid"]},
            "Extra": Decimal("1.50"),
        },
        "Order",
    ),
    Sample(
        "attributes, text beside elements, namespaces",
        0,
        b'<o:Order xmlns:o="urn:orders" Id="7"> x <o:Line No="1">pen</o:Line><o:Line /></o:Order>',
        "xml",
        {"@Id": "7", "Line": [{"@No": "1", "#text": "pen"}, ""], "#text": "x"},
        "Order",
    ),
    Sample("a simple type's name in a namespace", 0, b'<int xmlns="urn:x">1</int>', "xml", "1", "int"),
]

PLAIN = [
    Sample("no body", 0, b"", "bytes", b""),
    Sample("bytes", 0, b"\x00\x01\xff", "bytes", b"\x00\x01\xff"),
    Sample("text without a type", 0, b"hello", "bytes", b"hello"),
    Sample("text with a UTF-8 mark", 0, b"\xef\xbb\xbfhello", "bytes", b"\xef\xbb\xbfhello"),
    Sample("text with a UTF-16 mark", 0, b"\xff\xfeh\0i\0", "bytes", b"\xff\xfeh\0i\0"),
    Sample("JSON", 0, b'{"a": 1}', "bytes", b'{"a": 1}'),
]

_HEADER = _hex("00 01000000 ffffffff 01000000 00000000")
_LIST = (
    b"System.Collections.Generic.List`1[[System.String, mscorlib, Version=4.0.0.0, Culture=neutral, "
    b"PublicKeyToken=b77a5c561934e089]]"
)
_SET = _LIST.replace(b".List`1", b".SortedSet`1")


def _nrbf(name: str, rest: bytes, type_name: str | None) -> Sample:
    body = _HEADER + rest
    return Sample(name, 0x300, body, "binary_formatter", body, type_name)


# The members after the names are as BinaryFormatter writes them; nothing reads them.
BINARY_FORMATTER = [
    _nrbf("String", _hex("06 01000000 02 6869 0b"), "System.String"),
    _nrbf(
        "Int32",
        _hex("04 01000000 0c") + b"System.Int32" + _hex("01000000 07") + b"m_value" + _hex("00 08 2a000000 0b"),
        "System.Int32",
    ),
    _nrbf(
        "a class",
        _hex("0c 02000000 3d")
        + b"Orders, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
        + _hex("05 01000000 0c")
        + b"Orders.Order"
        + _hex("02000000 03")
        + b"_id"
        + _hex("15")
        + b"<Name>k__BackingField"
        + _hex("00 01 08 02000000 07000000 06 03000000 03 70656e 0b"),
        "Orders.Order",
    ),
    _nrbf("a class without types", _hex("03 01000000 03") + b"A.B" + _hex("00000000 02000000 0b"), "A.B"),
    _nrbf("a system class without types", _hex("02 01000000 03") + b"S.B" + _hex("00000000 0b"), "S.B"),
    _nrbf("a generic list", _hex("04 01000000 7f") + _LIST + _hex("03000000"), _LIST.decode()),
    _nrbf("a name of more than 127 bytes", _hex("04 01000000 8401") + _SET + _hex("04000000"), _SET.decode()),
    _nrbf("Byte[]", _hex("0f 01000000 03000000 02 010203 0b"), "System.Byte[]"),
    _nrbf("String[]", _hex("11 01000000 01000000 06 02000000 01 61 0b"), "System.String[]"),
    _nrbf("Object[]", _hex("10 01000000 01000000 0a 0b"), "System.Object[]"),
    _nrbf("Int32[,]", _hex("07 01000000 02 02000000 01000000 01000000 00 08 2a000000 0b"), "System.Int32[,]"),
    _nrbf("Int32[][]", _hex("07 01000000 01 01000000 01000000 07 08 09 02000000"), "System.Int32[][]"),
    _nrbf(
        "an array that counts from 1", _hex("07 01000000 03 01000000 02000000 01000000 01 0d 02 0b"), "System.String[]"
    ),
    _nrbf(
        "an array of a class",
        _hex("0c 02000000 01 4f 07 01000000 00 01000000 01000000 04 0c") + b"Orders.Order" + _hex("02000000 0a 0b"),
        "Orders.Order[]",
    ),
    # The beginning of the example of MS-NRBF 3: a method call, which is no object.
    _nrbf("a method call", _hex("15 14000000 12 0b") + b"SendAddress" + _hex("12 6f"), None),
]

BODIES = [*SCALARS, *TEXTS, *ARRAYS, *OBJECTS, *XML, *PLAIN, *BINARY_FORMATTER]

# Bodies that are not what their type says.
BROKEN = [
    Broken("I4, too short", 3, _hex("2a0000"), "3 bytes, 4 expected", "VT_I4"),
    Broken("I4, too long", 3, _hex("2a00000000"), "5 bytes, 4 expected", "VT_I4"),
    Broken("BOOL, three bytes", 11, _hex("ffffff"), "3 bytes, 2 expected", "VT_BOOL"),
    Broken("BSTR, half a character", 8, b"odd", "truncated data", "VT_BSTR"),
    Broken("BSTR, half a surrogate pair", 8, _hex("3dd8 6100"), "illegal UTF-16 surrogate", "VT_BSTR"),
    Broken("DATE, NaN", 7, _hex("000000000000f87f"), "years 100 to 9999", "VT_DATE"),
    Broken("DATE, infinite", 7, _hex("000000000000f07f"), "years 100 to 9999", "VT_DATE"),
    # 10000-01-01 is 2958466.
    Broken("DATE, year 10000", 7, _hex("0000000041924641"), "years 100 to 9999", "VT_DATE"),
    # 638505684000000000, the ticks of a System.DateTime in 2024.
    Broken("DATE, an integer", 7, _hex("0048e361896ddc08"), "a fraction of a millisecond", "VT_DATE"),
    Broken("DECIMAL, scale 29", 14, _hex("0000 1d 00 00000000 0100000000000000"), "scale 29", "VT_DECIMAL"),
    Broken("DECIMAL, sign 1", 14, _hex("0000 00 01 00000000 0100000000000000"), "sign 0x01", "VT_DECIMAL"),
    Broken("FILETIME, after 9999", 64, _hex("ffffffffffffffff"), "after the year 9999", "VT_FILETIME"),
    Broken("NULL with a body", 1, b"x", "1 bytes, none expected", "VT_NULL"),
    Broken("VECTOR of I4, a rest", 0x1003, _hex("0100000002"), "not whole elements", "VT_VECTOR|VT_I4"),
    Broken("ARRAY of DATE, NaN", 0x2007, _hex("000000000000f87f"), "years 100 to 9999", "VT_ARRAY|VT_DATE"),
    Broken("VECTOR of LPWSTR", 0x101F, _hex("6100"), "no documented form", "VT_VECTOR|VT_LPWSTR"),
    Broken("VARIANT", 12, b"", "no documented form", "VT_VARIANT"),
    Broken("VECTOR of nothing", 0x1000, b"", "no documented form", "VT_VECTOR|VT_EMPTY"),
    Broken("BYREF", 0x4003, _hex("2a000000"), "body type 0x4003 is not known"),
    Broken("VECTOR and ARRAY", 0x3003, _hex("2a000000"), "body type 0x3003 is not known"),
    Broken("an unknown type", 0xFFFF_FFFF, b"x", "body type 0xffffffff is not known"),
    Broken("an object without a class", 68, bytes(15), "15 bytes", "VT_STREAMED_OBJECT"),
    Broken("XML, not closed", 0, b"<string>hi", "XML: no element found"),
    Broken("XML, HTML", 0, b"<p>a<br>b</p>", "XML: mismatched tag"),
    Broken("XML, not UTF-8", 0, b"<a>\xff</a>", "XML: not well-formed"),
    Broken("XML, two roots", 0, b"<a/><b/>", "XML: junk after document element"),
    Broken("XML, an entity", 0, b"<a>&nbsp;</a>", "XML: undefined entity"),
    Broken("XML, a prefix without a namespace", 0, b"<x:a/>", "XML: unbound prefix"),
    Broken("XML, an encoding", 0, b'<?xml version="1.0" encoding="shift_jis"?><a/>', "encoding 'shift_jis'"),
    Broken("XML, UTF-16 that is none", 0, b'<?xml version="1.0" encoding="utf-16"?><a/>', "XML: encoding"),
    Broken("XML, int", 0, b"<int>4_2</int>", "<int>: int: not an integer"),
    Broken("XML, int of other digits", 0, "<int>\u0664\u0662</int>".encode(), "<int>: int: not an integer"),
    Broken("XML, int out of range", 0, b"<int>2147483648</int>", "from -2147483648 to 2147483647"),
    Broken("XML, an empty int", 0, b"<int />", "<int>: int: not an integer"),
    Broken("XML, boolean", 0, b"<boolean>True</boolean>", "neither true nor false"),
    Broken("XML, double", 0, b"<double>1,5</double>", "not a double"),
    Broken("XML, a double out of range", 0, b"<double>1e999</double>", "not a double"),
    Broken("XML, decimal", 0, b"<decimal>1e5</decimal>", "not a decimal"),
    Broken("XML, dateTime", 0, b"<dateTime>2024-05-06</dateTime>", "not a dateTime"),
    Broken("XML, 24 o'clock", 0, b"<dateTime>2024-05-06T24:00:00</dateTime>", "not a dateTime"),
    Broken("XML, February 30", 0, b"<dateTime>2024-02-30T00:00:00</dateTime>", "<dateTime>: dateTime: "),
    Broken("XML, guid", 0, b"<guid>{00112233-4455-6677-8899-aabbccddeeff}</guid>", "not a GUID"),
    Broken("XML, half a character", 0, b"<char>55357</char>", "half of a surrogate pair"),
    Broken("XML, base64Binary", 0, b"<base64Binary>AAH_</base64Binary>", "<base64Binary>: base64Binary: "),
    Broken("XML, elements in a string", 0, b"<string><b>hi</b></string>", "elements in a value of type string"),
    Broken("binary formatter, no header", 0x300, b"<string/>", "binary formatter: MajorVersion"),
    Broken("binary formatter, version 2", 0x300, _hex("00 01000000 ffffffff 02000000 00000000"), "version (2, 0)"),
]
