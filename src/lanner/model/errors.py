"""Status codes and the exceptions that carry them (MS-MQMQ 2.4, and codes of other documents).

There is one class per code. `StatusError.by_status` maps codes to classes, and a duplicate code
raises an error at import. Each docstring is also the default text of the exception. `ProtocolError`
is the other family: a peer sent something malformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "MQ_OK",
    "AccessDenied",
    "BadSecurityContext",
    "BadXmlFormat",
    "BufferOverflow",
    "CannotCreateCertStore",
    "CannotCreateHashEx",
    "CannotCreateOnGc",
    "CannotCreatePscObjects",
    "CannotDeletePscObjects",
    "CannotGetDn",
    "CannotGrantAddGuid",
    "CannotHashDataEx",
    "CannotImpersonateClient",
    "CannotJoinDomain",
    "CannotLoadMqad",
    "CannotLoadMqdssrv",
    "CannotLoadMsmqocm",
    "CannotOpenCertStore",
    "CannotSetCryptoSecDescr",
    "CannotSignDataEx",
    "CannotUpdatePscObjects",
    "CantResolveSites",
    "CertificateNotProvided",
    "CommitInDoubt",
    "ComputerDoesNotSupportEncryption",
    "CorruptedInternalCertificate",
    "CorruptedPersonalCertStore",
    "CorruptedQueueWasDeleted",
    "CorruptedSecurityData",
    "CouldNotGetAccountInfo",
    "CouldNotGetUserSid",
    "DeleteCnInUse",
    "DependWksLicenseOverflow",
    "DsBindRootForest",
    "DsError",
    "DsIsFull",
    "DsLocalUser",
    "DtcConnect",
    "EncryptionProviderNotSupported",
    "FailVerifySignatureEx",
    "FormatnameBufferTooSmall",
    "GcNeeded",
    "GenericError",
    "GuidNotMatching",
    "IOTimeout",
    "IllegalContext",
    "IllegalCursorAction",
    "IllegalEnterpriseOperation",
    "IllegalFormatname",
    "IllegalMqcolumns",
    "IllegalMqprivateprops",
    "IllegalMqqmprops",
    "IllegalMqqueueprops",
    "IllegalOperation",
    "IllegalPropertySize",
    "IllegalPropertyValue",
    "IllegalPropertyVt",
    "IllegalPropid",
    "IllegalQueuePathname",
    "IllegalRelation",
    "IllegalRestrictionPropid",
    "IllegalSecurityDescriptor",
    "IllegalSort",
    "IllegalSortPropid",
    "IllegalUser",
    "InDoubt",
    "InsufficientProperties",
    "InsufficientResources",
    "InternalUserCertExist",
    "InvalidCertificate",
    "InvalidHandle",
    "InvalidOwner",
    "InvalidParameter",
    "LabelBufferTooSmall",
    "LabelTooLong",
    "LannerError",
    "MachineExists",
    "MachineNotFound",
    "MessageAlreadyReceived",
    "MessageLockedUnderTransaction",
    "MessageNotAuthenticated",
    "MessageNotFound",
    "MessageStorageFailed",
    "MissingConnectorType",
    "MqisReadonlyMode",
    "MqisServerEmpty",
    "MultiSortKeys",
    "NoDs",
    "NoEntryPointMsmqocm",
    "NoGcInDomain",
    "NoInternalUserCert",
    "NoMquserOu",
    "NoMsmqServersOnDc",
    "NoMsmqServersOnGc",
    "NoResponseFromObjectServer",
    "NotACorrectObjectClass",
    "NotSupportedByDependentClients",
    "ObjectServerNotAvailable",
    "OperationCancelled",
    "OperationNotSupportedByRemoteComputer",
    "PrivilegeNotHeld",
    "PropertiesConflict",
    "Property",
    "PropertyNotallowed",
    "ProtocolError",
    "ProvNameBufferTooSmall",
    "PublicKeyDoesNotExist",
    "PublicKeyNotFound",
    "QAdsPropertyNotSupported",
    "QDnsPropertyNotSupported",
    "QueueDeleted",
    "QueueExists",
    "QueueNotActive",
    "QueueNotAvailable",
    "QueueNotFound",
    "ReceiveInDoubt",
    "RemoteCanceled",
    "RemoteMachineNotAvailable",
    "RemoteProtocolError",
    "ResolveAddress",
    "ResultBufferTooSmall",
    "SecurityDescriptorTooSmall",
    "SenderCertBufferTooSmall",
    "SenderidBufferTooSmall",
    "ServiceNotAvailable",
    "SharingViolation",
    "SignatureBufferTooSmall",
    "StaleHandle",
    "StatusError",
    "StatusInvalidParameter",
    "StatusNotFound",
    "StatusSharingViolation",
    "StoreCorrupt",
    "StoreLocked",
    "StoreVersion",
    "SymmKeyBufferTooSmall",
    "TooManyProperties",
    "TransactionAborted",
    "TransactionEnlist",
    "TransactionImport",
    "TransactionSequence",
    "TransactionUsage",
    "UninitializedObject",
    "UnknownSource",
    "UnsupportedAccessMode",
    "UnsupportedClass",
    "UnsupportedFormatnameOperation",
    "UnsupportedOperation",
    "UserBufferTooSmall",
    "WksCantServeClient",
    "WriteNotAllowed",
    "status_error",
]

MQ_OK = 0x0000_0000

# MS-MQDMPR 1.8: a vendor's own HRESULT has the customer bit set.
CUSTOMER_BIT = 0x2000_0000


class LannerError(Exception):
    """Base class of all errors that this package raises deliberately."""


class ProtocolError(LannerError):
    """Bytes or names in an invalid format. The base class of errors caused by peers."""


class RemoteProtocolError(ProtocolError):
    """A peer sent bytes that no document allows. Only its session ends."""


class StatusError(LannerError):
    """An operation failed; `status` is the code that a protocol returns."""

    status: int
    spec_name: ClassVar[str]
    by_status: ClassVar[dict[int, type[StatusError]]] = {}

    def __init_subclass__(cls, *, status: int, spec_name: str) -> None:
        if status in StatusError.by_status:
            raise TypeError(f"{cls.__name__}: status {status:#010x} already taken")
        cls.status = status
        cls.spec_name = spec_name
        StatusError.by_status[status] = cls

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.default_text() if message is None else message)

    @classmethod
    def default_text(cls) -> str:
        """Return the text of an error that says nothing about its object: the class's docstring."""
        return " ".join((cls.__doc__ or cls.spec_name).split())

    def __str__(self) -> str:
        return f"{self.args[0]} [{self.spec_name} {self.status:#010x}]"


def status_error(status: int, message: str | None = None) -> StatusError:
    """Return the exception of a status code.

    A code that no document names becomes a GenericError with that code.
    """
    error = StatusError.by_status.get(status, GenericError)(message)
    error.status = status
    return error


class InDoubt(LannerError):
    """The connection was lost before the answer arrived.

    The operation may have been done or not.
    """


class CommitInDoubt(InDoubt):
    """A transaction was committed, or was aborted together with the lost connection."""


class TransactionAborted(LannerError):
    """A distributed transaction was aborted.

    A resource or the coordinator could not commit it.
    """


class ReceiveInDoubt(InDoubt):
    """Messages were delivered, but may be in their queue again.

    They have either been removed from the queue or returned to it. Treat them as messages that may
    be delivered twice: look for `lookup_id` in the queue, or process them so that a second delivery
    does no harm.
    """

    def __init__(self, text: str, messages: Sequence[Any]) -> None:
        super().__init__(text)
        self.messages = list(messages)

    @property
    def message(self) -> Any:  # noqa: ANN401 (a ReceivedMessage, of a layer above)
        """The received message, or the first of several."""
        return self.messages[0]

    @property
    def lookup_id(self) -> int:
        """Its lookup id: if it was not removed, it is in its queue under this lookup id."""
        lookup_id: int = self.message.lookup_id
        return lookup_id


class GenericError(StatusError, status=0xC00E_0001, spec_name="MQ_ERROR"):
    """Generic error code."""


class Property(StatusError, status=0xC00E_0002, spec_name="MQ_ERROR_PROPERTY"):
    """One or more of the properties passed are invalid."""


class QueueNotFound(StatusError, status=0xC00E_0003, spec_name="MQ_ERROR_QUEUE_NOT_FOUND"):
    """The queue does not exist, or you do not have sufficient permissions for the operation."""


class QueueNotActive(StatusError, status=0xC00E_0004, spec_name="MQ_ERROR_QUEUE_NOT_ACTIVE"):
    """The queue is not open or might not exist."""


class QueueExists(StatusError, status=0xC00E_0005, spec_name="MQ_ERROR_QUEUE_EXISTS"):
    """A queue with the same path name already exists."""


class InvalidParameter(StatusError, status=0xC00E_0006, spec_name="MQ_ERROR_INVALID_PARAMETER"):
    """An invalid parameter was passed to a function."""


class InvalidHandle(StatusError, status=0xC00E_0007, spec_name="MQ_ERROR_INVALID_HANDLE"):
    """An invalid handle was passed to a function."""


class OperationCancelled(StatusError, status=0xC00E_0008, spec_name="MQ_ERROR_OPERATION_CANCELLED"):
    """The operation was canceled before it could be completed."""


class SharingViolation(StatusError, status=0xC00E_0009, spec_name="MQ_ERROR_SHARING_VIOLATION"):
    """There is a sharing violation. The queue is already open for exclusive retrieval."""


class ServiceNotAvailable(StatusError, status=0xC00E_000B, spec_name="MQ_ERROR_SERVICE_NOT_AVAILABLE"):
    """The Message Queuing service is not available."""


class MachineNotFound(StatusError, status=0xC00E_000D, spec_name="MQ_ERROR_MACHINE_NOT_FOUND"):
    """The computer specified cannot be found."""


class IllegalSort(StatusError, status=0xC00E_0010, spec_name="MQ_ERROR_ILLEGAL_SORT"):
    """The sort operation specified is invalid; for example, there are duplicate columns."""


class IllegalUser(StatusError, status=0xC00E_0011, spec_name="MQ_ERROR_ILLEGAL_USER"):
    """The user specified is not a valid user."""


class NoDs(StatusError, status=0xC00E_0013, spec_name="MQ_ERROR_NO_DS"):
    """A connection with Active Directory cannot be established.

    Verify that there are sufficient permissions to perform this operation.
    """


class IllegalQueuePathname(StatusError, status=0xC00E_0014, spec_name="MQ_ERROR_ILLEGAL_QUEUE_PATHNAME"):
    """The queue path name specified is invalid."""


class IllegalPropertyValue(StatusError, status=0xC00E_0018, spec_name="MQ_ERROR_ILLEGAL_PROPERTY_VALUE"):
    """The property value specified is invalid."""


class IllegalPropertyVt(StatusError, status=0xC00E_0019, spec_name="MQ_ERROR_ILLEGAL_PROPERTY_VT"):
    """The VARTYPE value specified is invalid."""


class BufferOverflow(StatusError, status=0xC00E_001A, spec_name="MQ_ERROR_BUFFER_OVERFLOW"):
    """The buffer supplied for message property retrieval is too small.

    The message was not removed from the queue, but the part of the message property that was in the
    buffer was copied.
    """


class IOTimeout(StatusError, status=0xC00E_001B, spec_name="MQ_ERROR_IO_TIMEOUT"):
    """The time specified to wait for the message elapsed."""


class IllegalCursorAction(StatusError, status=0xC00E_001C, spec_name="MQ_ERROR_ILLEGAL_CURSOR_ACTION"):
    """The MQ_ACTION_PEEK_NEXT value specified cannot be used with the current cursor position."""


class MessageAlreadyReceived(StatusError, status=0xC00E_001D, spec_name="MQ_ERROR_MESSAGE_ALREADY_RECEIVED"):
    """The message at the cursor was removed from the queue without the use of this cursor.

    Another process or another call removed it.
    """


class IllegalFormatname(StatusError, status=0xC00E_001E, spec_name="MQ_ERROR_ILLEGAL_FORMATNAME"):
    """The format name specified is invalid."""


class FormatnameBufferTooSmall(StatusError, status=0xC00E_001F, spec_name="MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL"):
    """The format name buffer supplied to the API was too small to hold the format name."""


class UnsupportedFormatnameOperation(
    StatusError, status=0xC00E_0020, spec_name="MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION"
):
    """The requested operation is not supported for the format name.

    A queue cannot be deleted by a direct format name, for example.
    """


class IllegalSecurityDescriptor(StatusError, status=0xC00E_0021, spec_name="MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR"):
    """The specified security descriptor is invalid."""


class SenderidBufferTooSmall(StatusError, status=0xC00E_0022, spec_name="MQ_ERROR_SENDERID_BUFFER_TOO_SMALL"):
    """The size of the buffer for the user ID property is too small."""


class SecurityDescriptorTooSmall(StatusError, status=0xC00E_0023, spec_name="MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL"):
    """The size of the buffer passed is too small."""


class CannotImpersonateClient(StatusError, status=0xC00E_0024, spec_name="MQ_ERROR_CANNOT_IMPERSONATE_CLIENT"):
    """The credentials cannot be verified: the RPC server cannot impersonate the application."""


class AccessDenied(StatusError, status=0xC00E_0025, spec_name="MQ_ERROR_ACCESS_DENIED"):
    """Access is denied."""


class PrivilegeNotHeld(StatusError, status=0xC00E_0026, spec_name="MQ_ERROR_PRIVILEGE_NOT_HELD"):
    """The client does not have sufficient security privileges to perform the operation."""


class InsufficientResources(StatusError, status=0xC00E_0027, spec_name="MQ_ERROR_INSUFFICIENT_RESOURCES"):
    """There are insufficient resources to perform this operation."""


class UserBufferTooSmall(StatusError, status=0xC00E_0028, spec_name="MQ_ERROR_USER_BUFFER_TOO_SMALL"):
    """The request failed because the user buffer is too small to hold the information returned."""


class MessageStorageFailed(StatusError, status=0xC00E_002A, spec_name="MQ_ERROR_MESSAGE_STORAGE_FAILED"):
    """A recoverable or journal message could not be stored. The message was not sent."""


class SenderCertBufferTooSmall(StatusError, status=0xC00E_002B, spec_name="MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL"):
    """The buffer for the user certificate property is too small."""


class InvalidCertificate(StatusError, status=0xC00E_002C, spec_name="MQ_ERROR_INVALID_CERTIFICATE"):
    """The user certificate is invalid."""


class CorruptedInternalCertificate(
    StatusError, status=0xC00E_002D, spec_name="MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE"
):
    """The internal Message Queuing certificate is corrupted."""


class InternalUserCertExist(StatusError, status=0xC00E_002E, spec_name="MQ_ERROR_INTERNAL_USER_CERT_EXIST"):
    """An internal Message Queuing certificate already exists for this user."""


class NoInternalUserCert(StatusError, status=0xC00E_002F, spec_name="MQ_ERROR_NO_INTERNAL_USER_CERT"):
    """No internal Message Queuing certificate exists for the user."""


class CorruptedSecurityData(StatusError, status=0xC00E_0030, spec_name="MQ_ERROR_CORRUPTED_SECURITY_DATA"):
    """A cryptographic function failed."""


class CorruptedPersonalCertStore(StatusError, status=0xC00E_0031, spec_name="MQ_ERROR_CORRUPTED_PERSONAL_CERT_STORE"):
    """The personal certificate store is corrupted."""


class ComputerDoesNotSupportEncryption(
    StatusError, status=0xC00E_0033, spec_name="MQ_ERROR_COMPUTER_DOES_NOT_SUPPORT_ENCRYPTION"
):
    """The computer does not support encryption operations."""


class BadSecurityContext(StatusError, status=0xC00E_0035, spec_name="MQ_ERROR_BAD_SECURITY_CONTEXT"):
    """The security context is invalid."""


class CouldNotGetUserSid(StatusError, status=0xC00E_0036, spec_name="MQ_ERROR_COULD_NOT_GET_USER_SID"):
    """The SID cannot be obtained from the thread token."""


class CouldNotGetAccountInfo(StatusError, status=0xC00E_0037, spec_name="MQ_ERROR_COULD_NOT_GET_ACCOUNT_INFO"):
    """The account information for the user cannot be obtained."""


class IllegalMqcolumns(StatusError, status=0xC00E_0038, spec_name="MQ_ERROR_ILLEGAL_MQCOLUMNS"):
    """The MQCOLUMNS parameter is invalid."""


class IllegalPropid(StatusError, status=0xC00E_0039, spec_name="MQ_ERROR_ILLEGAL_PROPID"):
    """A property identifier is invalid."""


class IllegalRelation(StatusError, status=0xC00E_003A, spec_name="MQ_ERROR_ILLEGAL_RELATION"):
    """A relationship parameter is invalid."""


class IllegalPropertySize(StatusError, status=0xC00E_003B, spec_name="MQ_ERROR_ILLEGAL_PROPERTY_SIZE"):
    """The size of the buffer for the message identifier or correlation identifier is invalid."""


class IllegalRestrictionPropid(StatusError, status=0xC00E_003C, spec_name="MQ_ERROR_ILLEGAL_RESTRICTION_PROPID"):
    """A property identifier specified in MQRESTRICTION is invalid."""


class IllegalMqqueueprops(StatusError, status=0xC00E_003D, spec_name="MQ_ERROR_ILLEGAL_MQQUEUEPROPS"):
    """The pointer to the MQQUEUEPROPS structure is null, or it specifies no properties."""


class PropertyNotallowed(StatusError, status=0xC00E_003E, spec_name="MQ_ERROR_PROPERTY_NOTALLOWED"):
    """The property identifier specified is invalid for the operation requested."""


class InsufficientProperties(StatusError, status=0xC00E_003F, spec_name="MQ_ERROR_INSUFFICIENT_PROPERTIES"):
    """Not all the properties required for the operation were specified for the input parameters."""


class MachineExists(StatusError, status=0xC00E_0040, spec_name="MQ_ERROR_MACHINE_EXISTS"):
    """The MSMQ Configuration (msmq) object already exists in Active Directory."""


class IllegalMqqmprops(StatusError, status=0xC00E_0041, spec_name="MQ_ERROR_ILLEGAL_MQQMPROPS"):
    """The pointer to the MQQMPROPS structure is null, or it specifies no properties."""


class DsIsFull(StatusError, status=0xC00E_0042, spec_name="MQ_ERROR_DS_IS_FULL"):
    """Valid for MSMQ 1.0 and MSMQ 2.0. Distinguished name (DN) (DS) is full."""


class DsError(StatusError, status=0xC00E_0043, spec_name="MQ_ERROR_DS_ERROR"):
    """There is an internal Active Directory error."""


class InvalidOwner(StatusError, status=0xC00E_0044, spec_name="MQ_ERROR_INVALID_OWNER"):
    """The object owner is invalid."""


class UnsupportedAccessMode(StatusError, status=0xC00E_0045, spec_name="MQ_ERROR_UNSUPPORTED_ACCESS_MODE"):
    """The access mode specified is unsupported."""


class ResultBufferTooSmall(StatusError, status=0xC00E_0046, spec_name="MQ_ERROR_RESULT_BUFFER_TOO_SMALL"):
    """The result buffer specified is too small."""


class DeleteCnInUse(StatusError, status=0xC00E_0048, spec_name="MQ_ERROR_DELETE_CN_IN_USE"):
    """Valid for MSMQ 1.0 and MSMQ 2.0. The connected network cannot be deleted; it is in use."""


class NoResponseFromObjectServer(StatusError, status=0xC00E_0049, spec_name="MQ_ERROR_NO_RESPONSE_FROM_OBJECT_SERVER"):
    """There was no response from the object owner."""


class ObjectServerNotAvailable(StatusError, status=0xC00E_004A, spec_name="MQ_ERROR_OBJECT_SERVER_NOT_AVAILABLE"):
    """The object owner is not available."""


class QueueNotAvailable(StatusError, status=0xC00E_004B, spec_name="MQ_ERROR_QUEUE_NOT_AVAILABLE"):
    """An error occurred while reading from a queue located on a remote computer."""


class DtcConnect(StatusError, status=0xC00E_004C, spec_name="MQ_ERROR_DTC_CONNECT"):
    """A connection cannot be established with the Distributed Transaction Coordinator."""


class TransactionImport(StatusError, status=0xC00E_004E, spec_name="MQ_ERROR_TRANSACTION_IMPORT"):
    """The transaction specified cannot be imported."""


class TransactionUsage(StatusError, status=0xC00E_0050, spec_name="MQ_ERROR_TRANSACTION_USAGE"):
    """An attempted action cannot be performed within a transaction."""


class TransactionSequence(StatusError, status=0xC00E_0051, spec_name="MQ_ERROR_TRANSACTION_SEQUENCE"):
    """The transaction's operation sequence is incorrect."""


class MissingConnectorType(StatusError, status=0xC00E_0055, spec_name="MQ_ERROR_MISSING_CONNECTOR_TYPE"):
    """The connector type message property is not specified.

    This property is required for sending an acknowledgment message or a secure message.
    """


class StaleHandle(StatusError, status=0xC00E_0056, spec_name="MQ_ERROR_STALE_HANDLE"):
    """The Message Queuing service was restarted. Any open queue handles have to be closed."""


class TransactionEnlist(StatusError, status=0xC00E_0058, spec_name="MQ_ERROR_TRANSACTION_ENLIST"):
    """The transaction specified cannot be enlisted."""


class QueueDeleted(StatusError, status=0xC00E_005A, spec_name="MQ_ERROR_QUEUE_DELETED"):
    """The queue was deleted.

    Messages cannot be received anymore using this queue handle. The handle has to be closed.
    """


class IllegalContext(StatusError, status=0xC00E_005B, spec_name="MQ_ERROR_ILLEGAL_CONTEXT"):
    """The context parameter is invalid."""


class IllegalSortPropid(StatusError, status=0xC00E_005C, spec_name="MQ_ERROR_ILLEGAL_SORT_PROPID"):
    """An invalid property identifier is specified in MQSORTSET."""


class LabelTooLong(StatusError, status=0xC00E_005D, spec_name="MQ_ERROR_LABEL_TOO_LONG"):
    """The message label is too long.

    Its length MUST be less than or equal to MQ_MAX_MSG_LABEL_LEN.
    """


class LabelBufferTooSmall(StatusError, status=0xC00E_005E, spec_name="MQ_ERROR_LABEL_BUFFER_TOO_SMALL"):
    """The label buffer supplied to the API is too small."""


class MqisServerEmpty(StatusError, status=0xC00E_005F, spec_name="MQ_ERROR_MQIS_SERVER_EMPTY"):
    """Valid for MSMQ 1.0 and MSMQ 2.0. The list of MQIS servers (in the registry) is empty."""


class MqisReadonlyMode(StatusError, status=0xC00E_0060, spec_name="MQ_ERROR_MQIS_READONLY_MODE"):
    """Valid for MSMQ 1.0 and MSMQ 2.0. The MQIS database is in read-only mode."""


class SymmKeyBufferTooSmall(StatusError, status=0xC00E_0061, spec_name="MQ_ERROR_SYMM_KEY_BUFFER_TOO_SMALL"):
    """The buffer passed for the symmetric key is too small."""


class SignatureBufferTooSmall(StatusError, status=0xC00E_0062, spec_name="MQ_ERROR_SIGNATURE_BUFFER_TOO_SMALL"):
    """The buffer passed for the signature property is too small."""


class ProvNameBufferTooSmall(StatusError, status=0xC00E_0063, spec_name="MQ_ERROR_PROV_NAME_BUFFER_TOO_SMALL"):
    """The buffer passed for the provider name property is too small."""


class IllegalOperation(StatusError, status=0xC00E_0064, spec_name="MQ_ERROR_ILLEGAL_OPERATION"):
    """The operation is invalid for a foreign Message Queuing system."""


class WriteNotAllowed(StatusError, status=0xC00E_0065, spec_name="MQ_ERROR_WRITE_NOT_ALLOWED"):
    """Another MQIS server is being installed.

    Write operations to the database are not allowed at this stage.
    """


class WksCantServeClient(StatusError, status=0xC00E_0066, spec_name="MQ_ERROR_WKS_CANT_SERVE_CLIENT"):
    """The MSMQ service cannot be a supporting server.

    A Message Queuing supporting server is required.
    """


class DependWksLicenseOverflow(StatusError, status=0xC00E_0067, spec_name="MQ_ERROR_DEPEND_WKS_LICENSE_OVERFLOW"):
    """The supporting server has reached its limit for accepting application connections."""


class CorruptedQueueWasDeleted(StatusError, status=0xC00E_0068, spec_name="MQ_CORRUPTED_QUEUE_WAS_DELETED"):
    """The file for the queue in the Lqs folder was deleted because it was corrupted."""


class RemoteMachineNotAvailable(StatusError, status=0xC00E_0069, spec_name="MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE"):
    """The remote computer is not available."""


class UnsupportedOperation(StatusError, status=0xC00E_006A, spec_name="MQ_ERROR_UNSUPPORTED_OPERATION"):
    """This operation is not supported for Message Queuing installed in workgroup mode."""


class EncryptionProviderNotSupported(
    StatusError, status=0xC00E_006B, spec_name="MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED"
):
    """The requested cryptographic service provider is not supported by Message Queuing."""


class CannotSetCryptoSecDescr(StatusError, status=0xC00E_006C, spec_name="MQ_ERROR_CANNOT_SET_CRYPTO_SEC_DESCR"):
    """The security descriptors for the cryptographic keys cannot be set."""


class CertificateNotProvided(StatusError, status=0xC00E_006D, spec_name="MQ_ERROR_CERTIFICATE_NOT_PROVIDED"):
    """A user attempted to send an authenticated message without a certificate."""


class QDnsPropertyNotSupported(StatusError, status=0xC00E_006E, spec_name="MQ_ERROR_Q_DNS_PROPERTY_NOT_SUPPORTED"):
    """The column PROPID_Q_PATHNAME_DNS is not supported for the API."""


class CannotCreateCertStore(StatusError, status=0xC00E_006F, spec_name="MQ_ERROR_CANNOT_CREATE_CERT_STORE"):
    """A certificate store cannot be created for the internal certificate."""


class CannotOpenCertStore(StatusError, status=0xC00E_0070, spec_name="MQ_ERROR_CANNOT_OPEN_CERT_STORE"):
    """The certificate store for the internal certificate cannot be opened."""


class IllegalEnterpriseOperation(StatusError, status=0xC00E_0071, spec_name="MQ_ERROR_ILLEGAL_ENTERPRISE_OPERATION"):
    """This operation is invalid for an MsmqServices object."""


class CannotGrantAddGuid(StatusError, status=0xC00E_0072, spec_name="MQ_ERROR_CANNOT_GRANT_ADD_GUID"):
    """The Add GUID permission cannot be granted to the current user."""


class CannotLoadMsmqocm(StatusError, status=0xC00E_0073, spec_name="MQ_ERROR_CANNOT_LOAD_MSMQOCM"):
    """Valid for MSMQ 1.0 and MSMQ 2.0. The dynamic-link library Msmqocm.dll cannot be loaded."""


class NoEntryPointMsmqocm(StatusError, status=0xC00E_0074, spec_name="MQ_ERROR_NO_ENTRY_POINT_MSMQOCM"):
    """An entry point cannot be located in Msmqocm.dll."""


class NoMsmqServersOnDc(StatusError, status=0xC00E_0075, spec_name="MQ_ERROR_NO_MSMQ_SERVERS_ON_DC"):
    """Message Queuing servers cannot be found on domain controllers."""


class CannotJoinDomain(StatusError, status=0xC00E_0076, spec_name="MQ_ERROR_CANNOT_JOIN_DOMAIN"):
    """The computer joined the domain, but Message Queuing stays in workgroup mode.

    It failed to register itself in Active Directory.
    """


class CannotCreateOnGc(StatusError, status=0xC00E_0077, spec_name="MQ_ERROR_CANNOT_CREATE_ON_GC"):
    """The object was not created on the Global Catalog server specified."""


class GuidNotMatching(StatusError, status=0xC00E_0078, spec_name="MQ_ERROR_GUID_NOT_MATCHING"):
    """Valid for MSMQ 1.0 and MSMQ 2.0.

    Failed to create an msmqConfiguration object with a GUID that matches the computer installation.
    MSMQ must be uninstalled and then reinstalled.
    """


class PublicKeyNotFound(StatusError, status=0xC00E_0079, spec_name="MQ_ERROR_PUBLIC_KEY_NOT_FOUND"):
    """The public key for the designated computer cannot be found."""


class PublicKeyDoesNotExist(StatusError, status=0xC00E_007A, spec_name="MQ_ERROR_PUBLIC_KEY_DOES_NOT_EXIST"):
    """The public key for the designated computer does not exist."""


class IllegalMqprivateprops(StatusError, status=0xC00E_007B, spec_name="MQ_ERROR_ILLEGAL_MQPRIVATEPROPS"):
    """The parameters in MQPRIVATEPROPS are invalid.

    Either the pointer to the MQPRIVATEPROPS structure has a null value or no properties are
    specified in it.
    """


class NoGcInDomain(StatusError, status=0xC00E_007C, spec_name="MQ_ERROR_NO_GC_IN_DOMAIN"):
    """Global Catalog servers cannot be found in the domain specified."""


class NoMsmqServersOnGc(StatusError, status=0xC00E_007D, spec_name="MQ_ERROR_NO_MSMQ_SERVERS_ON_GC"):
    """No Message Queuing servers were found on Global Catalog servers."""


class CannotGetDn(StatusError, status=0xC00E_007E, spec_name="MQ_ERROR_CANNOT_GET_DN"):
    """Valid for MSMQ 1.0 and MSMQ 2.0.

    Failed to retrieve the distinguished name (DN) of the local computer.
    """


class CannotHashDataEx(StatusError, status=0xC00E_007F, spec_name="MQ_ERROR_CANNOT_HASH_DATA_EX"):
    """Data for an authenticated message cannot be hashed."""


class CannotSignDataEx(StatusError, status=0xC00E_0080, spec_name="MQ_ERROR_CANNOT_SIGN_DATA_EX"):
    """Data cannot be signed before sending an authenticated message."""


class CannotCreateHashEx(StatusError, status=0xC00E_0081, spec_name="MQ_ERROR_CANNOT_CREATE_HASH_EX"):
    """A hash object cannot be created for an authenticated message."""


class FailVerifySignatureEx(StatusError, status=0xC00E_0082, spec_name="MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX"):
    """The signature of the message received is not valid."""


class CannotDeletePscObjects(StatusError, status=0xC00E_0083, spec_name="MQ_ERROR_CANNOT_DELETE_PSC_OBJECTS"):
    """The object cannot be deleted because it is owned by a PSC."""


class NoMquserOu(StatusError, status=0xC00E_0084, spec_name="MQ_ERROR_NO_MQUSER_OU"):
    """There is no MSMQ Users organizational unit object in Active Directory for the domain.

    Please create one manually.
    """


class CannotLoadMqad(StatusError, status=0xC00E_0085, spec_name="MQ_ERROR_CANNOT_LOAD_MQAD"):
    """The dynamic-link library Mqad.dll cannot be loaded."""


class CannotLoadMqdssrv(StatusError, status=0xC00E_0086, spec_name="MQ_ERROR_CANNOT_LOAD_MQDSSRV"):
    """Obsolete: not used in any version of MSMQ."""


class PropertiesConflict(StatusError, status=0xC00E_0087, spec_name="MQ_ERROR_PROPERTIES_CONFLICT"):
    """Two or more of the properties passed cannot coexist."""


class MessageNotFound(StatusError, status=0xC00E_0088, spec_name="MQ_ERROR_MESSAGE_NOT_FOUND"):
    """The message does not exist or was removed from the queue."""


class CantResolveSites(StatusError, status=0xC00E_0089, spec_name="MQ_ERROR_CANT_RESOLVE_SITES"):
    """The sites in which the computer resides cannot be resolved.

    Verify that the subnets in the network are configured correctly in Active Directory and that
    each site is configured with the appropriate subnet.
    """


class NotSupportedByDependentClients(
    StatusError, status=0xC00E_008A, spec_name="MQ_ERROR_NOT_SUPPORTED_BY_DEPENDENT_CLIENTS"
):
    """This operation is not supported for communicating with a supporting server."""


class OperationNotSupportedByRemoteComputer(
    StatusError, status=0xC00E_008B, spec_name="MQ_ERROR_OPERATION_NOT_SUPPORTED_BY_REMOTE_COMPUTER"
):
    """This operation is not supported by the remote Message Queuing service."""


class NotACorrectObjectClass(StatusError, status=0xC00E_008C, spec_name="MQ_ERROR_NOT_A_CORRECT_OBJECT_CLASS"):
    """The object in Active Directory does not belong to the class requested."""


class MultiSortKeys(StatusError, status=0xC00E_008D, spec_name="MQ_ERROR_MULTI_SORT_KEYS"):
    """The value of cCol in MQSORTSET cannot be greater than 1.

    Active Directory supports only a single sort key.
    """


class GcNeeded(StatusError, status=0xC00E_008E, spec_name="MQ_ERROR_GC_NEEDED"):
    """An MSMQ Configuration (msmq) object with the GUID supplied cannot be created."""


class DsBindRootForest(StatusError, status=0xC00E_008F, spec_name="MQ_ERROR_DS_BIND_ROOT_FOREST"):
    """Binding to the forest root failed.

    This error usually indicates a problem in the DNS configuration.
    """


class DsLocalUser(StatusError, status=0xC00E_0090, spec_name="MQ_ERROR_DS_LOCAL_USER"):
    """A local user is authenticated as an anonymous user and cannot access Active Directory.

    The local user must log on as a domain user to access Active Directory.
    """


class QAdsPropertyNotSupported(StatusError, status=0xC00E_0091, spec_name="MQ_ERROR_Q_ADS_PROPERTY_NOT_SUPPORTED"):
    """The column PROPID_Q_ADS_PATH is not supported for the API."""


class BadXmlFormat(StatusError, status=0xC00E_0092, spec_name="MQ_ERROR_BAD_XML_FORMAT"):
    """The given property is not a valid XML document."""


class UnsupportedClass(StatusError, status=0xC00E_0093, spec_name="MQ_ERROR_UNSUPPORTED_CLASS"):
    """The Active Directory object specified is not an instance of a supported class."""


class UninitializedObject(StatusError, status=0xC00E_0094, spec_name="MQ_ERROR_UNINITIALIZED_OBJECT"):
    """The MSMQManagement object must be initialized before it is used."""


class CannotCreatePscObjects(StatusError, status=0xC00E_0095, spec_name="MQ_ERROR_CANNOT_CREATE_PSC_OBJECTS"):
    """The create object operation cannot be performed because the object must be owned by a PSC."""


class CannotUpdatePscObjects(StatusError, status=0xC00E_0096, spec_name="MQ_ERROR_CANNOT_UPDATE_PSC_OBJECTS"):
    """The update operation cannot be performed because the designated object is owned by a PSC."""


class ResolveAddress(StatusError, status=0xC00E_0099, spec_name="MQ_ERROR_RESOLVE_ADDRESS"):
    """Message Queuing is not able to resolve the address specified by the user.

    The address might be wrong, or the DNS lookup for the address failed.
    """


class TooManyProperties(StatusError, status=0xC00E_009A, spec_name="MQ_ERROR_TOO_MANY_PROPERTIES"):
    """Too many properties passed to the function.

    Message Queuing can process up to 128 properties in one call.
    """


class MessageNotAuthenticated(StatusError, status=0xC00E_009B, spec_name="MQ_ERROR_MESSAGE_NOT_AUTHENTICATED"):
    """The queue only accepts authenticated messages."""


class MessageLockedUnderTransaction(
    StatusError, status=0xC00E_009C, spec_name="MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION"
):
    """The message is currently being processed under a transaction.

    Until the transaction outcome is determined, the message cannot be processed in any other
    transaction.
    """


class UnknownSource(StatusError, status=0xC00E_0504, spec_name="MQDS_UNKNOWN_SOURCE"):
    """The specified MSMQ Directory Service server in the directory change is unknown."""


class StatusSharingViolation(StatusError, status=0xC000_0043, spec_name="STATUS_SHARING_VIOLATION"):
    """MS-MQMP R_QMOpenRemoteQueue: the queue is open with a share mode that excludes this open."""


class StatusInvalidParameter(StatusError, status=0xC000_000D, spec_name="STATUS_INVALID_PARAMETER"):
    """MS-MQQP: a read names a cursor that is not there, or needs one and names none."""


class StatusInvalidHandle(StatusError, status=0xC000_0008, spec_name="STATUS_INVALID_HANDLE"):
    """MS-MQRR: a read names a cursor that its queue handle does not have."""


class StatusAccessDenied(StatusError, status=0xC000_0022, spec_name="STATUS_ACCESS_DENIED"):
    """MS-MQRR: the queue handle was opened for less access than the operation needs."""


class StatusNotFound(StatusError, status=0xC000_0225, spec_name="STATUS_NOT_FOUND"):
    """MS-MQDMPR 3.1.7.1.17: no waiting read carries that tag."""


class RemoteCanceled(StatusError, status=0x400E_03E9, spec_name="MQ_INFORMATION_REMOTE_CANCELED"):
    """MS-MQQP: a remote read was ended by a cancel call."""


class StoreCorrupt(StatusError, status=0xE00E_1001, spec_name="LANNER_ERROR_STORE_CORRUPT"):
    """A stored record fails its checksum; it was put aside and the rest of the store works."""


class StoreVersion(StatusError, status=0xE00E_1002, spec_name="LANNER_ERROR_STORE_VERSION"):
    """The data directory was written by a newer version of the store format."""


class StoreLocked(StatusError, status=0xE00E_1003, spec_name="LANNER_ERROR_STORE_LOCKED"):
    """Another process has this data directory open."""
