"""A real Active Directory for tests: a temporary Samba domain controller on a loopback address.

Its address is not 127.0.0.1, so that ports 135 and 445 there stay free for the program under test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from lanner.directory.ldap.connection import LdapConnection, LogOn
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.ldap.messages import Add, Alteration, Delete, Modify, Scope, Search, Values
from lanner.directory.ldap.service_location import Server
from lanner.directory.names import escape
from lanner.security.profile import Profile

# Several test runs on one machine need an address each.
ADDRESS: Final = os.environ.get("LANNER_TEST_DC", "127.0.0.10")
PASSWORD: Final = "Passw0rd.mq"
REALM: Final = "MQ.TEST"
DNS_DOMAIN: Final = "mq.test"
ROOT: Final = "DC=mq,DC=test"
CONFIGURATION: Final = f"CN=Configuration,{ROOT}"
HOST: Final = f"dc1.{DNS_DOMAIN}"
SERVER: Final = Server(HOST, ADDRESS)
ADMINISTRATOR: Final = LogOn("MQ\\Administrator", PASSWORD)
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_PORTS: Final = (53, 88, 389, 636, 3268)
# MS-SAMR 2.2.1.12 UF_WORKSTATION_TRUST_ACCOUNT, UF_NORMAL_ACCOUNT.
_COMPUTER, _PERSON = "4096", "512"


def missing() -> str:
    """Return what prevents starting a domain controller here; empty if nothing does."""
    if not all(shutil.which(name, path=_PATH) for name in ("samba", "samba-tool")):
        return "the Debian packages samba and samba-vfs-modules are not installed"
    if os.geteuid() != 0:
        return "a domain controller takes root"
    return ""


class Domain:
    """The domain MQ.TEST and its one controller."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Samba signs the certificate for LDAPS with an authority of its own.
        self.authority = path / "private" / "tls" / "ca.pem"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: LdapConnection | None = None
        self._provision()
        self.start()
        self.administrator = self.directory()
        # What samba_spnupdate would do, for Kerberos.
        controller = f"CN=DC1,OU=Domain Controllers,{ROOT}"
        held = [one.decode() for one in self.attributes(controller).get("servicePrincipalName", [])]
        self.modify(controller, servicePrincipalName=tuple({*held, f"HOST/{HOST}", f"ldap/{HOST}"}))

    def _provision(self) -> None:
        command = ["samba-tool", "domain", "provision", f"--realm={REALM}", "--domain=MQ", "--server-role=dc"]
        command += ["--use-rfc2307", "--dns-backend=SAMBA_INTERNAL", f"--targetdir={self.path}", "--host-name=dc1"]
        command += [f"--host-ip={ADDRESS}", f"--adminpass={PASSWORD}"]
        command += [f"--option=interfaces={ADDRESS}/8", "--option=bind interfaces only=yes"]
        done = subprocess.run(command, capture_output=True, check=False, env={"PATH": _PATH}, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr.decode()
        configuration = self.path / "etc" / "smb.conf"
        # The host's own resolver must not be asked, and winbind's sockets must not be shared with
        # another Samba.
        lines = [line for line in configuration.read_text().splitlines() if "dns forwarder" not in line]
        at = lines.index("[global]") + 1
        lines[at:at] = [
            "\tdns forwarder =",
            "\tserver services = ldap, kdc, rpc, cldap, winbindd, s3fs, dns",
            f"\twinbindd socket directory = {self.path}/winbindd",
            f"\tpid directory = {self.path}",
            f"\tncalrpc dir = {self.path}/ncalrpc",
            f"\tlog file = {self.path}/log.%m",
        ]
        configuration.write_text("\n".join(lines) + "\n")
        self.krb5_conf = self.path / "krb5.conf"
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n dns_lookup_kdc = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n"
            f"[realms]\n {REALM} = {{\n  kdc = {ADDRESS}\n  admin_server = {ADDRESS}\n }}\n"
            f"[domain_realm]\n .{DNS_DOMAIN} = {REALM}\n {DNS_DOMAIN} = {REALM}\n"
        )

    def start(self) -> None:
        for port in _PORTS:
            with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), 1):
                pytest.fail(f"another domain controller has port {port} of {ADDRESS}: set LANNER_TEST_DC")
        with (self.path / "samba.out").open("ab") as output:
            self._process = subprocess.Popen(
                ["samba", "-i", "-M", "single", "-s", str(self.path / "etc" / "smb.conf"), "--debug-stdout", "-d", "1"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={"PATH": _PATH},
            )
        for port in _PORTS:
            self._wait_for(port)

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), 1):
                return
            assert self._process is not None
            assert self._process.poll() is None, (self.path / "samba.out").read_text()[-2000:]
            assert time.monotonic() < deadline, f"nobody listens on port {port} of the domain controller"
            time.sleep(0.05)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def tool(self, *arguments: str) -> str:
        """Run samba-tool on the domain's own files."""
        command = ["samba-tool", *arguments, "-s", str(self.path / "etc" / "smb.conf")]
        done = subprocess.run(command, capture_output=True, check=False, env={"PATH": _PATH}, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
        return done.stdout.decode()

    # The directory, and what an administrator does in it
    # --------------------------------------------------

    def directory(self, log_on: LogOn = ADMINISTRATOR, profile: Profile = Profile.SAFE) -> LdapDirectory:
        directory = LdapDirectory(lambda: [SERVER], log_on, profile=profile)
        directory.initialize()
        return directory

    def add(self, dn: str, **attributes: str | bytes | Values) -> uuid.UUID:
        listed = tuple((name.replace("__", "-"), _values(value)) for name, value in attributes.items())
        with self.connected() as connection:
            connection.perform(Add(dn, listed))
            (found,) = connection.search(Search(dn, attributes=("objectGUID",)))
        return uuid.UUID(bytes_le=found.values["objectGUID"][0])

    def modify(self, dn: str, **attributes: str | bytes | Values) -> None:
        changes = tuple(
            (Alteration.REPLACE, name.replace("__", "-"), _values(value)) for name, value in attributes.items()
        )
        with self.connected() as connection:
            connection.perform(Modify(dn, changes))

    def delete(self, dn: str) -> None:
        with self.connected() as connection:
            below = connection.search(Search(dn, Scope.SUBTREE, attributes=("distinguishedName",)))
            for found in sorted(below, key=lambda one: -one.dn.count(",")):
                connection.perform(Delete(found.dn))

    def delete_links(self) -> None:
        """Delete all routing links; tests leave some whose sites they have deleted."""
        services = f"CN=MsmqServices,CN=Services,{CONFIGURATION}"
        with self.connected() as connection:
            for found in connection.search(Search(services, Scope.SUBTREE, attributes=("distinguishedName",))):
                if found.dn.casefold() != services.casefold():
                    connection.perform(Delete(found.dn))

    def attributes(self, dn: str, *names: str) -> dict[str, list[bytes]]:
        """Return the attributes that the domain controller itself has stored."""
        with self.connected() as connection:
            (found,) = connection.search(Search(dn, attributes=names or ("*",)))
        return found.values

    def guid(self, dn: str) -> uuid.UUID:
        return uuid.UUID(bytes_le=self.attributes(dn, "objectGUID")["objectGUID"][0])

    @contextlib.contextmanager
    def connected(self) -> Iterator[LdapConnection]:
        """The administrator's own connection, which is no part of what is tested."""
        if self._connection is None or self._connection.is_closed:
            self._connection = LdapConnection(HOST, ADDRESS, 389, ADMINISTRATOR)
        yield self._connection

    def add_computer(self, name: str, container: str = "CN=Computers") -> LogOn:
        """An account for a computer, as joining a domain makes one."""
        self.add(
            f"CN={escape(name)},{container},{ROOT}",
            objectClass="computer",
            sAMAccountName=f"{name}$",
            userAccountControl=_COMPUTER,
            unicodePwd=_password(PASSWORD),
            dNSHostName=f"{name}.{DNS_DOMAIN}",
            servicePrincipalName=(f"HOST/{name}", f"HOST/{name}.{DNS_DOMAIN}"),
        )
        return LogOn(f"MQ\\{name}$", PASSWORD)

    def add_user(self, name: str) -> LogOn:
        self.add(
            f"CN={name},CN=Users,{ROOT}",
            objectClass="user",
            sAMAccountName=name,
            userAccountControl=_PERSON,
            unicodePwd=_password(PASSWORD),
        )
        return LogOn(f"MQ\\{name}", PASSWORD)


def _values(value: str | bytes | Values) -> Values:
    return (value,) if isinstance(value, (str, bytes)) else value


def _password(text: str) -> bytes:
    """MS-ADTS 3.1.1.3.1.5: in quotation marks, in UTF-16."""
    return f'"{text}"'.encode("utf-16-le")


def start(path: Path) -> Domain:
    why = missing()
    if why:
        pytest.skip(why)
    return Domain(path)
