from __future__ import annotations

import pytest

from lanner.wire.property_ids import (
    PREFIXES,
    PROPERTIES,
    ManagementMachineProperty,
    ManagementQueueProperty,
    QueueProperty,
)
from lanner.wire.propvariant import SCALAR_TYPES, VECTOR_TYPES
from lanner.wire.vartypes import VT


def test_the_table_is_complete() -> None:
    """MS-MQMQ 2.3: 186 identifiers in 13 groups."""
    assert len(PROPERTIES) == 186
    assert [len(kind) for kind in PREFIXES] == [27, 39, 15, 6, 18, 6, 13, 11, 5, 8, 6, 27, 5]


@pytest.mark.parametrize(
    ("name", "number", "vt"),
    [
        ("PROPID_Q_INSTANCE", 101, VT.CLSID),
        ("PROPID_Q_BASEPRIORITY", 106, VT.I2),
        ("PROPID_Q_SECURITY_INFORMATION", 1103, VT.UI4),
        ("PROPID_QM_CNS", 207, VT.VECTOR | VT.CLSID),
        ("PROPID_QM_QUOTA", 214, VT.UI4),
        ("PROPID_S_INTERVAL2", 306, VT.UI2),
        ("PROPID_CN_SECURITY", 1501, VT.BLOB),
        ("PROPID_E_CIPHER_MODE", 615, VT.UI4),
        ("PROPID_U_DIGEST", 705, VT.VECTOR | VT.CLSID),
        ("PROPID_L_COST", 803, VT.UI4),
        ("PROPID_SET_NT4", 5106, VT.UI1),
        ("PROPID_MQU_SECURITY", 5407, VT.BLOB),
        ("PROPID_COM_SID", 5206, VT.BLOB),
        ("PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES", 6, VT.I8),
        ("PROPID_MGMT_QUEUE_EOD_SOURCE_INFO", 24, VT.VECTOR | VT.VARIANT),
        ("PROPID_MGMT_QUEUE_SUBQUEUE_NAMES", 27, VT.VECTOR | VT.LPWSTR),
        ("PROPID_D_IDENTIFIER", 1405, VT.CLSID),
    ],
)
def test_numbers_and_types(name: str, number: int, vt: int) -> None:
    assert PROPERTIES[name] == (number, vt)


def test_every_type_is_one_of_propvariant() -> None:
    assert {vt for _, vt in PROPERTIES.values()} <= SCALAR_TYPES | VECTOR_TYPES


def test_a_number_finds_its_identifier_in_its_own_group() -> None:
    assert QueueProperty(103) is QueueProperty.PATHNAME
    assert QueueProperty.PATHNAME.spec_name == "PROPID_Q_PATHNAME"
    assert QueueProperty.PATHNAME.vt == VT.LPWSTR
    assert ManagementMachineProperty(1) is ManagementMachineProperty.ACTIVEQUEUES
    assert ManagementQueueProperty(1) is ManagementQueueProperty.PATHNAME
