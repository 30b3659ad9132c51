"""The OpenAPI document: what FastAPI cannot derive from the routes.

It adds how to log on and what an error looks like, so that a generated client can do both.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from lanner.http.problems import MEDIA_TYPE
from lanner.http.sessions import COOKIE, CSRF_HEADER

_LOG_ONS: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of `POST tokens` or `lanner token create`."},
    "password": {"type": "http", "scheme": "basic", "description": "A user of the queue manager."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"The cookie of `POST session`. A request that changes something also needs the header "
        f"{CSRF_HEADER}.",
    },
}
_PROBLEM: Final = {
    "type": "object",
    "title": "Problem",
    "description": "An error, as RFC 9457 defines it, with MSMQ's status.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "`urn:msmq:` and MSMQ's status, or `about:blank`."},
        "title": {"type": "string", "description": "The name of the error, such as `QueueNotFound`."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What happened, to which object."},
        "msmq_status": {"type": "string", "description": "MSMQ's status, such as `0xc00e0003`."},
        "errors": {
            "type": "array",
            "description": "The arguments that do not fit the route.",
            "items": {
                "type": "object",
                "required": ["where", "what"],
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
}
# What every route may answer, for `APIRouter(responses=...)`.
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "A problem",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
# For routes that need no log-on, as their `openapi_extra`.
OPEN_TO_ALL: Final[dict[str, Any]] = {"security": []}


class DescribedApplication(FastAPI):
    """An application whose description has the log-ons and the problems."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            components = document.setdefault("components", {})
            components.setdefault("schemas", {})["Problem"] = _PROBLEM
            components["securitySchemes"] = _LOG_ONS
            document["security"] = [{name: []} for name in _LOG_ONS]
        return super().openapi()
