"""IDispatch of remote objects: DISPIDs by name, and calls by DISPID (MS-OAUT 3.1.4.3, 3.1.4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.com.automation.types import DispParams, ExcepInfo
from lanner.com.automation.values import EMPTY, Variant
from lanner.com.client.python_values import to_variant
from lanner.com.constants import DISP_E_EXCEPTION, succeeded
from lanner.com.members import IDISPATCH
from lanner.com.objects import ComError, ComObject
from lanner.rpc.ndr import Value

if TYPE_CHECKING:
    from lanner.com.client.remote_interface import RemoteInterface

IID_NULL: Final = UUID(int=0)
# MS-OAUT 2.2.32.1.
DISPID_VALUE: Final = 0
DISPID_PROPERTYPUT: Final = -3
DISPID_NEWENUM: Final = -4
# MS-OAUT 3.1.4.4, dwFlags.
DISPATCH_METHOD: Final = 0x1
DISPATCH_PROPERTYGET: Final = 0x2
DISPATCH_PROPERTYPUT: Final = 0x4
DISPATCH_PROPERTYPUTREF: Final = 0x8
# LOCALE_SYSTEM_DEFAULT. Names and dates are the same in every locale here.
_LCID: Final = 0x0800

_GET_IDS_OF_NAMES: Final = IDISPATCH.by_opnum[5]
_INVOKE: Final = IDISPATCH.by_opnum[6]


class DispatchError(ComError):
    """A failed call by name: the HRESULT, its source, and the argument at fault.

    The HRESULT is the member's, if it has one.
    """

    def __init__(
        self, hresult: int, text: str, *, source: str = "", argument: int | None = None, is_of_member: bool = False
    ) -> None:
        super().__init__(hresult, text)
        # Whether the member was called and itself failed.
        self.is_of_member = is_of_member
        self.source = source
        # Counted from the first argument.
        self.argument = argument


async def get_ids_of_names(remote: RemoteInterface, names: Sequence[str]) -> tuple[int, ...]:
    """Return the DISPIDs of a member and its parameters.

    Raise ComError DISP_E_UNKNOWNNAME if one is unknown.
    """
    (found,) = await remote.call(_GET_IDS_OF_NAMES, IID_NULL, tuple(names), len(names), _LCID)
    return tuple(found)


async def invoke(
    remote: RemoteInterface,
    dispid: int,
    arguments: Sequence[Value] = (),
    *,
    flags: int = DISPATCH_METHOD,
    named: Sequence[int] = (),
    timeout: float | None = None,  # noqa: ASYNC109 (as for every call here)
) -> tuple[Variant, tuple[Variant, ...]]:
    """Call a member by its DISPID.

    The last arguments may be named, by the DISPIDs of their parameters. Return the result, and the
    final values of the by-reference arguments in order.
    """
    objects = ComObject, type(remote)
    variants = [to_variant(each, lambda value: value if isinstance(value, objects) else None) for each in arguments]
    # MS-OAUT 2.2.33: in reverse order, which puts the named ones first.
    rgvarg = variants[::-1]
    # MS-OAUT 3.1.4.4.1: by-reference arguments travel separately and leave an empty place.
    indices = tuple([index for index, each in enumerate(rgvarg) if each.is_byref])
    refs = tuple([rgvarg[index] for index in indices])
    for index in indices:
        rgvarg[index] = EMPTY
    params = DispParams.of(tuple(rgvarg), tuple(named)[::-1])
    results, hresult = await remote.call_with_result(
        _INVOKE, dispid, IID_NULL, _LCID, flags, params, len(indices), indices, refs, timeout=timeout
    )
    result, info, argument, changed = results
    if not succeeded(hresult):
        raise _error(remote, hresult, info, len(variants) - 1 - argument if variants else None)
    return result, tuple(changed[::-1])


def _error(remote: RemoteInterface, hresult: int, info: ExcepInfo, argument: int | None) -> DispatchError:
    where = f"{remote.held.exporter}: "
    if hresult == DISP_E_EXCEPTION:
        # MS-OAUT 2.2.34: one of the two has the code.
        code = info.scode or info.w_code or hresult
        text = info.bstr_description or f"{where}it failed"
        return DispatchError(code, text, source=info.bstr_source or "", is_of_member=True)
    return DispatchError(hresult, f"{where}the call is not possible", argument=argument)
