"""The credentials of directory changes (MS-MQDMPR 3.1.1.6).

A change is made with a user's delegated credentials or with those of the computer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lanner
from lanner.directory.ldap.computer_account import principals_of
from lanner.model.directory_objects import Enterprise
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import CannotImpersonateClient, DsError
from lanner.wire.sid import Sid
from tests.active_directory.domain import ADDRESS, DNS_DOMAIN, HOST, PASSWORD, REALM, ROOT, Domain
from tests.cli.conftest import Run
from tests.cli.conftest import data as data  # noqa: PLC0414 (a fixture)
from tests.cli.conftest import run as run  # noqa: PLC0414 (a fixture)
from tests.contract.service import Service

# MS-SAMR 2.2.1.12 UF_TRUSTED_TO_AUTHENTICATE_FOR_DELEGATION.
TRUSTED_FOR_DELEGATION = 0x1000000
WORKSTATION = 0x1000
DN = f"CN=ALPHA,CN=Computers,{ROOT}"


@pytest.fixture
def service(domain: Domain, run: Run, data, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:  # type: ignore[no-untyped-def] # noqa: ANN001
    pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:")
    monkeypatch.setenv("KRB5RCACHEDIR", str(domain.path))
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    found = Service(data)
    try:
        found.stop()
        by = ["--user", "MQ\\Administrator", "--password-file", password]
        run("domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, *by)
        principals = (*principals_of("ALPHA", DNS_DOMAIN), f"host/{found.address}")
        domain.modify(DN, servicePrincipalName=principals)
        found.start()
        yield found
    finally:
        found.close()
    run("domain", "leave", "--yes", *by)


def connect(service: Service, user: str) -> lanner.QueueManager:
    return lanner.connect(service.address, user=f"{user}@{REALM}", password=PASSWORD, authentication="kerberos")


@pytest.mark.spec("DMPR-3.1.1.6-1")
def test_credentials_of_directory_calls(domain: Domain, service: Service, run: Run) -> None:
    domain.add_user("dora")
    with lanner.connect(data=service.data) as local:
        # With the computer's credentials, no user is impersonated.
        local.create_queue(r".\orders", access={r"MQ\dora": "full", "Administrators": "full"})
    with (
        connect(service, "dora") as dora,
        pytest.raises(CannotImpersonateClient, match=r"cannot show it credentials of MQ\\dora"),
    ):
        dora.open(r".\orders").set(label="mine")
    assert run("queue", "show", r".\orders", "--json").json["label"] == ""
    domain.modify(DN, userAccountControl=str(WORKSTATION | TRUSTED_FOR_DELEGATION))
    domain.modify(DN, msDS__AllowedToDelegateTo=f"ldap/{HOST}")
    with connect(service, "dora") as dora:
        # The list of the object gives her everything, and the directory agrees.
        dora.open(r".\orders").set(label="hers")
    orders = f"CN=orders,CN=msmq,{DN}"
    assert domain.attributes(orders)["mSMQLabelEx"] == [b"hers"]
    sid = Sid.unpack(domain.attributes(f"CN=dora,CN=Users,{ROOT}", "objectSid")["objectSid"][0])
    # The queue manager lets her, the directory does not.
    domain.tool("dsacl", "set", f"--objectdn={orders}", *files(domain), f"--sddl=(D;;WP;;;{sid})")
    with connect(service, "dora") as dora, pytest.raises(DsError, match="could not be changed in the directory"):
        dora.open(r".\orders").set(label="no longer")
    assert domain.attributes(orders)["mSMQLabelEx"] == [b"hers"]
    # With WeakenedSecurity the computer acts.
    weakened = Enterprise(weakened_security=True)
    assert domain.administrator.write(weakened, ["WeakenedSecurity"]) is DirectoryOperationResult.SUCCESS
    try:
        service.stop()
        service.start()
        domain.modify(DN, userAccountControl=str(WORKSTATION))
        with connect(service, "dora") as dora:
            dora.open(r".\orders").set(label="by the computer")
        assert domain.attributes(orders)["mSMQLabelEx"] == [b"by the computer"]
    finally:
        weakened.weakened_security = False
        assert domain.administrator.write(weakened, ["WeakenedSecurity"]) is DirectoryOperationResult.SUCCESS


def files(domain: Domain) -> list[str]:
    return ["-H", str(domain.path / "private" / "sam.ldb")]
