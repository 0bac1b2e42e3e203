"""The grammar of CQL queries: SELECT with windows, sequences, set operations and ISTREAM/DSTREAM/RSTREAM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql import advice
from penstock.cql.bound import Emit, SeqMode, SetKind
from penstock.cql.dialect import find_span
from penstock.cql.from_parser import SEQUENCE_ADVICE, UNSUPPORTED_CLAUSES, FromParser
from penstock.cql.syntax import (
    Amount,
    BodySyntax,
    FreshnessSyntax,
    FromSyntax,
    Name,
    QuerySyntax,
    SelectSyntax,
    SetSyntax,
    SourceSyntax,
    TopSyntax,
    WithSyntax,
)

_EMITS: dict[str, Emit] = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}
_SET_TOKENS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.ALL, TokenType.DISTINCT)
_SET_KINDS: dict[tuple[str, bool], SetKind] = {
    ("union", True): "union all",
    ("union", False): "union",
    ("except", True): "except all",
    ("except", False): "except",
    ("intersect", True): "intersect all",
    ("intersect", False): "intersect",
}
_GROUPINGS: dict[TokenType, type[exp.Expr]] = {
    TokenType.ROLLUP: exp.Rollup,
    TokenType.CUBE: exp.Cube,
    TokenType.GROUPING_SETS: exp.GroupingSets,
}
_MODES: dict[str, SeqMode] = {"RECENT": "recent", "CHRONICLE": "chronicle"}
# Each clause after FROM, and the clauses that must not come before it.
_CLAUSE_ORDER: dict[str, tuple[str, ...]] = {
    "WHERE": ("GROUP BY", "HAVING", "QUALIFY"),
    "WINDOW": (),
    "GROUP BY": ("HAVING", "QUALIFY"),
    "HAVING": ("QUALIFY",),
    "QUALIFY": (),
    "FRESHNESS": (),
}


@dataclass
class _SelectClauses:
    """The clauses after FROM that have been read."""

    where: exp.Expr | None = None
    window: Amount | None = None
    group_by: tuple[exp.Expr, ...] | None = None
    having: exp.Expr | None = None
    qualify: exp.Expr | None = None
    top: TopSyntax | None = None
    freshness: tuple[FreshnessSyntax, ...] = ()
    windows: tuple[tuple[Name, exp.Expr], ...] = ()


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
            if self._match_text_seq("EMIT", "ON", "WINDOW", "CLOSE"):
                emit = "close"
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

    def _read_named_query(self) -> tuple[Name, tuple[Name, ...], BodySyntax]:
        if self._curr.text.upper() == "RECURSIVE":
            raise self.unsupported_error("WITH RECURSIVE", self.locate_token(), "a relation cannot read itself")
        name = self.read_name("the name of a query")
        columns = self.read_column_names()
        self.expect_words("AS", "(")
        body = self.read_body()
        self.expect_words(")")
        return name, columns, body

    def _read_set(self) -> BodySyntax:
        """Terms with UNION and EXCEPT between them, from left to right; INTERSECT binds more strongly."""
        left = self._read_intersection()
        while self.is_at(TokenType.UNION, TokenType.EXCEPT):
            left = self._read_operation(left, self._read_intersection)
        return left

    def _read_intersection(self) -> BodySyntax:
        left = self._read_term()
        while self.is_at(TokenType.INTERSECT):
            left = self._read_operation(left, self._read_term)
        return left

    def _read_operation(self, left: BodySyntax, read_right: Callable[[], BodySyntax]) -> SetSyntax:
        word = self._curr.text.casefold()
        self._advance()
        everything = self._match(TokenType.ALL)
        if not everything:
            self._match(TokenType.DISTINCT)
        first = self._curr
        right = read_right()
        for side in (left, right):
            if isinstance(side, SelectSyntax) and side.top is not None and side.span[1] == side.top.span[1]:
                self._refuse_top_of_set(side.top, first, right)
        return SetSyntax(_SET_KINDS[word, bool(everything)], left, right, self.span_since(first))

    def _refuse_top_of_set(self, top: TopSyntax, first: Token, right: BodySyntax) -> None:
        """ORDER BY ... LIMIT belongs to one SELECT in parentheses; behind a set operation it would belong to all."""
        if isinstance(right, SelectSyntax) and right.top is top and first.token_type != TokenType.L_PAREN:
            instead = "write SELECT * FROM (... UNION ALL ...) ORDER BY ... LIMIT n"
            raise self.unsupported_error("LIMIT of a set operation", top.span, instead)

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
        if self.is_at_relation():
            return self._read_relation()
        return self._read_select()

    def is_at_relation(self) -> bool:
        """Whether the name of a relation stands for all of its rows: X [ROWS 5] UNION Y."""
        if not self.is_at(TokenType.VAR, TokenType.IDENTIFIER):
            return False
        if self._index > 0 and self._tokens[self._index - 1].token_type in _SET_TOKENS:
            return True
        return self._next.token_type in (*_SET_TOKENS, TokenType.L_BRACKET)

    def _read_relation(self) -> SelectSyntax:
        first = self._curr
        source = self.read_source()
        span = self.span_since(first)
        star = exp.Star()
        star.meta.update(start=span[0], end=span[1] - 1)
        return SelectSyntax(
            span=span, distinct=False, items=(star,), from_items=(source,), sequence=None, where=None, window=None,
            group_by=None, having=None, qualify=None, top=None, distinct_on=(), freshness=(),
        )  # fmt: skip

    def _read_select(self) -> SelectSyntax:
        first = self.expect_words("SELECT")
        if self.is_at(TokenType.HINT):
            raise self.unsupported_error("HINT", self.locate_token(), "give the plan by the argument plan=")
        distinct = self._match(TokenType.DISTINCT)
        on: tuple[exp.Expr, ...] = ()
        if distinct and self._match(TokenType.ON):
            self.expect_words("(")
            on = self.read_list(lambda: self.read_scalar("a column or an expression"))
            self.expect_words(")")
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
        clauses = self._read_clauses(distinct_on=bool(on))
        return SelectSyntax(
            span=self.span_since(first),
            distinct=bool(distinct) and not on,
            items=items,
            from_items=items_from,
            sequence=sequence,
            where=clauses.where,
            window=clauses.window,
            group_by=clauses.group_by,
            having=clauses.having,
            qualify=clauses.qualify,
            top=clauses.top,
            distinct_on=on,
            freshness=clauses.freshness,
            windows=clauses.windows,
        )

    def _read_item(self) -> exp.Expr:
        expression = self.read_scalar("a column or an expression")
        node = self._parse_alias(expression) or expression
        if isinstance(node, exp.Alias) and not (isinstance(node.args["alias"], exp.Identifier) and node.alias):
            raise self.origin.error("SYNTAX_ERROR", "expected a name after the expression", find_span(node))
        return node

    def _read_clauses(self, *, distinct_on: bool) -> _SelectClauses:
        """WHERE, GROUP BY and HAVING in SQL's order; WINDOW and FRESHNESS anywhere after FROM."""
        clauses = _SelectClauses()
        seen: list[str] = []
        while clause := self._read_clause_keyword(seen):
            match clause:
                case "WHERE":
                    clauses.where = self.read_scalar("a condition")
                case "WINDOW" if self._next.token_type == TokenType.ALIAS:
                    clauses.windows = self.read_list(self._read_named_window)
                case "WINDOW":
                    if self._curr.text.casefold() in advice.FUNCTIONS:
                        construct, instead = advice.FUNCTIONS[self._curr.text.casefold()]
                        raise self.unsupported_error(construct, self.locate_token(), instead)
                    clauses.window = self.read_amount("a duration such as 10 MINUTES")
                case "GROUP BY":
                    clauses.group_by = self._read_group_by()
                case "HAVING":
                    clauses.having = self.read_scalar("a condition")
                case "QUALIFY":
                    clauses.qualify = self.read_scalar("a condition on a window function")
                case "FRESHNESS":
                    clauses.freshness = self.read_list(self._read_freshness)
            seen.append(clause)
        clauses.top = self._read_top(distinct_on=distinct_on)
        known = self.is_next("EMIT", "CHANGES") or self.is_next("EMIT", "ON", "WINDOW", "CLOSE")
        if self.is_at_emit() and not known:
            raise self.unsupported_error("EMIT", self.locate_token(), advice.EMIT)
        self.refuse_clause()
        return clauses

    def _read_named_window(self) -> tuple[Name, exp.Expr]:
        """A window of OVER: name AS (PARTITION BY ... ORDER BY ...)."""
        name = self.read_name("the name of a window")
        identifier = exp.to_identifier(name.text)
        identifier.meta.update(start=name.span[0], end=name.span[1] - 1)
        node = self._parse_window(identifier, alias=True)
        if not isinstance(node, exp.Window):
            raise self.expected_error("AS (PARTITION BY ... ORDER BY ...)")
        return name, node

    def _read_group_by(self) -> tuple[exp.Expr, ...]:
        terms = self.read_list(self._read_group_term)
        for word, node in (("ROLLUP", exp.Rollup), ("CUBE", exp.Cube)):
            if self._match_text_seq("WITH", word):
                return (node(expressions=list(terms)),)
        return terms

    def _read_group_term(self) -> exp.Expr:
        """A key, or ROLLUP, CUBE or GROUPING SETS with keys and lists of keys in parentheses."""
        node = _GROUPINGS.get(self._curr.token_type) if self._curr else None
        if node is None:
            return self.read_scalar("a column or an expression")
        self._advance()
        if not self._match(TokenType.L_PAREN):
            raise self.expected_error("(")
        members = self.read_list(self._read_group_member)
        if not self._match(TokenType.R_PAREN):
            raise self.expected_error(")")
        return node(expressions=list(members))

    def _read_group_member(self) -> exp.Expr:
        if self.is_at(TokenType.L_PAREN) and self._next and self._next.token_type == TokenType.R_PAREN:
            self._advance()
            self._advance()
            return exp.Tuple(expressions=[])
        return self._read_group_term()

    def _read_top(self, *, distinct_on: bool) -> TopSyntax | None:
        """ORDER BY with LIMIT, OFFSET or FETCH; alone it says nothing, because results leave in temporal order."""
        first = self._curr
        order: tuple[exp.Expr, ...] = ()
        if self._match(TokenType.ORDER_BY):
            order = self.read_list(self._read_ordered)
        limit, offset = None, 0
        while self.is_at(TokenType.LIMIT, TokenType.FETCH, TokenType.OFFSET):
            if not order:
                self.refuse_clause()
            word = self._curr.token_type
            self._advance()
            self._match_text_seq("FIRST") or self._match_text_seq("NEXT")
            number = self._read_count()
            if word == TokenType.OFFSET:
                offset = number
            else:
                limit = number
            if self._match_text_seq("ROWS") or self._match_text_seq("ROW"):
                self._match_text_seq("ONLY")
        if not order and distinct_on:
            raise self.expected_error("ORDER BY, which says which row of each DISTINCT ON is first")
        if not order:
            return None
        if limit is None and not distinct_on:
            if offset:
                raise self.expected_error("LIMIT")
            construct, instead = UNSUPPORTED_CLAUSES[TokenType.ORDER_BY]
            raise self.unsupported_error(construct, self.locate_token(first), instead)
        return TopSyntax(order, limit, offset, self.span_since(first))

    def _read_ordered(self) -> exp.Expr:
        node = self._parse_ordered()
        if node is None:
            raise self.expected_error("a column or an expression")
        return node

    def _read_count(self) -> int:
        if not self._match(TokenType.NUMBER) or not self._prev.text.isdecimal():
            raise self.expected_error("a whole number of rows")
        return int(self._prev.text)

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

    def _read_freshness(self) -> FreshnessSyntax:
        alias, amount = self.read_name("an alias of FROM"), self.read_amount("a duration such as 12 MINUTES")
        by_clock = bool(self._match_text_seq("BY"))
        if by_clock:
            self.expect_words("CLOCK")
        return FreshnessSyntax(alias, amount, by_clock)

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
