"""The grammar of CQL queries: SELECT with windows, sequences, set operations and ISTREAM/DSTREAM/RSTREAM."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.cql import advice
from penstock.cql.bound import Emit, SeqMode
from penstock.cql.dialect import ScalarParser, find_span
from penstock.cql.errors import CqlError
from penstock.cql.syntax import (
    Amount,
    BodySyntax,
    Name,
    QuerySyntax,
    RangeSyntax,
    RowsSyntax,
    SelectSyntax,
    SetKind,
    SetSyntax,
    SourceSyntax,
    WindowForm,
    WindowSyntax,
)
from penstock.cql.windows import NOW, UNBOUNDED

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
_UNSUPPORTED = {
    TokenType.ORDER_BY: ("ORDER BY", "remove it; results leave in temporal order"),
    TokenType.SORT_BY: ("SORT BY", "results leave in temporal order"),
    TokenType.CLUSTER_BY: ("CLUSTER BY", ""),
    TokenType.DISTRIBUTE_BY: ("DISTRIBUTE BY", ""),
    TokenType.LIMIT: ("LIMIT", advice.LIMIT),
    TokenType.FETCH: ("FETCH", advice.LIMIT),
    TokenType.OFFSET: ("OFFSET", advice.LIMIT),
    TokenType.QUALIFY: ("QUALIFY", ""),
    TokenType.LATERAL: ("LATERAL", ""),
    TokenType.PIVOT: ("PIVOT", ""),
    TokenType.UNPIVOT: ("UNPIVOT", ""),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", ""),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", "write FROM SEQ(...)"),
}
_SEQUENCE_ADVICE = "derive the sequence with CREATE STREAM ... AS and join that"
_UNSUPPORTED_JOINS = {
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
class _SelectClauses:
    """The clauses after FROM that have been read."""

    where: exp.Expr | None = None
    window: Amount | None = None
    group_by: tuple[exp.Expr, ...] | None = None
    having: exp.Expr | None = None
    freshness: tuple[tuple[Name, Amount], ...] = ()


class QueryParser(ScalarParser):
    """Parses queries strictly: an unsupported construct is refused by its name, other errors say what was expected."""

    def read_query(self) -> QuerySyntax:
        first = self._curr
        emit = _EMITS.get(first.text.upper())
        if emit and self._next.token_type == TokenType.L_PAREN:
            self._advance(2)
            body = self.read_body()
            self.expect_words(")")
        else:
            emit, body = "istream", self.read_body()
        return QuerySyntax(emit, body, self.span_since(first))

    def read_body(self) -> BodySyntax:
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
        if self.is_next("WITH"):
            raise self.unsupported_error("WITH", self.locate_token(), advice.SUBQUERY_IN_FROM)
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
        conditions: tuple[exp.Expr, ...] = ()
        if self.is_next("SEQ", "("):
            sources, sequence = self._read_sequence()
        else:
            sources, conditions = self._read_joins()
        clauses = self._read_clauses()
        return SelectSyntax(
            span=self.span_since(first),
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
        self._refuse_emit()
        self._refuse_clause()
        return clauses

    def _refuse_clause(self) -> None:
        """Refuse a clause of SQL that is not supported, by its name."""
        if self._curr.token_type in _UNSUPPORTED:
            construct, instead = _UNSUPPORTED[self._curr.token_type]
            raise self.unsupported_error(construct, self.locate_token(), instead)

    def _refuse_emit(self) -> None:
        if self.is_next("EMIT", "CHANGES") or self.is_next("EMIT", "FINAL") or self.is_next("EMIT", "ON"):
            raise self.unsupported_error("EMIT", self.locate_token(), advice.EMIT)

    def _read_clause_keyword(self, seen: list[str]) -> str | None:
        clause = " ".join(self._curr.text.upper().split())
        if clause not in _CLAUSE_ORDER or self._curr.token_type in self.TEXT_MATCH_EXCLUDED_TOKENS:
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

    def _read_joins(self) -> tuple[tuple[SourceSyntax, ...], tuple[exp.Expr, ...]]:
        """FROM items, divided by commas or JOIN, and the conditions of ON."""
        sources = [self._read_source()]
        conditions: list[exp.Expr] = []
        while True:
            if self._match(TokenType.COMMA) or self._match_text_seq("CROSS", "JOIN"):
                sources.append(self._read_source())
            elif self._match_text_seq("INNER", "JOIN") or self._match(TokenType.JOIN):
                sources.append(self._read_source())
                if self.is_at(TokenType.USING):
                    raise self._unsupported_using_error(sources)
                self.expect_words("ON")
                conditions.append(self.read_scalar("a condition"))
            else:
                break
        if self._curr.token_type in _UNSUPPORTED_JOINS:
            raise self._unsupported_join_error()
        return tuple(sources), tuple(conditions)

    def _unsupported_using_error(self, sources: list[SourceSyntax]) -> CqlError:
        first = self._curr
        self._advance()
        self.expect_words("(")
        columns = self.read_list(lambda: self.read_name("a column"))
        self.expect_words(")")
        left, right = ((source.alias or source.relation).text for source in sources[-2:])
        equal = " AND ".join(f"{left}.{column.text} = {right}.{column.text}" for column in columns)
        return self.unsupported_error("USING", self.span_since(first), f"write ON {equal}")

    def _unsupported_join_error(self) -> CqlError:
        first, construct = self._curr, _UNSUPPORTED_JOINS[self._curr.token_type]
        while self._curr.token_type in _UNSUPPORTED_JOINS or self.is_at(TokenType.INNER, TokenType.JOIN):
            self._advance()
        return self.unsupported_error(construct, self.span_since(first), advice.JOINS[construct])

    def _read_sequence(self) -> tuple[tuple[SourceSyntax, ...], SeqMode]:
        first = self._curr
        self._advance(2)
        sources = self.read_list(self._read_source)
        self.expect_words(")")
        if len(sources) < 2:
            raise self.origin.error("SYNTAX_ERROR", "SEQ needs at least two streams", self.span_since(first))
        if not self._match_text_seq("MODE") or self._curr.text.upper() not in _MODES:
            raise self.expected_error("MODE RECENT or MODE CHRONICLE")
        self._advance()
        mode = _MODES[self._prev.text.upper()]
        if self.is_at(TokenType.COMMA, TokenType.JOIN, TokenType.CROSS, TokenType.INNER, *_UNSUPPORTED_JOINS):
            raise self.unsupported_error("JOIN with SEQ", self.locate_token(), _SEQUENCE_ADVICE)
        return sources, mode

    def _read_source(self) -> SourceSyntax:
        if self.is_at(TokenType.L_PAREN):
            raise self.unsupported_error("SUBQUERY", self.locate_token(), advice.SUBQUERY_IN_FROM)
        if self.is_next("SEQ", "("):
            raise self.unsupported_error("JOIN with SEQ", self.locate_token(), _SEQUENCE_ADVICE)
        self._refuse_clause()
        relation = self.read_name("a stream or table")
        if self.is_at(TokenType.L_PAREN):
            construct, instead = advice.FUNCTIONS.get(relation.text.casefold(), ("TABLE FUNCTION", ""))
            raise self.unsupported_error(construct, relation.span, instead)
        window = self._read_window() if self.is_at(TokenType.L_BRACKET) else None
        self._refuse_emit()
        bare = self.is_at(TokenType.VAR, TokenType.IDENTIFIER) and not self.is_next("FRESHNESS")
        alias = self.read_name("an alias") if self._match(TokenType.ALIAS) or bare else None
        if alias and self.is_at(TokenType.L_BRACKET):
            message = f"the window comes before the alias: write {relation.text} [...] AS {alias.text}"
            raise self.origin.error("SYNTAX_ERROR", message, self.locate_token())
        return SourceSyntax(relation, alias, window)

    def _read_window(self) -> WindowSyntax:
        first = self._curr
        self._advance()
        form = self._read_window_form()
        if self.is_next("SLIDE"):
            raise self.origin.error("SLIDE_WITHOUT_RANGE", "SLIDE is only allowed after a RANGE", self.locate_token())
        self.expect_words("]")
        return WindowSyntax(form, self.span_since(first))

    def _read_window_form(self) -> WindowForm:
        """The text between the brackets of a window."""
        if self._match_text_seq("NOW"):
            return NOW
        if self._match_text_seq("UNBOUNDED") or self._match_text_seq("RANGE", "UNBOUNDED"):
            return UNBOUNDED
        if self._match_text_seq("RANGE"):
            size = self.read_amount("a duration such as 5 MINUTES, a number of ticks, or UNBOUNDED")
            self._match_text_seq("PRECEDING")
            slide = self.read_amount("a duration such as 1 MINUTE") if self._match_text_seq("SLIDE") else None
            return RangeSyntax(size, slide)
        partition: tuple[Name, ...] = ()
        if self._match(TokenType.PARTITION_BY):
            partition = self.read_list(lambda: self.read_name("a column"))
            self.expect_words("ROWS")
        elif not self._match_text_seq("ROWS"):
            raise self.expected_error("RANGE, ROWS, PARTITION BY, NOW or UNBOUNDED, such as [RANGE 5 MINUTES]")
        return RowsSyntax(self.read_amount("a number of rows"), partition)
