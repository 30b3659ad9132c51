"""The client's side of MS-MQMR (3.2): what to call with, and what to make of the answer, for either kind of RPC client.

results = bound.call(R_QM_MGMT_GET_INFO, **get_info_arguments(None,
[ManagementMachineProperty.CONNECTED])) (connected,) = get_info_values(results)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from lanner.model.errors import status_error
from lanner.rpc.interface import RETURNS
from lanner.services.interfaces.mqmr import MgmtObject, MgmtObjectType
from lanner.services.queue_formats import queue_format_of
from lanner.wire.propvariant import NULL

if TYPE_CHECKING:
    from lanner.rpc.ndr import Value
    from lanner.wire.format_name import FormatName
    from lanner.wire.propvariant import PropVariant

# The severity bit of an HRESULT.
_FAILURE: Final = 0x8000_0000


def management_object(queue: FormatName | None) -> MgmtObject:
    """A queue by its name, or None for the machine."""
    if queue is None:
        return MgmtObject(MgmtObjectType.MGMT_MACHINE, 0)
    return MgmtObject(MgmtObjectType.MGMT_QUEUE, queue_format_of(queue))


def get_info_arguments(queue: FormatName | None, identifiers: Sequence[int]) -> dict[str, Value]:
    """The arguments of R_QMMgmtGetInfo; 1 to 128 properties can be asked for at once."""
    return {
        "p_object_format": management_object(queue),
        "cp": len(identifiers),
        "a_prop": tuple(int(identifier) for identifier in identifiers),
        "ap_var": (NULL,) * len(identifiers),
    }


def get_info_values(results: Mapping[str, Value]) -> tuple[PropVariant, ...]:
    """The values in the order asked for, as they came; a failure is an exception with its code, and nothing else of it counts."""
    check_status(results)
    return cast("tuple[PropVariant, ...]", results["ap_var"])


def action_arguments(queue: FormatName | None, action: str) -> dict[str, Value]:
    """The arguments of R_QMMgmtAction."""
    return {"p_object_format": management_object(queue), "lpwsz_action": action}


def check_status(results: Mapping[str, Value]) -> None:
    """Raise the exception of a failure, with the code that the server told (MS-MQMR 3.2.4: without modification)."""
    status = cast("int", results[RETURNS])
    if status & _FAILURE:
        raise status_error(status)
