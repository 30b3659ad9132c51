"""The classes and the event interface of message queuing (MC-MQAC 1.9, 3.16.4.4).

A Windows client finds them in its registry and in type libraries. The client of `lanner.com` and
the server (`lanner.activex.tables`) both find them here. MC-MQAC names no ProgIDs; these are the
ones that message queuing registers. A class without a name here must be given by CLSID.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from lanner.com.constants import IID_IDISPATCH
from lanner.com.members import InterfaceTable, Member, Parameter

CLASSES: Final = {
    "MSMQ.MSMQApplication": UUID("d7d6e086-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQCollection": UUID("f72b9031-2f0c-43e8-924e-e6052cdc493f"),
    "MSMQ.MSMQCoordinatedTransactionDispenser": UUID("d7d6e082-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQDestination": UUID("eba96b18-2168-11d3-898c-00e02c074f6b"),
    "MSMQ.MSMQEvent": UUID("d7d6e07a-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQManagement": UUID("39ce96fe-f4c5-4484-a143-4c2d5d324229"),
    "MSMQ.MSMQMessage": UUID("d7d6e075-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQOutgoingQueueManagement": UUID("0188401c-247a-4fed-99c6-bf14119d7055"),
    "MSMQ.MSMQQuery": UUID("d7d6e073-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQQueue": UUID("d7d6e079-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQQueueInfo": UUID("d7d6e07c-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQQueueInfos": UUID("d7d6e07e-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQQueueManagement": UUID("33b6d07e-f27d-42fa-b2d7-bf82e11e9374"),
    "MSMQ.MSMQTransaction": UUID("d7d6e080-dccd-11d0-aa4b-0060970debae"),
    "MSMQ.MSMQTransactionDispenser": UUID("d7d6e084-dccd-11d0-aa4b-0060970debae"),
}
_BY_NAME: Final = {name.lower(): clsid for name, clsid in CLASSES.items()}

# MC-MQAC 3.16.4.4. The DISPIDs are those of its dispinterface; the opnums are never used.
MSMQ_EVENTS: Final = InterfaceTable(
    name="_DMSMQEventEvents",
    iid=UUID("d7d6e078-dccd-11d0-aa4b-0060970debae"),
    base="IDispatch",
    is_dual=False,
    members=(
        Member(
            7,
            0,
            "method",
            "Arrived",
            (Parameter("Queue", "in", "IDispatch*", iid=IID_IDISPATCH), Parameter("Cursor", "in", "long")),
            "arrived",
        ),
        Member(
            8,
            1,
            "method",
            "ArrivedError",
            (
                Parameter("Queue", "in", "IDispatch*", iid=IID_IDISPATCH),
                Parameter("ErrorCode", "in", "long"),
                Parameter("Cursor", "in", "long"),
            ),
            "arrived_error",
        ),
    ),
)
EVENTS: Final = {table.iid: table for table in (MSMQ_EVENTS,)}


def class_id(name: str | UUID) -> UUID:
    """Return the CLSID of a ProgID, with or without version, or of a CLSID's text.

    Raise LookupError if it is unknown.
    """
    if isinstance(name, UUID):
        return name
    stem, _, version = name.rpartition(".")
    found = _BY_NAME.get((stem if version.isdecimal() else name).lower())
    if found is not None:
        return found
    try:
        return UUID(name)
    except ValueError:
        known = ", ".join(CLASSES)
        raise LookupError(f"{name!r} is no class of message queuing and no CLSID; known are {known}") from None
