"""The grammar of CQL statements: declarations, INSERT INTO, and scripts of them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql.catalog import Timestamps
from penstock.cql.dialect import Cql, tokens, too_deep, translated
from penstock.cql.errors import CqlError
from penstock.cql.query_parser import QueryParser
from penstock.cql.syntax import (
    Amount,
    ColumnSyntax,
    ConnectorSyntax,
    CreateSinkSyntax,
    CreateStreamAsSyntax,
    CreateStreamSyntax,
    CreateTableSyntax,
    InsertSyntax,
    Name,
    QuerySyntax,
    StatementSyntax,
)

_TIMESTAMPS: dict[str, Timestamps] = {"EXTERNAL": "external", "INTERNAL": "internal", "LATENT": "latent"}


@dataclass
class _StreamClauses:
    """What follows a stream's columns, as far as it has been read."""

    time: Name | None = None
    lateness: Amount | None = None
    timestamps: Timestamps | None = None
    skew: Amount | None = None
    idle_after: Amount | None = None


class ScriptParser(QueryParser):
    """Reads whole statements."""

    def load(self, text: str, words: list[Token]) -> None:
        """Stands before the first word of one statement."""
        self.reset()
        self.sql = text
        self._chunks = [words]
        self._advance_chunk()

    def done(self) -> None:
        if self._curr:
            raise self.expected("the end of the statement")

    def statement(self) -> StatementSyntax:
        if self._match(TokenType.CREATE):
            return self._create()
        if self._match(TokenType.INSERT):
            if not self._match(TokenType.INTO):
                raise self.expected("INTO")
            sink = self.name("a sink")
            if self.at(TokenType.L_PAREN) and self._next.token_type not in (TokenType.SELECT, TokenType.L_PAREN):
                raise self.refusal("COLUMN LIST", self.place(), "name the columns in the SELECT")
            return InsertSyntax(sink, self.query())
        if self.sees("SELECT") or self.sees("WITH") or self.at(TokenType.L_PAREN):
            return self.query()
        if self._curr.text.upper() in ("ISTREAM", "DSTREAM", "RSTREAM"):
            return self.query()
        raise self.expected("CREATE, INSERT INTO, SELECT, ISTREAM, DSTREAM or RSTREAM")

    def _create(self) -> StatementSyntax:
        if self.sees("OR", "REPLACE"):
            raise self.refusal("OR REPLACE", self.place())
        if self._match_text_seq("STREAM"):
            name = self._declared("a name for the stream")
            if self._match(TokenType.ALIAS):
                return CreateStreamAsSyntax(name, self.query())
            return self._stream(name)
        if self._match(TokenType.TABLE):
            name = self._declared("a name for the table")
            if self.sees("AS"):
                raise self.refusal("CREATE TABLE AS", self.place(), "derive a stream with CREATE STREAM ... AS")
            return CreateTableSyntax(name, self._columns(), self._connector("FROM"))
        if self._match_text_seq("SINK"):
            name = self._declared("a name for the sink")
            connector = self._connector("TO")
            if connector is None:
                raise self.expected("TO and a format")
            return CreateSinkSyntax(name, connector)
        raise self.expected("STREAM, TABLE or SINK")

    def _declared(self, what: str) -> Name:
        if self.sees("IF", "NOT", "EXISTS"):
            raise self.refusal("IF NOT EXISTS", self.place())
        return self.name(what)

    def _stream(self, name: Name) -> CreateStreamSyntax:
        columns = self._columns()
        clauses = _StreamClauses()
        while self._stream_clause(clauses):
            pass
        if clauses.time is None:
            raise self.expected("TIMESTAMP BY and the time column")
        return CreateStreamSyntax(
            name=name,
            columns=columns,
            time=clauses.time,
            lateness=clauses.lateness,
            timestamps=clauses.timestamps or "external",
            skew=clauses.skew,
            idle_after=clauses.idle_after,
            connector=self._connector("FROM"),
        )

    def _stream_clause(self, clauses: _StreamClauses) -> bool:
        """Reads one clause, whichever comes; each stands once at most."""
        first = self._curr
        if self._match_text_seq("TIMESTAMP", "BY"):
            before, clauses.time = clauses.time, self.name("the time column")
            return self._once(before is None, first)
        if self._match_text_seq("LATENESS"):
            before_amount, clauses.lateness = clauses.lateness, self.amount("a duration such as 5 SECONDS")
            return self._once(before_amount is None, first)
        if self._match_text_seq("IDLE"):
            self.need("AFTER")
            before_amount, clauses.idle_after = clauses.idle_after, self.amount("a duration such as 30 SECONDS")
            return self._once(before_amount is None, first)
        if self._match_text_seq("TIMESTAMPS"):
            if self._curr.text.upper() not in _TIMESTAMPS:
                raise self.expected("EXTERNAL, INTERNAL or LATENT")
            self._advance()
            before_kind, clauses.timestamps = clauses.timestamps, _TIMESTAMPS[self._prev.text.upper()]
            if clauses.timestamps == "external" and self._match_text_seq("SKEW"):
                clauses.skew = self.amount("a duration such as 1 SECOND")
            return self._once(before_kind is None, first)
        return False

    def _once(self, fresh: bool, first: Token) -> bool:
        if not fresh:
            raise self.origin.error("SYNTAX_ERROR", f"a second {first.text.upper()}", self.since(first))
        return True

    def _columns(self) -> tuple[ColumnSyntax, ...]:
        if not self._match(TokenType.L_PAREN):
            raise self.expected("the columns in parentheses")
        columns = self.listed(self._column)
        self.need(")")
        return columns

    def _column(self) -> ColumnSyntax:
        name = self.name("a column")
        return ColumnSyntax(name, self.type_name((TokenType.COMMA, TokenType.R_PAREN)))

    def _connector(self, keyword: str) -> ConnectorSyntax | None:
        if not self._match_text_seq(keyword):
            return None
        first = self._curr
        parts = [self.name("a format such as parquet").text]
        while self._match(TokenType.DOT):
            parts.append(self.name("the rest of the format's name").text)
        options: tuple[tuple[str, str], ...] = ()
        if self._match_text_seq("OPTIONS"):
            self.need("(")
            options = self.listed(self._option)
            self.need(")")
        return ConnectorSyntax(".".join(parts), options, self.since(first))

    def _option(self) -> tuple[str, str]:
        """A key (a string or dotted words) and a value (a string, a number, true or false)."""
        if self._match(TokenType.STRING):
            key = self._prev.text
        else:
            key = self.name("an option").text
            while self._match(TokenType.DOT):
                key += "." + self.name("the rest of the option's name").text
        self._match(TokenType.EQ)
        if self._match(TokenType.STRING):
            return key, self._prev.text
        sign = "-" if self._match(TokenType.DASH) else ""
        if self._match(TokenType.NUMBER):
            return key, sign + self._prev.text
        if not sign and self._match_set((TokenType.TRUE, TokenType.FALSE)):
            return key, self._prev.text.lower()
        raise self.expected("a string, a number, true or false")


def parse_query(text: str) -> QuerySyntax:
    """One query, perhaps closed by a semicolon."""
    statements = _split(text)
    if not statements:
        raise CqlError("SYNTAX_ERROR", "expected SELECT, the text is empty", text, (0, len(text)))
    parser = ScriptParser(dialect=Cql())
    try:
        parser.load(text, statements[0])
        query = parser.query()
        parser.done()
    except ParseError as error:
        raise translated(error, text) from None
    except RecursionError:
        raise too_deep(text) from None
    if len(statements) > 1:
        start = statements[1][0].start
        raise CqlError("SYNTAX_ERROR", "expected one query, found another statement", text, (start, len(text)))
    return query


def parse_script(text: str) -> list[StatementSyntax]:
    """Every statement of a script."""
    parser = ScriptParser(dialect=Cql())
    statements = []
    try:
        for words in _split(text):
            parser.load(text, words)
            statements.append(parser.statement())
            parser.done()
    except ParseError as error:
        raise translated(error, text) from None
    except RecursionError:
        raise too_deep(text) from None
    return statements


def _split(text: str) -> list[list[Token]]:
    """The words of each statement; empty statements do not count."""
    statements: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [words for words in statements if words]
