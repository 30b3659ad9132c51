"""The machine of a run, and the memory of a process."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from pathlib import Path

import lmdb

import lanner


def load_average() -> str:
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


def filesystem(path: Path) -> str:
    """Return the type, device and mount point of the filesystem that holds a path."""
    resolved = path.resolve()
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    holding = [mount for mount in mounts if resolved.is_relative_to(mount[1])]
    device, point, kind = max(holding, key=lambda mount: len(mount[1]))
    return f"{kind} ({device} on {point})"


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def facts(directory: Path) -> dict[str, str]:
    """Return what a reader must know to judge the figures."""
    lmdb_version = ".".join(str(part) for part in lmdb.version())
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {cpu_model()}, Linux {platform.release()}",
        "data directory": filesystem(directory),
        "load average before": load_average(),
        "Python": f"{platform.python_version()}, uvloop {importlib.metadata.version('uvloop')}",
        "Lanner": f"{lanner.__version__}, LMDB {lmdb_version}",
    }


def memory(pid: int | str = "self") -> dict[str, float]:
    """Return VmRSS, RssAnon and RssFile of a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssFile")}
