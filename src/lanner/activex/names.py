"""Conversion of path names and directory paths to format names.

MC-MQAC 3.1.6.2, 3.10.6.1 and 3.12.6.1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from lanner.activex.environment import CONNECT_TIMEOUT
from lanner.directory import AttributeFilter, Operator
from lanner.engine.registry import private_queue_local_identifier
from lanner.model.directory_objects import Queue
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.model.errors import (
    AccessDenied,
    IllegalQueuePathname,
    QueueNotFound,
    RemoteMachineNotAvailable,
    RemoteProtocolError,
)
from lanner.rpc.faults import RpcConnectionError, RpcFault
from lanner.services.interfaces.mqmp import QMCOMM, R_QM_OBJECT_PATH_TO_OBJECT_FORMAT, ObjectFormat
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.management_client import check_status
from lanner.services.queue_client_objects import MQDS_QUEUE
from lanner.services.queue_formats import format_name_of
from lanner.wire import spelling
from lanner.wire.format_name import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MulticastFormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueFormatType,
)
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.security.identity import Identity

# 3.10.6.1: the length of a public queue's name in the directory, where each slash counts twice.
MAX_PUBLIC_NAME: Final = 63
_DIRECT: Final = "DIRECT=OS:"


def names_one_queue(name: FormatName) -> bool:
    """Return False for names of several queues, HTTP names and multicast names."""
    if isinstance(name, DirectFormatName):
        return not name.is_http
    return not isinstance(name, (MultipleElementFormatName, DistributionListFormatName, MulticastFormatName))


def read_format_name(environment: Environment, text: str) -> FormatName:
    """Return the format name in a property set by a program.

    The prefix `FormatName:` is optional.
    """
    return spelling.whole_format_name(text, environment.engine.queue_manager.computer_name)


def read_path_name(environment: Environment, text: str) -> PathName:
    """Return the path name in a property set by a program."""
    return spelling.path_name(text, environment.engine.queue_manager.computer_name, short_names=False)


def format_name_from_path(environment: Environment, text: str) -> str:
    """Return the format name of a path (3.1.6.2 Get Queue Format Name from Pathname)."""
    whole = read_path_name(environment, text)
    path = whole.without_suffix()
    engine = environment.engine
    with environment.lock:
        is_local = engine.is_local_host(path.computer)
        if path.queue_type is QueueType.PUBLIC:
            name = str(_public_name(environment, path, is_local=is_local))
        elif not path.is_private:
            raise IllegalQueuePathname(f"{text}: neither a public nor a private queue")
        elif engine.queue_manager.directory_integrated and is_local:
            # Use the spelling of its creation: names are case-insensitive, but the numbers
            # derived from them are not.
            queue = engine.find_by_path(path)
            called = path.name if queue is None else PathName.parse(queue.pathname).name
            name = str(PrivateFormatName(engine.queue_manager.identifier, private_queue_local_identifier(called)))
        else:
            # This includes private queues of other computers. With the document's rule, the name
            # would be that of a local queue.
            name = f"{_DIRECT}{path}"
    return name + _suffix(whole)


async def format_name_of_path(environment: Environment, text: str, identity: Identity) -> str:
    """Return the format name of an object that has only a path name.

    3.10.6.1 Update QueueFormatName.
    """
    whole = read_path_name(environment, text)
    engine = environment.engine
    with environment.lock:
        is_local = engine.is_local_host(whole.computer)
        if whole.is_on_this_computer:
            whole = whole.with_computer(engine.queue_manager.computer_name)
        path = whole.without_suffix()
        if path.queue_type is QueueType.PUBLIC:
            length = len(path.name) + path.name.count("/")
            if length > MAX_PUBLIC_NAME:
                raise IllegalQueuePathname(f"{text}: the name counts {length}, at most {MAX_PUBLIC_NAME}")
            name: FormatName = _public_name(environment, path, is_local=is_local)
        elif path.is_private and is_local:
            name = engine.private_format_name(path)
        elif not path.is_private:
            # A system queue of the computer, which has no other name.
            return f"{_DIRECT}{whole}"
    if path.is_private and not is_local:
        if identity.is_anonymous:
            # Anonymous users must not make this computer connect to others.
            raise AccessDenied(f"{path}: {identity.name} may not look up a queue of another computer")
        name = await _ask_owner(environment, path)
    if whole.subqueue is not None:
        return f"{_DIRECT}{whole}"
    return str(name) + _suffix(whole)


def format_name_from_ads_path(environment: Environment, path: str) -> str:
    """Return the format name of a directory path (3.12.6.1 Get Queue Format Name from ADsPath)."""
    engine = environment.engine
    with environment.lock:
        if engine.queue_manager.directory_offline:
            raise QueueNotFound(f"{path}: the directory cannot be asked")
        result, found = engine.directory.format_name_at(path)
    if found is None:
        raise QueueNotFound(f"{path}: the directory has no queue, alias or distribution list there: {result.value}")
    return found


def _suffix(path: PathName) -> str:
    if path.is_journal:
        return ";JOURNAL"
    return "" if path.subqueue is None else f";{path.subqueue}"


def _public_name(environment: Environment, path: PathName, *, is_local: bool) -> PublicFormatName:
    engine = environment.engine
    if engine.queue_manager.directory_offline:
        raise QueueNotFound(f"{path}: the directory cannot be asked")
    if is_local:
        path = path.with_computer(engine.queue_manager.computer_name)
    result, found = engine.read_directory(
        "Queue", [AttributeFilter("Pathname", Operator.EQUALS, str(path))], ["Identifier"]
    )
    if result is not DirectoryOperationResult.SUCCESS or not isinstance(found, Queue):
        raise QueueNotFound(f"{path}: {result.value}")
    return PublicFormatName(found.identifier)


async def _ask_owner(environment: Environment, path: PathName) -> FormatName:
    """Call R_QMObjectPathToObjectFormat on the queue's computer (MS-MQMP 3.1.4.11)."""
    unknown = ObjectFormat(MQDS_QUEUE, QueueFormat(QueueFormatType.UNKNOWN, 0, 0, None))
    client = await environment.connect(path.computer)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            owner = await client.bind(QMCOMM)
            results = await owner.call(
                R_QM_OBJECT_PATH_TO_OBJECT_FORMAT, lpwcs_path_name=str(path), p_object_format=unknown
            )
    except (OSError, RpcFault, RpcConnectionError, RemoteProtocolError) as error:
        raise RemoteMachineNotAvailable(f"{path.computer} cannot be asked about {path}: {error}") from error
    finally:
        await client.close()
    check_status(results)
    told = cast("ObjectFormat", results["p_object_format"]).u
    if told is None:
        raise QueueNotFound(f"{path}: its computer returned no format name")
    return format_name_of(told)
