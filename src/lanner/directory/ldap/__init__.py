"""Active Directory by LDAP (MS-MQDSSM)."""

from lanner.directory.ldap.cached import CachedDirectory
from lanner.directory.ldap.connection import LogOn
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.ldap.ldaps import Ldaps
from lanner.directory.ldap.service_location import Server, domain_controllers, named_server

__all__ = ["CachedDirectory", "LdapDirectory", "Ldaps", "LogOn", "Server", "domain_controllers", "named_server"]
