"""The checks of `lanner doctor` for TLS: the local certificates, and that of a peer."""

from __future__ import annotations

import dataclasses
import datetime as dt
import socket
import ssl
from collections.abc import Iterator
from uuid import UUID

from lanner.services.examination import Finding, Verdict
from lanner.transfer.addresses import NextHop, addresses_of
from lanner.transfer.certified_peers import CertifiedPeers
from lanner.transfer.settings import TransferSettings
from lanner.transfer.tls import Certification, TlsSettingsError, certification_of, load_identity
from lanner.transfer.tls_errors import TlsError, words

# Time to make a new certificate and copy it to every peer.
_WARN = dt.timedelta(days=30)


def examine_files(settings: TransferSettings, now: dt.datetime) -> Iterator[Finding]:
    """Yield findings about the local certificates and those of peers; nothing if TLS is off."""
    try:
        identity = load_identity(settings)
    except TlsSettingsError as error:
        advice = "correct the file or the setting; only root and the service's user can read the key"
        yield Finding("tls", Verdict.FAIL, str(error), advice)
        return
    if identity is None:
        return
    own = certification_of(identity.certificate)
    yield _dates(own, "of this queue manager", now, "`lanner certificate make --force`, and copy it to the peers")
    for name in settings.peers:
        for pin in identity.pins_of(name):
            yield _dates(pin, f"of {name}", now, f"have a new one made there, and name it in peers.{name}.certificate")


def _dates(found: Certification, whose: str, now: dt.datetime, advice: str) -> Finding:
    until = f"{found.not_valid_after:%Y-%m-%d}"
    if now > found.not_valid_after:
        return Finding("tls", Verdict.FAIL, f"the {found} {whose} expired on {until}", advice)
    if now > found.not_valid_after - _WARN:
        return Finding("tls", Verdict.WARN, f"the {found} {whose} expires on {until}", advice)
    return Finding("tls", Verdict.OK, f"the {found} {whose} is valid until {until}")


def tls_hop(settings: TransferSettings, peer: str, guid: UUID, address: str) -> NextHop | None:
    """Return the next hop as transfer would connect to it over TLS.

    Returns None if transfer would connect without TLS.
    """
    certified = CertifiedPeers(settings.peers, None, lambda _: ())
    hop = NextHop(guid, peer, address)
    found = certified.find(hop, lambda one: addresses_of(one, settings.peers))
    return None if found is None else dataclasses.replace(hop, tls_peer=found)


class Secured:
    """A TLS handshake with a peer, and its `finding`.

    After a successful one, `connection` and `own_guids` are set.
    """

    def __init__(self, settings: TransferSettings, plain: socket.socket, hop: NextHop) -> None:
        self.connection: ssl.SSLSocket | None = None
        self.own_guids: frozenset[UUID] = frozenset()
        self.finding = self._connect(settings, plain, hop)

    def _connect(self, settings: TransferSettings, plain: socket.socket, hop: NextHop) -> Finding:
        where = f"{hop.address}:{settings.tls_port}"
        name = hop.host_name if hop.tls_peer is None else hop.tls_peer.name
        advice = f"compare [peers.{name}] with the certificates of both sides: `lanner certificate show FILE`"
        try:
            identity = load_identity(settings)
            if identity is None:
                raise TlsSettingsError("this queue manager has no certificate")
        except TlsSettingsError as error:
            advice = "run this as root or as the service's user, who can read the key"
            return Finding("tls", Verdict.FAIL, f"TLS is not set up here: {error}", advice)
        try:
            secured = identity.client.wrap_socket(plain)
            try:
                found = identity.certify(secured)
                CertifiedPeers(settings.peers, identity, lambda _: ()).check_answering(found, hop)
            except BaseException:
                secured.close()
                raise
        except OSError as error:
            if not isinstance(error, ssl.SSLCertVerificationError | TlsError):
                advice = f"see whether {name} has TLS on: transfer.tls_certificate and transfer.tls_key in its settings"
            return Finding("tls", Verdict.FAIL, f"{where}: {words(error)}", advice)
        self.connection = secured
        self.own_guids = certification_of(identity.certificate).guids
        return Finding("tls", Verdict.OK, f"{secured.version()}, {found}, valid until {found.not_valid_after:%Y-%m-%d}")
