"""Certificates of users, for verifying signatures. For administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager

router = APIRouter(route_class=SessionRoute, tags=["certificates"])


class NewCertificate(BaseModel):
    """A certificate in PEM and its user's SID; without one, that of the user who registers it."""

    model_config = ConfigDict(extra="forbid")

    certificate: str
    sid: str | None = None


@router.get("/certificates")
async def certificates(qm: Manager) -> list[dict[str, Any]]:
    """The registered certificates: user, subject, validity, fingerprint."""
    return await qm.certificates()


@router.post("/certificates", status_code=HTTPStatus.NO_CONTENT)
async def add(qm: Manager, new: NewCertificate) -> Response:
    """Register a user's certificate, so that messages it signs are attributed to the user."""
    await qm.register_certificate(new.certificate, new.sid)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.delete("/certificates/{sha256}", status_code=HTTPStatus.NO_CONTENT)
async def remove(qm: Manager, sha256: str) -> Response:
    """Remove a certificate by its fingerprint, or by a unique prefix of it."""
    await qm.remove_certificate(sha256)
    return Response(status_code=HTTPStatus.NO_CONTENT)
