"""Reports of the data pipeline: the list, and each as a page of its own.

A report is a page with a script, and its data comes from messages. The browser shows it in a
sandbox without an origin, so that nothing in it can reach the console, whatever script it runs.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from lanner.http.console.page import explain, render
from lanner.http.console.visiting import Looking, PageRoute
from lanner.model.errors import AccessDenied, UnsupportedOperation

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)


@router.get("/reports")
async def reports(request: Request, visitor: Looking) -> Response:
    rows, missing = [], None
    try:
        rows = await visitor.manager.reports()
    except AccessDenied as error:
        heading = "Reports are for administrators"
        return await render(request, visitor, "denied.html", status=403, heading=heading, text=str(error))
    except UnsupportedOperation as error:
        missing = explain(error)[0]
    return await render(request, visitor, "reports.html", rows=rows, missing=missing)


@router.get("/reports/{name}")
async def report(visitor: Looking, name: str) -> Response:
    content = await visitor.manager.report(name)
    return Response(content, headers={"Content-Security-Policy": _POLICY}, media_type="text/html; charset=utf-8")
