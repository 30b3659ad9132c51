"""One domain for all tests of this directory, and a world of its own for each of them."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lanner.directory import AttributeFilter, Operator, SortOrder
from lanner.directory.ldap.connection import LdapConnection, LdapRefused, LogOn
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.ldap.messages import Control, Request, Response, SaslBind, Unbind
from lanner.model.directory_objects import GUID_NULL, DirectoryObject, Queue, QueueManager, RoutingLink, Site
from lanner.model.enums import DirectoryOperationResult
from lanner.security.profile import Profile
from tests.active_directory.domain import CONFIGURATION, ROOT, Domain, start

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def domain() -> Iterator[Domain]:
    with tempfile.TemporaryDirectory(prefix="dc", ignore_cleanup_errors=True) as path:
        found = start(Path(path))
        patch = pytest.MonkeyPatch()
        patch.setenv("KRB5_CONFIG", str(found.krb5_conf))
        yield found
        patch.undo()
        found.stop()


@dataclass
class Exchange:
    request: Request
    controls: tuple[Control, ...]
    answers: list[Response]


class Wire:
    """A record of the LDAP traffic, in order."""

    def __init__(self, patch: pytest.MonkeyPatch, domain: Domain) -> None:
        self.exchanges: list[Exchange] = []
        plain = LdapConnection._exchange
        plain_close = LdapConnection.close

        def exchange(connection: LdapConnection, request: Request, controls: Sequence[Control] = ()) -> list[Response]:
            answers = plain(connection, request, controls)
            if connection is not domain._connection:
                self.exchanges.append(Exchange(request, tuple(controls), answers))
            return answers

        def close(connection: LdapConnection) -> None:
            if connection is not domain._connection:
                self.exchanges.append(Exchange(Unbind(), (), []))
            plain_close(connection)

        patch.setattr(LdapConnection, "_exchange", exchange)
        patch.setattr(LdapConnection, "close", close)

    def __len__(self) -> int:
        return len(self.exchanges)

    def operations(self) -> list[Request]:
        """Return the requests, without log-ons and ends of connections."""
        return [one.request for one in self.exchanges if not isinstance(one.request, (SaslBind, Unbind))]

    def clear(self) -> None:
        self.exchanges.clear()

    def of(self, *kinds: type) -> list[Exchange]:
        return [one for one in self.exchanges if isinstance(one.request, kinds)]

    def requests(self, kind: type) -> list:  # type: ignore[type-arg]
        return [one.request for one in self.of(kind)]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, domain: Domain) -> Wire:
    return Wire(monkeypatch, domain)


class World:
    """A computer, a site and a queue manager in the real directory, with names unique to a test."""

    def __init__(self, domain: Domain, profile: Profile = Profile.SAFE) -> None:
        self.domain = domain
        number = next(_NUMBERS)
        self.computer = f"qm{number}"
        self.site_name = f"site{number}"
        self.computer_log_on = domain.add_computer(self.computer)
        self.directory: LdapDirectory = domain.directory(profile=profile)
        self.site = self.add_site(self.site_name)
        self.computer_dn = f"CN={self.computer},CN=Computers,{ROOT}"
        self.dn = f"CN=msmq,{self.computer_dn}"

    def add_site(self, name: str) -> uuid.UUID:
        return made(self.directory.create_object(Site(name=name)))

    def site_dn(self, name: str = "") -> str:
        return f"CN={name or self.site_name},CN=Sites,{CONFIGURATION}"

    def add_server(self, site: str = "", computer: str = "") -> str:
        """The server object below which the settings of a server lie; an administrator makes it."""
        parent = f"CN=Servers,{self.site_dn(site)}"
        # Another computer's may have made it.
        with contextlib.suppress(LdapRefused):
            self.domain.add(parent, objectClass="serversContainer")
        dn = f"CN={computer or self.computer},{parent}"
        self.domain.add(dn, objectClass="server")
        return dn

    def manager(self, **values: object) -> QueueManager:
        manager = QueueManager(identifier=GUID_NULL, computer_name=self.computer, site_identifier_list=[self.site])
        for name, value in values.items():
            setattr(manager, name, value)
        return manager

    def add_manager(self, attributes: Sequence[str] | None = None, /, **values: object) -> uuid.UUID:
        return made(self.directory.create_object(self.manager(**values), attributes))

    def queue(self, name: str, **values: object) -> Queue:
        queue = Queue(identifier=GUID_NULL, pathname=f"{self.computer}\\{name}")
        for field, value in values.items():
            setattr(queue, field, value)
        return queue

    def add_queue(self, name: str, attributes: Sequence[str] | None = None, **values: object) -> uuid.UUID:
        return made(self.directory.create_object(self.queue(name, **values), attributes))

    def link(self, one: uuid.UUID, two: uuid.UUID, **values: object) -> RoutingLink:
        link = RoutingLink(identifier=GUID_NULL, site1_identifier=one, site2_identifier=two)
        for field, value in values.items():
            setattr(link, field, value)
        return link

    def read(self, kind: str, identifier: uuid.UUID, *attributes: str):  # type: ignore[no-untyped-def] # noqa: ANN201
        found = self.directory.read(kind, [equals("Identifier", identifier)], list(attributes) or None)
        assert found[0] is DirectoryOperationResult.SUCCESS, found[0]
        return found[1]

    def all(
        self,
        kind: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        order: Sequence[SortOrder] | None = None,
    ) -> list[DirectoryObject]:
        result, handle = self.directory.read_begin(kind, filters, attributes, order)
        assert result is DirectoryOperationResult.SUCCESS
        assert handle is not None
        found = []
        while True:
            result, one = self.directory.read_next(handle)
            if one is None:
                break
            found.append(one)
        assert result is DirectoryOperationResult.END_OF_DATA
        assert self.directory.read_end(handle) is DirectoryOperationResult.SUCCESS
        return found

    def as_account(self, log_on: LogOn) -> LdapDirectory:
        return self.domain.directory(log_on)


def made(answer: tuple[DirectoryOperationResult, uuid.UUID | None]) -> uuid.UUID:
    assert answer[0] is DirectoryOperationResult.SUCCESS, answer[0]
    assert answer[1] is not None
    return answer[1]


def equals(name: str, value: object) -> AttributeFilter:
    return AttributeFilter(name, Operator.EQUALS, value)


@pytest.fixture
def world(domain: Domain) -> Iterator[World]:
    found = World(domain)
    yield found
    # What a test has made unreadable would fail the queries of later tests over the whole domain.
    with contextlib.suppress(LdapRefused):
        domain.delete(found.computer_dn)
