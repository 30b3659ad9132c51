"""Errors as problem documents (RFC 9457), with MSMQ's status and the text of the Python API."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from lanner.model import errors
from lanner.security.log_lines import log_of_peer

_LOG = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"


class AsciiJson(JSONResponse):
    """JSON in ASCII, because labels and names may contain lone surrogates.

    JSON has escapes for these. UTF-8 cannot encode them, so one label would fail the whole answer.
    """

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


# The status is chosen by what the client can do about the error; all others are bad requests.
_HTTP_STATUS: Final[dict[type[errors.LannerError], HTTPStatus]] = {
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.QueueNotFound: HTTPStatus.NOT_FOUND,
    errors.MessageNotFound: HTTPStatus.NOT_FOUND,
    errors.QueueExists: HTTPStatus.CONFLICT,
    errors.SharingViolation: HTTPStatus.CONFLICT,
    errors.IOTimeout: HTTPStatus.NOT_FOUND,
    errors.InsufficientResources: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ServiceNotAvailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.RemoteMachineNotAvailable: HTTPStatus.BAD_GATEWAY,
    errors.InvalidHandle: HTTPStatus.UNAUTHORIZED,
    errors.GenericError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.UnsupportedOperation: HTTPStatus.NOT_IMPLEMENTED,
}


class NotLoggedOn(Exception):
    """A request without valid credentials."""


class Forbidden(Exception):
    """A request that the user cannot have intended, or that exceeds a limit of sessions."""


def http_status(error: errors.StatusError) -> HTTPStatus:
    """Return the HTTP status for one of MSMQ."""
    return next((status for kind, status in _HTTP_STATUS.items() if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)


def problem(
    status: int, title: str, detail: str, headers: Mapping[str, str] | None = None, **members: object
) -> JSONResponse:
    """Return the response for a problem."""
    document: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    return AsciiJson(document, status, headers, MEDIA_TYPE)


async def status_problem(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error of the queue manager."""
    del request
    if not isinstance(error, errors.StatusError):
        raise error
    status, name = http_status(error), type(error).__name__
    number = f"{error.status & 0xFFFF_FFFF:#010x}"
    headers = _CHALLENGE if status is HTTPStatus.UNAUTHORIZED else None
    return problem(status, name, str(error.args[0]), headers, type=f"urn:msmq:{number}", msmq_status=number)


_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="lanner"'}


async def not_logged_on(request: Request, error: Exception) -> JSONResponse:
    del request
    return problem(HTTPStatus.UNAUTHORIZED, "Unauthorized", str(error), _CHALLENGE)


async def forbidden(request: Request, error: Exception) -> JSONResponse:
    del request
    return problem(HTTPStatus.FORBIDDEN, "Forbidden", str(error))


async def http_problem(request: Request, error: Exception) -> JSONResponse:
    """Return the response for a route or a method that does not exist."""
    if not isinstance(error, HTTPException):
        raise error
    title = HTTPStatus(error.status_code).phrase
    return problem(error.status_code, title, f"{request.method} {request.url.path}: {error.detail}", error.headers)


async def invalid(request: Request, error: Exception) -> JSONResponse:
    """Return the response for arguments that do not fit the route."""
    if not isinstance(error, RequestValidationError):
        raise error
    wrong = [_wrong(request, one) for one in error.errors()]
    detail = "; ".join(f"{one['where']}: {one['what']}" for one in wrong)
    return problem(HTTPStatus.BAD_REQUEST, "InvalidParameter", detail, errors=wrong)


def _wrong(request: Request, error: Mapping[str, Any]) -> dict[str, str]:
    """Return where an argument is, and what is wrong with it."""
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "json_invalid":
        return {"where": f"body, character {error['loc'][-1]}", "what": f"not JSON: {error['ctx']['error']}"}
    if where == "body" and error["type"] == "model_attributes_type":
        given = request.headers.get("content-type", "none")
        return {"where": where, "what": f"a JSON object, with Content-Type: application/json (here: {given})"}
    return {"where": where, "what": error["msg"]}


async def failed(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an internal error, and log it."""
    peer = "" if request.client is None else request.client.host
    log_of_peer(_LOG, logging.ERROR, "failed", peer, "%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__, "a fault of Lanner: its log shows where")


async def too_slow(request: Request, error: Exception) -> JSONResponse:
    del request, error
    return problem(HTTPStatus.REQUEST_TIMEOUT, "Request Timeout", "the request was not completed in time")
