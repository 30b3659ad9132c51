"""The application: routes, error handlers and guards combined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import lanner
from lanner.http import problems
from lanner.http.api import router as api
from lanner.http.console import no_page
from lanner.http.console import router as console
from lanner.http.guards import Guards
from lanner.http.openapi import DescribedApplication
from lanner.http.sessions import Sessions
from lanner.model.errors import StatusError

if TYPE_CHECKING:
    from lanner.http.log_ons import LogOns


async def _not_served(request: Request, error: Exception) -> Response:
    """Return the answer for a route or a method that does not exist: to a person, a page."""
    return await (problems.http_problem if request.url.path.startswith("/api/") else no_page)(request, error)


def create_app(
    log_ons: LogOns, hosts: Iterable[str] = (), *, session_timeout: float = 1800.0, is_tls: bool = False
) -> FastAPI:
    """Return the application.

    `hosts`: the names and addresses of this computer that browsers may use.
    """
    app = DescribedApplication(
        title="Lanner",
        description="Queues, messages and their administration. The rights are those of the user who asks.",
        version=lanner.__version__,
        openapi_url="/api/openapi.json",
        # These pages would load scripts from other sites.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=problems.AsciiJson,
    )
    sessions = app.state.sessions = Sessions(log_ons, session_timeout, is_secure=is_tls)
    app.include_router(api, prefix="/api/v1")
    app.include_router(console)
    for kind, handler in (
        (StatusError, problems.status_problem),
        (problems.NotLoggedOn, problems.not_logged_on),
        (problems.Forbidden, problems.forbidden),
        (TimeoutError, problems.too_slow),
        (HTTPException, _not_served),
        (RequestValidationError, problems.invalid),
        (Exception, problems.failed),
    ):
        app.add_exception_handler(kind, handler)
    app.add_middleware(Guards, hosts=list(hosts), knows=sessions.knows, is_tls=is_tls)
    return app
