"""`lanner certificate`: users' certificates, and the one for TLS between queue managers.

Users' certificates serve to verify the signatures of messages.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.cli.errors import CommandError, nothing
from lanner.cli.options import DEFAULT_DATA, Data, DryRun, Json, Yes
from lanner.cli.output import confirm, say, show_fields, show_table, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.client import QueueManager
from lanner.client.runtimes import is_embedded, runtime_of
from lanner.security.private_files import write_private
from lanner.security.tls_certificates import make_tls_certificate
from lanner.transfer.tls import certification_of, fingerprint

app = typer.Typer(
    help="Certificates: of users who sign messages, and of TLS between queue managers.", no_args_is_help=True
)

# These files are in the data directory.
CERTIFICATE_FILE = "tls-certificate.pem"
KEY_FILE = "tls-key.pem"
_DEFAULT_DAYS = 730
# Digits of a fingerprint in a table; `remove` accepts any unique prefix.
_SHORT = 16


@app.command()
def make(
    *,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long it is valid.")] = _DEFAULT_DAYS,
    host_name: Annotated[
        list[str] | None, typer.Option("--host-name", help="A further name of this computer; may be repeated.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", help="The certificate file.", show_default=f"{CERTIFICATE_FILE} in the data directory"
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The file of its private key.", show_default=f"{KEY_FILE} in the data directory"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Make a key and a self-signed certificate for this queue manager.

    The queue manager may be running.
    """
    certificate = certificate or data / CERTIFICATE_FILE
    key = key or data / KEY_FILE
    taken = [str(path) for path in (certificate, key) if path.exists()]
    if taken and not force:
        raise CommandError(
            f"{' and '.join(taken)} exists: --force replaces it, and then every peer needs the new certificate"
        )
    with open_manager(Place(data)) as manager:
        names, identifier = _names(manager), manager.identifier
    if identifier is None:
        raise CommandError(f"the queue manager of {data} did not report its identifier")
    made = make_tls_certificate(
        [*names, *(host_name or ())], identifier, dt.datetime.now(dt.UTC), dt.timedelta(days=days)
    )
    # If root makes the files, the service must be able to read them.
    found = data.stat()
    owner = (found.st_uid, found.st_gid) if os.geteuid() == 0 else None
    write_private(key, made.private_key, owner=owner)
    write_private(certificate, made.certificate, mode=0o644, owner=owner)
    document = _document(certificate) | {"key": str(key)}
    if json:
        write_json(document)
        return
    _show(document)
    say("")
    say("Set it in this queue manager's settings, and restart it:")
    say("  [transfer]")
    say(f'  tls_certificate = "{certificate.absolute()}"')
    say(f'  tls_key = "{key.absolute()}"')
    say("")
    say(f"Copy {certificate} (not the key) to the peers, and name it in their settings:")
    say(f"  [peers.{names[0]}]")
    say('  addresses = ["ADDRESS OF THIS COMPUTER"]')
    say(f'  guid = "{identifier}"')
    say(f'  certificate = "/etc/lanner/{names[0].lower()}.pem"')


def _names(manager: QueueManager) -> list[str]:
    """Return the computer name, alone and with its domain."""
    if is_embedded(manager):
        qualified = runtime_of(manager).engine.queue_manager.qualified_computer_name
    else:
        qualified = manager.status()["qualified_name"]
    return list(dict.fromkeys([manager.name, qualified]))


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate in PEM.", show_default=False)],
    *,
    json: Json = False,
) -> None:
    """Show the owner of a certificate, its validity, and its fingerprint."""
    document = _document(file)
    if json:
        write_json(document)
    else:
        _show(document)


def _document(file: Path) -> dict[str, object]:
    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
        said = certification_of(found)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    except ValueError:
        raise CommandError(f"{file} holds no certificate in PEM") from None
    return {
        "certificate": str(file),
        "subject": said.subject,
        "names": sorted(said.names),
        "queue_managers": sorted(map(str, said.guids)),
        "not_valid_before": found.not_valid_before_utc.isoformat(),
        "not_valid_after": found.not_valid_after_utc.isoformat(),
        "sha256": fingerprint(found),
    }


def _show(document: dict[str, object]) -> None:
    show_fields(
        [
            (name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in document.items()
        ]
    )


# Certificates of users
# --------------------------------------------------------------------------------------------------


@app.command("list")
@reaching
def list_certificates(*, at: Place, json: Json = False) -> None:
    """List the certificates of users, which attribute signed messages to them."""
    with open_manager(at) as manager:
        documents = manager.certificates()
    if json:
        for document in documents:
            write_json(document)
        return
    if not documents:
        raise nothing("no certificate is registered; `lanner certificate add NAME FILE` registers one")
    rows = [
        (
            one["user"],
            one["subject"],
            one["not_valid_after"][:10],
            one["sha256"][:_SHORT],
        )
        for one in documents
    ]
    show_table([(title, False) for title in ("USER", "SUBJECT", "UNTIL", "SHA256")], rows)


@app.command()
@reaching
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="X.509, in DER or PEM.", show_default=False)],
    *,
    at: Place,
    json: Json = False,
) -> None:
    """Register a user's certificate, so that messages it signs are attributed to the user."""
    found = read_certificate(file)
    with open_manager(at) as manager:
        sid = next((one["sid"] for one in manager.users() if one["name"].casefold() == name.casefold()), None)
        if sid is None:
            raise CommandError(f"there is no user {name}; `lanner user list` shows them")
        manager.register_certificate(found.public_bytes(Encoding.PEM).decode(), sid)
    document = {
        "name": name,
        "subject": found.subject.rfc4514_string(),
        "not_valid_after": found.not_valid_after_utc.isoformat(),
        "sha256": found.fingerprint(hashes.SHA256()).hex(),
    }
    if json:
        write_json(document)
    else:
        say(f"the certificate {document['subject']} of {name} is registered")


@app.command()
@reaching
def remove(
    sha256: Annotated[
        str,
        typer.Argument(metavar="SHA256", help="Its fingerprint, or the beginning of it.", show_default=False),
    ],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """Remove a user's certificate.

    Messages that it signs are then no longer attributed to the user.
    """
    with open_manager(at) as manager:
        wanted = sha256.lower().replace(":", "")
        found = [one for one in manager.certificates() if one["sha256"].startswith(wanted)]
        if len(found) != 1:
            which = "no certificate has" if not found else f"{len(found)} certificates have"
            raise CommandError(f"{which} the fingerprint {sha256}; `lanner certificate list` shows them")
        document = found[0]
        if not dry_run:
            confirm(f"Remove the certificate {document['subject']} of {document['user']}?", yes=yes)
            manager.remove_certificate(document["sha256"])
    if json:
        write_json(document | {"dry_run": dry_run})
    else:
        say(f"{'would remove' if dry_run else 'removed'} the certificate {document['subject']} of {document['user']}")


def read_certificate(file: Path) -> x509.Certificate:
    """Return the certificate in a file, in DER or PEM."""
    try:
        content = file.read_bytes()
        is_pem = content.lstrip().startswith(b"-----BEGIN")
        return x509.load_pem_x509_certificate(content) if is_pem else x509.load_der_x509_certificate(content)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    except ValueError:
        raise CommandError(f"{file} is no X.509 certificate in DER or PEM") from None
