"""Errors in CQL text, with the line, the column and the text underlined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.errors import QueryError, UnsupportedError

Span = tuple[int, int]  # half-open character offsets into the whole text

_MAX_EXCERPT_WIDTH = 120  # of a longer source line only the part around the error is shown


def find_line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The 1-based line and column of a character."""
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def format_excerpt(text: str, span: Span) -> str:
    """The source line of a span with the span underlined; of several lines only the first is shown."""
    start, end = span
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line = text[begin : stop if stop >= 0 else len(text)].rstrip("\r")
    left = start - begin
    width = max(1, min(end - start, len(line) - left))
    if len(line) > _MAX_EXCERPT_WIDTH:
        cut = max(0, min(left - _MAX_EXCERPT_WIDTH // 3, len(line) - _MAX_EXCERPT_WIDTH))
        line, left = line[cut : cut + _MAX_EXCERPT_WIDTH], left - cut
        width = max(1, min(width, len(line) - left))
    padding = "".join("\t" if character == "\t" else " " for character in line[:left])
    return f"    {line}\n    {padding}{'^' * width}"


class CqlError(QueryError):
    """An error at a position in the text."""

    def __init__(self, condition: str, message: str, text: str, span: Span, **parameters: object) -> None:
        self.line, self.column = find_line_and_column(text, span[0])
        self.excerpt = format_excerpt(text, span)
        located = f"{message} (line {self.line}, column {self.column})\n{self.excerpt}"
        super().__init__(condition, located, line=self.line, column=self.column, **parameters)


class CqlUnsupportedError(CqlError, UnsupportedError):
    """Valid SQL, at a position in the text, that a continuous query does not support."""


@dataclass(frozen=True)
class Origin:
    """The text that is parsed or bound. It turns spans into errors with a position."""

    text: str

    def error(self, condition: str, message: str, span: Span, **parameters: object) -> CqlError:
        return CqlError(condition, message, self.text, span, **parameters)

    def unsupported_error(self, construct: str, span: Span, advice: str = "") -> CqlUnsupportedError:
        """The error for a construct by its name: ORDER BY gives the condition UNSUPPORTED_ORDER_BY."""
        message = f"{construct} is not supported" + (f"; {advice}" if advice else "")
        condition = "_".join(["UNSUPPORTED", *re.findall(r"\w+", construct.upper())])
        return CqlUnsupportedError(condition, message, self.text, span, construct=construct)


def list_similar(word: str, known: Iterable[str]) -> list[str]:
    """The known words that are most similar, at most three."""
    spelling = {name.casefold(): name for name in known}
    return [spelling[near] for near in get_close_matches(word.casefold(), spelling, n=3)]


def suggest_similar(word: str, known: Iterable[str]) -> str:
    """`; did you mean value?`, or an empty text if no known word is similar."""
    near = list_similar(word, known)
    return f"; did you mean {near[0]}?" if near else ""
