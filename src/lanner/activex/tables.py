"""The interfaces and coclasses of MC-MQAC (section 6), read once from interfaces.txt.

tools/make_activex_tables.py writes that file. It has one line for each interface, followed by one
for each of its members, and one line for each coclass:

    interface <name> <IID> <base> [like:<interface>] [dual] [local]
    <opnum> <DISPID> <kind> <name> <method that implements it> <parameter> ...
    coclass <name> <interfaces, the default one last> [source:<event interface>]

A parameter is <in|out|inout>:<type>:<name>[:optional][:retval]. An interface inherits the members
of its base, or those of the interface after `like:` if the IDL repeats them instead of deriving. A
listed member replaces the inherited one with the same opnum. `local` marks an interface that
clients cannot call. CLSIDs and the event interface are in `lanner.com.known_classes`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast
from uuid import UUID

from lanner.com.constants import IID_IDISPATCH, IID_IUNKNOWN
from lanner.com.known_classes import CLASSES, MSMQ_EVENTS
from lanner.com.members import Coclass, Direction, InterfaceTable, Kind, Member, Parameter


class _Tables:
    """The contents of the file: tables keyed by the document's names."""

    def __init__(self, text: str) -> None:
        lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
        # A parameter type may name an interface that follows later.
        self._iids = {words[1]: UUID(words[2]) for words in lines if words[0] == "interface"}
        self._iids |= {"IUnknown": IID_IUNKNOWN, "IDispatch": IID_IDISPATCH}
        self._parameters: dict[str, Parameter] = {}
        self.interfaces = {MSMQ_EVENTS.name: MSMQ_EVENTS}
        self.coclasses: dict[str, Coclass] = {}
        position = 0
        while position < len(lines):
            words, position = lines[position], position + 1
            if words[0] == "interface":
                first = position
                while lines[position][0].isdigit():
                    position += 1
                self._add_interface(words, lines[first:position])
            else:
                self._add_coclass(words)

    def _add_interface(self, words: list[str], own: list[list[str]]) -> None:
        _, name, _, base, *marks = words
        like = next((mark.removeprefix("like:") for mark in marks if mark.startswith("like:")), base)
        inherited = self.interfaces.get(like)
        members = {member.opnum: member for member in inherited.members} if inherited is not None else {}
        members |= {member.opnum: member for member in map(self._member, own)}
        derived = self.interfaces.get(base)
        self.interfaces[name] = InterfaceTable(
            name=name,
            iid=self._iids[name],
            base=base,
            is_dual="dual" in marks,
            members=tuple(members.values()),
            bases=(derived, *derived.bases) if derived is not None else (),
            is_remote="local" not in marks,
        )

    def _member(self, words: list[str]) -> Member:
        opnum, dispid, kind, name, python, *parameters = words
        return Member(
            int(opnum), int(dispid, 0), cast("Kind", kind), name, tuple(map(self._parameter, parameters)), python
        )

    def _parameter(self, text: str) -> Parameter:
        found = self._parameters.get(text)
        if found is None:
            direction, idl_type, name, *flags = text.split(":")
            found = self._parameters[text] = Parameter(
                name,
                cast("Direction", direction),
                idl_type,
                optional="optional" in flags,
                retval="retval" in flags,
                iid=self._iids.get(idl_type.rstrip("*")),
            )
        return found

    def _add_coclass(self, words: list[str]) -> None:
        _, name, *others = words
        sources = [other.removeprefix("source:") for other in others if other.startswith("source:")]
        self.coclasses[name] = Coclass(
            name,
            CLASSES[f"MSMQ.{name}"],
            tuple(self.interfaces[other] for other in others if not other.startswith("source:")),
            tuple(self.interfaces[source] for source in sources),
        )


_TABLES: Final = _Tables(Path(__file__).with_name("interfaces.txt").read_text(encoding="ascii"))

ITRANSACTION: Final = _TABLES.interfaces["ITransaction"]
IMSMQ_QUERY: Final = _TABLES.interfaces["IMSMQQuery"]
IMSMQ_QUERY2: Final = _TABLES.interfaces["IMSMQQuery2"]
IMSMQ_QUERY3: Final = _TABLES.interfaces["IMSMQQuery3"]
IMSMQ_QUERY4: Final = _TABLES.interfaces["IMSMQQuery4"]
IMSMQ_MESSAGE: Final = _TABLES.interfaces["IMSMQMessage"]
IMSMQ_MESSAGE2: Final = _TABLES.interfaces["IMSMQMessage2"]
IMSMQ_MESSAGE3: Final = _TABLES.interfaces["IMSMQMessage3"]
IMSMQ_MESSAGE4: Final = _TABLES.interfaces["IMSMQMessage4"]
IMSMQ_QUEUE: Final = _TABLES.interfaces["IMSMQQueue"]
IMSMQ_QUEUE2: Final = _TABLES.interfaces["IMSMQQueue2"]
IMSMQ_QUEUE3: Final = _TABLES.interfaces["IMSMQQueue3"]
IMSMQ_QUEUE4: Final = _TABLES.interfaces["IMSMQQueue4"]
IMSMQ_PRIVATE_EVENT: Final = _TABLES.interfaces["IMSMQPrivateEvent"]
IMSMQ_EVENT: Final = _TABLES.interfaces["IMSMQEvent"]
IMSMQ_EVENT2: Final = _TABLES.interfaces["IMSMQEvent2"]
IMSMQ_EVENT3: Final = _TABLES.interfaces["IMSMQEvent3"]
DMSMQ_EVENT_EVENTS: Final = MSMQ_EVENTS
IMSMQ_QUEUE_INFO: Final = _TABLES.interfaces["IMSMQQueueInfo"]
IMSMQ_QUEUE_INFO2: Final = _TABLES.interfaces["IMSMQQueueInfo2"]
IMSMQ_QUEUE_INFO3: Final = _TABLES.interfaces["IMSMQQueueInfo3"]
IMSMQ_QUEUE_INFO4: Final = _TABLES.interfaces["IMSMQQueueInfo4"]
IMSMQ_QUEUE_INFOS: Final = _TABLES.interfaces["IMSMQQueueInfos"]
IMSMQ_QUEUE_INFOS2: Final = _TABLES.interfaces["IMSMQQueueInfos2"]
IMSMQ_QUEUE_INFOS3: Final = _TABLES.interfaces["IMSMQQueueInfos3"]
IMSMQ_QUEUE_INFOS4: Final = _TABLES.interfaces["IMSMQQueueInfos4"]
IMSMQ_TRANSACTION: Final = _TABLES.interfaces["IMSMQTransaction"]
IMSMQ_TRANSACTION2: Final = _TABLES.interfaces["IMSMQTransaction2"]
IMSMQ_TRANSACTION3: Final = _TABLES.interfaces["IMSMQTransaction3"]
IMSMQ_COORDINATED_TRANSACTION_DISPENSER: Final = _TABLES.interfaces["IMSMQCoordinatedTransactionDispenser"]
IMSMQ_COORDINATED_TRANSACTION_DISPENSER2: Final = _TABLES.interfaces["IMSMQCoordinatedTransactionDispenser2"]
IMSMQ_COORDINATED_TRANSACTION_DISPENSER3: Final = _TABLES.interfaces["IMSMQCoordinatedTransactionDispenser3"]
IMSMQ_TRANSACTION_DISPENSER: Final = _TABLES.interfaces["IMSMQTransactionDispenser"]
IMSMQ_TRANSACTION_DISPENSER2: Final = _TABLES.interfaces["IMSMQTransactionDispenser2"]
IMSMQ_TRANSACTION_DISPENSER3: Final = _TABLES.interfaces["IMSMQTransactionDispenser3"]
IMSMQ_APPLICATION: Final = _TABLES.interfaces["IMSMQApplication"]
IMSMQ_APPLICATION2: Final = _TABLES.interfaces["IMSMQApplication2"]
IMSMQ_APPLICATION3: Final = _TABLES.interfaces["IMSMQApplication3"]
IMSMQ_DESTINATION: Final = _TABLES.interfaces["IMSMQDestination"]
IMSMQ_PRIVATE_DESTINATION: Final = _TABLES.interfaces["IMSMQPrivateDestination"]
IMSMQ_COLLECTION: Final = _TABLES.interfaces["IMSMQCollection"]
IMSMQ_MANAGEMENT: Final = _TABLES.interfaces["IMSMQManagement"]
IMSMQ_OUTGOING_QUEUE_MANAGEMENT: Final = _TABLES.interfaces["IMSMQOutgoingQueueManagement"]
IMSMQ_QUEUE_MANAGEMENT: Final = _TABLES.interfaces["IMSMQQueueManagement"]
MSMQ_QUERY: Final = _TABLES.coclasses["MSMQQuery"]
MSMQ_MESSAGE: Final = _TABLES.coclasses["MSMQMessage"]
MSMQ_QUEUE: Final = _TABLES.coclasses["MSMQQueue"]
MSMQ_EVENT: Final = _TABLES.coclasses["MSMQEvent"]
MSMQ_QUEUE_INFO: Final = _TABLES.coclasses["MSMQQueueInfo"]
MSMQ_QUEUE_INFOS: Final = _TABLES.coclasses["MSMQQueueInfos"]
MSMQ_TRANSACTION: Final = _TABLES.coclasses["MSMQTransaction"]
MSMQ_COORDINATED_TRANSACTION_DISPENSER: Final = _TABLES.coclasses["MSMQCoordinatedTransactionDispenser"]
MSMQ_TRANSACTION_DISPENSER: Final = _TABLES.coclasses["MSMQTransactionDispenser"]
MSMQ_APPLICATION: Final = _TABLES.coclasses["MSMQApplication"]
MSMQ_DESTINATION: Final = _TABLES.coclasses["MSMQDestination"]
MSMQ_COLLECTION: Final = _TABLES.coclasses["MSMQCollection"]
MSMQ_MANAGEMENT: Final = _TABLES.coclasses["MSMQManagement"]
MSMQ_OUTGOING_QUEUE_MANAGEMENT: Final = _TABLES.coclasses["MSMQOutgoingQueueManagement"]
MSMQ_QUEUE_MANAGEMENT: Final = _TABLES.coclasses["MSMQQueueManagement"]
INTERFACES: Final = tuple(_TABLES.interfaces.values())
COCLASSES: Final = tuple(_TABLES.coclasses.values())
