"""Body types that hold text (VARENUM of MS-OAUT 2.2.7): what Windows programs write into BodyType."""

from __future__ import annotations

from typing import Final

VT_BSTR: Final = 8
VT_LPSTR: Final = 30
VT_LPWSTR: Final = 31
# How the text is written; a VT_BSTR body has no length prefix.
TEXT_BODIES: Final = {VT_BSTR: "utf-16-le", VT_LPSTR: "latin-1", VT_LPWSTR: "utf-16-le"}
