"""The command line: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.core import TyperArgument, TyperOption
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.errors import InternalError
from penstock.lab import LABS
from penstock.plan import ExplainNode, draw_svg
from penstock.progress import show_progress

ROOT = Path(__file__).parents[2]
SCRIPT = """
CREATE STREAM temperature (ts TIMESTAMP, location INT, value DOUBLE)
    TIMESTAMP BY ts LATENESS 5 SECONDS FROM parquet OPTIONS (path 'data/temperature');
CREATE STREAM humidity (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts FROM parquet OPTIONS (path 'h');
CREATE TABLE rooms (location INT, name STRING) FROM csv OPTIONS (path 'rooms.csv', header true);
CREATE SINK alarms TO parquet OPTIONS (path 'out/alarms');
INSERT INTO alarms
SELECT t.location, t.value, h.value AS humidity
FROM temperature [RANGE 5 MINUTES] AS t, humidity [ROWS 1000] AS h, rooms AS r
WHERE t.location = h.location AND t.location = r.location AND t.value > 40;
SELECT location FROM humidity [NOW];
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "alarms.cql"
    path.write_text(SCRIPT)
    return path


def penstock(*arguments: object) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_check_lists_declarations(script: Path) -> None:
    result = penstock("check", script)
    assert result.exit_code == 0, result.stderr
    for kind, name in [
        ("stream", "temperature"),
        ("stream", "humidity"),
        ("table", "rooms"),
        ("sink", "alarms"),
        ("query", "alarms"),
        ("query", "query"),
    ]:
        assert re.search(rf"{kind}\W+{name}\W", result.stdout), result.stdout


def test_check_shows_error_position(script: Path) -> None:
    script.write_text(SCRIPT.replace("t.value > 40", "t.vaule > 40"))
    result = penstock("check", script)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "vaule" in result.stderr
    assert "^" in result.stderr
    assert "location" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("TO paper OPTIONS (path 'out')", "no format paper; known are parquet"),
        ("TO parquet OPTIONS (folder 'out')", "parquet takes the options path"),
        ("TO kafka OPTIONS (topic 'out')", "kafka takes the options kafka.bootstrap.servers, topic, key"),
    ],
)
def test_check_and_run_validate_sinks(script: Path, sink: str, said: str) -> None:
    script.write_text(SCRIPT.replace("TO parquet OPTIONS (path 'out/alarms')", sink))
    for command in ("check", "run"):
        result = penstock(command, script)
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stderr.endswith(" " + "^" * len(sink.removeprefix("TO ")) + "\n")
        assert "(line " in result.stderr


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"], ids=["empty", "not text"])
def test_check_unreadable_script(script: Path, content: bytes) -> None:
    script.write_bytes(content)
    result = penstock("check", script)
    assert result.exit_code == 2
    assert "alarms.cql" in result.stderr


def test_check_missing_script(tmp_path: Path) -> None:
    assert penstock("check", tmp_path / "nowhere.cql").exit_code == 2


@pytest.mark.parametrize(("form", "sign"), [("text", "temperature"), ("mermaid", "-->"), ("svg", "<svg")])
def test_explain_shows_every_plan(script: Path, form: str, sign: str) -> None:
    result = penstock("explain", script, "--format", form)
    assert result.exit_code == 0, result.stderr
    assert sign in result.stdout
    if form == "svg":
        words = "".join(ET.fromstring(result.stdout).itertext())
        assert all(word in words for word in ("alarms", "temperature", "humidity", "rooms"))


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ("CREATE STREAM hot AS SELECT value FROM temperature [NOW]; SELECT value FROM hot;", "stream hot"),
        ("SELECT DISTINCT location FROM humidity [NOW];", "distinct"),
    ],
)
def test_explain_shows_operators_above_joins(script: Path, last: str, shown: str) -> None:
    script.write_text(SCRIPT + last)
    result = penstock("explain", script)
    assert result.exit_code == 0, result.stderr
    assert shown in result.stdout.casefold()


def test_explain_shows_state_table(script: Path) -> None:
    result = penstock("explain", script, "--table")
    assert result.exit_code == 0, result.stderr
    assert "alarms: join" in result.stdout


def test_explain_refuses_script_without_queries(script: Path) -> None:
    script.write_text(SCRIPT[: SCRIPT.index("INSERT")])
    assert penstock("explain", script).exit_code == 2


def test_explain_refuses_unknown_format(script: Path) -> None:
    assert penstock("explain", script, "--format", "png").exit_code == 2


def test_run_checks_script_before_start(script: Path) -> None:
    script.write_text("SELECT x FROM nowhere;")
    result = penstock("run", script)
    assert result.exit_code == 2
    assert "nowhere" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trigger", "soon"], "BAD_TRIGGER"),
        (["--trigger", "1 second", "--once"], "BAD_TRIGGER"),
        (["--finish"], "BAD_TRIGGER"),
        (["--conf", "spark.x"], "BAD_CONF"),
        (["--conf", "x=1"], "BAD_CONF"),
        (["--master", "here"], "BAD_MASTER"),
        (["--append", "--overwrite"], "BAD_MODE"),
        (["--cells", "0"], "USAGE"),
    ],
)
def test_wrong_option_is_refused_as_json(script: Path, options: list[str], said: str) -> None:
    result = penstock("run", script, "--json", *options)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["class"] == said


def test_internal_error_exit_code(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> None:
        raise InternalError("BROKEN", "a promise was not kept")

    monkeypatch.setattr("penstock.cql.read_script", broken)
    result = penstock("check", script)
    assert result.exit_code == 1
    assert "[BROKEN] a promise was not kept" in result.stderr


def test_unexpected_error_has_no_traceback(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> None:
        raise ZeroDivisionError("first line\nat java.lang.Thread")

    monkeypatch.setattr("penstock.cql.read_script", broken)
    result = penstock("check", script)
    assert result.exit_code == 1
    found = re.fullmatch(r"\[UNEXPECTED_ERROR\] ZeroDivisionError: first line; .* (\S+\.log)\n", result.stderr)
    assert found is not None, result.stderr
    log = Path(found[1])
    assert "Traceback" in log.read_text()
    log.unlink()


def test_version_and_help() -> None:
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\S*\n", penstock("--version").stdout)
    assert "explain" in penstock("--help").stdout


COMMANDS = typer.main.get_group(app).commands
CTL_COMMANDS = getattr(COMMANDS["ctl"], "commands", {})


@pytest.mark.parametrize("words", [*((name,) for name in COMMANDS), *(("ctl", "ck", name) for name in CTL_COMMANDS)])
def test_help_shows_every_text(words: tuple[str, ...]) -> None:
    """Rich reads brackets in a help text as markup and drops them."""
    command = COMMANDS[words[0]] if len(words) == 1 else CTL_COMMANDS[words[-1]]
    texts = [
        command.help,
        *(parameter.help for parameter in command.params if isinstance(parameter, TyperArgument | TyperOption)),
    ]
    shown = penstock(*words, "--help").stdout
    assert all(text in shown for text in texts if text), shown


def test_lab_list_has_every_lab() -> None:
    listed = penstock("lab", "--list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(LABS)
    assert all(lab.description in listed.stdout for lab in LABS.values())
    assert all(name in penstock("lab", "--help").stdout for name in LABS)


def test_module_runs_as_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == penstock("--version").stdout


def test_steps_as_plain_lines_without_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("work", 2) as step:
        step("first")
        step("[second]")
    assert capsys.readouterr().err == "work 1/2: first\nwork 2/2: [second]\n"


def test_steps_as_progress_bar_on_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("work", 2, Console(file=sys.stdout, force_terminal=True, width=80)) as step:
        step("first")
        step("second")
    out = capsys.readouterr().out
    assert "2/2" in out
    assert "work 1/2" not in out


def test_svg_boxes_apart_and_text_escaped() -> None:
    leaves = tuple(ExplainNode(name, (("filter", "a < b & c"),)) for name in ("left", "right"))
    picture = ET.fromstring(draw_svg({"plan": ExplainNode("join", (), leaves)}))
    boxes = [rect.attrib for rect in picture.iter("{http://www.w3.org/2000/svg}rect") if rect.get("class") == "leaf"]
    (first, second) = sorted((float(box["x"]), float(box["width"])) for box in boxes)
    assert first[0] + first[1] < second[0]
    assert "a < b & c" in "".join(picture.itertext())
