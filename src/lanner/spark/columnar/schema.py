"""The schema of a row: one flat table of columns, in Arrow's types and in Spark's.

Spark accepts an Arrow batch only if its schema equals the expected one: names, order, types,
nullability. So every batch is built from the `pyarrow.Schema` of `RowSchema`, with the types to
which Spark maps its own: no unsigned numbers, no large or fixed-size binary, timestamps in
microseconds UTC, everything nullable.

An unsigned 32-bit number of the packet is a bigint. A GUID is text, an OBJECTID 20 bytes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from lanner.model.errors import InvalidParameter

STRING: Final = pa.string()
BINARY: Final = pa.binary()
INT: Final = pa.int32()
BIGINT: Final = pa.int64()
BOOLEAN: Final = pa.bool_()
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_DDL: Final = {
    STRING: "string",
    BINARY: "binary",
    INT: "int",
    BIGINT: "bigint",
    BOOLEAN: "boolean",
    TIMESTAMP: "timestamp",
    pa.float64(): "double",
    pa.date32(): "date",
}
_TYPES: Final = {ddl: kind for kind, ddl in _DDL.items()}


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `settable`: a writer may set it."""

    name: str
    type: pa.DataType
    group: str
    settable: bool
    text: str

    @property
    def ddl(self) -> str:
        """The type in Spark."""
        return _ddl(self.type)


def _ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {_ddl(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_ddl(kind.value_type)}>"
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _DDL[kind]


def _columns(table: str) -> tuple[Column, ...]:
    """Parse a table of columns.

    [group] begins a group. Each other line has name, Spark's type, read or set, and meaning. A line
    that begins with a space continues the meaning.
    """
    columns = []
    group = ""
    for line in table.strip().replace("\n ", " ").splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        else:
            name, ddl, access, text = line.split(maxsplit=3)
            columns.append(Column(name, _TYPES[ddl], group, access == "set", " ".join(text.split())))
    return tuple(columns)


# MS-MQDMPR 3.1.1.12, and the place the message was read from.
COLUMNS: Final = _columns(r"""
[where]
qm_id                   string     read  identifier of the queue manager
qm_name                 string     read  its computer name
queue                   string     set   format name of the queue; a writer may give any name of it
queue_kind              string     read  destination, journal, deadletter, xact_deadletter, outgoing, admin,
                                              subqueue, connector
subqueue                string     read  name of the subqueue, null outside one
seq                     bigint     read  place in the visibility sequence of the queue manager
read_time               timestamp  read  when the row was made
[identity]
lookup_id               bigint     read  LookupIdentifier
msg_id                  binary     read  Identifier, 20 bytes
msg_id_text             string     read  the same as guid\number
correlation_id          binary     set   CorrelationIdentifier, 20 bytes; null when it is all zero
correlation_text        string     set   the same as guid\number
class                   int        read  Class
class_name              string     read  its name, null where the number has none
app_specific            bigint     set   ApplicationTag
label                   string     set   Label
[time]
sent_time               timestamp  read  SentTime, whole seconds of the sender's clock
arrived_time            timestamp  read  ArrivalTime, whole seconds by the clock of the queue manager
time_to_reach_queue     bigint     set   seconds from sent_time; 4294967295 is for ever
time_to_be_received     bigint     set   seconds from sent_time; 4294967295 is for ever
expires_at              timestamp  read  when it expires in this queue if it is not received; null: never
last_move_time          timestamp  read  last move between subqueues, if the packet has it
[delivery]
priority                int        set   0 to 7; 0 for a transactional message
delivery                int        read  0 express, 1 recoverable
acknowledge             int        set   AcknowledgementsRequested: bits 1, 2, 4, 8
journal                 int        set   1 dead-letter queue, 2 journal, 3 both
trace                   int        set   1: trace reports are requested
hop_count               int        read  routing servers it has passed
abort_count             int        read  aborted receives of it
move_count              int        read  moves between subqueues
version                 int        read  version of the packet
[routing]
dest_format_name        string     set   DestinationQueueFormatName; a writer may give it in place of queue
dest_multi              string     read  all destinations, if it went to several
resp_format_name        string     set   ResponseQueueFormatName
resp_multi              string     read  all response queues, if there are several
admin_format_name       string     set   AdministrationQueueFormatName; sent only with acknowledge
admin_multi             string     read  all administration queues, if there are several
deadletter_format_name  string     set   the application's own dead-letter queue, a path name
xact_status_format_name string     read  a connector's status queue; no packet carries it, always null
report_queue_id         string     set   public queue for trace reports
src_machine_id          string     read  queue manager that sent it
dest_qm_id              string     read  queue manager it was sent to; null where the format name contains it
connector_type          string     set   ConnectorTypeIdentifier
[transaction]
xact_id                 binary     read  TransactionIdentifier, 20 bytes; null outside transactions, like the next five
first_in_xact           boolean    read  first message of its transaction
last_in_xact            boolean    read  last message of its transaction
tx_seq_id               bigint     read  TransactionalMessageSequenceIdentifier
tx_seq_no               bigint     read  TransactionSequenceNumber
tx_prev_seq_no          bigint     read  TransactionPreviousSequenceNumber
[security]
sender_id               binary     read  SID or queue manager GUID of the sender; null: anonymous
sender_id_type          int        read  0 none, 1 SID, 2 queue manager
sender_verified         boolean    read  true: a signature, or a logon to this queue manager, proves the
                                              sender; false: the sender is only claimed, or there is
                                              none; null: the queue manager does not report it
authenticated           int        read  1: the signature was verified here
auth_level              int        read  AuthenticationLevel
priv_level              int        read  PrivacyLevel
hash_alg                bigint     read  HashAlgorithm
encryption_alg          bigint     read  EncryptionAlgorithm
prov_type               bigint     read  AuthenticationProviderType, null without a provider
prov_name               string     read  AuthenticationProviderName
sender_cert             binary     read  SenderCertificate
signature               binary     read  Signature
symm_key                binary     read  SymmetricKey, encrypted
[content]
body_type               bigint     set   VARENUM of the body, 0 for none
body_size               bigint     read  bytes of the body
body                    binary     set   the body; a writer may give text too
body_text               string     read  the body as text, where body_type says that it is text
extension               binary     set   Extension; null when empty
soap_envelope           string     read  the SOAP envelope of a message that a Windows computer
                                              received over HTTP; Lanner itself accepts none, so only
                                              `transport=rpc` has one
soap_header             string     set   SoapHeader
soap_body               string     set   SoapBody
compound_message        binary     read  the HTTP request of such a message
[raw]
packet                  binary     read  the UserMessage packet: of every message if named in `columns`, else of
                                              broken ones only
packet_error            string     read  why the packet could not be read; null: it could
""")

# Events (model.events) and the messages that they happened to.
EVENT_COLUMNS: Final = _columns(r"""
[event]
qm_id                   string     read  identifier of the queue manager
qm_name                 string     read  its computer name
seq                     bigint     read  number of the event
event                   string     read  what happened, in one word
event_time              timestamp  read  when, to the millisecond, by the clock of the queue manager
queue                   string     read  format name of the queue in which it happened, also when that is gone; null
                                              where there was none
queue_kind              string     read  what the queue was for, as with messages
target                  string     read  of moved: the queue it was moved to
lookup_id               bigint     read  LookupIdentifier in the queue
message_seq             bigint     read  the message's place in the visibility sequence, as `seq` of messages; null:
                                              it had none
msg_id_text             string     read  Identifier of the message as guid\number
correlation_text        string     read  CorrelationIdentifier, null when it is all zero
class                   int        read  Class of the message
class_name              string     read  its name, null where the number has none
reason                  int        read  the class that tells why: received, expired, purged, refused, dead_lettered,
                                              concluded
reason_name             string     read  its name
size                    bigint     read  bytes of the packet
sent_time               timestamp  read  SentTime, whole seconds of the sender's clock
priority                int        read  0 to 7; 0 for a transactional message
delivery                int        read  0 express, 1 recoverable
is_transactional        boolean    read  whether it was sent in a transaction
acknowledge             int        read  AcknowledgementsRequested: bits 1, 2, 4, 8
abort_count             int        read  aborted receives of it so far, in this queue manager
sender_id               binary     read  of arrivals: SID or queue manager GUID of the sender; null: anonymous, or no
                                              arrival
sender_id_type          int        read  of arrivals: 0 none, 1 SID, 2 queue manager
is_signed               boolean    read  of arrivals: whether it has a signature
authenticated           int        read  of arrivals: 1: the signature was verified here
is_encrypted            boolean    read  whether its body was sent encrypted
""")

BY_NAME: Final = {column.name: column for column in COLUMNS}
EVENTS_BY_NAME: Final = {column.name: column for column in EVENT_COLUMNS}
SETTABLE: Final = tuple(column.name for column in COLUMNS if column.settable)

# The columns that most queries need. They are cheap: none grows with the body.
CORE: Final = (
    "qm_name",
    "queue",
    "queue_kind",
    "seq",
    "lookup_id",
    "msg_id_text",
    "correlation_text",
    "class",
    "app_specific",
    "label",
    "sent_time",
    "arrived_time",
    "priority",
    "delivery",
    "dest_format_name",
    "body_type",
    "body_size",
    "packet_error",
)
# Columns that differ from row to row. In other columns values mostly repeat.
DISTINCT: Final = frozenset(
    {"seq", "lookup_id", "msg_id", "msg_id_text", "body", "body_text", "extension", "packet", "value"}
)
# Columns that `includeBody=false` leaves out.
BODIES: Final = ("body", "body_text", "compound_message")


@dataclass(frozen=True)
class RowSchema:
    """Selected columns, in order."""

    columns: tuple[Column, ...] = COLUMNS
    # Whether `packet` has the packet of every message, not only of unreadable ones.
    has_packets: bool = False
    # Whether columns are run-end encoded where that saves space. It saves a third of what is sent.
    is_compact: bool = False

    @classmethod
    def select(cls, columns: str | Iterable[str] = "all", *, include_body: bool = True) -> RowSchema:
        """Return the schema for `all`, `core`, or names in order: a list, or a text with commas.

        Raises InvalidParameter for unknown or duplicate names.
        """
        if isinstance(columns, str):
            columns = columns.strip()
            if columns in ("all", "core"):
                names = CORE if columns == "core" else tuple(BY_NAME)
                return cls(tuple(BY_NAME[name] for name in names if include_body or name not in BODIES))
            columns = [name.strip() for name in columns.split(",")]
        names = tuple(columns)
        _check_names(names, BY_NAME, include_body=include_body)
        return cls(tuple(BY_NAME[name] for name in names), "packet" in names)

    @classmethod
    def select_events(cls, columns: str | Iterable[str] = "all") -> RowSchema:
        """Return the schema for columns of events, as `select` does. `core` is all columns."""
        if isinstance(columns, str):
            columns = columns.strip()
            if columns in ("all", "core"):
                return cls(EVENT_COLUMNS)
            columns = [name.strip() for name in columns.split(",")]
        names = tuple(columns)
        _check_names(names, EVENTS_BY_NAME, include_body=True)
        return cls(tuple(EVENTS_BY_NAME[name] for name in names))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of every batch."""
        return pa.schema([pa.field(column.name, self._type(column)) for column in self.columns])

    def _type(self, column: Column) -> pa.DataType:
        is_plain = not self.is_compact or column.name in DISTINCT
        return column.type if is_plain else pa.run_end_encoded(pa.int32(), column.type)

    @cached_property
    def ddl(self) -> str:
        """The schema as Spark's DDL text: `seq bigint, label string`."""
        return ", ".join(f"`{column.name}` {column.ddl}" for column in self.columns)


def _check_names(names: tuple[str, ...], known: dict[str, Column], *, include_body: bool) -> None:
    if not names:
        raise InvalidParameter("columns: all, core, or at least one name")
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)[0]
            raise InvalidParameter(f"columns: there is no column {name!r}; the nearest is {near!r}")
        if not include_body and name in BODIES:
            raise InvalidParameter(f"columns names {name!r} and includeBody is false: leave one of them out")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidParameter(f"columns: {twice!r} is there twice")
