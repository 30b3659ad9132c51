"""What vulture reports as unused in src and is in use or wanted: one group for each reason.

A group has patterns of module paths below src/lanner, each with patterns of findings, which are a
kind and a name ("method get_*"). test_house fails on a finding that no group has, and on a pattern
that matches no finding.
"""

from __future__ import annotations

from lanner.activex import tables
from lanner.com.automation.connection_points import ICONNECTION_POINT, ICONNECTION_POINT_CONTAINER
from lanner.com.automation.enumerators import IENUM_CONNECTION_POINTS, IENUM_CONNECTIONS, IENUM_VARIANT
from lanner.com.client.streams import ISTREAM
from lanner.com.members import IDISPATCH, InterfaceTable


def members(*interfaces: InterfaceTable) -> list[str]:
    """Return the patterns of the methods that serve the members of interfaces."""
    names = sorted({member.python for table in interfaces for member in table.members})
    return [f"{kind} {name}" for name in names for kind in ("function", "method", "variable")]


# lanner.com looks up the method of a member by the name in its table; a member that something else
# calls is no finding.
MEMBERS = {
    "activex/*.py": members(*tables.INTERFACES),
    "com/automation/*.py": members(
        IDISPATCH,
        ICONNECTION_POINT,
        ICONNECTION_POINT_CONTAINER,
        IENUM_CONNECTIONS,
        IENUM_CONNECTION_POINTS,
        IENUM_VARIANT,
    ),
    "com/client/streams.py": members(ISTREAM),
}

WHITELIST: dict[str, dict[str, list[str]]] = {
    "FastAPI calls the functions of the console's routes, and templates read attributes": {
        "http/console/*.py": [
            "function *",
            "variable button",
            "variable is_destructive",
            "variable left_off",
        ],
    },
    "FastAPI calls the function of a route": {
        "http/api/*.py": [
            "function return_dead_letter",
            "function copy_message",
            "function resend_message",
            "function whoami",
            "function change_queue",
            "function change_user",
        ],
    },
    "pydantic reads the fields and the settings of a model": {
        "http/api/*.py": ["variable model_config", "variable body_encoding"],
    },
    "it is written into the file of tokens, and shown": {"security/tokens.py": ["variable created"]},
    "asyncio calls the methods of a protocol by their names": {
        "spark/flight/front.py": ["method get_buffer"],
        "transfer/ping.py": ["method datagram_received", "method error_received"],
        "transfer/shell.py": ["method eof_received", "method get_buffer"],
    },
    "generated functions read them (rpc/ndr/compiler.py)": {
        "rpc/ndr/stream.py": ["attribute aliases"],
    },
    "Python looks up these names": {
        "__init__.py": ["function __dir__", "function __getattr__"],
        "client/__init__.py": ["function __getattr__"],
        "com/__init__.py": ["function __dir__", "function __getattr__"],
        "engine/__init__.py": ["function __getattr__"],
        "cli/session.py": ["attribute __annotations__"],
        "model/errors.py": ["function __init_subclass__"],
        "rpc/client_shared.py": ["attribute __cause__"],
        "spark/flight/__init__.py": ["function __getattr__"],
        "spark/source/__init__.py": ["function __getattr__"],
        "store/lock.py": ["attribute __class__"],
    },
    "a decorator registers them: typer commands, an exit handler": {
        "cli/*.py": ["function list_*"],
        "cli/access.py": ["function restore"],
        "cli/machine.py": ["function offline", "function online"],
        "com/client/automation.py": ["function _close_all"],
    },
    "cli/app.py names them in its table of commands": {
        "cli/backups.py": ["function restore"],
        "cli/doctor.py": ["function doctor"],
        "cli/stress.py": ["function bench"],
    },
    "libraries read them: typer, pydantic, pyspnego, expat, ssl": {
        "transfer/tls.py": ["attribute num_tickets"],
        "cli/errors.py": ["attribute metavar"],
        "daemon/settings.py": [
            "method _address_and_port",
            "method _are_addresses",
            "method _can_be_named",
            "method _can_be_used",
            "method _differ",
            "method _follow_profile",
            "method _has_account",
            "method _has_room",
            "method _in_range",
            "method _is_computer_name",
            "method _is_path",
            "method _is_url",
            "method _read_address",
            "method _read_old_name",
            "method settings_customise_sources",
            "variable model_config",
            "method _is_domain",
        ],
        "directory/enterprise.py": ["variable model_config"],
        "rpc/ntlm.py": [
            "attribute _temp_challenge",
            "method _step_accept_authenticate",
            "method _step_accept_negotiate",
        ],
        "spark/jobs/config.py": ["method _trigger", "variable model_config"],
        "wire/xml_bodies.py": ["attribute *Handler", "attribute buffer_text"],
    },
    "Arrow Flight and pyspark call the methods of their base classes by name": {
        "spark/flight/auth.py": ["method sending_headers", "method start_call"],
        "spark/flight/reader_server.py": ["variable do_exchange", "variable get_schema", "variable list_actions"],
        "spark/flight/server.py": ["method get_schema", "method list_actions"],
        "spark/source/batch_reader.py": ["method pushFilters"],
        "spark/source/data_source.py": ["method streamReader", "method streamWriter"],
        "spark/source/rpc_stream.py": [
            "method getDefaultReadLimit",
            "method initialOffset",
            "method latestOffset",
            "method prepareForTriggerAvailableNow",
        ],
        "spark/source/stream_reader.py": [
            "method getDefaultReadLimit",
            "method initialOffset",
            "method latestOffset",
            "method prepareForTriggerAvailableNow",
            "method reportLatestOffset",
        ],
    },
    "a dataclass becomes an answer with all its fields": {
        "host/budget.py": ["variable greatest_peer"],
        "spark/flight/readers.py": ["variable queue_id"],
    },
    "the public API": {
        "client/message.py": ["property is_first_in_transaction", "property is_last_in_transaction"],
    },
    "a test that plays a peer sends any octets with them": {
        "rpc/async_client.py": ["method call_raw"],
        "rpc/blocking_client.py": ["method call_raw"],
    },
    "enumerations and codes of the documents are complete": {
        "activex/notifications.py": ["variable MQMSG_NEXT"],
        "activex/query.py": ["variable REL_NOP"],
        "activex/transaction.py": ["variable MQ_NO_TRANSACTION", "variable MQ_XA_TRANSACTION"],
        "com/constants.py": [
            "variable CLASS_E_*",
            "variable CLSID_SPECIALSYSTEMPROPERTIES",
            "variable CO_E_*",
            "variable DISP_E_*",
            "variable E_*",
            "variable REGDB_E_*",
            "variable RPC_E_*",
        ],
        "model/enums.py": ["variable *"],
        "rpc/faults.py": ["variable *"],
        "rpc/pdu.py": ["variable *"],
        "security/access_masks.py": ["variable *"],
        "security/key_cache.py": ["variable SYMMETRIC_KEY_LONG_LIFETIME"],
        "services/interfaces/mqqp.py": ["variable IPX_HANDSHAKE"],
        "wire/layout.py": ["variable AI"],
        "wire/property_ids.py": ["variable *"],
        "wire/security_descriptor.py": ["variable *"],
    },
    "structures of the documents have all their fields, and are packed and unpacked": {
        "activex/transaction.py": ["variable grf_*", "variable iso_*"],
        "com/activation_properties.py": ["variable *"],
        "com/automation/types.py": ["variable *"],
        "com/objref.py": ["variable ul_cnt_data", "variable w_num_entries"],
        "com/orpc.py": ["variable reserved1"],
        "rpc/endpoint_mapper.py": ["variable tower_length"],
        "rpc/mgmt.py": ["variable if_id"],
        "rpc/pac.py": ["variable *"],
        "rpc/pdu.py": ["method pack_front"],
        "services/interfaces/*.py": ["variable *"],
        "wire/internal_header.py": ["property has_quality_of_service", "property was_not_pinged"],
        "wire/message.py": ["property administration_queue_type", "property response_queue_type"],
        "wire/ping_packet.py": ["property is_from_client"],
        "wire/session_header.py": ["property recoverable_acked_numbers"],
        "wire/transaction_header.py": ["property is_final_ack_required", "property is_first"],
    },
    "parameters of IDispatch, which the stub passes by position": {
        "com/automation/dispatch.py": ["variable lcid", "variable ref_count"],
    },
    "the abstract data model of the documents": {
        "activex/message_state.py": ["variable transaction_status_queue_format_name"],
        "activex/queue_info.py": ["attribute is_queue_created"],
        "com/members.py": ["variable source_interfaces"],
        "engine/initialization.py": [
            "attribute initialization_retry_timer_duration",
            "attribute machine_domain_id",
        ],
        "model/directory_objects.py": ["variable *"],
        "model/live.py": ["variable context_value", "variable outgoing_queue"],
        "transfer/session.py": [
            "attribute direct_format_session",
            "property last_acked_recoverable_msg_seq_number",
            "property message_received_count",
            "property message_sent_count",
            "property recoverable_message_received_count",
            "property recoverable_message_sent_count",
            "property unacked_received_msg_count",
        ],
    },
    "later stages use them: the directory": {
        "directory/embedded.py": ["method add_queue_alias"],
        "security/queue_security.py": [
            "function default_connected_network_security",
            "variable CONNECTED_NETWORK",
        ],
        "security/users.py": ["method add_group", "method remove_group"],
    },
    "tests look at them, and nothing else needs to": {
        "activex/tables.py": ["variable *"],
        "activex/transaction.py": ["method transaction_info"],
        "com/client/remote_interface.py": ["property is_released"],
        "com/server/ping_sets.py": ["property sets", "variable PING_TIMEOUT"],
        "model/errors.py": ["variable CUSTOMER_BIT"],
        "services/remote_queues.py": ["property open_queue_entries", "property remote_read_entries"],
        "wire/propvariant.py": ["property is_vector"],
    },
}

# What something else than src calls, or a test only looks with: that a test calls it says nothing
# against the test (tools/spec_interfaces.py). The other groups have functions that the product does
# not use.
CALLED_FROM_OUTSIDE = [
    MEMBERS,
    *(
        WHITELIST[reason]
        for reason in (
            "asyncio calls the methods of a protocol by their names",
            "Python looks up these names",
            "a decorator registers them: typer commands, an exit handler",
            "cli/app.py names them in its table of commands",
            "FastAPI calls the function of a route",
            "FastAPI calls the functions of the console's routes, and templates read attributes",
            "libraries read them: typer, pydantic, pyspnego, expat, ssl",
            "Arrow Flight and pyspark call the methods of their base classes by name",
            "the public API",
            "a test that plays a peer sends any octets with them",
        )
    ),
]
