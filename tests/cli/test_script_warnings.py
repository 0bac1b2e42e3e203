"""`penstock check` and `penstock explain` show warnings; they do not change the exit code."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from penstock.cli import app

SCRIPT = """CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM parquett OPTIONS (path 't');
CREATE STREAM u (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM parquet OPTIONS (path 'u');
SELECT t.k FROM t, u [RANGE 1 MINUTE] WHERE t.k = u.k;
"""


def run(command: str, tmp_path: Path, text: str, *options: str) -> Result:
    path = tmp_path / "script.cql"
    path.write_text(text)
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, str(path), *options])


def test_check_shows_warnings(tmp_path: Path) -> None:
    result = run("check", tmp_path, SCRIPT)
    assert result.exit_code == 0
    assert "script.cql: fine, 2 warnings" in result.stdout
    assert "warning: [UNKNOWN_FORMAT] t: Spark contains no format parquett" in result.stdout
    assert "did you mean parquet? (line 1, column 15)" in result.stdout
    assert "warning: [UNBOUNDED_STATE] rows of t never expire, so the join keeps them for ever" in result.stdout
    assert "    SELECT t.k FROM t, u [RANGE 1 MINUTE] WHERE t.k = u.k;\n                    ^\n" in result.stdout


def test_check_of_a_fine_script(tmp_path: Path) -> None:
    result = run("check", tmp_path, SCRIPT.replace("parquett", "parquet").replace("t, u", "t [NOW], u"))
    assert result.exit_code == 0
    assert "script.cql: fine\n" in "".join(line.rstrip() + "\n" for line in result.stdout.splitlines())
    assert "warning" not in result.output


def test_explain_shows_each_warning_once(tmp_path: Path) -> None:
    text = run("explain", tmp_path, SCRIPT)
    assert text.exit_code == 0
    assert "warning: [UNBOUNDED_STATE]" in text.stdout
    assert "UNBOUNDED_STATE" not in text.stderr
    assert "warning: [UNKNOWN_FORMAT]" in text.stderr
    mermaid = run("explain", tmp_path, SCRIPT, "--format", "mermaid")
    assert "warning" not in mermaid.stdout
    assert mermaid.stderr.count("warning: [UNBOUNDED_STATE]") == 1


def test_check_refuses_missing_options_and_two_schemas(tmp_path: Path) -> None:
    missing = run("check", tmp_path, SCRIPT.replace(" OPTIONS (path 'u')", ""))
    assert missing.exit_code == 2
    assert "[OPTION_MISSING] FROM parquet lacks path" in missing.stderr
    sinks = (
        "CREATE SINK s TO parquet OPTIONS (path 'o'); INSERT INTO s SELECT k FROM u; INSERT INTO s SELECT ts FROM u;"
    )
    schemas = run("check", tmp_path, SCRIPT + sinks)
    assert schemas.exit_code == 2
    assert "[SINK_SCHEMAS_DIFFER] two queries write different columns to s" in schemas.stderr
