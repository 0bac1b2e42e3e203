"""`penstock run` and `penstock ctl` as other programs use them: processes, signals, exit codes, stdout and stderr."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

SCRIPT = """
CREATE STREAM a (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM csv OPTIONS (path 'in', header true, maxFilesPerTrigger 1);
CREATE SINK copies TO parquet OPTIONS (path 'out/copies');
INSERT INTO copies SELECT k FROM a [NOW];
"""
PENSTOCK = (sys.executable, "-m", "penstock")
LIMIT = 300  # seconds
SHORT_RUN = ("--cells", "2", "--conf", "spark.driver.extraJavaOptions=-XX:+UseParallelGC -XX:TieredStopAtLevel=1")
"""Settings with which Java starts sooner."""


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.1)


def write_rows(folder: Path, number: int) -> None:
    """A file of two rows; `k` counts the rows of all files."""
    rows = "".join(f"{number * 10 + i},{number * 2 + i}\n" for i in range(2))
    hidden = folder / "in" / f".{number}.csv"
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("ts,k\n" + rows)
    hidden.rename(folder / "in" / f"{number}.csv")


def read_column(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder).column("k").to_pylist()) if list(folder.glob("*.parquet")) else []


def penstock(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run the command and return its stdout; stderr never has a traceback."""
    done = subprocess.run(
        [*PENSTOCK, *arguments], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "java." not in done.stderr
    return done.stdout or done.stderr


@contextmanager
def start_penstock(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a group of its own, as a shell starts it; stderr goes to a file."""
    with (folder / "stderr.txt").open("w") as file:
        process = subprocess.Popen([*PENSTOCK, *arguments], cwd=folder, stderr=file, text=True, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "copy.cql").write_text(SCRIPT)
    write_rows(tmp_path, 0)
    return tmp_path


def test_changes_interrupt_and_continuation(folder: Path) -> None:
    """A run is changed by other processes, interrupted by Ctrl-C, and continued by the command that it prints."""

    def ctl(*arguments: str, code: int = 0) -> Any:
        return json.loads(penstock(folder, "ctl", "ck", *arguments, "--json", code=code))

    copies, odd = folder / "out" / "copies", folder / "out" / "odd"
    with start_penstock(folder, "run", "copy.cql", "--checkpoint", "ck", *SHORT_RUN, "-v") as run:
        wait_until(lambda: read_column(copies) == [0, 1])
        status = ctl("status")
        assert status["queries"]["copies"]["rows"] == 2
        assert status["queries"]["copies"]["sink"] == f"parquet files in {folder}/out/copies"
        assert set(status["streams"]["a"]) == {"late", "dead", "frontier", "lagSeconds"}
        (folder / "odd.cql").write_text(
            "CREATE SINK odd TO parquet OPTIONS (path 'out/odd');INSERT INTO odd SELECT k FROM a [NOW] WHERE k % 2 = 1;"
        )
        assert ctl("add", "odd.cql") == {"added": ["odd"]}
        assert ctl("add", "odd.cql", code=2)["error"]["class"] == "DUPLICATE_NAME"
        assert ctl("alter", "copies", "SELECT ts FROM a [NOW]", code=2)["error"]["class"] == "COLUMNS_DIFFER"
        assert ctl("migrate", "nothing", "(a)", code=2)["error"]["class"] == "UNKNOWN_QUERY"
        write_rows(folder, 1)
        wait_until(lambda: read_column(odd) == [3])
        assert ctl("alter", "odd", "SELECT k + 100 AS k FROM a [NOW] WHERE k % 2 = 1") == {"altered": "odd"}
        write_rows(folder, 2)
        wait_until(lambda: read_column(odd) == [3, 105])
        assert ctl("drop", "odd") == {"dropped": "odd"}
        assert list(ctl("status")["queries"]) == ["copies"]
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(LIMIT) == 130
    said = (folder / "stderr.txt").read_text()
    assert "Traceback" not in said
    assert "java." not in said
    assert "INFO penstock.spark" in said
    assert f"copies: 6 results, parquet files in {folder}/out/copies" in said
    (command,) = (line for line in said.splitlines() if line.startswith("continue with: "))
    words = shlex.split(command.removeprefix("continue with: "))
    assert words[0] == "penstock"
    assert ctl("status", code=2)["error"]["class"] == "NO_ACTIVE_RUN"

    write_rows(folder, 3)
    summary = json.loads(penstock(folder, *words[1:], "--once", "--json"))
    assert summary["outcome"] == "completed"
    sink = f"parquet files in {folder}/out/copies"
    assert summary["queries"] == {"copies": {"rows": 2, "sink": sink, "error": None}}
    assert summary["inputRows"] == 2
    assert read_column(copies) == list(range(8))


def test_used_folder_is_refused_before_start(folder: Path) -> None:
    (folder / "out" / "copies").mkdir(parents=True)
    (folder / "out" / "copies" / "part-0.parquet").write_bytes(b"")
    said = penstock(folder, "run", "copy.cql", "--once", code=2)
    assert "starting Spark" not in said
    assert all(way in said for way in ("[FOLDER_IN_USE]", "out/copies", "--append", "--overwrite", "--checkpoint"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_second_signal_ends_process_at_once(number: int, code: int) -> None:
    program = (
        "import time\n"
        "from penstock.cli.interrupts import note_signals\n"
        "with note_signals() as signals:\n"
        "    print('ready', flush=True)\n"
        "    while not signals.sleep(0.05):\n"
        "        pass\n"
        "    print('noted', signals.exit_code, flush=True)\n"
        "    time.sleep(1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == f"noted {code}\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == code
    assert said == "\nstopped at once\n"


def test_interrupted_command_has_no_traceback(tmp_path: Path) -> None:
    with start_penstock(tmp_path, "demo", "--embedded") as process:
        wait_until(lambda: _reads_signals(process.pid))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT) == 130
    assert (tmp_path / "stderr.txt").read_text().strip() == "interrupted"


def _reads_signals(pid: int) -> bool:
    """Whether a process catches SIGTERM."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_help_loads_no_slow_package() -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom penstock.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print([name for name in ('pyspark', 'numba', 'pyarrow', 'sqlglot', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_completion_for_bash() -> None:
    """The script that --show-completion prints, and the words that it offers."""
    environment = {**os.environ, "_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock re", "COMP_CWORD": "1"}
    done = subprocess.run(PENSTOCK, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["rescale"]
    environment = {**os.environ, "_PENSTOCK_COMPLETE": "source_bash"}
    done = subprocess.run(PENSTOCK, env=environment, capture_output=True, text=True, check=False)
    assert "complete -o default -F" in done.stdout
