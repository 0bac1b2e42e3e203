"""The grammar of FROM: streams with windows, queries, and joins of all kinds."""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.cql import advice
from penstock.cql.dialect import ScalarParser
from penstock.cql.syntax import (
    BodySyntax,
    FromSyntax,
    JoinSyntax,
    JoinSyntaxKind,
    Name,
    RangeSyntax,
    RowsSyntax,
    SourceSyntax,
    WindowForm,
    WindowSyntax,
)
from penstock.cql.windows import NOW, UNBOUNDED

UNSUPPORTED_CLAUSES = {
    TokenType.ORDER_BY: ("ORDER BY", "remove it; results leave in temporal order"),
    TokenType.SORT_BY: ("SORT BY", "remove it; results leave in temporal order"),
    TokenType.CLUSTER_BY: ("CLUSTER BY", ""),
    TokenType.DISTRIBUTE_BY: ("DISTRIBUTE BY", ""),
    TokenType.LIMIT: ("LIMIT", advice.LIMIT),
    TokenType.FETCH: ("FETCH", advice.LIMIT),
    TokenType.OFFSET: ("OFFSET", advice.LIMIT),
    TokenType.QUALIFY: ("QUALIFY", advice.QUALIFY),
    TokenType.LATERAL: ("LATERAL", ""),
    TokenType.PIVOT: ("PIVOT", ""),
    TokenType.UNPIVOT: ("UNPIVOT", ""),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", ""),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", "write FROM SEQ(...)"),
}
SEQUENCE_ADVICE = "derive the sequence with CREATE STREAM ... AS and join that"
_JOIN_KINDS: dict[TokenType, JoinSyntaxKind] = {
    TokenType.INNER: "inner",
    TokenType.CROSS: "cross",
    TokenType.LEFT: "left",
    TokenType.RIGHT: "right",
    TokenType.FULL: "full",
    TokenType.SEMI: "semi",
    TokenType.ANTI: "anti",
}
_JOIN_WORDS = (*_JOIN_KINDS, TokenType.NATURAL, TokenType.ASOF, TokenType.OUTER, TokenType.JOIN)


class FromParser(ScalarParser):
    """Parses the FROM clause strictly: an unsupported construct is refused by its name."""

    _unnamed = 0
    """How many queries in FROM have no alias."""
    _closing: dict[int, int] | None = None

    @abstractmethod
    def read_body(self) -> BodySyntax:
        """A query in parentheses, without these."""

    def is_at_join(self) -> bool:
        """Whether a join follows."""
        return self.is_at(*_JOIN_WORDS)

    def is_at_emit(self) -> bool:
        """Whether EMIT follows, with a word that is a clause of SQL dialects; without one, it is an alias."""
        return any(self.is_next("EMIT", word) for word in ("CHANGES", "FINAL", "ON"))

    def refuse_clause(self) -> None:
        """Refuse a clause of SQL that is not supported, by its name."""
        if self._curr.token_type in UNSUPPORTED_CLAUSES:
            construct, instead = UNSUPPORTED_CLAUSES[self._curr.token_type]
            raise self.unsupported_error(construct, self.locate_token(), instead)

    def read_from_item(self) -> FromSyntax:
        """A FROM item with the joins behind it."""
        left = self._read_primary()
        while self.is_at_join():
            left = self._read_join(left)
        return left

    def _read_join(self, left: FromSyntax) -> JoinSyntax:
        first = self._curr
        natural = self._match(TokenType.NATURAL)
        if natural and self.is_at(TokenType.CROSS):
            raise self.expected_error("JOIN, LEFT, RIGHT, FULL, SEMI or ANTI")
        kind = self._read_join_kind()
        right = self._read_primary()
        condition: exp.Expr | None = None
        using: tuple[Name, ...] = ()
        if not natural and kind != "cross":
            if self._match(TokenType.USING):
                self.expect_words("(")
                using = self.read_list(lambda: self.read_name("a column of both sides"))
                self.expect_words(")")
            elif self._match(TokenType.ON):
                condition = self.read_scalar("a condition")
            else:
                raise self.expected_error("ON")
        return JoinSyntax(kind, left, right, condition, using, natural, self.span_since(first))

    def _read_join_kind(self) -> JoinSyntaxKind:
        """The words up to and including JOIN."""
        first, kind = self._curr, _JOIN_KINDS.get(self._curr.token_type, "inner")
        if self.is_at(TokenType.ASOF):
            raise self.unsupported_error("ASOF JOIN", self.locate_token(), advice.ASOF_JOIN)
        if self._curr.token_type in _JOIN_KINDS:
            self._advance()
        if first.token_type == TokenType.LEFT and self.is_at(TokenType.SEMI, TokenType.ANTI):
            kind = _JOIN_KINDS[self._curr.token_type]
            self._advance()
        elif first.token_type in (TokenType.LEFT, TokenType.RIGHT, TokenType.FULL):
            self._match(TokenType.OUTER)
        if not self._match(TokenType.JOIN):
            raise self.expected_error("JOIN")
        return kind

    def _read_primary(self) -> FromSyntax:
        """A stream, a table, a query, or joins in parentheses."""
        if not self.is_at(TokenType.L_PAREN) or self._begins_query():
            return self.read_source()
        self._advance()
        item = self.read_from_item()
        self.expect_words(")")
        return item

    def _begins_query(self) -> bool:
        """Whether the parentheses that follow enclose a query."""
        place = self._index + 1
        while self._get_type(place) == TokenType.L_PAREN:
            after = self._get_type(self._find_end(place) + 1)
            if after != TokenType.R_PAREN:
                return after in (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
            place += 1
        return self._get_type(place) in (TokenType.SELECT, TokenType.WITH)

    def _find_end(self, place: int) -> int:
        """The place of the parenthesis that closes the one at a place."""
        if self._closing is None:
            self._closing = self._match_parentheses()
        return self._closing.get(place, len(self._tokens))

    def _match_parentheses(self) -> dict[int, int]:
        """For each opening parenthesis of the text, the one that closes it."""
        found: dict[int, int] = {}
        opened: list[int] = []
        for place in range(len(self._tokens)):
            if self._get_type(place) == TokenType.L_PAREN:
                opened.append(place)
            elif self._get_type(place) == TokenType.R_PAREN and opened:
                found[opened.pop()] = place
        return found

    def _get_type(self, place: int) -> TokenType | None:
        return self._tokens[place].token_type if place < len(self._tokens) else None

    def read_source(self) -> SourceSyntax:
        if self.is_at(TokenType.L_PAREN):
            return self._read_subquery()
        if self.is_next("SEQ", "("):
            raise self.unsupported_error("JOIN with SEQ", self.locate_token(), SEQUENCE_ADVICE)
        self.refuse_clause()
        relation = self.read_name("a stream or table")
        if self.is_at(TokenType.L_PAREN):
            construct, instead = advice.FUNCTIONS.get(relation.text.casefold(), ("TABLE FUNCTION", ""))
            raise self.unsupported_error(construct, relation.span, instead)
        window = self._read_window() if self.is_at(TokenType.L_BRACKET) else None
        alias = self._read_alias()
        if alias and self.is_at(TokenType.L_BRACKET):
            message = f"the window comes before the alias: write {relation.text} [...] AS {alias.text}"
            raise self.origin.error("SYNTAX_ERROR", message, self.locate_token())
        return SourceSyntax(relation, alias, window)

    def _read_subquery(self) -> SourceSyntax:
        first = self._curr
        self._advance()
        body = self.read_body()
        self.expect_words(")")
        span = self.span_since(first)
        if self.is_at(TokenType.L_BRACKET):
            message = "a query in FROM takes no window: its rows are those of its answer; write the window inside it"
            raise self.origin.error("WINDOW_ON_SUBQUERY", message, self.locate_token())
        alias = self._read_alias()
        if alias is None:
            self._unnamed += 1
            alias = Name(f"subquery{self._unnamed}", span)
        return SourceSyntax(alias, alias, None, body)

    def _read_alias(self) -> Name | None:
        clause = self.is_next("FRESHNESS") or self.is_at_emit()
        bare = self.is_at(TokenType.VAR, TokenType.IDENTIFIER) and not clause
        return self.read_name("an alias") if self._match(TokenType.ALIAS) or bare else None

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
