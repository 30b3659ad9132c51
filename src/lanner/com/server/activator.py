"""Activation: creates objects of a class, or its factory, for clients (MS-DCOM 3.1.2.5.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from lanner.com.activation_properties import ActivationReply, ActivationRequest, InterfaceResult
from lanner.com.constants import (
    E_ACCESSDENIED,
    E_INVALIDARG,
    E_NOINTERFACE,
    E_UNEXPECTED,
    IID_ICLASSFACTORY,
    REGDB_E_CLASSNOTREG,
    RPC_E_INVALID_OBJREF,
    RPC_E_VERSION_MISMATCH,
    S_OK,
)
from lanner.com.interfaces import (
    CREATE_INSTANCE,
    IACTIVATION,
    ICLASSFACTORY,
    IREMOTESCMACTIVATOR,
    MODE_GET_CLASS_OBJECT,
    REMOTE_ACTIVATION,
    REMOTE_CREATE_INSTANCE,
    REMOTE_GET_CLASS_OBJECT,
)
from lanner.com.members import InterfaceTable, Member
from lanner.com.objects import ComError, ComObject
from lanner.com.objref import ObjRef, unpack_objref
from lanner.com.orpc import OUR_VERSION, OrpcThat, OrpcThis
from lanner.com.server.rem_unknown import MAX_QUERIED_INTERFACES
from lanner.model.errors import RemoteProtocolError, StatusError
from lanner.rpc.interface import RETURNS
from lanner.rpc.server import ServerInterface
from lanner.security.log_lines import log_of_peer

if TYPE_CHECKING:
    from lanner.com.server.exporter import Invocation, ObjectExporter
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Results

_LOG = logging.getLogger(__name__)

# The classes that can be activated. A CLSID maps to a constructor.
ClassTable: TypeAlias = Mapping[UUID, Callable[[], ComObject]]

ICLASSFACTORY_TABLE: Final = InterfaceTable(
    "IClassFactory",
    IID_ICLASSFACTORY,
    "IUnknown",
    is_dual=False,
    members=tuple(
        [
            Member(method.opnum, 0, "method", method.name, (), method.name)
            for method in ICLASSFACTORY.methods
            if method is not None
        ]
    ),
)


class ClassFactory(ComObject):
    """The class object (factory) of a class."""

    interfaces = (ICLASSFACTORY_TABLE,)

    def __init__(self, create: Callable[[], ComObject]) -> None:
        self.create = create


class Activator:
    """The part that IActivation and IRemoteSCMActivator share."""

    def __init__(self, exporter: ObjectExporter, classes: ClassTable) -> None:
        self._exporter = exporter
        self._factories = {clsid: ClassFactory(create) for clsid, create in classes.items()}
        exporter.serve(IID_ICLASSFACTORY, serve_class_factory)

    @property
    def interfaces(self) -> list[ServerInterface]:
        return [
            # `_check` admits callers: it applies the authentication level of COM and returns COM
            # result codes.
            ServerInterface(
                IACTIVATION, {REMOTE_ACTIVATION.name: self.remote_activation}, open_to_all=IACTIVATION.by_name
            ),
            ServerInterface(
                IREMOTESCMACTIVATOR,
                {
                    REMOTE_GET_CLASS_OBJECT.name: self.remote_get_class_object,
                    REMOTE_CREATE_INSTANCE.name: self.remote_create_instance,
                },
                open_to_all=IREMOTESCMACTIVATOR.by_name,
            ),
        ]

    # MS-DCOM 3.1.2.5.2.3
    # ----------------------------------------------------------------------------------------

    def _check(self, call: ServerCall, orpc_this: OrpcThis) -> None:
        # MS-DCOM 2.2.13.3: the flags are ignored here.
        if not orpc_this.version.is_served:
            raise ComError(RPC_E_VERSION_MISMATCH, f"{orpc_this.version}")
        if not self._exporter.may_call(call):
            raise ComError(E_ACCESSDENIED, f"{call.identity.name} at level {call.auth_level.name}")

    def _activate(
        self, call: ServerCall, clsid: UUID, iids: tuple[UUID, ...], *, is_class_object: bool
    ) -> list[InterfaceResult]:
        """Return references to the requested interfaces. Raise ComError if none is available."""
        if not 1 <= len(iids) <= MAX_QUERIED_INTERFACES:
            raise ComError(E_INVALIDARG, f"{len(iids)} interfaces")
        factory = self._factories.get(clsid)
        if factory is None:
            raise ComError(REGDB_E_CLASSNOTREG, f"class {clsid}")
        made = factory if is_class_object else _create(factory)
        results = []
        for iid in iids:
            try:
                objref = self._exporter.marshal(
                    made,
                    iid,
                    reached=call.connection.local_address,
                    # A factory belongs to every user.
                    owner=None if is_class_object else call.identity.sid,
                    user=call.identity.sid,
                )
            except ComError as error:
                results.append(InterfaceResult(iid, error.hresult))
            else:
                results.append(InterfaceResult(iid, S_OK, objref))
        if all(one.hresult for one in results):
            # This is what CoCreateInstanceEx does: without any interface, nothing can refer to the
            # object, so none is returned.
            raise ComError(results[0].hresult, f"class {clsid} has none of {len(iids)} interfaces")
        return results

    def _scm_activate(
        self, call: ServerCall, orpc_this: OrpcThis, properties: bytes | None, *, is_class_object: bool
    ) -> Results:
        try:
            self._check(call, orpc_this)
            if properties is None:
                raise ComError(E_INVALIDARG, "no activation properties")
            request = ActivationRequest.unpack(unpack_objref(properties))
            results = self._activate(call, request.clsid, request.iids, is_class_object=is_class_object)
        except ComError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            return _refused(error.hresult)
        except RemoteProtocolError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            return _refused(RPC_E_INVALID_OBJREF)
        exporter = self._exporter
        reply = ActivationReply(
            tuple(results),
            exporter.oxid,
            exporter.addresses.exporter(call.connection.local_address),
            exporter.ipid_rem_unknown,
            exporter.minimum_level,
        )
        return {"orpc_that": OrpcThat(), "pp_act_properties": reply.pack(), RETURNS: S_OK}

    # IRemoteSCMActivator
    # ----------------------------------------------------------------------------------------

    def remote_get_class_object(
        self, call: ServerCall, *, orpc_this: OrpcThis, p_act_properties: bytes | None
    ) -> Results:
        """Serve RemoteGetClassObject (MS-DCOM 3.1.2.5.2.3.2)."""
        return self._scm_activate(call, orpc_this, p_act_properties, is_class_object=True)

    def remote_create_instance(
        self, call: ServerCall, *, orpc_this: OrpcThis, p_unk_outer: bytes | None, p_act_properties: bytes | None
    ) -> Results:
        """Serve RemoteCreateInstance (MS-DCOM 3.1.2.5.2.3.3).

        pUnkOuter "MUST be ignored by the recipient".
        """
        del p_unk_outer
        return self._scm_activate(call, orpc_this, p_act_properties, is_class_object=False)

    # IActivation
    # ----------------------------------------------------------------------------------------------

    def remote_activation(
        self,
        call: ServerCall,
        *,
        orpc_this: OrpcThis,
        clsid: UUID,
        pwsz_object_name: str | None,
        p_object_storage: bytes | None,
        client_imp_level: int,
        mode: int,
        interfaces: int,
        p_iids: tuple[UUID, ...] | None,
        c_requested_protseqs: int,
        a_requested_protseqs: tuple[int, ...],
    ) -> Results:
        """Serve RemoteActivation (MS-DCOM 3.1.2.5.2.3.1).

        Objects initialized from the contents of a file are not supported.
        """
        del client_imp_level, c_requested_protseqs, a_requested_protseqs
        exporter = self._exporter
        objrefs: tuple[ObjRef | None, ...] = (None,) * interfaces
        try:
            self._check(call, orpc_this)
            if pwsz_object_name is not None or p_object_storage is not None:
                raise ComError(E_INVALIDARG, "activation from a file or a storage is not supported")
            results = self._activate(call, clsid, p_iids or (), is_class_object=mode == MODE_GET_CLASS_OBJECT)
        except ComError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            # phr has the result of the activation, and pResults is then all zeros. Clients look at
            # either status.
            return {
                "orpc_that": OrpcThat(),
                "p_server_version": OUR_VERSION,
                "phr": error.hresult,
                "pp_interface_data": objrefs,
                "p_results": (S_OK,) * interfaces,
                RETURNS: error.hresult,
            }
        return {
            "orpc_that": OrpcThat(),
            "p_oxid": exporter.oxid,
            "ppdsa_oxid_bindings": exporter.addresses.exporter(call.connection.local_address),
            "pipid_rem_unknown": exporter.ipid_rem_unknown,
            "p_authn_hint": exporter.minimum_level,
            "p_server_version": OUR_VERSION,
            "phr": S_OK,
            "pp_interface_data": tuple([one.objref for one in results]),
            "p_results": tuple([one.hresult for one in results]),
            RETURNS: S_OK,
        }


def _refused(hresult: int) -> Results:
    return {"orpc_that": OrpcThat(), "pp_act_properties": None, RETURNS: hresult}


def _create(factory: ClassFactory) -> ComObject:
    try:
        return factory.create()
    except ComError:
        raise
    except StatusError as error:
        raise ComError(error.status, str(error)) from error
    except Exception as error:
        log_of_peer(_LOG, logging.ERROR, "made", "", "an object could not be created", exc_info=True)
        raise ComError(E_UNEXPECTED, "the object could not be created") from error


def serve_class_factory(invocation: Invocation) -> bytes:
    """Serve IClassFactory: create an object as activation does.

    Server locks do nothing, because the server does not exit when its last object is released.
    """
    call, factory = invocation.call, invocation.object
    method = ICLASSFACTORY.method(call.opnum)
    if method is None or not isinstance(factory, ClassFactory):
        raise TypeError(f"{factory!r} is no class factory")
    arguments = method.decode_request(call.stub, byte_order="little" if call.is_little else "big")
    results: dict[str, object] = {"orpc_that": OrpcThat(), RETURNS: S_OK}
    if method is CREATE_INSTANCE:
        results["ppv_object"] = None
        try:
            made = _create(factory)
            if made.query_interface(arguments["riid"]) is None:
                raise ComError(E_NOINTERFACE)
            results["ppv_object"] = invocation.exporter.marshal(made, arguments["riid"])
        except ComError as error:
            results[RETURNS] = error.hresult
    return method.encode_response(results, arguments)
