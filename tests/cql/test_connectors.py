"""Sources and sinks of scripts: required options, and one schema for a sink of files."""

from __future__ import annotations

import pytest

from penstock.cql import Catalog, CqlError, bind_script

STREAM = "CREATE STREAM t (ts TIMESTAMP, k INT, v DOUBLE) TIMESTAMP BY ts"


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("parquet", "path"),
        ("CSV OPTIONS (header true)", "path"),
        ("kafka OPTIONS (subscribe 'a')", "kafka.bootstrap.servers"),
        ("kafka OPTIONS ('kafka.bootstrap.servers' 'h:1')", "subscribe or subscribePattern or assign"),
        ("socket OPTIONS (host 'localhost')", "port"),
    ],
)
def test_missing_option_is_an_error(source: str, missing: str) -> None:
    with pytest.raises(CqlError, match="OPTION_MISSING") as error:
        bind_script(f"{STREAM} FROM {source};", Catalog())
    assert f"lacks {missing}" in str(error.value)
    assert error.value.column == len(STREAM) + 7


@pytest.mark.parametrize("source", ["parquet OPTIONS (PATH 'x')", "rate", "com.acme.Source", "parquett"])
def test_complete_or_unknown_source(source: str) -> None:
    bind_script(f"{STREAM} FROM {source};", Catalog())


@pytest.mark.parametrize(
    ("format_", "second", "fits"),
    [
        ("parquet OPTIONS (path 'x')", "SELECT k, v FROM t [NOW]", True),
        ("parquet OPTIONS (path 'x')", "SELECT k FROM t", False),
        ("parquet OPTIONS (path 'x')", "SELECT v AS k, v FROM t", False),
        ("csv OPTIONS (path 'x')", "SELECT v, k FROM t", False),
        ("console", "SELECT k FROM t", True),
    ],
)
def test_one_schema_for_a_sink_of_files(format_: str, second: str, fits: bool) -> None:
    text = f"{STREAM}; CREATE SINK s TO {format_}; INSERT INTO s SELECT k, v FROM t; INSERT INTO S {second};"
    if fits:
        assert len(bind_script(text, Catalog())) == 4
        return
    with pytest.raises(CqlError, match="SINK_SCHEMAS_DIFFER") as error:
        bind_script(text, Catalog())
    assert error.value.column == text.index("S " + second) + 1
    assert "k int, v double, _ts timestamp before" in str(error.value)
