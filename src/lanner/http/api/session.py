"""The session of a browser, or of another program that keeps a cookie."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, SecretStr

from lanner.http.openapi import OPEN_TO_ALL
from lanner.http.problems import NotLoggedOn
from lanner.http.routes import SessionRoute
from lanner.http.sessions import CurrentSession, client_address, refuse_other_sites, sessions_of
from lanner.model.errors import AccessDenied

router = APIRouter(route_class=SessionRoute, tags=["session"])


class Secret(BaseModel):
    """A user's credentials."""

    model_config = ConfigDict(extra="forbid")

    user: str
    password: SecretStr


@router.post("/session", status_code=HTTPStatus.CREATED, openapi_extra=OPEN_TO_ALL)
async def log_on(request: Request, response: Response, secret: Secret) -> dict[str, Any]:
    """Log on: set the cookie, and return the session's CSRF token.

    Requests by cookie that change something must carry this token.
    """
    refuse_other_sites(request)
    given = {"user": secret.user, "password": secret.password.get_secret_value()}
    try:
        session = await sessions_of(request).log_on(response, given, client_address(request))
    except AccessDenied as error:
        raise NotLoggedOn(str(error.args[0])) from error
    return {**session.who, "csrf_token": session.csrf}


@router.delete("/session", status_code=HTTPStatus.NO_CONTENT)
async def log_off(request: Request, session: CurrentSession) -> Response:
    """Log off."""
    del session
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    await sessions_of(request).log_off(request, response)
    return response
