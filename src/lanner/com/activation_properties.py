"""The activation properties BLOB, in requests and replies (MS-DCOM 2.2.22, MS-RPCE 2.2.6).

It travels in an OBJREF_CUSTOM. Each property is a structure serialized by itself (type
serialization version 1); a header before them lists their classes and sizes. An inconsistent BLOB
raises RemoteProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final
from uuid import UUID, uuid4

from lanner.com.constants import (
    CLSID_ACTIVATIONCONTEXTINFO,
    CLSID_ACTIVATIONPROPERTIESIN,
    CLSID_ACTIVATIONPROPERTIESOUT,
    CLSID_CONTEXTMARSHALER,
    CLSID_INSTANTIATIONINFO,
    CLSID_PROPSOUTINFO,
    CLSID_SCMREPLYINFO,
    CLSID_SCMREQUESTINFO,
    CLSID_SERVERLOCATIONINFO,
    IID_IACTIVATIONPROPERTIESIN,
    IID_IACTIVATIONPROPERTIESOUT,
    IID_ICONTEXT,
    NCACN_IP_TCP,
    S_OK,
)
from lanner.com.objref import (
    DUALSTRINGARRAY,
    INTERFACE_POINTER,
    DualStringArray,
    ObjRef,
    ObjRefCustom,
)
from lanner.com.orpc import COMVERSION, OUR_VERSION, ComVersion
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.ndr import (
    Conformant,
    Related,
    Struct,
    Unique,
    Value,
    guid,
    i32,
    u16,
    u32,
    u64,
    wide_string,
)
from lanner.rpc.ndr.serialization import deserialize, serialize
from lanner.wire.reader import Reader, guid_to_bytes

# MS-DCOM 2.2.28.1.
MAX_REQUESTED_INTERFACES: Final = 0x8000
MAX_REQUESTED_PROTSEQS: Final = 0x8000
MIN_ACTPROP_LIMIT: Final = 1
MAX_ACTPROP_LIMIT: Final = 10
# MSHCTX_DIFFERENTMACHINE, which Windows writes to destCtx.
_DIFFERENT_MACHINE: Final = 2

# The structures
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CustomHeader:
    """CustomHeader, MS-DCOM 2.2.22.1."""

    total_size: Annotated[int, u32]
    header_size: Annotated[int, u32]
    dw_reserved: Annotated[int, u32]
    dest_ctx: Annotated[int, u32]
    c_ifs: Annotated[int, u32.within(MIN_ACTPROP_LIMIT, MAX_ACTPROP_LIMIT)]
    class_info_clsid: Annotated[UUID, guid]
    pclsid: Annotated[tuple[UUID, ...] | None, Unique(Conformant(guid)), Related(size_is="c_ifs")]
    p_sizes: Annotated[tuple[int, ...] | None, Unique(Conformant(u32)), Related(size_is="c_ifs")]
    pdw_reserved: Annotated[int | None, Unique(u32)]


@dataclass(frozen=True, slots=True)
class InstantiationInfoData:
    """InstantiationInfoData, MS-DCOM 2.2.22.2.1."""

    class_id: Annotated[UUID, guid]
    class_ctx: Annotated[int, u32]
    actvflags: Annotated[int, u32]
    f_is_surrogate: Annotated[int, i32]
    c_iid: Annotated[int, u32.within(1, MAX_REQUESTED_INTERFACES)]
    inst_flag: Annotated[int, u32]
    p_iid: Annotated[tuple[UUID, ...] | None, Unique(Conformant(guid)), Related(size_is="c_iid")]
    this_size: Annotated[int, u32]
    client_com_version: Annotated[ComVersion, COMVERSION]


@dataclass(frozen=True, slots=True)
class RemoteRequestScmInfo:
    """customREMOTE_REQUEST_SCM_INFO, MS-DCOM 2.2.22.2.4.1."""

    client_imp_level: Annotated[int, u32]
    c_requested_protseqs: Annotated[int, u16.within(0, MAX_REQUESTED_PROTSEQS)]
    p_requested_protseqs: Annotated[
        tuple[int, ...] | None, Unique(Conformant(u16)), Related(size_is="c_requested_protseqs")
    ]


@dataclass(frozen=True, slots=True)
class ScmRequestInfoData:
    """ScmRequestInfoData, MS-DCOM 2.2.22.2.4."""

    pdw_reserved: Annotated[int | None, Unique(u32)]
    remote_request: Annotated[RemoteRequestScmInfo | None, Unique(Struct(RemoteRequestScmInfo))]


@dataclass(frozen=True, slots=True)
class ActivationContextInfoData:
    """ActivationContextInfoData, MS-DCOM 2.2.22.2.5."""

    client_ok: Annotated[int, i32]
    b_reserved1: Annotated[int, i32]
    dw_reserved1: Annotated[int, u32]
    dw_reserved2: Annotated[int, u32]
    p_ifd_client_ctx: Annotated[ObjRef | None, INTERFACE_POINTER]
    p_ifd_prototype_ctx: Annotated[ObjRef | None, INTERFACE_POINTER]


# Context, MS-DCOM 2.2.20: versions, ContextId, Flags, Reserved, dwNumExtents, cbExtents, MshlFlags,
# Count, Frozen.
_CONTEXT: Final = struct.Struct("<HH16sIIIIIII")
_CTXMSHLFLAGS_BYVAL: Final = 2


def client_context(identifier: UUID) -> ObjRefCustom:
    """Return a context without properties. Every request must have one (MS-DCOM 3.2.4.1.1.2)."""
    data = _CONTEXT.pack(1, 1, guid_to_bytes(identifier), _CTXMSHLFLAGS_BYVAL, 0, 0, 0, 0, 0, 1)
    return ObjRefCustom(IID_ICONTEXT, CLSID_CONTEXTMARSHALER, data)


@dataclass(frozen=True, slots=True)
class LocationInfoData:
    """LocationInfoData, MS-DCOM 2.2.22.2.6: required, but without content."""

    machine_name: Annotated[str | None, Unique(wide_string)] = None
    process_id: Annotated[int, u32] = 0
    apartment_id: Annotated[int, u32] = 0
    context_id: Annotated[int, u32] = 0


@dataclass(frozen=True, slots=True)
class RemoteReplyScmInfo:
    """customREMOTE_REPLY_SCM_INFO, MS-DCOM 2.2.22.2.8.1."""

    oxid: Annotated[int, u64]
    pdsa_oxid_bindings: Annotated[DualStringArray | None, DUALSTRINGARRAY]
    ipid_rem_unknown: Annotated[UUID, guid]
    authn_hint: Annotated[int, u32]
    server_version: Annotated[ComVersion, COMVERSION]


@dataclass(frozen=True, slots=True)
class ScmReplyInfoData:
    """ScmReplyInfoData, MS-DCOM 2.2.22.2.8."""

    pdw_reserved: Annotated[int | None, Unique(u32)]
    remote_reply: Annotated[RemoteReplyScmInfo | None, Unique(Struct(RemoteReplyScmInfo))]


@dataclass(frozen=True, slots=True)
class PropsOutInfo:
    """PropsOutInfo, MS-DCOM 2.2.22.2.9."""

    c_ifs: Annotated[int, u32.within(1, MAX_REQUESTED_INTERFACES)]
    piid: Annotated[tuple[UUID, ...] | None, Unique(Conformant(guid)), Related(size_is="c_ifs")]
    phresults: Annotated[tuple[int, ...] | None, Unique(Conformant(u32)), Related(size_is="c_ifs")]
    pp_intf_data: Annotated[
        tuple[ObjRef | None, ...] | None, Unique(Conformant(INTERFACE_POINTER)), Related(size_is="c_ifs")
    ]


_CUSTOM_HEADER: Final = Struct(CustomHeader)
_INSTANTIATION_INFO: Final = Struct(InstantiationInfoData)
_SCM_REQUEST_INFO: Final = Struct(ScmRequestInfoData)
_ACTIVATION_CONTEXT_INFO: Final = Struct(ActivationContextInfoData)
_LOCATION_INFO: Final = Struct(LocationInfoData)
_SCM_REPLY_INFO: Final = Struct(ScmReplyInfoData)
_PROPS_OUT_INFO: Final = Struct(PropsOutInfo)


# The BLOB
# --------------------------------------------------------------------------------------------------


def pack_blob(properties: Mapping[UUID, bytes]) -> bytes:
    """Serialize properties, in their order, behind a header."""
    sizes = tuple([len(one) for one in properties.values()])
    header = CustomHeader(0, 0, 0, _DIFFERENT_MACHINE, len(sizes), UUID(int=0), tuple(properties), sizes, None)
    # Its size does not depend on its values.
    header_size = len(serialize(_CUSTOM_HEADER, header))
    total = header_size + sum(sizes)
    packed = serialize(_CUSTOM_HEADER, replace(header, total_size=total, header_size=header_size))
    return struct.pack("<II", total, 0) + packed + b"".join(properties.values())


def unpack_blob(data: bytes) -> dict[UUID, bytes]:
    """Return the properties, by class, each still serialized; of duplicates, the first."""
    reader = Reader(data)
    reader.u32("dwSize")
    reader.u32("dwReserved")
    header: CustomHeader = deserialize(_CUSTOM_HEADER, data[reader.position :])
    if header.pclsid is None or header.p_sizes is None:
        raise RemoteProtocolError("CustomHeader without classes or sizes")
    reader.take(header.header_size, "CustomHeader")
    properties: dict[UUID, bytes] = {}
    for clsid, size in zip(header.pclsid, header.p_sizes, strict=True):
        properties.setdefault(clsid, reader.take(size, f"property {clsid}"))
    return properties


def _property(properties: Mapping[UUID, bytes], clsid: UUID, kind: Struct) -> Value:
    data = properties.get(clsid)
    if data is None:
        raise RemoteProtocolError(f"{kind!r} is missing")
    return deserialize(kind, data)


def _blob_of(objref: ObjRef, clsid: UUID) -> bytes:
    # The iid field is not checked: some clients write a different one.
    if not isinstance(objref, ObjRefCustom) or objref.clsid != clsid:
        raise RemoteProtocolError(f"no OBJREF_CUSTOM for {clsid}")
    return objref.object_data


@dataclass(frozen=True, slots=True)
class ActivationRequest:
    """A request to IRemoteSCMActivator.

    It asks for interfaces of a class, callable over one of these protocol sequences.
    """

    clsid: UUID
    iids: tuple[UUID, ...]
    protseqs: tuple[int, ...] = (NCACN_IP_TCP,)
    client_version: ComVersion = OUR_VERSION

    def pack(self) -> ObjRefCustom:
        info = InstantiationInfoData(self.clsid, 0, 0, 0, len(self.iids), 0, self.iids, 0, self.client_version)
        info = replace(info, this_size=len(serialize(_INSTANTIATION_INFO, info)))
        # ClientImpLevel 2: Windows writes RPC_C_IMP_LEVEL_IDENTIFY.
        scm = ScmRequestInfoData(None, RemoteRequestScmInfo(2, len(self.protseqs), self.protseqs))
        context = ActivationContextInfoData(0, 0, 0, 0, client_context(uuid4()), None)
        blob = pack_blob(
            {
                CLSID_INSTANTIATIONINFO: serialize(_INSTANTIATION_INFO, info),
                CLSID_ACTIVATIONCONTEXTINFO: serialize(_ACTIVATION_CONTEXT_INFO, context),
                CLSID_SERVERLOCATIONINFO: serialize(_LOCATION_INFO, LocationInfoData()),
                CLSID_SCMREQUESTINFO: serialize(_SCM_REQUEST_INFO, scm),
            }
        )
        return ObjRefCustom(IID_IACTIVATIONPROPERTIESIN, CLSID_ACTIVATIONPROPERTIESIN, blob)

    @classmethod
    def unpack(cls, objref: ObjRef) -> ActivationRequest:
        """Read the three required properties and no others (MS-DCOM 3.1.2.5.2.3.3).

        The context that Windows includes is not required: none of our classes has an application
        identifier (MS-DCOM 3.1.2.5.2.3), and impacket sends NULL there. Clients cannot choose a
        session or an address space.
        """
        properties = unpack_blob(_blob_of(objref, CLSID_ACTIVATIONPROPERTIESIN))
        info: InstantiationInfoData = _property(properties, CLSID_INSTANTIATIONINFO, _INSTANTIATION_INFO)
        scm: ScmRequestInfoData = _property(properties, CLSID_SCMREQUESTINFO, _SCM_REQUEST_INFO)
        # MS-DCOM 2.2.22.2.6: it must be present, and the server must ignore it.
        if CLSID_SERVERLOCATIONINFO not in properties:
            raise RemoteProtocolError("LocationInfoData is missing")
        if scm.remote_request is None:
            raise RemoteProtocolError("ScmRequestInfoData without remoteRequest")
        protseqs = scm.remote_request.p_requested_protseqs or ()
        return cls(info.class_id, info.p_iid or (), protseqs, info.client_com_version)


@dataclass(frozen=True, slots=True)
class InterfaceResult:
    """The result for one interface: a reference, or the error."""

    iid: UUID
    hresult: int = S_OK
    objref: ObjRef | None = None


@dataclass(frozen=True, slots=True)
class ActivationReply:
    """A reply of IRemoteSCMActivator: the interfaces, and the exporter at which to call them."""

    results: tuple[InterfaceResult, ...]
    oxid: int
    bindings: DualStringArray
    ipid_rem_unknown: UUID
    authn_hint: int
    server_version: ComVersion = OUR_VERSION

    def pack(self) -> ObjRefCustom:
        results = self.results
        props = PropsOutInfo(
            len(results),
            tuple([one.iid for one in results]),
            tuple([one.hresult for one in results]),
            tuple([one.objref for one in results]),
        )
        reply = RemoteReplyScmInfo(
            self.oxid, self.bindings, self.ipid_rem_unknown, self.authn_hint, self.server_version
        )
        # The order matters, because impacket finds the properties by position.
        blob = pack_blob(
            {
                CLSID_PROPSOUTINFO: serialize(_PROPS_OUT_INFO, props),
                CLSID_SCMREPLYINFO: serialize(_SCM_REPLY_INFO, ScmReplyInfoData(None, reply)),
            }
        )
        return ObjRefCustom(IID_IACTIVATIONPROPERTIESOUT, CLSID_ACTIVATIONPROPERTIESOUT, blob)

    @classmethod
    def unpack(cls, objref: ObjRef) -> ActivationReply:
        properties = unpack_blob(_blob_of(objref, CLSID_ACTIVATIONPROPERTIESOUT))
        props: PropsOutInfo = _property(properties, CLSID_PROPSOUTINFO, _PROPS_OUT_INFO)
        scm: ScmReplyInfoData = _property(properties, CLSID_SCMREPLYINFO, _SCM_REPLY_INFO)
        reply = scm.remote_reply
        if reply is None or reply.pdsa_oxid_bindings is None:
            raise RemoteProtocolError("ScmReplyInfoData without bindings")
        results = tuple(map(InterfaceResult, props.piid or (), props.phresults or (), props.pp_intf_data or ()))
        return cls(
            results,
            reply.oxid,
            reply.pdsa_oxid_bindings,
            reply.ipid_rem_unknown,
            reply.authn_hint,
            reply.server_version,
        )
