"""Activation, references and members of objects of COM, as each caller uses them.

The anonymous and another user come with a reference to an object that the owner has made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID, uuid4

from lanner.activex import COCLASSES, tables
from lanner.com.activation_properties import ActivationRequest
from lanner.com.client.client import ComClient, RemoteInterface
from lanner.com.client.dispatch import DispatchError
from lanner.com.constants import (
    IID_ICLASSFACTORY,
    IID_IDISPATCH,
    IID_IREMUNKNOWN,
    IID_IREMUNKNOWN2,
    IID_IUNKNOWN,
    NCACN_IP_TCP,
    succeeded,
)
from lanner.com.interfaces import (
    COMPLEX_PING,
    CREATE_INSTANCE,
    IACTIVATION,
    IOBJECTEXPORTER,
    IREMOTESCMACTIVATOR,
    LOCK_SERVER,
    REM_ADD_REF,
    REM_QUERY_INTERFACE,
    REM_QUERY_INTERFACE2,
    REM_RELEASE,
    REMOTE_ACTIVATION,
    REMOTE_CREATE_INSTANCE,
    REMOTE_GET_CLASS_OBJECT,
    RESOLVE_OXID,
    RESOLVE_OXID2,
    SERVER_ALIVE,
    SERVER_ALIVE2,
    SIMPLE_PING,
    RemInterfaceRef,
)
from lanner.com.known_classes import CLASSES
from lanner.com.members import Coclass, Member
from lanner.com.objects import ComError
from lanner.com.orpc import ORPCTHIS, OUR_VERSION, OrpcThis
from lanner.rpc.interface import Method
from lanner.rpc.ndr import Encoder, Syntax, Value, representation
from tests.adversity.matrix import rpc_probes
from tests.adversity.matrix.callers import Caller, Probe, Probes, com_outcome, outcome
from tests.adversity.matrix.rpc_probes import plainly
from tests.adversity.matrix.table import Outcome
from tests.adversity.rpc_enemies import HostScript

RECEIVE, SEND, PEEK = 1, 2, 0x20
_INFO: Final = CLASSES["MSMQ.MSMQQueueInfo"]
_BY_CLSID: Final[dict[UUID, Coclass]] = {
    coclass.clsid: coclass for coclass in vars(tables).values() if isinstance(coclass, Coclass)
}


def members() -> dict[str, tuple[Coclass, UUID, Member]]:
    """Return every member that can be called, by class and name, with the interface that has it."""
    found: dict[str, tuple[Coclass, UUID, Member]] = {}
    for clsid in COCLASSES:
        coclass = _BY_CLSID[clsid]
        for table in coclass.interfaces:
            for member in table.members if table.is_remote else ():
                found.setdefault(f"{coclass.name}.{member.name}", (coclass, table.iid, member))
    return found


def script_of(caller: Caller) -> HostScript:
    return HostScript(caller.world.com[caller.column], caller.world.served.address)


async def borrowed(caller: Caller, remote: RemoteInterface) -> RemoteInterface:
    """Give a caller a reference to what another client has."""
    com: ComClient = caller.world.com[caller.column]
    return await com.unmarshal(await remote.client.reference(remote.held))


Make = Callable[[HostScript], Awaitable[RemoteInterface]]
Act = Callable[[HostScript, RemoteInterface], Awaitable[Any]]


async def had(caller: Caller, make: Make) -> RemoteInterface:
    """Make an object as the caller; or as the owner, and take a reference to that."""
    if not caller.takes_anothers:
        return await make(script_of(caller))
    return await borrowed(caller, await make(script_of(caller.owner)))


def on_object(make: Make, act: Act, *done: int) -> Probe:
    async def probe(caller: Caller) -> str:
        async def work() -> None:
            await act(script_of(caller), await had(caller, make))

        return await com_outcome(work(), *done)

    return probe


# Resolver and activator
# --------------------------------------------------------------------------------------------------


async def an_object(script: HostScript) -> RemoteInterface:
    return await script.create("MSMQQueueInfo")


def resolving(method: Method) -> Probe:
    async def probe(caller: Caller) -> str:
        held = await an_object(script_of(caller.owner))
        oxid = held.held.exporter.oxid
        arguments = {"p_oxid": oxid, "c_requested_protseqs": 1, "ar_requested_protseqs": (NCACN_IP_TCP,)}
        return outcome(await caller.status(IOBJECTEXPORTER, method, **arguments))

    return probe


def _new_set(oid: int) -> dict[str, Value]:
    added = {"c_add_to_set": 1, "add_to_set": (oid,)}
    return {"p_set_id": 0, "sequence_num": 1, "c_del_from_set": 0, "del_from_set": None, **added}


async def complex_ping(caller: Caller) -> str:
    held = await an_object(script_of(caller.owner))
    return outcome(await caller.status(IOBJECTEXPORTER, COMPLEX_PING, **_new_set(held.oid)))


async def simple_ping(caller: Caller) -> str:
    held = await an_object(script_of(caller.owner))
    whose = caller.owner if caller.takes_anothers else caller
    made = await whose.results(IOBJECTEXPORTER, COMPLEX_PING, **_new_set(held.oid))
    return outcome(await caller.status(IOBJECTEXPORTER, SIMPLE_PING, p_set_id=made["p_set_id"]))


def scm(method: Method, iid: UUID, **arguments: Value) -> Probe:
    async def probe(caller: Caller) -> str:
        request = ActivationRequest(_INFO, (iid,), client_version=OUR_VERSION).pack().pack()
        given = {"orpc_this": OrpcThis.of(uuid4(), OUR_VERSION), "p_act_properties": request, **arguments}
        return outcome(await caller.status(IREMOTESCMACTIVATOR, method, **given))

    return probe


async def old_activation(caller: Caller) -> str:
    return outcome(
        await caller.status(
            IACTIVATION,
            REMOTE_ACTIVATION,
            orpc_this=OrpcThis.of(uuid4(), OUR_VERSION),
            clsid=_INFO,
            pwsz_object_name=None,
            p_object_storage=None,
            client_imp_level=2,
            mode=0,
            interfaces=1,
            p_iids=(IID_IDISPATCH,),
            c_requested_protseqs=1,
            a_requested_protseqs=(NCACN_IP_TCP,),
        )
    )


# References
# --------------------------------------------------------------------------------------------------


async def call_rem_unknown(remote: RemoteInterface, iid: UUID, method: Method, **arguments: Value) -> dict[str, Value]:
    exporter = remote.held.exporter
    return await remote.client.calls.call_method(exporter, iid, exporter.ipid_rem_unknown, method, arguments)


def querying(iid: UUID, method: Method) -> Probe:
    async def probe(caller: Caller) -> str:
        async def work() -> None:
            remote = await had(caller, an_object)
            question: dict[str, Value] = {"ripid": remote.ipid, "c_iids": 1, "iids": (IID_IUNKNOWN,)}
            if method is REM_QUERY_INTERFACE:
                question["c_refs"] = 1
            answer = await call_rem_unknown(remote, iid, method, **question)
            results = answer.get("phr") or [one.hresult for one in answer["pp_qi_results"]]
            if not succeeded(results[0]):
                raise ComError(results[0], method.name)

        return await com_outcome(work())

    return probe


def adding(iid: UUID) -> Probe:
    async def probe(caller: Caller) -> str:
        async def work() -> None:
            remote = await had(caller, an_object)
            refs = (RemInterfaceRef(remote.ipid, 1, 0),)
            answer = await call_rem_unknown(remote, iid, REM_ADD_REF, c_interface_refs=1, interface_refs=refs)
            if not succeeded(answer["p_results"][0]):
                raise ComError(answer["p_results"][0], "RemAddRef")

        return await com_outcome(work())

    return probe


def releasing(iid: UUID) -> Probe:
    """Release more references than there are; the object ends if it was the caller's."""

    async def probe(caller: Caller) -> str:
        whose = caller.owner if caller.takes_anothers else caller
        try:
            held = await an_object(script_of(whose))
            remote = held if whose is caller else await borrowed(caller, held)
            refs = (RemInterfaceRef(held.ipid, 1000, 1000),)
            await call_rem_unknown(remote, iid, REM_RELEASE, c_interface_refs=1, interface_refs=refs)
        except ComError as error:
            return outcome(error.hresult)
        try:
            await script_of(whose).put(held, "PathName", r".\private$\payroll")
        except ComError:
            return Outcome.YES
        return Outcome.NONE

    return probe


def on_factory(method: Method, **arguments: Value) -> Probe:
    async def probe(caller: Caller) -> str:
        async def work() -> None:
            com, host = caller.world.com[caller.column], caller.world.served.address
            (factory,) = await com.activate_all(host, _INFO, (IID_ICLASSFACTORY,), is_class_object=True)
            if isinstance(factory, ComError):
                raise factory
            await factory.call_method(method, **arguments)

        return await com_outcome(work())

    return probe


# Members
# --------------------------------------------------------------------------------------------------


def reached(name: str) -> Probe:
    """Call a member without its arguments: what counts is whether the call gets to the object."""
    coclass, iid, member = members()[name]

    async def probe(caller: Caller) -> str:
        async def make(script: HostScript) -> RemoteInterface:
            return await script.client.activate(caller.world.served.address, coclass.clsid, iid)

        objects, key = caller.world.objects, (caller.column, coclass.clsid, iid)
        try:
            remote = objects.get(key) or await had(caller, make)
            objects[key] = remote
            encoder = Encoder(representation(Syntax.NDR20))
            ORPCTHIS.encode(encoder, OrpcThis.of(uuid4(), remote.held.exporter.version))
            calls = remote.client.calls
            await calls.request(remote.held.exporter, iid, remote.ipid, member.opnum, encoder.getvalue())
        except ComError as error:
            told = outcome(error.hresult)
            return told if told in (Outcome.NO, Outcome.NONE) else Outcome.YES
        return Outcome.YES

    return probe


async def info_of(script: HostScript, queue: str) -> RemoteInterface:
    info = await script.create("MSMQQueueInfo")
    await script.put(info, "PathName", rf".\private$\{queue}")
    return info


def on_info(act: Act) -> Probe:
    """A member of MSMQQueueInfo, for a queue of the owner's."""

    async def probe(caller: Caller) -> str:
        queue = await caller.world.queue()
        return await on_object(lambda script: info_of(script, queue), act)(caller)

    return probe


async def create(caller: Caller) -> str:
    name = caller.world.new_name()
    return await on_object(lambda script: info_of(script, name), lambda script, info: script.call(info, "Create"))(
        caller
    )


def opening(access: int) -> Probe:
    async def act(script: HostScript, info: RemoteInterface) -> None:
        await script.call(info, "Open", access, 0)

    return on_info(act)


async def update(script: HostScript, info: RemoteInterface) -> None:
    await script.put(info, "Label", "new")
    await script.call(info, "Update")


async def refresh(script: HostScript, info: RemoteInterface) -> None:
    await script.call(info, "Refresh")


async def opened(script: HostScript, queue: str) -> RemoteInterface:
    """Open a queue as well as the caller can: to receive, else to send."""
    info = await info_of(script, queue)
    try:
        made = await script.call(info, "Open", RECEIVE, 0)
    except DispatchError:
        made = await script.call(info, "Open", SEND, 0)
    assert isinstance(made, RemoteInterface)
    return made


def on_queue(name: str, *arguments: object, **named: object) -> Probe:
    """A member of MSMQQueue, on a queue of the owner's that is open as well as the caller can."""

    async def probe(caller: Caller) -> str:
        queue = await caller.world.queue()

        async def act(script: HostScript, remote: RemoteInterface) -> None:
            if name.startswith("PeekNext"):
                # After the message at the cursor.
                with contextlib.suppress(DispatchError):
                    await script.call(remote, "PeekCurrent", ReceiveTimeout=0)
            await script.call(remote, name, *arguments, **named)

        return await on_object(lambda script: opened(script, queue), act)(caller)

    return probe


async def send(caller: Caller) -> str:
    """Send a message to a queue that is open to send.

    Anonymous callers and other users send another's message to its queue.
    """
    queue = await caller.world.queue()

    async def work() -> None:
        whose = script_of(caller.owner if caller.takes_anothers else caller)
        target = await whose.call(await info_of(whose, queue), "Open", SEND, 0)
        message = await whose.create("MSMQMessage")
        await whose.put(message, "Body", "text")
        if caller.takes_anothers:
            message = await borrowed(caller, message)
        await script_of(caller).call(message, "Send", target)

    return await com_outcome(work())


def on_application(name: str) -> Probe:
    async def act(script: HostScript, application: RemoteInterface) -> None:
        await script.call(application, name)

    return on_object(lambda script: script.create("MSMQApplication"), act)


def managing(coclass: str, name: str, *, is_outgoing: bool = False) -> Probe:
    """Call a member of a management object that is bound to its subject."""

    async def probe(caller: Caller) -> str:
        if is_outgoing:
            queue = await caller.world.outgoing()
        else:
            queue = await caller.world.queue()
            # Queues that are not open have no information.
            await rpc_probes.open_queue(caller.owner, queue, SEND)
            queue = rf"DIRECT=OS:.\private$\{queue}"

        async def act(script: HostScript, remote: RemoteInterface) -> None:
            await script.call(remote, "Init", FormatName=queue)
            if name != "Init":
                await script.call(remote, name)

        return await on_object(lambda script: script.create(coclass), act)(caller)

    return probe


def by_lookup_id(name: str) -> Probe:
    """Call a member of MSMQQueue that takes a lookup identifier.

    Callers that cannot find out an identifier try 1.
    """

    async def act(script: HostScript, remote: RemoteInterface) -> None:
        number: object = "1"
        with contextlib.suppress(DispatchError):
            end = "PeekLastByLookupId" if "Previous" in name else "PeekFirstByLookupId"
            number = await script.call(await script.call(remote, end), "LookupId")
        await script.call(remote, name, number, **_more(name))

    async def probe(caller: Caller) -> str:
        queue = await caller.world.queue()
        return await on_object(lambda script: opened(script, queue), act)(caller)

    return probe


def _more(name: str) -> dict[str, object]:
    return {"Transaction": 0} if name == "ReceiveByLookupIdAllowPeek" else {}


_QUEUE: Final = [name.partition(".")[2] for name in members() if name.startswith("MSMQQueue.")]
_READS: Final = [name for name in _QUEUE if name.startswith(("Receive", "Peek"))]
_NUMBERED: Final = [name for name in _READS if "LookupId" in name and "First" not in name and "Last" not in name]
_ENDS: Final = [name for name in _READS if "First" in name or "Last" in name]
_MANAGED: Final = ("MSMQManagement", "MSMQQueueManagement", "MSMQOutgoingQueueManagement")

IOBJECTEXPORTER_PROBES: Final[Probes] = {
    ("ServerAlive", ""): plainly(IOBJECTEXPORTER, SERVER_ALIVE),
    ("ServerAlive2", ""): plainly(IOBJECTEXPORTER, SERVER_ALIVE2),
    ("ResolveOxid", ""): resolving(RESOLVE_OXID),
    ("ResolveOxid2", ""): resolving(RESOLVE_OXID2),
    ("SimplePing", ""): simple_ping,
    ("ComplexPing", ""): complex_ping,
}
IACTIVATION_PROBES: Final[Probes] = {("RemoteActivation", ""): old_activation}
SCM_PROBES: Final[Probes] = {
    ("RemoteGetClassObject", ""): scm(REMOTE_GET_CLASS_OBJECT, IID_ICLASSFACTORY),
    ("RemoteCreateInstance", ""): scm(REMOTE_CREATE_INSTANCE, IID_IDISPATCH, p_unk_outer=None),
}
REM_UNKNOWN_PROBES: Final[Probes] = {
    ("RemQueryInterface", ""): querying(IID_IREMUNKNOWN, REM_QUERY_INTERFACE),
    ("RemAddRef", ""): adding(IID_IREMUNKNOWN),
    ("RemRelease", ""): releasing(IID_IREMUNKNOWN),
}
REM_UNKNOWN2_PROBES: Final[Probes] = {
    ("RemQueryInterface", ""): querying(IID_IREMUNKNOWN2, REM_QUERY_INTERFACE),
    ("RemQueryInterface2", ""): querying(IID_IREMUNKNOWN2, REM_QUERY_INTERFACE2),
    ("RemAddRef", ""): adding(IID_IREMUNKNOWN2),
    ("RemRelease", ""): releasing(IID_IREMUNKNOWN2),
}
FACTORY_PROBES: Final[Probes] = {
    ("CreateInstance", ""): on_factory(CREATE_INSTANCE, riid=IID_IDISPATCH),
    ("LockServer", ""): on_factory(LOCK_SERVER, f_lock=1),
}
MEMBER_PROBES: Final[Probes] = {
    ("MSMQQueueInfo.Create", ""): create,
    ("MSMQQueueInfo.Delete", ""): on_info(lambda script, info: script.call(info, "Delete")),
    ("MSMQQueueInfo.Open", "to send"): opening(SEND),
    ("MSMQQueueInfo.Open", "to receive"): opening(RECEIVE),
    ("MSMQQueueInfo.Open", "to peek"): opening(PEEK),
    ("MSMQQueueInfo.Update", ""): on_info(update),
    ("MSMQQueueInfo.Refresh", ""): on_info(refresh),
    ("MSMQQueueInfo.Security", ""): on_info(lambda script, info: script.call(info, "Security")),
    **{(f"MSMQQueue.{name}", ""): on_queue(name, ReceiveTimeout=0) for name in _READS if "LookupId" not in name},
    **{(f"MSMQQueue.{name}", ""): on_queue(name) for name in _ENDS},
    **{(f"MSMQQueue.{name}", ""): by_lookup_id(name) for name in _NUMBERED},
    ("MSMQQueue.Purge", ""): on_queue("Purge"),
    ("MSMQQueue.Close", ""): on_queue("Close"),
    ("MSMQMessage.Send", ""): send,
    **{
        (f"MSMQApplication.{name}", ""): on_application(name)
        for name in (
            "ActiveQueues",
            "PrivateQueues",
            "BytesInAllQueues",
            "IsConnected",
            "Connect",
            "Disconnect",
            "Tidy",
        )
    },
    **{
        (name, ""): managing(*name.split("."), is_outgoing="Outgoing" in name)
        for name in members()
        if name.partition(".")[0] in _MANAGED
    },
}
