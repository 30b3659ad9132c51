"""The build hook of the wheel: compiles lanner._native where that is possible.

The extension is optional. Without a compiler, without Python's headers, or with LANNER_NO_NATIVE
set, the wheel is pure and Lanner uses the functions in Python (src/lanner/native.py). An editable
install gets the extension beside the sources.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "native/lanner_native.c"
MODULE = "lanner/_native.abi3.so"
# The oldest Python that the limited API of the extension serves.
TAG = "cp311-abi3"
FLAGS = ("-O2", "-fPIC", "-shared", "-std=c11", "-Wall", "-Wextra", "-Wno-cast-function-type")


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration is hatchling's own
    """Adds the compiled module to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the extension, and have it packed unless the install is editable."""
        root = Path(self.root)
        is_editable = version == "editable"
        target = root / ("src" if is_editable else "build/native") / MODULE
        target.unlink(missing_ok=True)
        if reason := self._obstacle() or self._compile(root / SOURCE, target):
            self.app.display_warning(f"lanner._native is not built, the functions in Python are used: {reason}")
            return
        if not is_editable:
            build_data["force_include"][str(target)] = MODULE
            build_data["pure_python"] = False
            build_data["tag"] = f"{TAG}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    @staticmethod
    def _obstacle() -> str | None:
        """Return why nothing is compiled here; None if it can be tried."""
        if os.environ.get("LANNER_NO_NATIVE"):
            return "LANNER_NO_NATIVE is set"
        if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return "this Python has no stable ABI"
        if not sys.platform.startswith("linux"):
            return f"{sys.platform} is not Linux"
        return None

    @staticmethod
    def _compile(source: Path, target: Path) -> str | None:
        """Compile the extension. Return what went wrong, None if nothing did."""
        target.parent.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CC", "gcc"))
        # A new file that takes the place of the old one: a running process may have that mapped.
        made = target.with_suffix(f".{os.getpid()}.tmp")
        include = f"-I{sysconfig.get_path('include')}"
        command = [*compiler, *FLAGS, include, str(source), "-o", str(made)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (fixed arguments)
        except OSError as error:
            return f"{compiler[0]} cannot be run: {error}"
        if result.returncode:
            made.unlink(missing_ok=True)
            return result.stderr.strip().partition("\n")[0] or f"{compiler[0]} ended with {result.returncode}"
        made.replace(target)
        return None
