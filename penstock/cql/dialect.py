"""The CQL dialect: Spark's tokens and scalar expressions, parsed strictly and with their positions.

sqlglot is lenient: it accepts a trailing comma, a CASE without THEN and the functions of every database. CQL reports
such mistakes, so this parser restricts what it inherits. Functions stay names that the binder looks up, subqueries are
refused, lists have no gaps, and every operand keeps its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql import advice
from penstock.cql.durations import explain_unknown_unit, is_unit
from penstock.cql.errors import CqlError, CqlUnsupportedError, Origin, Span
from penstock.cql.function_syntax import FUNCTION_PARSERS
from penstock.cql.syntax import Amount, Name

T = TypeVar("T")

_NO_TOKEN = Token(TokenType.SENTINEL, "")
_QUOTED_TOKENS = frozenset(
    {
        TokenType.BYTE_STRING,
        TokenType.HEX_STRING,
        TokenType.IDENTIFIER,
        TokenType.NATIONAL_STRING,
        TokenType.RAW_STRING,
        TokenType.STRING,
    }
)
# Words that can follow a number and are not a misspelled unit.
_WORDS_AFTER_AMOUNT = frozenset({"SLIDE", "LATENESS", "TIMESTAMPS", "IDLE", "AHEAD", "FRESHNESS", "BY"})


_DEPTHS = {"(": 1, "<": 1, ")": -1, ">": -1}
"""By how much a character of a type opens or closes it."""


def find_span(node: exp.Expr) -> Span:
    """The span of an expression: from its parts that have a span, else from its parent."""
    holder: exp.Expr | None = node
    while holder is not None:
        places = [part.meta for part in holder.walk() if "start" in part.meta]
        if places:
            return min(place["start"] for place in places), max(place["end"] for place in places) + 1
        holder = holder.parent
    return 0, 0


class ScalarParser(SparkParser):
    """Parses scalar expressions, and the names, words and amounts that the grammar of queries uses."""

    FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        **FUNCTION_PARSERS,
        "CAST": lambda self: self._read_cast(),
        "TRY_CAST": lambda self: self._read_cast(),
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    COLUMN_OPERATORS: ClassVar = {
        token: SparkParser.COLUMN_OPERATORS[token] for token in (TokenType.DOT, TokenType.DCOLON)
    }

    ARRAY_CONSTRUCTORS: ClassVar = {}  # list[0] is the element of a column; the binder knows ARRAY[a, b]

    # As in Spark SQL, % binds as * and / do; earlier sqlglot 30 has it with + and -.
    TERM: ClassVar = {token: node for token, node in SparkParser.TERM.items() if token != TokenType.MOD}
    FACTOR: ClassVar = {**SparkParser.FACTOR, TokenType.MOD: exp.Mod}

    @property
    def origin(self) -> Origin:
        return Origin(self.sql)

    def raise_error(self, message: str, token: Token = _NO_TOKEN) -> NoReturn:
        """Errors that sqlglot raises keep its class, because it catches them to try another alternative."""
        start, end = self.locate_token(token if token.token_type != TokenType.SENTINEL else None)
        raise ParseError(message, [{"start": start, "end": end}])

    def locate_token(self, token: Token | None = None) -> Span:
        """The span of a token, by default of the current one; at the end of the text, the position behind it."""
        token = token or self._curr
        if token:
            return token.start, token.end + 1
        return self._prev.end + 1, self._prev.end + 2

    def span_since(self, first: Token) -> Span:
        """The span from a token to the last token read."""
        return first.start, max(first.end, self._prev.end) + 1

    def expected_error(self, what: str) -> CqlError:
        """The error for a current token that the grammar does not allow here."""
        start, end = self.locate_token()
        found = f"found {self.sql[start:end]}" if self._curr else "the text ends here"
        return self.origin.error("SYNTAX_ERROR", f"expected {what}, {found}", (start, end))

    def unsupported_error(self, construct: str, place: Span, advice: str = "") -> CqlError:
        return self.origin.unsupported_error(construct, place, advice)

    def expect_words(self, *words: str) -> Token:
        """Read these words or raise an error; returns the last token."""
        for word in words:
            if not self._match_text_seq(word):
                raise self.expected_error(" ".join(words))
        return self._prev

    def is_next(self, *words: str) -> bool:
        return self._match_text_seq(*words, advance=False)

    def is_keyword(self) -> bool:
        """Whether the current token can be a keyword; a quoted text or name cannot."""
        return self._curr.token_type not in _QUOTED_TOKENS

    def is_at(self, *types: TokenType) -> bool:
        return self._curr.token_type in types

    def read_name(self, what: str) -> Name:
        """Read an identifier: a word that is not reserved, or a quoted one."""
        token = self._curr
        if (
            token
            and (token.token_type in self.ID_VAR_TOKENS or token.token_type == TokenType.IDENTIFIER)
            and token.text
        ):
            self._advance()
            return Name(token.text, self.locate_token(token))
        raise self.expected_error(what)

    def read_amount(self, what: str) -> Amount:
        """Read a number and an optional unit, or an interval of SQL. The binder reports a negative number."""
        first = self._curr
        self._match(TokenType.INTERVAL)
        if self._match(TokenType.STRING):
            return self._read_quoted_amount(first, what)
        sign = "-" if self._match(TokenType.DASH) else ""
        if not self._match(TokenType.NUMBER):
            raise self.expected_error(what)
        number = sign + self._prev.text
        unit = self._curr
        if unit.token_type == TokenType.VAR and unit.text.upper() not in _WORDS_AFTER_AMOUNT:
            if not is_unit(unit.text):
                raise self.origin.error("UNKNOWN_UNIT", explain_unknown_unit(unit.text), self.locate_token(unit))
            self._advance()
            return Amount(number, unit.text.upper(), self.span_since(first))
        return Amount(number, None, self.span_since(first))

    def _read_quoted_amount(self, first: Token, what: str) -> Amount:
        """An amount in quotes, '5' MINUTE or '5 minutes'."""
        quoted = self._prev
        words = quoted.text.split()
        if len(words) == 1 and is_unit(self._curr.text):
            self._advance()
            words.append(self._prev.text)
        if not 1 <= len(words) <= 2 or not words[0].lstrip("-").replace(".", "", 1).isdecimal():
            found = self.sql[quoted.start : quoted.end + 1]
            raise self.origin.error("SYNTAX_ERROR", f"expected {what}, found {found}", self.locate_token(quoted))
        return Amount(words[0], words[1].upper() if len(words) == 2 else None, self.span_since(first))

    def read_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read one or more items, separated by commas."""
        items = [item()]
        while self._match(TokenType.COMMA):
            items.append(item())
        return tuple(items)

    def read_scalar(self, what: str) -> exp.Expr:
        node = self._parse_disjunction()
        if node is None:
            raise self.expected_error(what)
        return node

    def read_type(self, closing: Sequence[TokenType]) -> Name:
        """Read the text of a type, up to a comma or parenthesis of the declaration around it."""
        first, depth = self._curr, 0
        if not first or first.token_type in closing:
            raise self.expected_error("a type")
        while self._curr and (depth or self._curr.token_type not in closing):
            depth += sum(_DEPTHS.get(character, 0) for character in self._curr.text)
            self._advance()
        place = self.span_since(first)
        return Name(self.sql[place[0] : place[1]], place)

    def _read_cast(self) -> exp.Expr:
        operand = self.read_scalar("an expression")
        self.expect_words("AS")
        name = self.read_type((TokenType.R_PAREN,))
        to = exp.Var(this=name.text).update_positions(start=name.span[0], end=name.span[1] - 1)
        return self.expression(exp.Cast(this=operand, to=to))

    def _parse_case(self) -> exp.Expr | None:
        if self._match(TokenType.DOT, advance=False):
            return super()._parse_case()
        operand = None if self._match(TokenType.WHEN, advance=False) else self.read_scalar("WHEN or an expression")
        branches = []
        while self._match(TokenType.WHEN):
            condition = self.read_scalar("a condition")
            self.expect_words("THEN")
            branches.append(self.expression(exp.If(this=condition, true=self.read_scalar("an expression"))))
        if not branches:
            raise self.expected_error("WHEN")
        default = self.read_scalar("an expression") if self._match(TokenType.ELSE) else None
        self.expect_words("END")
        return self.expression(exp.Case(this=operand, ifs=branches, default=default))

    def _parse_unary(self) -> exp.Expr | None:
        first = self._curr
        node = super()._parse_unary()
        if node is not None and first:
            start, end = self.span_since(first)
            node.meta.update(start=start, end=end - 1)
        return node

    def _match_text_seq(self, *texts: str, advance: bool = True) -> bool:
        """Some versions of sqlglot match quoted names as keywords; CQL never does."""
        index = self._index
        matched = all(self._match_keyword(text) for text in texts)
        if not (matched and advance):
            self._retreat(index)
        return matched

    def _match_keyword(self, text: str) -> bool:
        if not self.is_keyword() or self._curr.text.upper() != text:
            return False
        self._advance()
        return True

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        items = [item for item in [parse_method()] if item is not None]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.raise_error("expected another item after the comma")
            items.append(item)
        return items

    def _parse_select(self, *_args: object, **_options: object) -> exp.Expr | None:
        """sqlglot calls this for a subquery in an expression; the grammar of queries does not call it."""
        if self.is_at(TokenType.VALUES):
            raise self.unsupported_error("VALUES", self.locate_token(), advice.VALUES)
        return None


class CqlDialect(Spark):
    """Tokens of Spark SQL; in a string a doubled quote is a quote, as in the SQL standard."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar = ["'", '"', "\\"]

    Parser = ScalarParser


def tokenize(text: str) -> list[Token]:
    """The tokens of a text. A string or comment without an end is an error with its position."""
    try:
        return CqlDialect().tokenize(text)
    except TokenError as error:
        cause = str(error.__cause__)
        if match := re.match(r"Missing (\S+) from \d+:(\d+)", cause):
            start = min(int(match[2]), len(text))
            raise CqlError("SYNTAX_ERROR", f"expected a closing {match[1]}", text, (start, len(text))) from None
        start = max(text.rfind("/*"), 0)
        raise CqlError("SYNTAX_ERROR", "this text cannot be parsed to its end", text, (start, len(text))) from None


def translate_error(error: ParseError, text: str) -> CqlError:
    """An error of sqlglot's parser as a CQL error."""
    place = error.errors[0] if error.errors else {"start": 0, "end": len(text)}
    start, end = place["start"], place["end"]
    found = f"found {text[start:end]}" if text[start:end].strip() else "the text ends here"
    message = str(error)
    if closing := re.match(r"Expect(?:ing|ed) (\S+)", message):
        expected = closing[1]
    elif "comma" in message:
        expected = "another item after the comma"
    else:
        expected = "an expression"
    return CqlError("SYNTAX_ERROR", f"expected {expected}, {found}", text, (start, end))


def make_nesting_error(text: str) -> CqlError:
    """The error for a text with too many nested levels; it points at the deepest parenthesis."""
    depth = deepest = at = 0
    for offset, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth > deepest:
            deepest, at = depth, offset
    return CqlUnsupportedError("UNSUPPORTED_NESTING", "the text is nested too deeply to be parsed", text, (at, at + 1))
