"""MSMQQuery: finds public queues by their properties in the directory (MC-MQAC 3.13)."""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from lanner.activex import arguments
from lanner.activex.queue_infos import MSMQQueueInfos
from lanner.activex.tables import MSMQ_QUERY
from lanner.com.automation.values import MISSING
from lanner.com.objects import ComObject
from lanner.directory import AttributeFilter, Operator, read_all
from lanner.host.long_reads import read_apart
from lanner.model.directory_objects import Queue
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import IllegalRelation, NoDs

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from lanner.activex.environment import Environment
    from lanner.com.automation.values import Variant
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.engine import Engine


class RelOps(enum.IntEnum):
    """2.2.2.20 RELOPS."""

    REL_NOP = 0
    REL_EQ = 1
    REL_NEQ = 2
    REL_LT = 3
    REL_GT = 4
    REL_LE = 5
    REL_GE = 6


_OPERATORS: Final = {
    RelOps.REL_EQ: Operator.EQUALS,
    RelOps.REL_NEQ: Operator.NOT_EQUALS,
    RelOps.REL_LT: Operator.LESS_THAN,
    RelOps.REL_GT: Operator.GREATER_THAN,
    RelOps.REL_LE: Operator.LESS_THAN_OR_EQUAL,
    RelOps.REL_GE: Operator.GREATER_THAN_OR_EQUAL,
}


class MSMQQuery(ComObject):
    """3.13 MSMQQuery."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_QUERY.interfaces

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def lookup_queue(
        self,
        call: ComCall,
        queue_guid: Variant,
        service_type_guid: Variant,
        label: Variant,
        create_time: Variant,
        modify_time: Variant,
        rel_service_type: Variant,
        rel_label: Variant,
        rel_create_time: Variant,
        rel_modify_time: Variant,
        multicast_address: Variant = MISSING,
        rel_multicast_address: Variant = MISSING,
    ) -> MSMQQueueInfos:
        """Return the queues that match all given criteria (3.13.4.1.3).

        An omitted address is no criterion: the description of the parameter contradicts the rules,
        which are followed.
        """
        criteria: tuple[tuple[str, Callable[[Variant], object], Variant, Variant], ...] = (
            ("Identifier", _guid, queue_guid, MISSING),
            ("Type", _guid, service_type_guid, rel_service_type),
            ("Label", _text, label, rel_label),
            ("CreateTime", _time, create_time, rel_create_time),
            ("ModifyTime", _time, modify_time, rel_modify_time),
            ("MulticastAddress", _address, multicast_address, rel_multicast_address),
        )
        filters = []
        for name, read, value, relation in criteria:
            operation = _operator(relation)
            found = arguments.given(value)
            if found is not None and operation is not None:
                filters.append(AttributeFilter(name, operation, read(found)))
        environment = self._environment
        queues = await environment.in_thread(call.identity, partial(_find, environment.engine, filters))
        return MSMQQueueInfos(environment, queues)

    # 3.13.4.1.1: the same, without an address.
    lookup_queue_v2 = lookup_queue


def _find(engine: Engine, filters: list[AttributeFilter]) -> list[UUID]:
    """Return the identifiers of all public queues that match. A domain may have thousands."""
    with read_apart(engine) as directory:
        is_offline = engine.queue_manager.directory_offline
        result, queues = (None, []) if is_offline else read_all(directory, Queue, filters)
    if result is not DirectoryOperationResult.SUCCESS:
        raise NoDs("the directory cannot be asked")
    return [queue.identifier for queue in queues]


def _operator(variant: Variant) -> Operator | None:
    """Return an operator, or None if the criterion does not apply."""
    number = arguments.number(variant, RelOps.REL_EQ, "relation")
    try:
        return _OPERATORS.get(RelOps(number))
    except ValueError:
        raise IllegalRelation(f"relation {number}") from None


def _guid(variant: Variant) -> object:
    return arguments.from_guid(_text(variant), "GUID", without_braces=False)


def _text(variant: Variant) -> str:
    return arguments.text(variant, "criterion") or ""


def _time(variant: Variant) -> int:
    return arguments.from_date(variant, "time")


def _address(variant: Variant) -> str | None:
    """Return an address. The empty one matches queues without an address."""
    return _text(variant) or None
