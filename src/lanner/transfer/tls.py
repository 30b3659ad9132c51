"""TLS certificates between queue managers: this one's own, and those that peers may show.

Not in Microsoft's documents: between Lanners, port 1802 carries the sessions of MS-MQQB over mutual
TLS 1.3. A peer's certificate is accepted in one of two ways. It is a pin, exactly the file that
`[peers.NAME]` names. Or it was issued by one of the authorities that the operator trusts. OpenSSL
verifies signatures and dates; `certified_peers` decides which queue manager a certificate
identifies.

One trap: OpenSSL has one set of trusted certificates per context. A pinned certificate that may
issue others would make its owner an authority. Therefore, without authorities, a certificate that
is not a pin is rejected. With authorities, `load_identity` rejects pins that may issue
certificates.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from lanner.model.errors import LannerError
from lanner.transfer.peers import Peer, as_peer
from lanner.transfer.settings import TransferSettings
from lanner.transfer.tls_errors import TlsError, words

# Others must have no access to a private key. Its group may read it, because Debian's ssl-cert
# stores keys in this way.
_FORBIDDEN: Final = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO
_UUID_PREFIX: Final = "urn:uuid:"
_PURPOSES: Final = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)


class TlsSettingsError(LannerError):
    """Raised if TLS cannot be set up; names the setting or file, and what to do."""


@dataclass(frozen=True, slots=True)
class Certification:
    """The contents of a peer's certificate, which OpenSSL has verified."""

    subject: str
    names: frozenset[str]  # its DNS names, in lower case
    guids: frozenset[UUID]  # its queue managers (urn:uuid:)
    not_valid_after: dt.datetime
    content: bytes  # the certificate in DER
    # The entries of the peers table that pin this certificate; without any, the DER form of the
    # authorities that have issued it.
    pinned: tuple[Peer, ...] = ()
    authorities: frozenset[bytes] = frozenset()

    def __str__(self) -> str:
        return f"certificate {self.subject}"


def certification_of(
    certificate: x509.Certificate, pinned: tuple[Peer, ...] = (), authorities: frozenset[bytes] = frozenset()
) -> Certification:
    """Return the contents of a certificate.

    Only the subject alternative names count as names.
    """
    names: list[str] = []
    guids: list[UUID] = []
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = alternatives.get_values_for_type(x509.DNSName)
        identifiers = alternatives.get_values_for_type(x509.UniformResourceIdentifier)
        guids = [UUID(text[len(_UUID_PREFIX) :]) for text in identifiers if text.lower().startswith(_UUID_PREFIX)]
    except x509.ExtensionNotFound:
        pass
    return Certification(
        certificate.subject.rfc4514_string(),
        frozenset(name.lower().rstrip(".") for name in names),
        frozenset(guids),
        certificate.not_valid_after_utc,
        certificate.public_bytes(Encoding.DER),
        pinned,
        authorities,
    )


class TlsIdentity:
    """The certificate of this queue manager, and the contexts that verify those of others."""

    def __init__(
        self,
        certificate: x509.Certificate,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        pins: Mapping[bytes, tuple[Peer, ...]],
        authorities: frozenset[bytes],
    ) -> None:
        self.certificate = certificate
        self.server = server
        self.client = client
        # By certificate, in DER.
        self._pins = pins
        self._authorities = authorities

    def certify(self, session: ssl.SSLObject | ssl.SSLSocket) -> Certification:
        """Return the contents of the peer's certificate.

        Raises TlsError if it is neither a pin nor issued by an authority.
        """
        content = session.getpeercert(binary_form=True)
        if content is None:
            raise TlsError("the peer has shown no certificate")
        try:
            pinned = self._pins.get(content, ())
            authorities = frozenset() if pinned else self._authorities
            found = certification_of(x509.load_der_x509_certificate(content), pinned, authorities)
        except ValueError as error:
            raise TlsError(f"the peer's certificate cannot be read: {error}") from None
        if not pinned and not authorities:
            raise TlsError(f"unknown {found}: no entry of [peers] has it, and transfer.tls_authorities is not set")
        return found

    def is_accepted(self, certification: Certification) -> bool:
        """Return whether a certificate is accepted now.

        It was accepted before, perhaps with another peers table or other authorities.
        """
        if certification.pinned:
            return certification.content in self._pins
        return certification.authorities == self._authorities

    def pins_of(self, name: str) -> list[Certification]:
        """Return the contents of a peer's pinned certificate; nothing if it has none."""
        return [
            certification_of(x509.load_der_x509_certificate(content), peers)
            for content, peers in self._pins.items()
            if any(peer.name.lower() == name.lower() for peer in peers)
        ]


def load_identity(settings: TransferSettings) -> TlsIdentity | None:
    """Read every TLS file in the settings; return None if TLS is off.

    Raises TlsSettingsError if a file cannot be used.
    """
    peers = [as_peer(name, value) for name, value in settings.peers.items()]
    if settings.tls_certificate is None or settings.tls_key is None:
        given = [name for name in ("tls_certificate", "tls_key", "tls_authorities") if getattr(settings, name)]
        if given:
            raise TlsSettingsError(
                f"{' and '.join(given)} alone: TLS needs both tls_certificate and tls_key; "
                "`lanner certificate make` makes them"
            )
        wanting = next((peer for peer in peers if peer.has_tls), None)
        if wanting is not None:
            raise TlsSettingsError(
                f"peers.{wanting.name} has TLS, which needs a certificate of this queue manager too: "
                "set transfer.tls_certificate and transfer.tls_key; `lanner certificate make` makes them"
            )
        return None
    certificate = _load_own(settings.tls_certificate, settings.tls_key)
    authorities = (
        [] if settings.tls_authorities is None else _read_certificates("tls_authorities", settings.tls_authorities)
    )
    pins: dict[bytes, tuple[Peer, ...]] = {}
    for peer in peers:
        if peer.certificate is not None:
            pin = _load_pin(peer, peer.certificate, has_authorities=bool(authorities))
            pins[pin] = (*pins.get(pin, ()), peer)
        elif peer.has_tls and not authorities:
            raise TlsSettingsError(
                f"peers.{peer.name}.tls needs transfer.tls_authorities, or a certificate of that peer "
                f"(peers.{peer.name}.certificate)"
            )
    issuers = frozenset(one.public_bytes(Encoding.DER) for one in authorities)
    server, client = (
        _context(protocol, settings.tls_certificate, settings.tls_key, [*pins, *issuers])
        for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    return TlsIdentity(certificate, server, client, pins, issuers)


def _context(protocol: int, certificate: Path, key: Path, trusted: list[bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # Every Lanner supports 1.3. It has no renegotiation and cannot be downgraded.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Names of computers are not host names: `certified_peers` compares them.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # A pin need not be self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        # A resumed session would not show its certificate again, which may have expired or is no
        # longer trusted.
        context.num_tickets = 0
    if trusted:
        context.load_verify_locations(cadata=b"".join(trusted))
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise TlsSettingsError(f"{certificate} and {key} cannot be used: {words(error)}") from error
    return context


def _load_own(certificate_file: Path, key_file: Path) -> x509.Certificate:
    """Return this queue manager's certificate, which must be valid now and match the key."""
    certificate = _read_certificates("tls_certificate", certificate_file)[0]
    where = f"tls_certificate: {certificate_file}"
    _check_dates(
        certificate, where, "make a new one with `lanner certificate make`, or have it renewed by its authority"
    )
    try:
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        pass
    except ValueError as error:
        raise TlsSettingsError(f"{where}: {error}") from None
    else:
        if not all(purpose in purposes for purpose in _PURPOSES):
            raise TlsSettingsError(
                f"{where} must be for servers and for clients (extended key usage serverAuth and clientAuth): "
                "queue managers are both"
            )
    content = _read_key(key_file)
    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        raise TlsSettingsError(
            f"tls_key: {key_file} is encrypted: nobody types a password when the service starts; "
            f"decrypt it (openssl pkey -in {key_file}) and keep it with mode 0600"
        ) from None
    except Exception as error:  # noqa: BLE001 (whatever the library calls it; nothing of a key may be quoted)
        raise TlsSettingsError(f"tls_key: {key_file} is no private key in PEM ({type(error).__name__})") from None
    own, of_key = (
        one.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for one in (certificate.public_key(), key.public_key())
    )
    if own != of_key:
        raise TlsSettingsError(f"tls_key: {key_file} is not the key of the certificate {certificate_file}")
    return certificate


def _read_key(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _FORBIDDEN:
                raise TlsSettingsError(
                    f"tls_key: {path} has mode {mode:04o}, and others may use the key: run chmod 600 {path}, "
                    "and make a new key if anybody may have read it"
                )
            return file.read()
    except OSError as error:
        raise TlsSettingsError(f"tls_key: {path}: {error.strerror}") from error


def _read_certificates(setting: str, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise TlsSettingsError(f"{setting}: {path}: {error.strerror}") from error
    except ValueError:
        raise TlsSettingsError(f"{setting}: {path} holds no certificate in PEM") from None


def _load_pin(peer: Peer, path: Path, *, has_authorities: bool) -> bytes:
    """Return the certificate of a peer, in DER."""
    setting = f"peers.{peer.name}.certificate"
    certificate = _read_certificates(setting, path)[0]
    try:
        said = certification_of(certificate)
    except ValueError as error:
        raise TlsSettingsError(f"{setting}: {path}: {error}") from None
    if peer.guid is not None and said.guids and peer.guid not in said.guids:
        raise TlsSettingsError(
            f"{setting}: {path} is the certificate of queue manager {', '.join(map(str, said.guids))}, "
            f"and peers.{peer.name}.guid is {peer.guid}"
        )
    if has_authorities and _may_issue(certificate):
        raise TlsSettingsError(
            f"{setting}: {path} may issue certificates (CA:TRUE): with transfer.tls_authorities set, "
            "its owner would be an authority too. Have another one made with `lanner certificate make`"
        )
    return certificate.public_bytes(Encoding.DER)


def _may_issue(certificate: x509.Certificate) -> bool:
    """Return whether OpenSSL might accept certificates that this one has signed.

    Only a certificate that explicitly forbids it counts as unable to.
    """
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return True


def _check_dates(certificate: x509.Certificate, where: str, advice: str) -> None:
    now = dt.datetime.now(dt.UTC)
    if now > certificate.not_valid_after_utc:
        raise TlsSettingsError(f"{where} expired on {certificate.not_valid_after_utc:%Y-%m-%d}: {advice}")
    if now < certificate.not_valid_before_utc:
        raise TlsSettingsError(
            f"{where} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: look at the "
            "clock of this computer"
        )


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint as `openssl x509 -fingerprint -sha256` writes it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()
