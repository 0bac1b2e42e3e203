"""Functions with a syntax of their own: `TRIM(BOTH 'x' FROM s)`, `SUBSTRING(s FROM 2 FOR 3)`, `EXTRACT(HOUR FROM t)`.

Each is read as a call by name with plain arguments, which the binder finds in the registry of functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

if TYPE_CHECKING:
    from penstock.cql.dialect import ScalarParser

_TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def _read_arguments(parser: ScalarParser, name: str, first: exp.Expr) -> exp.Expr:
    """The arguments after the first, up to the closing parenthesis."""
    args = [first]
    while parser._match(TokenType.COMMA):
        args.append(parser.read_scalar("an expression"))
    return parser.expression(exp.Anonymous(this=name, expressions=args))


def _read_trim(parser: ScalarParser) -> exp.Expr:
    side = next((word for word in _TRIMS if parser._match_text_seq(word)), None)
    name = _TRIMS[side or "BOTH"]
    if side is not None and parser._match_text_seq("FROM"):
        return _read_arguments(parser, name, parser.read_scalar("an expression"))
    first = parser.read_scalar("an expression")
    if parser._match_text_seq("FROM"):
        text = parser.read_scalar("an expression")
        return parser.expression(exp.Anonymous(this=name, expressions=[text, first]))
    if side is not None:
        raise parser.expected_error("FROM")
    return _read_arguments(parser, name, first)


def _read_substring(parser: ScalarParser) -> exp.Expr:
    text = parser.read_scalar("an expression")
    if not parser._match_text_seq("FROM"):
        return _read_arguments(parser, "substring", text)
    args = [text, parser.read_scalar("an expression")]
    if parser._match_text_seq("FOR"):
        args.append(parser.read_scalar("an expression"))
    return parser.expression(exp.Anonymous(this="substring", expressions=args))


def _read_position(parser: ScalarParser) -> exp.Expr:
    """`POSITION(part IN s)`, or Spark's `POSITION(part, s)` and `LOCATE(part, s)`."""
    part = parser._parse_bitwise()
    if part is None:
        raise parser.expected_error("an expression")
    if not parser._match(TokenType.IN) and not parser._match(TokenType.COMMA):
        raise parser.expected_error("IN")
    text = parser.read_scalar("an expression")
    return parser.expression(exp.Anonymous(this="strpos", expressions=[text, part]))


def _read_extract(parser: ScalarParser) -> exp.Expr:
    token = parser._curr
    if not token or token.token_type in (TokenType.R_PAREN, TokenType.NUMBER):
        raise parser.expected_error("a unit such as HOUR")
    parser._advance()
    unit = exp.Literal.string(token.text).update_positions(start=token.start, end=token.end)
    parser.expect_words("FROM")
    time = parser.read_scalar("an expression")
    return parser.expression(exp.Anonymous(this="date_part", expressions=[unit, time]))


def _read_difference(parser: ScalarParser) -> exp.Expr:
    """`TIMESTAMPDIFF(HOUR, a, b)`: the unit is a word, or a text as in `DATE_DIFF('hour', a, b)`."""
    token = parser._curr
    if token.token_type == TokenType.VAR and parser._next and parser._next.token_type == TokenType.COMMA:
        following = parser._tokens[parser._index + 2 :]
        depth = commas = 0
        for each in following:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(each.token_type, 0)
            if depth < 0:
                break
            commas += depth == 0 and each.token_type == TokenType.COMMA
        if commas == 1:  # three arguments
            parser._advance()
            unit = exp.Literal.string(token.text).update_positions(start=token.start, end=token.end)
            return _read_arguments(parser, "datediff", unit)
    return _read_arguments(parser, "datediff", parser.read_scalar("an expression"))


FUNCTION_PARSERS: dict[str, Callable[[ScalarParser], exp.Expr]] = {
    "TRIM": _read_trim,
    "SUBSTRING": _read_substring,
    "SUBSTR": _read_substring,
    "POSITION": _read_position,
    "LOCATE": _read_position,
    "EXTRACT": _read_extract,
    "DATEDIFF": _read_difference,
    "DATE_DIFF": _read_difference,
    "TIMESTAMPDIFF": _read_difference,
}
"""By the name of the function: reads what stands between its parentheses."""
