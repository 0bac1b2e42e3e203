"""The grammar of CQL queries: SELECT with windows, sequences, set operations and ISTREAM/DSTREAM/RSTREAM."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.cql import advice
from penstock.cql.bound import Emit, SeqMode
from penstock.cql.dialect import find_span
from penstock.cql.from_parser import SEQUENCE_ADVICE, FromParser
from penstock.cql.syntax import (
    Amount,
    BodySyntax,
    FromSyntax,
    Name,
    QuerySyntax,
    SelectSyntax,
    SetKind,
    SetSyntax,
    SourceSyntax,
    WithSyntax,
)

_EMITS: dict[str, Emit] = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}
_MODES: dict[str, SeqMode] = {"RECENT": "recent", "CHRONICLE": "chronicle"}
# Each clause after FROM, and the clauses that must not come before it.
_CLAUSE_ORDER: dict[str, tuple[str, ...]] = {
    "WHERE": ("GROUP BY", "HAVING"),
    "WINDOW": (),
    "GROUP BY": ("HAVING",),
    "HAVING": (),
    "FRESHNESS": (),
}


@dataclass
class _SelectClauses:
    """The clauses after FROM that have been read."""

    where: exp.Expr | None = None
    window: Amount | None = None
    group_by: tuple[exp.Expr, ...] | None = None
    having: exp.Expr | None = None
    freshness: tuple[tuple[Name, Amount], ...] = ()


class QueryParser(FromParser):
    """Parses queries strictly: an unsupported construct is refused by its name, other errors say what was expected."""

    def read_query(self) -> QuerySyntax:
        first = self._curr
        emit = _EMITS.get(first.text.upper())
        if emit and self._next.token_type == TokenType.L_PAREN:
            self._advance(2)
            body = self.read_body()
            self.expect_words(")")
        else:
            body = self.read_body()
            emit = "changes" if self._match_text_seq("EMIT", "CHANGES") else "istream"
        return QuerySyntax(emit, body, self.span_since(first))

    def read_body(self) -> BodySyntax:
        """A SELECT or set operation, with the queries of WITH before it."""
        if not self._match(TokenType.WITH):
            return self._read_set()
        queries = self.read_list(self._read_named_query)
        return WithSyntax(queries, self._read_set())

    def _parse_select(self, *args: object, **options: object) -> exp.Expr | None:
        """A subquery in an expression: sqlglot calls this behind a parenthesis."""
        if not self.is_at(TokenType.SELECT, TokenType.WITH):
            return super()._parse_select(*args, **options)
        first = self._curr
        body = self.read_body()
        start, end = self.span_since(first)
        node = exp.Placeholder()
        node.meta.update(body=body, start=start, end=end - 1)
        return node

    def _read_named_query(self) -> tuple[Name, BodySyntax]:
        if self._curr.text.upper() == "RECURSIVE":
            raise self.unsupported_error("WITH RECURSIVE", self.locate_token(), "a relation cannot read itself")
        name = self.read_name("the name of a query")
        self.expect_words("AS", "(")
        body = self.read_body()
        self.expect_words(")")
        return name, body

    def _read_set(self) -> BodySyntax:
        left = self._read_term()
        while self.is_at(TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT):
            operator = self._curr
            self._advance()
            everything = self._match(TokenType.ALL)
            distinct = not everything and self._match(TokenType.DISTINCT)
            if operator.token_type == TokenType.INTERSECT:
                raise self.unsupported_error("INTERSECT", self.span_since(operator), advice.INTERSECT)
            if operator.token_type == TokenType.UNION and not everything:
                written = "UNION DISTINCT" if distinct else "UNION"
                raise self.unsupported_error(written, self.span_since(operator), advice.UNION)
            if operator.token_type == TokenType.EXCEPT and everything:
                raise self.unsupported_error("EXCEPT ALL", self.span_since(operator), advice.EXCEPT_ALL)
            first = self._curr
            right = self._read_term()
            kind: SetKind = "union all" if operator.token_type == TokenType.UNION else "except"
            left = SetSyntax(kind, left, right, self.span_since(first))
        return left

    def _read_term(self) -> BodySyntax:
        if self._match(TokenType.L_PAREN):
            body = self.read_body()
            self.expect_words(")")
            return body
        if self._curr.text.upper() in _EMITS and self._next.token_type == TokenType.L_PAREN:
            written = self._curr.text.upper()
            raise self.unsupported_error(
                f"nested {written}", self.locate_token(), f"{written} must enclose the whole query"
            )
        return self._read_select()

    def _read_select(self) -> SelectSyntax:
        first = self.expect_words("SELECT")
        if self.is_at(TokenType.HINT):
            raise self.unsupported_error("HINT", self.locate_token(), "give the plan by the argument plan=")
        distinct = self._match(TokenType.DISTINCT)
        if not distinct:
            self._match(TokenType.ALL)
        items = self.read_list(self._read_item)
        self.expect_words("FROM")
        sequence: SeqMode | None = None
        items_from: tuple[FromSyntax, ...]
        if self.is_next("SEQ", "("):
            items_from, sequence = self._read_sequence()
        else:
            items_from = self.read_list(self.read_from_item)
        clauses = self._read_clauses()
        return SelectSyntax(
            span=self.span_since(first),
            distinct=distinct,
            items=items,
            from_items=items_from,
            sequence=sequence,
            where=clauses.where,
            window=clauses.window,
            group_by=clauses.group_by,
            having=clauses.having,
            freshness=clauses.freshness,
        )

    def _read_item(self) -> exp.Expr:
        expression = self.read_scalar("a column or an expression")
        node = self._parse_alias(expression) or expression
        if isinstance(node, exp.Alias) and not (isinstance(node.args["alias"], exp.Identifier) and node.alias):
            raise self.origin.error("SYNTAX_ERROR", "expected a name after the expression", find_span(node))
        return node

    def _read_clauses(self) -> _SelectClauses:
        """WHERE, GROUP BY and HAVING in SQL's order; WINDOW and FRESHNESS anywhere after FROM."""
        clauses = _SelectClauses()
        seen: list[str] = []
        while clause := self._read_clause_keyword(seen):
            match clause:
                case "WHERE":
                    clauses.where = self.read_scalar("a condition")
                case "WINDOW":
                    if self._curr.text.casefold() in advice.FUNCTIONS:
                        construct, instead = advice.FUNCTIONS[self._curr.text.casefold()]
                        raise self.unsupported_error(construct, self.locate_token(), instead)
                    clauses.window = self.read_amount("a duration such as 10 MINUTES")
                case "GROUP BY":
                    clauses.group_by = self.read_list(lambda: self.read_scalar("a column or an expression"))
                case "HAVING":
                    clauses.having = self.read_scalar("a condition")
                case "FRESHNESS":
                    clauses.freshness = self.read_list(self._read_freshness)
            seen.append(clause)
        if self.is_at_emit() and not self.is_next("EMIT", "CHANGES"):
            raise self.unsupported_error("EMIT", self.locate_token(), advice.EMIT)
        self.refuse_clause()
        return clauses

    def _read_clause_keyword(self, seen: list[str]) -> str | None:
        clause = " ".join(self._curr.text.upper().split())
        if clause not in _CLAUSE_ORDER or not self.is_keyword():
            return None
        if clause in seen:
            raise self.origin.error("SYNTAX_ERROR", f"a second {clause}", self.locate_token())
        later = next((other for other in seen if other in _CLAUSE_ORDER[clause]), None)
        if later:
            raise self.origin.error("SYNTAX_ERROR", f"{clause} must come before {later}", self.locate_token())
        self._advance()
        return clause

    def _read_freshness(self) -> tuple[Name, Amount]:
        return self.read_name("an alias of FROM"), self.read_amount("a duration such as 12 MINUTES")

    def _read_sequence(self) -> tuple[tuple[SourceSyntax, ...], SeqMode]:
        first = self._curr
        self._advance(2)
        sources = self.read_list(self.read_source)
        self.expect_words(")")
        if len(sources) < 2:
            raise self.origin.error("SYNTAX_ERROR", "SEQ needs at least two streams", self.span_since(first))
        if not self._match_text_seq("MODE") or self._curr.text.upper() not in _MODES:
            raise self.expected_error("MODE RECENT or MODE CHRONICLE")
        self._advance()
        mode = _MODES[self._prev.text.upper()]
        if self.is_at(TokenType.COMMA) or self.is_at_join():
            raise self.unsupported_error("JOIN with SEQ", self.locate_token(), SEQUENCE_ADVICE)
        return sources, mode
