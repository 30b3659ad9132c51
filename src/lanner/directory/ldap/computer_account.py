"""The account of a computer in its domain: created, taken over, renamed and given up.

A queue manager is an object below its computer's account (MS-MQDSSM 2.2.1), and reads the directory
as that account. A full read of the queue manager needs `dNSHostName` and `servicePrincipalName`
(DECISIONS), so both are set before the object is created.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import Final

from lanner.directory.ldap.operations import LdapOperations
from lanner.directory.names import Naming, escape, parent_dn, rdn_values
from lanner.directory.protocol import Refused
from lanner.model.enums import DirectoryOperationResult
from lanner.wire.sid import Sid

# MS-SAMR 2.2.1.12.
_WORKSTATION_TRUST_ACCOUNT: Final = 0x1000
_ACCOUNT_DISABLE: Final = 0x0002
# MS-KILE 2.2.7: AES with 128 and 256 bits.
_ENCRYPTION_TYPES: Final = 0x18
_SERVICE: Final = "HOST"


@dataclass(frozen=True, slots=True)
class ComputerAccount:
    """An account that was found or created."""

    dn: str
    guid: uuid.UUID
    sid: Sid
    # msDS-KeyVersionNumber: the version of the password from which the keys were made.
    key_version: int
    is_new: bool


def principals_of(computer: str, domain: str) -> tuple[str, str]:
    """Return the service principal names of a computer: by its short name, and by its DNS name."""
    return f"{_SERVICE}/{computer}", f"{_SERVICE}/{computer.lower()}.{domain}"


def password_octets(password: str) -> bytes:
    """Return a password in the form of the attribute unicodePwd (MS-ADTS 3.1.1.3.1.5)."""
    return f'"{password}"'.encode("utf-16-le")


class ComputerAccounts:
    """Operations on computer accounts, by an administrator, or by a computer on its own."""

    def __init__(self, operations: LdapOperations, domain: str) -> None:
        self._operations = operations
        self._domain = domain

    def find(self, computer: str) -> str | None:
        """Return the distinguished name of a computer's account; None if it has none."""
        usual = Naming(self._operations.root).computer(computer)
        return usual if self._operations.exists(usual) else self._operations.computer_dn(computer)

    def make(self, computer: str, password: str, container: str = "") -> ComputerAccount:
        """Create the account of a computer, or give its existing account another password."""
        dn = self.find(computer)
        is_new = dn is None
        if dn is None:
            parent = container or f"CN=Computers,{self._operations.domain}"
            values: dict[str, list[str | bytes]] = {
                "sAMAccountName": [f"{computer}$"],
                "userAccountControl": [str(_WORKSTATION_TRUST_ACCOUNT)],
                "unicodePwd": [password_octets(password)],
                "dNSHostName": [f"{computer.lower()}.{self._domain}"],
                "servicePrincipalName": list(principals_of(computer, self._domain)),
                "msDS-SupportedEncryptionTypes": [str(_ENCRYPTION_TYPES)],
            }
            self._operations.create(parent, computer, "computer", values)
            dn = self._place(computer)
        else:
            self._operations.set_properties(
                dn,
                {
                    "unicodePwd": [password_octets(password)],
                    "userAccountControl": [str(_WORKSTATION_TRUST_ACCOUNT)],
                    "msDS-SupportedEncryptionTypes": [str(_ENCRYPTION_TYPES)],
                },
            )
            self.set_names(dn, computer)
        return self.read(dn, is_new=is_new)

    def take_over(self, computer: str, old: str, new: str) -> ComputerAccount:
        """Have a computer change the password of its account and set its names.

        An administrator has created the account.
        """
        dn = self._place(computer)
        self.set_names(dn, computer)
        # This right is not granted everywhere. Without it, tickets for this computer are encrypted
        # with RC4.
        with contextlib.suppress(Refused):
            self._operations.set_properties(dn, {"msDS-SupportedEncryptionTypes": [str(_ENCRYPTION_TYPES)]})
        self._operations.change_password(dn, password_octets(old), password_octets(new))
        return self.read(dn, is_new=False)

    def set_names(self, dn: str, computer: str) -> None:
        """Set the DNS name and the service principals. Principals added by others stay."""
        self._operations.set_properties(dn, {"dNSHostName": [f"{computer.lower()}.{self._domain}"]})
        held = [str(one) for one in self._operations.get(dn, ("servicePrincipalName",)).get("servicePrincipalName", [])]
        known = {one.casefold() for one in held}
        missing = [one for one in principals_of(computer, self._domain) if one.casefold() not in known]
        if missing:
            self._operations.set_properties(dn, {"servicePrincipalName": [*held, *missing]})

    def rename(self, guid: uuid.UUID, new: str, password: str) -> ComputerAccount:
        """Give a computer another name and password; the objects below its account move along."""
        dn = self._operations.find(guid)
        former = self._operations.get(dn, ("sAMAccountName", "servicePrincipalName"))
        old = str(former["sAMAccountName"][0]).removesuffix("$")
        if rdn_values(dn)[0].casefold() != new.casefold():
            dn = self._operations.rename(dn, new)
        dropped = {one.casefold() for one in principals_of(old, self._domain)}
        kept = [str(one) for one in former.get("servicePrincipalName", []) if str(one).casefold() not in dropped]
        self._operations.set_properties(
            dn,
            {
                "sAMAccountName": [f"{new}$"],
                "dNSHostName": [f"{new.lower()}.{self._domain}"],
                "servicePrincipalName": [*kept, *principals_of(new, self._domain)],
                # The keys depend on the name, too, when the password is set.
                "unicodePwd": [password_octets(password)],
            },
        )
        return self.read(dn, is_new=False)

    def strip(self, dn: str) -> None:
        """Remove a queue manager's data from its computer's account: the keys, and its object.

        The object contains the queues.
        """
        with contextlib.suppress(Refused):
            self._operations.set_properties(dn, {"mSMQSignCertificates": [], "mSMQDigests": []})
        if self._operations.exists(f"CN=msmq,{dn}"):
            self._operations.delete_tree(f"CN=msmq,{dn}")

    def forget_principals(self, dn: str, computer: str) -> None:
        """Remove the service principals that joining has set."""
        dropped = {one.casefold() for one in principals_of(computer, self._domain)}
        held = [str(one) for one in self._operations.get(dn, ("servicePrincipalName",)).get("servicePrincipalName", [])]
        self._operations.set_properties(
            dn, {"servicePrincipalName": [one for one in held if one.casefold() not in dropped]}
        )

    def delete(self, dn: str) -> None:
        """Delete an account with all objects below it."""
        self._operations.delete_tree(dn)

    def disable(self, dn: str) -> None:
        """Disable an account, so that it cannot log on."""
        self._operations.set_properties(
            dn, {"userAccountControl": [str(_WORKSTATION_TRUST_ACCOUNT | _ACCOUNT_DISABLE)]}
        )

    def add_server(self, computer: str, site: str) -> None:
        """Create the object of a server in a site, below which its settings are (3.1.6.1.1.3)."""
        parent = f"CN=Servers,{Naming(self._operations.root).site(site)}"
        for above, name, kind in ((parent_dn(parent), "Servers", "serversContainer"), (parent, computer, "server")):
            if not self._operations.exists(f"CN={escape(name)},{above}"):
                self._operations.create(above, name, kind, {})

    def delete_server(self, computer: str, site: str) -> None:
        """Delete the object of a server in a site, and its settings."""
        dn = f"CN={escape(computer)},CN=Servers,{Naming(self._operations.root).site(site)}"
        if self._operations.exists(dn):
            self._operations.delete_tree(dn)

    def read(self, dn: str, *, is_new: bool) -> ComputerAccount:
        """Read an account that was just written."""
        found = self._operations.get(dn, ("objectSid", "msDS-KeyVersionNumber"))
        guid, sid = found.get("objectGUID"), found.get("objectSid")
        if not guid or not isinstance(guid[0], bytes) or not sid or not isinstance(sid[0], bytes):
            raise Refused(DirectoryOperationResult.GENERIC_ERROR, f"{dn}: its objectGUID or objectSid cannot be read")
        version = found.get("msDS-KeyVersionNumber", ["1"])[0]
        return ComputerAccount(dn, uuid.UUID(bytes_le=guid[0]), Sid.unpack(sid[0]), int(version), is_new)

    def _place(self, computer: str) -> str:
        dn = self.find(computer)
        if dn is None:
            raise Refused(DirectoryOperationResult.OBJECT_NOT_FOUND, f"the domain has no computer account {computer}$")
        return dn
