"""The domain that `lanner domain join` has made a data directory a member of.

All data that the queue manager needs as a member is in one private file of the data directory,
including the password of the computer's account. Beside it are the keys for authenticating users of
the domain. So any program that opens the data directory, or a backup of it, acts as the same domain
member.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lanner.model.errors import CannotJoinDomain
from lanner.security.private_files import read_private, write_private

if TYPE_CHECKING:
    from lanner.directory.ldap import CachedDirectory, Ldaps, LogOn
    from lanner.engine import EngineSettings
    from lanner.security.profile import Profile

MEMBERSHIP_FILE: Final = "domain.json"
KEYTAB_FILE: Final = "computer.keytab"
_VERSION: Final = 1
# Seconds that a call of the engine may wait for the directory.
PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Membership:
    """A computer's place in a domain."""

    domain: str
    # The name of the computer's account without the dollar sign.
    computer: str
    # objectGUID of that account, which stays when the computer is renamed.
    account_guid: str
    netbios_name: str
    password: str = field(repr=False)
    # "kerberos"; "ntlm", which needs no library; or "ldaps": with the password, over TLS.
    authentication: str = "ntlm"
    # The file of authorities for LDAPS. If empty, those that this machine trusts are used.
    tls_authorities: str = ""
    # Addresses of DNS servers that know the domain. If empty, those of this machine are used.
    name_servers: tuple[str, ...] = ()
    # Names and identifiers of the sites.
    sites: tuple[str, ...] = ()
    site_identifiers: tuple[str, ...] = ()
    # Whether joining created the account, so that leaving deletes it.
    made_account: bool = False
    is_router: bool = False
    # False while the computer leaves the domain and its objects there are being removed.
    is_member: bool = True

    @property
    def realm(self) -> str:
        return self.domain.upper()

    @property
    def ldaps(self) -> Ldaps | None:
        """How the directory is reached by LDAPS; None: over a sealed connection."""
        from lanner.directory.ldap import Ldaps

        if self.authentication != "ldaps":
            return None
        return Ldaps(self.domain, Path(self.tls_authorities) if self.tls_authorities else None)

    @classmethod
    def load(cls, data: Path) -> Membership | None:
        """Return the membership in the file of a data directory; None if there is no file."""
        path = data / MEMBERSHIP_FILE
        content = read_private(path)
        if content is None:
            return None
        try:
            document = json.loads(content)
            if document.pop("version") != _VERSION:
                raise CannotJoinDomain(f"{path} is of a newer version of Lanner")
            known = {one.name for one in dataclasses.fields(cls)}
            values: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
            }
            return cls(**{name: value for name, value in values.items() if name in known})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CannotJoinDomain(
                f"{path} cannot be read ({error}): restore it from a backup, or join again"
            ) from None

    def save(self, data: Path) -> None:
        document = {"version": _VERSION, **dataclasses.asdict(self)}
        write_private(data / MEMBERSHIP_FILE, json.dumps(document, indent=1).encode())

    @staticmethod
    def forget(data: Path) -> None:
        """Remove the files; the membership file goes last."""
        for name in (KEYTAB_FILE, MEMBERSHIP_FILE):
            (data / name).unlink(missing_ok=True)

    def log_on(self) -> LogOn:
        """Return the account of the computer for calls to the directory."""
        from lanner.directory.ldap import LogOn

        if self.authentication == "kerberos":
            return LogOn(f"{self.computer}$@{self.realm}", self.password, protocol="kerberos")
        return LogOn(f"{self.netbios_name}\\{self.computer}$", self.password, ldaps=self.ldaps)

    def directory(self, profile: Profile, patience: float = PATIENCE) -> CachedDirectory:
        """Return the directory, accessed with the rights of the computer's account.

        No call waits longer than `patience` seconds.
        """
        # Imported here: a queue manager outside a domain does not need it.
        from lanner.directory.ldap import CachedDirectory, LdapDirectory, domain_controllers, named_server

        directory = LdapDirectory(
            partial(domain_controllers, self.domain, self.name_servers),
            self.log_on(),
            profile=profile,
            find_server=partial(named_server, servers=self.name_servers),
        )
        directory.initialize()
        return CachedDirectory(directory, patience=patience)

    def settings(self, settings: EngineSettings) -> EngineSettings:
        """Return the settings of the queue manager as a member, or as one that has just left."""
        if not self.is_member:
            return dataclasses.replace(settings, directory_integrated=False, changes_membership=True)
        given = settings.computer_name
        if given and given.casefold() != self.computer.casefold():
            raise CannotJoinDomain(
                f"this computer is {self.computer} in the domain {self.domain}, and the settings call it {given}: "
                f"rename it with `lanner domain rename {given}`, or leave its name out of the settings"
            )
        return dataclasses.replace(
            settings,
            computer_name=self.computer.upper(),
            dns_domain=self.domain,
            directory_integrated=True,
            changes_membership=True,
            site_identifiers=self.site_identifiers,
        )
