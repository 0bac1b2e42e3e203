"""The grammar of CQL queries: SELECT with windows, sequences, set operations and ISTREAM/DSTREAM/RSTREAM."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.cql.bound import Emit, SeqMode, WindowKind
from penstock.cql.dialect import ScalarParser, span
from penstock.cql.errors import CqlError
from penstock.cql.syntax import (
    Amount,
    BodySyntax,
    Name,
    QuerySyntax,
    SelectSyntax,
    SetKind,
    SetSyntax,
    SourceSyntax,
    WindowSyntax,
)

_EMITS: dict[str, Emit] = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}
_MODES: dict[str, SeqMode] = {"RECENT": "recent", "CHRONICLE": "chronicle"}
# Each clause behind FROM, and those that must not stand before it.
_CLAUSES: dict[str, tuple[str, ...]] = {
    "WHERE": ("GROUP BY", "HAVING"),
    "WINDOW": (),
    "GROUP BY": ("HAVING",),
    "HAVING": (),
    "FRESHNESS": (),
}
_REFUSED = {
    TokenType.ORDER_BY: ("ORDER BY", "results leave in temporal order"),
    TokenType.SORT_BY: ("SORT BY", "results leave in temporal order"),
    TokenType.CLUSTER_BY: ("CLUSTER BY", ""),
    TokenType.DISTRIBUTE_BY: ("DISTRIBUTE BY", ""),
    TokenType.LIMIT: ("LIMIT", "a continuous query has no last row; bound it with a window"),
    TokenType.FETCH: ("FETCH", "a continuous query has no last row; bound it with a window"),
    TokenType.OFFSET: ("OFFSET", "a continuous query has no last row; bound it with a window"),
    TokenType.QUALIFY: ("QUALIFY", ""),
    TokenType.LATERAL: ("LATERAL", ""),
    TokenType.PIVOT: ("PIVOT", ""),
    TokenType.UNPIVOT: ("UNPIVOT", ""),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", ""),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", "write FROM SEQ(...)"),
}
_DERIVE_SEQUENCE = "derive the sequence with CREATE STREAM ... AS and join that"
_JOINS = {
    TokenType.LEFT: "OUTER JOIN",
    TokenType.RIGHT: "OUTER JOIN",
    TokenType.FULL: "OUTER JOIN",
    TokenType.OUTER: "OUTER JOIN",
    TokenType.NATURAL: "NATURAL JOIN",
    TokenType.SEMI: "SEMI JOIN",
    TokenType.ANTI: "ANTI JOIN",
    TokenType.ASOF: "ASOF JOIN",
}


@dataclass
class _Clauses:
    """What follows FROM, as far as it has been read."""

    where: exp.Expr | None = None
    window: Amount | None = None
    group_by: tuple[exp.Expr, ...] | None = None
    having: exp.Expr | None = None
    freshness: tuple[tuple[Name, Amount], ...] = ()


class QueryParser(ScalarParser):
    """Reads queries strictly: what is not in the grammar is refused by name or answered with what was expected."""

    def query(self) -> QuerySyntax:
        first = self._curr
        emit = _EMITS.get(first.text.upper())
        if emit and self._next.token_type == TokenType.L_PAREN:
            self._advance(2)
            body = self.body()
            self.need(")")
        else:
            emit, body = "istream", self.body()
        return QuerySyntax(emit, body, self.since(first))

    def body(self) -> BodySyntax:
        left = self._term()
        while self.at(TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT):
            operator = self._curr
            self._advance()
            everything = self._match(TokenType.ALL)
            distinct = not everything and self._match(TokenType.DISTINCT)
            if operator.token_type == TokenType.INTERSECT:
                raise self.refusal("INTERSECT", self.since(operator), "join the two streams")
            if operator.token_type == TokenType.UNION and not everything:
                written = "UNION DISTINCT" if distinct else "UNION"
                raise self.refusal(written, self.since(operator), "write UNION ALL")
            if operator.token_type == TokenType.EXCEPT and everything:
                raise self.refusal("EXCEPT ALL", self.since(operator), "write EXCEPT")
            first = self._curr
            right = self._term()
            kind: SetKind = "union all" if operator.token_type == TokenType.UNION else "except"
            left = SetSyntax(kind, left, right, self.since(first))
        return left

    def _term(self) -> BodySyntax:
        if self._match(TokenType.L_PAREN):
            body = self.body()
            self.need(")")
            return body
        if self.sees("WITH"):
            raise self.refusal("WITH", self.place(), "derive the stream with CREATE STREAM ... AS")
        if self._curr.text.upper() in _EMITS and self._next.token_type == TokenType.L_PAREN:
            written = self._curr.text.upper()
            raise self.refusal(f"nested {written}", self.place(), f"{written} stands around the whole query")
        return self._select()

    def _select(self) -> SelectSyntax:
        first = self.need("SELECT")
        if self.at(TokenType.HINT):
            raise self.refusal("HINT", self.place(), "give the plan by the argument plan=")
        distinct = self._match(TokenType.DISTINCT)
        if not distinct:
            self._match(TokenType.ALL)
        items = self.listed(self._item)
        self.need("FROM")
        sequence: SeqMode | None = None
        conditions: tuple[exp.Expr, ...] = ()
        if self.sees("SEQ", "("):
            sources, sequence = self._sequence()
        else:
            sources, conditions = self._joined()
        clauses = self._clauses()
        return SelectSyntax(
            span=self.since(first),
            distinct=distinct,
            items=items,
            sources=sources,
            sequence=sequence,
            conditions=conditions if clauses.where is None else (*conditions, clauses.where),
            window=clauses.window,
            group_by=clauses.group_by,
            having=clauses.having,
            freshness=clauses.freshness,
        )

    def _item(self) -> exp.Expr:
        expression = self.scalar("a column or an expression")
        node = self._parse_alias(expression) or expression
        if isinstance(node, exp.Alias) and not (isinstance(node.args["alias"], exp.Identifier) and node.alias):
            raise self.origin.error("SYNTAX_ERROR", "expected a name behind the expression", span(node))
        return node

    def _clauses(self) -> _Clauses:
        """WHERE, GROUP BY and HAVING in SQL's order; WINDOW and FRESHNESS anywhere behind FROM."""
        clauses = _Clauses()
        seen: list[str] = []
        while clause := self._next_clause(seen):
            match clause:
                case "WHERE":
                    clauses.where = self.scalar("a condition")
                case "WINDOW":
                    clauses.window = self.amount("a duration such as 10 MINUTES")
                case "GROUP BY":
                    clauses.group_by = self.listed(lambda: self.scalar("a column or an expression"))
                case "HAVING":
                    clauses.having = self.scalar("a condition")
                case "FRESHNESS":
                    clauses.freshness = self.listed(self._bound_of_freshness)
            seen.append(clause)
        if self._curr.token_type in _REFUSED:
            construct, advice = _REFUSED[self._curr.token_type]
            raise self.refusal(construct, self.place(), advice)
        return clauses

    def _next_clause(self, seen: list[str]) -> str | None:
        clause = " ".join(self._curr.text.upper().split())
        if clause not in _CLAUSES or self._curr.token_type in self.TEXT_MATCH_EXCLUDED_TOKENS:
            return None
        if clause in seen:
            raise self.origin.error("SYNTAX_ERROR", f"a second {clause}", self.place())
        later = next((other for other in seen if other in _CLAUSES[clause]), None)
        if later:
            raise self.origin.error("SYNTAX_ERROR", f"{clause} must stand before {later}", self.place())
        self._advance()
        return clause

    def _bound_of_freshness(self) -> tuple[Name, Amount]:
        return self.name("an alias of FROM"), self.amount("a duration such as 12 MINUTES")

    def _joined(self) -> tuple[tuple[SourceSyntax, ...], tuple[exp.Expr, ...]]:
        """FROM items by comma and JOIN, and the conditions of their ONs."""
        sources = [self._source()]
        conditions: list[exp.Expr] = []
        while True:
            if self._match(TokenType.COMMA) or self._match_text_seq("CROSS", "JOIN"):
                sources.append(self._source())
            elif self._match_text_seq("INNER", "JOIN") or self._match(TokenType.JOIN):
                sources.append(self._source())
                if self.at(TokenType.USING):
                    raise self.refusal("USING", self.place(), "write ON a.x = b.x")
                self.need("ON")
                conditions.append(self.scalar("a condition"))
            else:
                break
        if self._curr.token_type in _JOINS:
            raise self._join_refusal()
        return tuple(sources), tuple(conditions)

    def _join_refusal(self) -> CqlError:
        first, construct = self._curr, _JOINS[self._curr.token_type]
        while self._curr.token_type in _JOINS or self.at(TokenType.INNER, TokenType.JOIN):
            self._advance()
        return self.refusal(construct, self.since(first), "write JOIN ... ON")

    def _sequence(self) -> tuple[tuple[SourceSyntax, ...], SeqMode]:
        first = self._curr
        self._advance(2)
        sources = self.listed(self._source)
        self.need(")")
        if len(sources) < 2:
            raise self.origin.error("SYNTAX_ERROR", "SEQ needs at least two streams", self.since(first))
        if not self._match_text_seq("MODE") or self._curr.text.upper() not in _MODES:
            raise self.expected("MODE RECENT or MODE CHRONICLE")
        self._advance()
        mode = _MODES[self._prev.text.upper()]
        if self.at(TokenType.COMMA, TokenType.JOIN, TokenType.CROSS, TokenType.INNER, *_JOINS):
            raise self.refusal("JOIN with SEQ", self.place(), _DERIVE_SEQUENCE)
        return sources, mode

    def _source(self) -> SourceSyntax:
        if self.at(TokenType.L_PAREN):
            raise self.refusal("SUBQUERY", self.place(), "derive the stream with CREATE STREAM ... AS")
        if self.sees("SEQ", "("):
            raise self.refusal("JOIN with SEQ", self.place(), _DERIVE_SEQUENCE)
        if self._curr.token_type in _REFUSED:
            construct, advice = _REFUSED[self._curr.token_type]
            raise self.refusal(construct, self.place(), advice)
        relation = self.name("a stream or table")
        if self.at(TokenType.L_PAREN):
            raise self.refusal("TABLE FUNCTION", relation.span)
        window = self._window() if self.at(TokenType.L_BRACKET) else None
        bare = self.at(TokenType.VAR, TokenType.IDENTIFIER) and not self.sees("FRESHNESS")
        alias = self.name("an alias") if self._match(TokenType.ALIAS) or bare else None
        if alias and self.at(TokenType.L_BRACKET):
            message = f"the window stands before the alias: write {relation.text} [...] AS {alias.text}"
            raise self.origin.error("SYNTAX_ERROR", message, self.place())
        return SourceSyntax(relation, alias, window)

    def _window(self) -> WindowSyntax:
        first = self._curr
        self._advance()
        partition: tuple[Name, ...] = ()
        size = slide = None
        kind: WindowKind
        if self._match_text_seq("NOW"):
            kind = "now"
        elif self._match_text_seq("UNBOUNDED") or self._match_text_seq("RANGE", "UNBOUNDED"):
            kind = "unbounded"
        elif self._match_text_seq("RANGE"):
            kind, size = "range", self.amount("a duration such as 5 MINUTES, a number of ticks, or UNBOUNDED")
            slide = self.amount("a duration such as 1 MINUTE") if self._match_text_seq("SLIDE") else None
        else:
            kind = "rows"
            if self._match(TokenType.PARTITION_BY):
                partition = self.listed(lambda: self.name("a column"))
                self.need("ROWS")
            elif not self._match_text_seq("ROWS"):
                raise self.expected("RANGE, ROWS, PARTITION BY, NOW or UNBOUNDED")
            size = self.amount("a number of rows")
        if self.sees("SLIDE"):
            raise self.origin.error("SLIDE_WITHOUT_RANGE", "SLIDE stands only behind a RANGE", self.place())
        self.need("]")
        return WindowSyntax(kind, self.since(first), size, slide, partition)
