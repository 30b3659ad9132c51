"""The client side of MS-MQMR (3.2): arguments and results, for blocking and async RPC clients.

A query:

    results = bound.call(
        R_QM_MGMT_GET_INFO, **get_info_arguments(None, [ManagementMachineProperty.CONNECTED])
    )
    (connected,) = get_info_values(results)
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
    """Return the management object of a queue; None is the machine."""
    if queue is None:
        return MgmtObject(MgmtObjectType.MGMT_MACHINE, 0)
    return MgmtObject(MgmtObjectType.MGMT_QUEUE, queue_format_of(queue))


def get_info_arguments(queue: FormatName | None, identifiers: Sequence[int]) -> dict[str, Value]:
    """Return the arguments of R_QMMgmtGetInfo; one call can request 1 to 128 properties."""
    return {
        "p_object_format": management_object(queue),
        "cp": len(identifiers),
        "a_prop": tuple(int(identifier) for identifier in identifiers),
        "ap_var": (NULL,) * len(identifiers),
    }


def get_info_values(results: Mapping[str, Value]) -> tuple[PropVariant, ...]:
    """Return the property values in the order requested.

    A failure raises the exception of its status code, and its other results are ignored.
    """
    check_status(results)
    return cast("tuple[PropVariant, ...]", results["ap_var"])


def action_arguments(queue: FormatName | None, action: str) -> dict[str, Value]:
    """Return the arguments of R_QMMgmtAction."""
    return {"p_object_format": management_object(queue), "lpwsz_action": action}


def check_status(results: Mapping[str, Value]) -> None:
    """Raise the exception of a failure.

    It has the code from the server "without modification" (MS-MQMR 3.2.4).
    """
    status = cast("int", results[RETURNS])
    if status & _FAILURE:
        raise status_error(status)
