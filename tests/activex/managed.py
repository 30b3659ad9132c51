"""Queue managers of other computers, for management objects that query them.

One of them answers as a test prescribes.
"""

from __future__ import annotations

from typing import Any

from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.services.interfaces.mqmr import R_QM_MGMT_GET_INFO, MgmtObject
from lanner.wire.property_ids import ManagementQueueProperty
from lanner.wire.propvariant import NULL, PropVariant, Value
from tests.activex.world import World
from tests.overlay import overlay

FAR = "gamma"


class FarManager:
    """Answers to R_QMMgmtGetInfo and R_QMMgmtAction for computer `FAR`, and a record of calls."""

    def __init__(self, world: World, **answers: Value) -> None:
        self.answers = {"LOCATION": "LOCAL", **answers}
        self.status = 0
        # How many calls succeed before the status is returned.
        self.successes = 0
        self.objects: list[MgmtObject] = []
        self.actions: list[str] = []
        self.open_connections = 0
        # What is made from now on finds it there, without a network.
        world.environment = overlay(world.environment, connect=self._connect)

    async def _connect(self, computer: str) -> FarManager:
        assert computer == FAR
        self.open_connections += 1
        return self

    async def bind(self, interface: Interface) -> FarManager:
        assert interface.name == "qmmgmt"
        return self

    async def call(self, method: Method, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 (as RPC's)
        self.objects.append(arguments["p_object_format"])
        status = 0 if self.successes else self.status
        self.successes = max(self.successes - 1, 0)
        if method is not R_QM_MGMT_GET_INFO:
            self.actions.append(arguments["lpwsz_action"])
            return {RETURNS: status}
        if status:
            return {"ap_var": arguments["ap_var"], RETURNS: status}
        identifiers = [ManagementQueueProperty(number) for number in arguments["a_prop"]]
        values = [self.answers.get(identifier.name) for identifier in identifiers]
        variants = tuple(
            NULL if value is None else PropVariant(identifier.vt, value)
            for identifier, value in zip(identifiers, values, strict=True)
        )
        return {"ap_var": variants, RETURNS: 0}

    async def close(self) -> None:
        self.open_connections -= 1
