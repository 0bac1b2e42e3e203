"""Errors in CQL: the condition, the message, and the text that the message underlines."""

from __future__ import annotations

import re

import pytest
from cql_catalog import build_catalog

from penstock.cql import CqlError, bind_query, bind_script
from penstock.errors import PenstockError, QueryError, UnsupportedError

CATALOG = build_catalog()


def mistake(text: str) -> CqlError:
    with pytest.raises(CqlError) as caught:
        bind_query(text, CATALOG)
    return caught.value


def underlined(error: CqlError) -> str:
    """The characters above the carets."""
    line, carets = error.excerpt.split("\n")
    start = len(carets) - len(carets.lstrip())
    return line[start : start + carets.count("^")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT value FROM temperature [`NOW`]", "`NOW`"),
        ("SELECT value FROM temperature [RANGE 1 HOUR `SLIDE` 1 HOUR]", "`SLIDE`"),
        ("SELECT value FROM temperature t `WHERE` value > 1", "`WHERE`"),
    ],
)
def test_quoted_name_is_no_keyword(text: str, found: str) -> None:
    error = mistake(text)
    assert error.condition == "SYNTAX_ERROR"
    assert underlined(error) == found


def test_full_error_message() -> None:
    error = mistake("SELECT t.location,\n       t.vaule\nFROM temperature AS t")
    assert str(error) == (
        "[UNKNOWN_COLUMN] unknown column t.vaule; temperature has ts, location, value; did you mean value?"
        " (line 2, column 8)\n"
        "           t.vaule\n"
        "           ^^^^^^^"
    )
    assert (error.line, error.column) == (2, 8)
    assert isinstance(error, QueryError)


@pytest.mark.parametrize(
    ("text", "condition", "at", "says"),
    [
        # names
        ("SELECT valeu FROM temperature", "UNKNOWN_COLUMN", "valeu", "temperature has ts, location, value; did you"),
        ("SELECT q.x FROM temperature", "UNKNOWN_ALIAS", "q.x", "FROM has temperature"),
        ("SELECT a.b.c FROM temperature", "UNKNOWN_COLUMN", "a.b.c", "unknown column a.b.c"),
        ("SELECT value FROM temprature", "UNKNOWN_RELATION", "temprature", "did you mean temperature?"),
        ("SELECT value FROM temperature, humidity", "AMBIGUOUS_COLUMN", "value", "temperature.value, humidity.value"),
        ("SELECT 1 AS x FROM temperature, Temperature", "DUPLICATE_ALIAS", "Temperature", "its own alias with AS"),
        ("SELECT 1 AS x FROM temperature a, humidity A", "DUPLICATE_ALIAS", "A", "alias A appears twice"),
        ("SELECT ts AS a, value AS A FROM temperature", "DUPLICATE_COLUMN", "value AS A", "appears twice in SELECT"),
        ("SELECT value AS _ts FROM temperature", "RESERVED_NAME", "value AS _ts", "the result's timestamp"),
        ("SELECT location FROM rooms", "NO_STREAM", "rooms", "at least one stream"),
        ("SELECT median(value), foo(value) FROM temperature", "UNKNOWN_FUNCTION", "foo(value)", "FLOOR"),
        # windows and durations
        ("SELECT x FROM ticks [RANGE 5 MINUTES]", "DURATION_UNIT", "5 MINUTES", "write a bare number"),
        ("SELECT value FROM temperature [RANGE 5]", "DURATION_UNIT", "5", "write 5 SECONDS"),
        ("SELECT value FROM temperature [RANGE 0 SECONDS]", "INVALID_DURATION", "0 SECONDS", "greater than zero"),
        ("SELECT value FROM temperature [RANGE -1 DAY]", "INVALID_DURATION", "-1 DAY", "greater than zero"),
        (
            "SELECT COUNT(*) FROM temperature [RANGE 4 DAYS SLIDE 1 DAY], humidity [RANGE 4 DAYS SLIDE 2 DAYS]",
            "SLIDES_DIFFER", "[RANGE 4 DAYS SLIDE 2 DAYS]", "the multiples of one SLIDE",
        ),
        (
            "SELECT t.value FROM SEQ(temperature [ROWS 3] AS t, humidity AS h) MODE RECENT",
            "ROWS_IN_SEQ", "[ROWS 3]", "SEQ takes RANGE",
        ),
        ("SELECT value FROM temperature [RANGE 5 MINUTS]", "UNKNOWN_UNIT", "MINUTS", "MINUTES"),
        ("SELECT value FROM temperature [RANGE 0.1 MICROSECONDS]", "INVALID_DURATION", "0.1 MICROSECONDS", "whole"),
        ("SELECT value FROM temperature [ROWS 0]", "INVALID_WINDOW", "0", "at least 1"),
        (f"SELECT value FROM temperature [ROWS 1{'0' * 30}]", "INVALID_WINDOW", "1000", "ROWS takes"),
        ("SELECT CAST('1e999999999' AS BIGINT) FROM trades", "CANNOT_CAST", "'1e999999999'", "read as bigint"),
        ("SELECT value FROM temperature [ROWS 5 MINUTES]", "INVALID_WINDOW", "5 MINUTES", "write RANGE"),
        (
            "SELECT value FROM temperature [PARTITION BY value ROWS 5 SLIDE 1]",
            "SLIDE_WITHOUT_RANGE", "SLIDE", "after a RANGE",
        ),
        (
            "SELECT COUNT(*) FROM temperature [ROWS 5 SLIDE 0]",
            "INVALID_WINDOW", "0", "SLIDE of a ROWS window",
        ),
        (
            "SELECT value FROM temperature [ROWS 5 SLIDE 1]",
            "UNSUPPORTED_SLIDE_WITHOUT_AGGREGATE", "[ROWS 5 SLIDE 1]", "this query has none",
        ),
        ("SELECT value FROM temperature [PARTITION BY z ROWS 5]", "UNKNOWN_COLUMN", "z", "temperature has"),
        ("SELECT value FROM temperature, rooms [NOW]", "WINDOW_ON_TABLE", "[NOW]", "takes no window"),
        ("SELECT value FROM temperature, ticks", "TIME_TYPES_DIFFER", "ticks", "ticks in bigint"),
        ("SELECT t FROM ticks UNION ALL SELECT big FROM trades", "TIME_TYPES_DIFFER", "SELECT big", "count time alike"),
        ("SELECT value FROM temperature FRESHNESS q 1 HOUR", "UNKNOWN_ALIAS", "q", "FROM has temperature"),
        ("SELECT ts FROM temperature, rooms r FRESHNESS r 1 HOUR", "INVALID_FRESHNESS", "r", "do not age"),
        ("SELECT ts FROM temperature [RANGE 1 DAY] t FRESHNESS t 1 HOUR", "INVALID_FRESHNESS", "t 1 HOUR", "at least"),
        ("SELECT value FROM SEQ(temperature, rooms) MODE RECENT", "TABLE_IN_SEQ", "rooms", "is a table"),
        # types
        ("SELECT n FROM trades WHERE sym = n", "TYPE_MISMATCH", "sym = n", "sym (string) and n (int)"),
        ("SELECT n FROM trades WHERE n", "TYPE_MISMATCH", "n", "needs a boolean, but n is int"),
        ("SELECT n FROM trades WHERE ok AND n", "TYPE_MISMATCH", "n", "AND needs a boolean"),
        ("SELECT sym + 1 FROM trades", "TYPE_MISMATCH", "sym + 1", "cannot compute + of sym (string) and 1 (bigint)"),
        ("SELECT At + At FROM trades", "TYPE_MISMATCH", "At + At", "timestamp"),
        ("SELECT CASE WHEN ok THEN 1 ELSE 'a' END FROM trades", "TYPE_MISMATCH",
         "CASE WHEN ok THEN 1 ELSE 'a' END", "1 (bigint) and 'a' (string)"),
        ("SELECT n FROM trades WHERE n LIKE 'a'", "TYPE_MISMATCH", "n LIKE 'a'", "LIKE needs strings"),
        ("SELECT n FROM trades WHERE At > 'soon'", "CANNOT_CAST", "'soon'", "cannot be read as timestamp"),
        ("SELECT TIMESTAMP '2024-13-01' FROM trades", "CANNOT_CAST", "'2024-13-01'", "timestamp"),
        ("SELECT CAST(n AS FOO) FROM trades", "UNKNOWN_TYPE", "FOO", "known are tinyint"),
        ("SELECT CAST(d AS BOOLEAN) FROM trades", "TYPE_MISMATCH", "CAST(d AS BOOLEAN)", "cannot cast to boolean"),
        ("SELECT SUM(sym) FROM trades", "TYPE_MISMATCH", "sym", "SUM needs a number"),
        ("SELECT 9223372036854775808 FROM trades", "NUMBER_OUT_OF_RANGE", "9223372036854775808", "bigint"),
        ("SELECT INTERVAL 5 YEARS FROM trades", "UNKNOWN_UNIT", "INTERVAL 5 YEARS", "no fixed length"),
        ("SELECT ABS(n, n) FROM trades", "ARGUMENT_COUNT", "ABS(n, n)", "takes 1 argument(s), found 2"),
        ("SELECT n FROM trades EXCEPT SELECT sym FROM trades", "TYPE_MISMATCH", "SELECT sym FROM trades", "n (int)"),
        ("SELECT n FROM trades EXCEPT SELECT n, f FROM trades", "COLUMN_COUNT", "SELECT n, f FROM trades", "1 and 2"),
        # grouping
        ("SELECT location, AVG(value) FROM temperature", "NOT_GROUPED", "location", "not in GROUP BY"),
        ("SELECT COUNT(*) + value FROM temperature GROUP BY location", "NOT_GROUPED", "value", "temperature.value"),
        ("SELECT location FROM temperature WHERE SUM(value) > 1", "AGGREGATE_NOT_ALLOWED", "SUM(value)", "WHERE"),
        ("SELECT SUM(AVG(value)) FROM temperature", "AGGREGATE_NOT_ALLOWED", "AVG(value)", "argument of SUM"),
        ("SELECT COUNT(*) AS c FROM temperature GROUP BY c", "AGGREGATE_NOT_ALLOWED", "c", "GROUP BY"),
        ("SELECT value FROM temperature GROUP BY 2", "GROUP_BY_POSITION", "2", "it has 1 columns"),
        ("SELECT value FROM temperature HAVING value > 1", "HAVING_WITHOUT_GROUP", "value > 1", "write WHERE"),
        # syntax
        ("SELECT value, FROM temperature", "SYNTAX_ERROR", "FROM", "expected a column or an expression, found FROM"),
        ("SELECT value temperature", "SYNTAX_ERROR", " ", "expected FROM, the text ends here"),
        ("SELECT (value FROM temperature", "SYNTAX_ERROR", "FROM", "expected ), found FROM"),
        ("SELECT value + FROM temperature", "SYNTAX_ERROR", "FROM", "expected an expression"),
        ("SELECT COALESCE(value,) FROM temperature", "SYNTAX_ERROR", ")", "another item after the comma"),
        ("SELECT CASE WHEN TRUE 1 END FROM temperature", "SYNTAX_ERROR", "1", "expected THEN"),
        ("SELECT 'abc FROM temperature", "SYNTAX_ERROR", "'abc FROM temperature", "expected a closing '"),
        ("SELECT a /* FROM temperature", "SYNTAX_ERROR", "/* FROM temperature", "parsed to its end"),
        ("SELECT value FROM temperature [5 MINUTES]", "SYNTAX_ERROR", "5", "RANGE, ROWS, PARTITION BY, NOW"),
        ("SELECT value FROM temperature [NOW", "SYNTAX_ERROR", " ", "expected ], the text ends here"),
        ("SELECT value FROM temperature t [NOW]", "SYNTAX_ERROR", "[", "window comes before the alias"),
        ("SELECT value FROM temperature GROUP BY value WHERE TRUE", "SYNTAX_ERROR", "WHERE", "before GROUP BY"),
        ("SELECT value FROM temperature WHERE TRUE WHERE TRUE", "SYNTAX_ERROR", "WHERE", "a second WHERE"),
        ("SELECT value FROM temperature JOIN humidity h", "SYNTAX_ERROR", " ", "expected ON"),
        ("SELECT ts FROM SEQ(temperature, humidity)", "SYNTAX_ERROR", " ", "MODE RECENT or MODE CHRONICLE"),
        ("SELECT ts FROM SEQ(temperature) MODE RECENT", "SYNTAX_ERROR", "SEQ(temperature)", "at least two"),
        ("SELECT value @x FROM temperature", "SYNTAX_ERROR", "value", "expected a name"),
        ("SELECT value FROM temperature; SELECT 1", "SYNTAX_ERROR", "SELECT 1", "expected one query"),
        ("INSERT INTO alarms SELECT value FROM temperature", "SYNTAX_ERROR", "INSERT", "expected SELECT"),
        ("  ", "SYNTAX_ERROR", " ", "the text is empty"),
    ],
)  # fmt: skip
def test_mistakes(text: str, condition: str, at: str, says: str) -> None:
    error = mistake(text)
    assert error.condition == condition
    assert says in str(error)
    if at.strip():
        assert underlined(error).startswith(at)
        assert text[error.column - 1 :].startswith(at)
    assert "sqlglot" not in str(error)
    assert "\033" not in str(error)


@pytest.mark.parametrize(
    ("text", "construct", "at"),
    [
        ("SELECT value FROM temperature WHERE value IN (VALUES (1))", "VALUES", "VALUES"),
        ("SELECT value FROM temperature ORDER BY value", "ORDER_BY", "ORDER BY"),
        ("SELECT value FROM temperature LIMIT 5", "LIMIT", "LIMIT"),
        ("SELECT NTILE(4) OVER (ORDER BY ts) FROM temperature", "OVER", "NTILE(4)"),
        ("SELECT value FROM temperature WHERE value IS TRUE", "IS", "value IS TRUE"),
        ("SELECT sym FROM trades WHERE sym LIKE sym", "LIKE_PATTERN", "sym"),
        ("SELECT sym FROM trades WHERE sym LIKE 'a' ESCAPE 'b'", "ESCAPE", "sym LIKE 'a'"),
        ("SELECT * EXCEPT (value) FROM temperature", "MODIFIED_STAR", "*"),
        ("SELECT /*+ BROADCAST(t) */ value FROM temperature t", "HINT", "/*+"),
        ("SELECT value FROM explode(1)", "TABLE_FUNCTION", "explode"),
        ("SELECT value FROM temperature [RANGE 1 DAY SLIDE 1 HOUR]", "SLIDE_WITHOUT_AGGREGATE", "[RANGE"),
        ("SELECT c.ts FROM SEQ(temperature c, humidity h) MODE RECENT, rooms", "JOIN_WITH_SEQ", ","),
        ("(ISTREAM (SELECT value FROM temperature))", "NESTED_ISTREAM", "ISTREAM"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM temperature", "NESTING", "("),
        ("SELECT value FROM temperature WHERE " + "NOT " * 5000 + "TRUE", "NESTING", "SELECT"),
    ],
)
def test_unsupported_by_name(text: str, construct: str, at: str) -> None:
    error = mistake(text)
    assert error.condition == f"UNSUPPORTED_{construct}"
    assert re.fullmatch(r"[A-Z_]+", error.condition)
    assert isinstance(error, UnsupportedError)
    assert text[error.column - 1 :].startswith(at)


def test_error_position_in_whole_script() -> None:
    text = "SELECT value FROM temperature;\r\n-- a comment\r\n\tSELECT t.ö, valu\r\nFROM temperature t"
    with pytest.raises(CqlError) as caught:
        bind_script(text, build_catalog())
    error = caught.value
    assert (error.line, error.column) == (3, 9)
    assert error.excerpt == "    \tSELECT t.ö, valu\n    \t       ^^^"


def test_error_excerpt_of_long_line() -> None:
    error = mistake(f"SELECT {'value, ' * 100} nope, {'value, ' * 100} 1 FROM temperature")
    assert underlined(error) == "nope"
    assert max(map(len, error.excerpt.split("\n"))) <= 124


@pytest.mark.parametrize("text", ["\x00", ";", "SELECT", "(", "[", "'", "`", "é", "SELECT * FROM `", "$$", "{%", "\\"])
def test_random_text_is_query_error(text: str) -> None:
    with pytest.raises(PenstockError):
        bind_query(text, CATALOG)
