"""The visitor as a dependency of every page, and error pages in place of problem documents."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from lanner.http.console.page import Visitor, explain, plain_page, render, url
from lanner.http.console.samples import Sampler
from lanner.http.problems import Forbidden, NotLoggedOn, http_status
from lanner.http.routes import SessionRoute
from lanner.http.sessions import CurrentSession, UserSession, sessions_of
from lanner.model.errors import LannerError, StatusError


def visitor_of(session: UserSession) -> Visitor:
    """Return the visitor of a session, always the same object."""
    if not isinstance(session.visit, Visitor):
        manager = session.manager
        who = session.who
        session.visit = Visitor(
            manager, str(who["user"]), str(who["role"]), bool(who["sees_all"]), session.csrf, Sampler(manager)
        )
    return session.visit


async def _visitor(session: CurrentSession) -> Visitor:
    return visitor_of(session)


# The visitor who makes a request. For changes, `CurrentSession` has checked the CSRF token.
Looking = Annotated[Visitor, Depends(_visitor)]


class PageRoute(SessionRoute):
    """A route that shows errors as pages, and redirects to the log-on if needed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except NotLoggedOn:
                asked = str(request.url.path)
                if request.url.query:
                    asked = f"{asked}?{request.url.query}"
                return RedirectResponse(url("/login", next=asked if request.method == "GET" else "/"), 303)
            except StatusError as error:
                text, status = explain(error)
                return await _problem(request, http_status(error), text, status)
            except Forbidden as error:
                return await _problem(request, 403, f"{error}. Open the page again and repeat the action.", "")
            except RequestValidationError as error:
                wrong = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
                return await _problem(request, 400, wrong, "")
            except HTTPException as error:
                return await _problem(request, error.status_code, error.detail, "")

        return answer


async def no_page(request: Request, error: Exception) -> Response:
    """Return the page for an address that has none, or whose page only a button opens."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        text = f"{path} needs what a form sends. Begin again with the button that leads there."
    else:
        text = f"There is nothing at {path}. The pages of this console are in the menu."
    return await _problem(request, error.status_code, text, "", title="No such page", back="/")


async def _problem(
    request: Request, status: int, text: str, name: str, *, title: str = "That did not work", back: str | None = None
) -> Response:
    """Return the page that explains what failed, and why."""
    session = sessions_of(request).of_browser(request)
    if session is None:
        return plain_page("logon.html", status=status, error=text, next="/", user="", manager_name="")
    try:
        return await render(
            request,
            visitor_of(session),
            "problem.html",
            status=status,
            title=title,
            text=text,
            status_text=name,
            back=back or (request.url.path if request.method == "GET" else "/"),
        )
    except LannerError:
        # The queue manager does not even answer for the frame of the page.
        return plain_page("logon.html", status=status, error=text, next="/", user="", manager_name="")
