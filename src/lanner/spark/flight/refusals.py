"""Lanner's errors as Flight errors: class, status and text in `extra_info`."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.flight as fl

from lanner.model.errors import AccessDenied, LannerError, ServiceNotAvailable
from lanner.security.log_lines import log_of_peer
from lanner.spark.flight.errors import NotAuthenticated, TooBusy

__all__ = ["refusal", "refused", "told"]

_LOG: Final = logging.getLogger(__name__)
# Not in the specification: characters of a text. It may quote what a client sent, and gRPC allows
# 16 KiB for all of an error.
_MAX_TEXT: Final = 1000


def refusal(error: LannerError) -> bytes:
    """Return the machine-readable form of an error: its class, text, and status if it has one."""
    status = getattr(error, "status", None)
    text = str(error.args[0])[:_MAX_TEXT]
    return json.dumps({"error": type(error).__name__, "status": status, "message": text}).encode()


def refused(error: LannerError) -> fl.FlightError:
    """Return the Flight error for an error of Lanner."""
    text, extra = str(error)[:_MAX_TEXT], refusal(error)
    if isinstance(error, AccessDenied):
        return fl.FlightUnauthorizedError(text, extra)
    if isinstance(error, NotAuthenticated):
        return fl.FlightUnauthenticatedError(text, extra)
    if isinstance(error, (TooBusy, ServiceNotAvailable)):
        return fl.FlightUnavailableError(text, extra)
    return fl.FlightServerError(text, extra)


@contextlib.contextmanager
def told(peer: str = "") -> Iterator[None]:
    """Raise errors as Flight errors.

    An internal error is logged, and the caller gets no details.
    """
    try:
        yield
    except LannerError as error:
        raise refused(error) from None
    except (fl.FlightError, pa.ArrowCancelled):
        raise
    except pa.ArrowException as error:
        # The caller's stream broke off, or is not an Arrow stream.
        raise fl.FlightServerError(f"the stream cannot be read: {error}") from None
    except Exception as error:  # noqa: BLE001 (logged)
        log_of_peer(_LOG, logging.ERROR, "failed", peer, "a Flight call failed", exc_info=True)
        raise fl.FlightInternalError(f"{type(error).__name__} in the queue manager: see its log") from None
