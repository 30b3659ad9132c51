"""Joining an Active Directory domain, renaming the computer there, and leaving.

Each of these needs an administrator of the domain, or an account that an administrator has created
for the computer. Each step finds the results of an interrupted attempt, so the same command can be
repeated.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import secrets
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lanner.directory import AttributeFilter, Operator
from lanner.directory.ldap import LdapDirectory, Ldaps, LogOn, domain_controllers
from lanner.directory.ldap.computer_account import ComputerAccount, ComputerAccounts, principals_of
from lanner.directory.protocol import Refused
from lanner.host.addresses import MAX_NETBIOS_NAME, host_computer_name, local_settings
from lanner.host.membership import KEYTAB_FILE, Membership
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import GUID_NULL, QueueManager, Site
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import CannotJoinDomain, LannerError
from lanner.security.keys import BEST_FIRST, QueueManagerKeys
from lanner.security.keytab import computer_salt, keytab
from lanner.security.listed_keys import published_certificate
from lanner.security.private_files import write_private
from lanner.security.profile import Profile
from lanner.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds that a call may take while a user waits.
_PATIENCE: Final = 60.0
_PASSWORD_OCTETS: Final = 48


class ComputerExists(LannerError):
    """The computer has an account in the domain, which was not to be taken over."""


@dataclass(frozen=True, slots=True)
class Request:
    """The domain to join, and the credentials to join it with."""

    domain: str
    # None: the computer's own account, with `password`, which an administrator has created.
    administrator: LogOn | None
    computer: str = ""
    password: str = field(default="", repr=False)
    name_servers: tuple[str, ...] = ()
    sites: tuple[str, ...] = ("Default-First-Site-Name",)
    container: str = ""
    is_router: bool = False
    # Whether to take over an existing account.
    takes_over: bool = False
    # "kerberos", "ntlm", or empty: Kerberos if its library is installed and works. "ldaps": the
    # administrator logs on by LDAPS, too.
    authentication: str = ""
    # A PEM file for LDAPS; None: the authorities that this machine trusts.
    tls_authorities: Path | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of joining."""

    membership: Membership
    identifier: uuid.UUID
    made_account: bool
    published: tuple[str, ...]
    restored: tuple[str, ...]


def join(data: Path, request: Request) -> Joined:
    """Join a domain. Raises CannotJoinDomain, ComputerExists."""
    former = Membership.load(data)
    if former is not None and former.is_member:
        raise CannotJoinDomain(
            f"{former.computer} is a member of the domain {former.domain}: `lanner domain leave` ends that"
        )
    computer = _name(data, request)
    with _as_refusals(f"joining the domain {request.domain}"):
        ldaps = Ldaps(request.domain, request.tls_authorities) if request.authentication == "ldaps" else None
        # A simple bind knows a domain by its NetBIOS name or in this form (MS-ADTS 5.1.1.1.1); NTLM
        # knows it by either name.
        own = f"{request.domain}\\{computer}$" if ldaps is None else f"{computer}$@{request.domain}"
        log_on = request.administrator or LogOn(own, request.password)
        directory = _directory(request.domain, request.name_servers, dataclasses.replace(log_on, ldaps=ldaps))
        sites = [_site(directory, name) for name in request.sites]
        accounts = ComputerAccounts(directory.operations, request.domain)
        if not request.takes_over and request.administrator is not None and accounts.find(computer) is not None:
            raise ComputerExists(
                f"the domain {request.domain} has a computer {computer}: if that is this one, set up again, take its "
                "account over; if not, choose another name"
            )
        password = secrets.token_urlsafe(_PASSWORD_OCTETS)
        if request.administrator is None:
            account = accounts.take_over(computer, request.password, password)
        else:
            account = accounts.make(computer, password, request.container)
        membership = Membership(
            request.domain,
            computer,
            str(account.guid),
            directory.operations.netbios_name(),
            password,
            tls_authorities=str(request.tls_authorities or ""),
            name_servers=request.name_servers,
            sites=request.sites,
            site_identifiers=tuple(map(str, sites)),
            made_account=account.is_new,
            is_router=request.is_router,
        )
        if request.is_router:
            _make_router(directory, accounts, membership)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_keytab(data, membership, account)
        membership = dataclasses.replace(membership, authentication=_working(membership, request.authentication))
        membership.save(data)
        return _publish(data, membership, account)


def _name(data: Path, request: Request) -> str:
    """Return the name of the computer: that of the queue manager if there is one."""
    name = request.computer.upper() or host_computer_name()
    if Store.exists(data):
        with _opened(data, None) as runtime:
            known = runtime.engine.queue_manager.computer_name
            runtime.engine.check_leaving_identifier()
        if request.computer and request.computer.casefold() != known.casefold():
            raise CannotJoinDomain(f"the queue manager in {data} is {known}: leave out --name {request.computer}")
        name = known
    if len(name) > MAX_NETBIOS_NAME:
        raise CannotJoinDomain(f"{name}: a computer's name in a domain has at most {MAX_NETBIOS_NAME} characters")
    return name


@contextmanager
def _opened(data: Path, membership: Membership | None) -> Iterator[Runtime]:
    """Open the queue manager of a data directory, as a member of a domain or as none."""
    settings = local_settings(None, migrates_owners=False, local_origin="lanner domain")
    directory = None
    if membership is not None and membership.is_member:
        directory = membership.directory(Profile.SAFE, _PATIENCE)
        settings = membership.settings(settings)
    try:
        runtime = Runtime(data, settings, directory)
        try:
            yield runtime
        finally:
            runtime.close()
    finally:
        if directory is not None:
            directory.close()


def _open_once(data: Path, membership: Membership) -> None:
    """Have the queue manager start with a membership, which it then adopts, and stop."""
    with _opened(data, membership):
        pass


def _directory(domain: str, name_servers: tuple[str, ...], log_on: LogOn) -> LdapDirectory:
    directory = LdapDirectory(partial(domain_controllers, domain, name_servers), log_on)
    directory.operations.initialize()
    return directory


def _site(directory: LdapDirectory, name: str) -> uuid.UUID:
    result, found = directory.read("Site", [AttributeFilter("Name", Operator.EQUALS, name)], ["Name"])
    if isinstance(found, Site):
        return found.identifier
    raise CannotJoinDomain(f"site {name}: {_site_problem(result)}")


def _site_problem(result: DirectoryOperationResult) -> str:
    return "the domain has no such site" if result is DirectoryOperationResult.OBJECT_NOT_FOUND else result.value


def _make_router(directory: LdapDirectory, accounts: ComputerAccounts, membership: Membership) -> None:
    """Create the objects of a routing server, which the computer itself may not (DECISIONS)."""
    for site in membership.sites:
        accounts.add_server(membership.computer, site)
    manager = QueueManager(
        identifier=GUID_NULL,
        computer_name=membership.computer,
        site_identifier_list=[uuid.UUID(site) for site in membership.site_identifiers],
        routing_server=True,
    )
    result, identifier = directory.create_object(manager)
    if identifier is None:
        raise CannotJoinDomain(f"the objects of the routing server {membership.computer}: {result.value}")


def _write_keytab(data: Path, membership: Membership, account: ComputerAccount) -> None:
    names = [*principals_of(membership.computer, membership.domain), f"{membership.computer}$"]
    # A service is called `host` when it is looked up by its principal.
    names += [name.replace("HOST/", "host/") for name in names if "/" in name]
    salt = computer_salt(membership.realm, membership.computer)
    content = keytab(membership.realm, names, membership.password, salt, account.key_version)
    write_private(data / KEYTAB_FILE, content)


def _working(membership: Membership, wanted: str) -> str:
    """Return the first way of logging on that works for the computer's account."""
    ways = [wanted] if wanted else ["kerberos", "ntlm"]
    if not wanted and importlib.util.find_spec("gssapi") is None:
        ways = ["ntlm"]
    problems = []
    for way in ways:
        try:
            log_on = dataclasses.replace(membership, authentication=way).log_on()
            _directory(membership.domain, membership.name_servers, log_on)
        except Refused as refused:
            problems.append(f"{way}: {refused}")
        else:
            return way
    raise CannotJoinDomain(f"the account {membership.computer}$ cannot log on: {'; '.join(problems)}")


def _publish(data: Path, membership: Membership, account: ComputerAccount) -> Joined:
    """Create the objects of the queue manager and its queues, and queues for existing objects."""
    directory = _directory(membership.domain, membership.name_servers, membership.log_on())
    with _opened(data, membership) as runtime:
        with runtime.change() as change:
            engine = runtime.engine
            if not engine.queue_manager.directory_integrated:
                raise CannotJoinDomain(f"{membership.computer} is not in the directory: give the command again")
            published = tuple(queue.pathname for queue in engine.local_queues() if queue.former_identifiers)
            there = directory.operations.guids_below(f"CN=msmq,{account.dn}", "mSMQQueue")
            restored = [engine.restore_queue(guid) for guid in there]
        change.wait()
        return Joined(
            membership,
            engine.queue_manager.identifier,
            account.is_new,
            published,
            tuple(queue.pathname for queue in restored if queue is not None),
        )


# Leaving
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """The result of leaving, and the steps that only an administrator could have done."""

    membership: Membership
    account: str
    remains: str = ""


def leave(data: Path, administrator: LogOn | None, *, is_forced: bool = False) -> Left:
    """Take the queue manager out of its domain, with its objects and keys there.

    `is_forced`: without contact to the domain, in which all objects stay. Raises CannotJoinDomain.
    """
    membership = member(data)
    with _as_refusals(f"leaving the domain {membership.domain}"):
        directory = None
        if not is_forced:
            log_on = dataclasses.replace(administrator or membership.log_on(), ldaps=membership.ldaps)
            directory = _directory(membership.domain, membership.name_servers, log_on)
        leaving = dataclasses.replace(membership, is_member=False)
        leaving.save(data)
        try:
            _open_once(data, leaving)
        except BaseException:
            membership.save(data)
            raise
        remains = "all objects of the computer" if directory is None else _undo(directory, membership, administrator)
        Membership.forget(data)
    return Left(membership, f"{membership.netbios_name}\\{membership.computer}$", remains)


def _undo(directory: LdapDirectory, membership: Membership, administrator: LogOn | None) -> str:
    """Remove the objects that joining created; return a description of those that remain."""
    accounts = ComputerAccounts(directory.operations, membership.domain)
    try:
        dn = directory.operations.find(uuid.UUID(membership.account_guid))
    except Refused as refused:
        if refused.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
            return ""
        raise
    accounts.strip(dn)
    if administrator is None:
        try:
            accounts.forget_principals(dn, membership.computer)
        except Refused:
            # A computer may not write principals that an administrator has added.
            return "the computer's account with its service principals, which an administrator can delete"
        return "the computer's account, which an administrator can delete"
    if membership.is_router:
        for site in membership.sites:
            accounts.delete_server(membership.computer, site)
    if membership.made_account:
        accounts.delete(dn)
        return ""
    accounts.forget_principals(dn, membership.computer)
    accounts.disable(dn)
    return "the computer's account, disabled: it was there before"


# Renaming
# ------------------------------------------------------------------------------------------------


def rename(data: Path, name: str, administrator: LogOn) -> Membership:
    """Give the computer another name, in the domain and here. Raises CannotJoinDomain."""
    membership = member(data)
    name = name.upper()
    if len(name) > MAX_NETBIOS_NAME:
        raise CannotJoinDomain(f"{name}: a computer's name in a domain has at most {MAX_NETBIOS_NAME} characters")
    # The data directory must not be in use, and the name must be possible in names of queues.
    local_settings(name)
    _open_once(data, membership)
    with _as_refusals(f"renaming {membership.computer} to {name}"):
        log_on = dataclasses.replace(administrator, ldaps=membership.ldaps)
        directory = _directory(membership.domain, membership.name_servers, log_on)
        accounts = ComputerAccounts(directory.operations, membership.domain)
        taken = accounts.find(name)
        guid = uuid.UUID(membership.account_guid)
        if taken is not None and accounts.read(taken, is_new=False).guid != guid:
            raise CannotJoinDomain(f"the domain has another computer {name}")
        password = secrets.token_urlsafe(_PASSWORD_OCTETS)
        renamed = dataclasses.replace(membership, computer=name, password=password)
        account = accounts.rename(guid, name, password)
        renamed.save(data)
        _write_keytab(data, renamed, account)
        _open_once(data, renamed)
    return renamed


# Status
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of this computer in its domain."""

    membership: Membership
    # Empty: everything is as joining left it.
    problems: tuple[str, ...]
    servers: tuple[str, ...] = ()
    identifier: uuid.UUID | None = None
    queues: int = 0


def standing(data: Path) -> Standing:
    """Query the domain about this computer. Raises CannotJoinDomain if it is in none."""
    membership = member(data)
    try:
        directory = _directory(membership.domain, membership.name_servers, membership.log_on())
        servers = tuple(directory.servers())
    except (Refused, OSError) as error:
        return Standing(membership, (f"the domain cannot be reached as {membership.log_on()}: {error}",))
    problems: list[str] = []
    identifier, queues = None, 0
    try:
        dn = directory.operations.find(uuid.UUID(membership.account_guid))
        account = directory.operations.get(dn, ("servicePrincipalName", "mSMQSignCertificates"))
        held = {name.casefold() for name in map(str, account.get("servicePrincipalName", []))}
        missing = [one for one in principals_of(membership.computer, membership.domain) if one.casefold() not in held]
        problems += [f"the account lacks the service principal {one}" for one in missing]
        entry = directory.operations.get(f"CN=msmq,{dn}", ("mSMQEncryptKey",))
        guid = entry["objectGUID"][0]
        identifier = uuid.UUID(bytes_le=guid) if isinstance(guid, bytes) else None
        keys = QueueManagerKeys.load_or_create(data / "keys.json", Profile.SAFE)
        if entry.get("mSMQEncryptKey") != [keys.public_key_lists()[0]]:
            problems.append("the domain has other encryption keys of this computer than it has")
        listed = account.get("mSMQSignCertificates", [b""])[0]
        own = keys.signing[BEST_FIRST[0]].modulus
        if not isinstance(listed, bytes) or published_certificate(listed, own) is None:
            problems.append("the domain has no certificate of this computer's signing key: leave, and join again")
        queues = len(directory.operations.guids_below(f"CN=msmq,{dn}", "mSMQQueue"))
    except (Refused, KeyError) as error:
        problems.append(f"{membership.computer}: {error}")
    if not (data / KEYTAB_FILE).exists():
        problems.append(f"{data / KEYTAB_FILE} is missing: domain users cannot log on")
    return Standing(membership, tuple(problems), servers, identifier, queues)


def member(data: Path) -> Membership:
    """Return the membership of a data directory. Raises CannotJoinDomain if there is none."""
    membership = Membership.load(data)
    if membership is None:
        raise CannotJoinDomain(f"the queue manager in {data} is in no domain: `lanner domain join` makes it a member")
    return membership


@contextmanager
def _as_refusals(what: str) -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        raise CannotJoinDomain(f"{what}: {refused}") from None
