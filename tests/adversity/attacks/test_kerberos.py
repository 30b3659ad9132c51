"""Logons with tickets of a real KDC that must fail, and what the audit log says about them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner.rpc.blocking_client import RpcClient
from lanner.rpc.client_connection import ClientConnection
from lanner.rpc.faults import RpcFault
from lanner.rpc.negotiate import KERBEROS_OID, NegotiateInitiator
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Context, Credentials
from lanner.services.interfaces.mqmp import QMCOMM, R_QM_QUERY_QM_REGISTRY_INTERNAL
from tests.adversity.attacks.limited_service import LimitedService, add_user, until
from tests.interop.peers import SERVICE_HOST, Kdc, kdc, kdc_is_missing
from tests.interop.rpc_server import PASSWORD, REALM, USER

kerberos = pytest.importorskip("lanner.rpc.kerberos", reason="the packages gssapi and krb5 are not installed")

KINDS = [AuthType.GSS_KERBEROS, AuthType.GSS_NEGOTIATE]


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    missing = kdc_is_missing()
    if missing is not None:
        pytest.skip(f"a KDC is missing: {missing} (Debian: krb5-kdc, krb5-admin-server)")
    with kdc(tmp_path) as found:
        # Also for the client in this process.
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        found.run("/usr/sbin/kadmin.local", "-q", f"addprinc -pw {PASSWORD} mallory")
        yield found


class Ticket(Credentials):
    """A Kerberos ticket of a principal, plain or inside SPNEGO.

    Lanner's own clients use NTLM in that place.
    """

    def initiate(self, auth_type: AuthType, level: AuthLevel, host: str) -> Context:
        made = kerberos.KerberosInitiator(self.user, self.password, host, level)
        if auth_type is AuthType.GSS_KERBEROS:
            return Context(made, lambda: made, level)
        negotiator = NegotiateInitiator([(KERBEROS_OID, made)])
        return Context(negotiator, lambda: negotiator.mechanism, level)


def served(tmp_path: Path, found: Kdc) -> LimitedService:
    return LimitedService(tmp_path, settings=f'dns_domain = "{REALM.lower()}"\n[rpc]\nkeytab = "{found.keytab}"\n')


def log_on(service: LimitedService, user: str, kind: AuthType) -> None:
    """Make a call with a ticket of a user's; what goes wrong is raised."""
    core = ClientConnection(
        credentials=Ticket(f"{user}@{REALM}", PASSWORD),
        auth_type=kind,
        level=AuthLevel.PKT_PRIVACY,
        host=SERVICE_HOST,
    )
    with RpcClient(socket.create_connection((service.address, service.port("rpc")), 30), core) as client:
        # The last token of Kerberos has no answer of its own; a call reports the failure.
        client.bind(QMCOMM).call(R_QM_QUERY_QM_REGISTRY_INTERNAL, dw_query_type=0)


def failures(service: LimitedService) -> list[dict[str, Any]]:
    path = service.data / "audit.log"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [one for one in found if one["event"] == "log on"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_principal_without_an_account_is_named_in_the_audit_log(tmp_path: Path, realm: Kdc, kind: AuthType) -> None:
    with served(tmp_path, realm) as service:
        add_user(service, USER)
        log_on(service, USER, kind)
        assert failures(service) == []
        with pytest.raises((RpcFault, lanner.errors.LannerError)):
            log_on(service, "mallory", kind)
        until(lambda: bool(failures(service)))
        (record,) = failures(service)
        assert record["outcome"] == "refused"
        assert record["who"] == f"mallory@{REALM}"
        assert record["mechanism"] == ("Kerberos" if kind is AuthType.GSS_KERBEROS else "Negotiate")
        assert record["from"].startswith("127.")
        assert "has no account here" in record["reason"]
        service.check()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_ticket_that_the_keytab_cannot_read_is_in_the_audit_log(tmp_path: Path, realm: Kdc, kind: AuthType) -> None:
    """The audit log records a forged ticket.

    It also records a ticket for the computer as it was before it was reinstalled.
    """
    with served(tmp_path, realm) as service:
        add_user(service, USER)
        realm.run("/usr/sbin/kadmin.local", "-q", f"cpw -randkey host/{SERVICE_HOST}")
        with pytest.raises((RpcFault, lanner.errors.LannerError)):
            log_on(service, USER, kind)
        until(lambda: bool(failures(service)))
        (record,) = failures(service)
        # Whose ticket it is cannot be read either.
        assert (record["outcome"], record["who"]) == ("refused", "")
        assert record["reason"]
        assert PASSWORD not in json.dumps(record)
        service.check()
