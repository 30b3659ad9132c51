"""qmmgmt, the management interface (MS-MQMR 2.2, 3.1.4, 6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from lanner.rpc.interface import In, InOut, Interface, Method
from lanner.rpc.ndr import Conformant, Related, Struct, Syntax, Union, Unique, enum16, u32, wide_string
from lanner.services.interfaces.mqmq import HRESULT, PROPVARIANT, QUEUE_FORMAT, QueueFormat

# MS-MQMR 3.1.4.1: [range(1,128)] DWORD cp.
MAX_PROPERTIES: Final = 128


class MgmtObjectType(enum.IntEnum):
    """MgmtObjectType (MS-MQMR 2.2.2.1)."""

    MGMT_MACHINE = 1
    MGMT_QUEUE = 2
    MGMT_SESSION = 3


_MGMT_OBJECT_ARMS: Final = Union(
    enum16,
    {
        MgmtObjectType.MGMT_QUEUE: Unique(QUEUE_FORMAT),
        MgmtObjectType.MGMT_MACHINE: u32,  # Reserved1
        MgmtObjectType.MGMT_SESSION: u32,  # Reserved2
    },
)


@dataclass(frozen=True, slots=True)
class MgmtObject:
    """MGMT_OBJECT (MS-MQMR 2.2.1.2)."""

    type: Annotated[int, enum16]
    u: Annotated[QueueFormat | int | None, _MGMT_OBJECT_ARMS, Related(switch_is="type")]


MGMT_OBJECT: Final = Struct(MgmtObject)

R_QM_MGMT_GET_INFO: Final = Method(
    0,
    "R_QMMgmtGetInfo",
    In("p_object_format", MGMT_OBJECT),
    In("cp", u32.within(1, MAX_PROPERTIES)),
    In("a_prop", Conformant(u32), size_is="cp"),
    InOut("ap_var", Conformant(PROPVARIANT), size_is="cp"),
    returns=HRESULT,
)
# The IDL lacks [string] on lpwszAction, so only one character would be sent. The text demands a
# null-terminated string, which is what this uses.
R_QM_MGMT_ACTION: Final = Method(
    1,
    "R_QMMgmtAction",
    In("p_object_format", MGMT_OBJECT),
    In("lpwsz_action", wide_string),
    returns=HRESULT,
)

# MS-MQMR 2.2: "support the Network Data Representation (NDR) transfer syntax only".
QMMGMT: Final = Interface(
    "qmmgmt",
    UUID("41208ee0-e970-11d1-9b9e-00e02c064c39"),
    (1, 0),
    [R_QM_MGMT_GET_INFO, R_QM_MGMT_ACTION],
    syntaxes=[Syntax.NDR20],
)
