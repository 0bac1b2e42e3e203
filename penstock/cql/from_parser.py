"""The grammar of FROM: streams with windows, queries, and joins of all kinds."""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.cql import advice
from penstock.cql.dialect import ScalarParser
from penstock.cql.syntax import (
    WINDOW_KINDS,
    Amount,
    BodySyntax,
    FromSyntax,
    JoinSyntax,
    JoinSyntaxKind,
    Name,
    RangeSyntax,
    RowsSyntax,
    SourceSyntax,
    WindowCallSyntax,
    WindowForm,
    WindowSyntax,
)
from penstock.cql.windows import NOW, UNBOUNDED

UNSUPPORTED_CLAUSES = {
    TokenType.ORDER_BY: ("ORDER BY", advice.ORDER_BY),
    TokenType.SORT_BY: ("SORT BY", "remove it; results leave in temporal order"),
    TokenType.CLUSTER_BY: ("CLUSTER BY", ""),
    TokenType.DISTRIBUTE_BY: ("DISTRIBUTE BY", ""),
    TokenType.LIMIT: ("LIMIT", advice.LIMIT),
    TokenType.FETCH: ("FETCH", advice.LIMIT),
    TokenType.OFFSET: ("OFFSET", advice.LIMIT),
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
_PARAMETERS = {"SLIDE": 0, "SIZE": 1, "GAP": 1}
"""The names of durations in a window function, and their places."""
_NAME_TOKENS = (TokenType.VAR, TokenType.IDENTIFIER)
_AMOUNT_TOKENS = (TokenType.INTERVAL, TokenType.NUMBER, TokenType.STRING)
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
        if self._get_type(place) in (TokenType.VAR, TokenType.IDENTIFIER):  # (X [ROWS 5] UNION Y)
            place += 1
            if self._get_type(place) == TokenType.L_BRACKET:
                while self._get_type(place) not in (TokenType.R_BRACKET, None):
                    place += 1
                place += 1
            return self._get_type(place) in (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
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
        if (call := self._read_window_call()) is not None:
            return call
        relation = self.read_name("a stream or table")
        if self.is_at(TokenType.L_PAREN):
            construct, instead = advice.FUNCTIONS.get(relation.text.casefold(), ("TABLE FUNCTION", ""))
            raise self.unsupported_error(construct, relation.span, instead)
        window = self._read_window() if self.is_at(TokenType.L_BRACKET) else None
        alias = self._read_alias()
        if alias and self.is_at(TokenType.L_BRACKET):
            message = f"the window comes before the alias: write {relation.text} [...] AS {alias.text}"
            raise self.origin.error("SYNTAX_ERROR", message, self.locate_token())
        return SourceSyntax(relation, alias, window, columns=self.read_column_names() if alias else ())

    # ── window functions ─────────────────────────────────────────────────────────────────────────────────────────

    def _read_window_call(self) -> SourceSyntax | None:
        """TUMBLE(s, ts, size) and the other window functions, or in TABLE(...) as in the SQL standard."""
        first, index = self._curr, self._index
        wrapped = self._match_text_seq("TABLE", "(")
        kind = WINDOW_KINDS.get(self._curr.text.upper()) if self.is_keyword() else None
        if kind is None or self._next.token_type != TokenType.L_PAREN:
            self._retreat(index)
            return None
        self._advance(2)
        if self.is_at(TokenType.L_PAREN):
            message = f"{kind.upper()} reads a stream by its name; write the query around it"
            raise self.origin.error("WINDOW_OF_NO_STREAM", message, self.locate_token())
        self._skip_parameter("DATA")
        self._match_text_seq("TABLE")
        relation = self.read_name("a stream")
        partition = self._read_call_partition()
        self.expect_words(",")
        self._skip_parameter("TIMECOL")
        descriptor = self._match_text_seq("DESCRIPTOR", "(")
        time = self.read_name("the time column of the stream")
        if descriptor:
            self.expect_words(")")
        amounts: list[tuple[int, Amount]] = []
        while self._match(TokenType.COMMA):
            place = _PARAMETERS.get(self._curr.text.upper(), len(amounts))
            self._skip_parameter(*_PARAMETERS)
            amounts.append((place, self.read_amount("a duration such as INTERVAL '10' MINUTES")))
        self.expect_words(*((")", ")") if wrapped else (")",)))
        ordered = tuple(amount for _, amount in sorted(amounts, key=lambda each: each[0]))
        call = WindowCallSyntax(kind, time, ordered, partition, self.span_since(first))
        if self.is_at(TokenType.L_BRACKET):
            message = f"{kind.upper()} has a window of its own: remove the one in brackets"
            raise self.origin.error("INVALID_WINDOW", message, self.locate_token())
        return SourceSyntax(relation, self._read_alias(), None, call=call)

    def _skip_parameter(self, *names: str) -> None:
        """The name of an argument, as in SIZE => INTERVAL '10' MINUTES."""
        if self._curr.text.upper() in names and self._next.token_type == TokenType.FARROW:
            self._advance(2)

    def _read_call_partition(self) -> tuple[Name, ...]:
        if not self._match(TokenType.PARTITION_BY):
            return ()
        grouped = self._match(TokenType.L_PAREN)
        names = [self.read_name("a column")]
        while self._next.token_type in _NAME_TOKENS and self._closes_partition() and self._match(TokenType.COMMA):
            names.append(self.read_name("a column"))
        if grouped:
            self.expect_words(")")
        return tuple(names)

    def _closes_partition(self) -> bool:
        """Whether another column of PARTITION BY follows: the next name is not the time column before an amount."""
        after = self._get_type(self._index + 2)
        later = self._get_type(self._index + 3)
        return after == TokenType.R_PAREN or (after == TokenType.COMMA and later not in _AMOUNT_TOKENS)

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
        columns = self.read_column_names() if alias else ()
        if alias is None:
            self._unnamed += 1
            alias = Name(f"subquery{self._unnamed}", span)
        return SourceSyntax(alias, alias, None, body, columns=columns)

    def _read_alias(self) -> Name | None:
        clause = self.is_next("FRESHNESS") or self.is_at_emit()
        bare = self.is_at(TokenType.VAR, TokenType.IDENTIFIER) and not clause
        return self.read_name("an alias") if self._match(TokenType.ALIAS) or bare else None

    def read_column_names(self) -> tuple[Name, ...]:
        """Names for the columns of a relation, in parentheses, if they are given."""
        if not self._match(TokenType.L_PAREN):
            return ()
        columns = self.read_list(lambda: self.read_name("a name for a column"))
        self.expect_words(")")
        return columns

    def _read_window(self) -> WindowSyntax:
        first = self._curr
        self._advance()
        form = self._read_window_form()
        if self.is_next("SLIDE"):
            message = "SLIDE is only allowed after a RANGE, and after ROWS without PARTITION BY"
            raise self.origin.error("SLIDE_WITHOUT_RANGE", message, self.locate_token())
        self.expect_words("]")
        return WindowSyntax(form, self.span_since(first))

    def _read_partition_column(self) -> Name:
        """A column, with the name of the stream before it or not."""
        name = self.read_name("a column")
        if not self._match(TokenType.DOT):
            return name
        column = self.read_name("a column")
        return Name(column.text, (name.span[0], column.span[1]), qualifier=name.text)

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
            partition = self.read_list(self._read_partition_column)
            self.expect_words("ROWS")
        elif not self._match_text_seq("ROWS"):
            raise self.expected_error("RANGE, ROWS, PARTITION BY, NOW or UNBOUNDED, such as [RANGE 5 MINUTES]")
        count = self.read_amount("a number of rows")
        slide = None if partition or not self._match_text_seq("SLIDE") else self.read_amount("a number of rows")
        return RowsSyntax(count, partition, slide)
