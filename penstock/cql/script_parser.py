"""The grammar of CQL statements and scripts: declarations, INSERT INTO and queries."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql import advice
from penstock.cql.catalog import Timestamps
from penstock.cql.dialect import CqlDialect, make_nesting_error, tokenize, translate_error
from penstock.cql.errors import CqlError
from penstock.cql.query_parser import QueryParser
from penstock.cql.secrets import SECRET_FUNCTIONS, secret, secret_file
from penstock.cql.syntax import (
    Amount,
    ColumnSyntax,
    ConnectorSyntax,
    CreateSinkSyntax,
    CreateStreamAsSyntax,
    CreateStreamSyntax,
    CreateTableSyntax,
    CreateUpdatingTableSyntax,
    CreateViewSyntax,
    InsertSyntax,
    Name,
    QuerySyntax,
    StatementSyntax,
)

_WATERMARK_ADVICE = "write TIMESTAMP BY ts LATENESS 5 SECONDS after the columns"
_WORD = re.compile(r"[A-Za-z_]\w*")
_TIMESTAMPS: dict[str, Timestamps] = {"EXTERNAL": "external", "INTERNAL": "internal", "LATENT": "latent"}


@dataclass
class _StreamClauses:
    """The clauses after the columns of a stream that have been read."""

    time: Name | None = None
    lateness: Amount | None = None
    timestamps: Timestamps | None = None
    skew: Amount | None = None
    idle_after: Amount | None = None
    ahead: Amount | None = None


class ScriptParser(QueryParser):
    """Parses whole statements."""

    def load_tokens(self, text: str, words: list[Token]) -> None:
        """Start at the first token of one statement."""
        self.reset()
        self.sql = text
        self._chunks = [words]
        self._advance_chunk()

    def expect_end(self) -> None:
        if self._curr:
            raise self.expected_error("the end of the statement")

    def read_statement(self) -> StatementSyntax | CreateUpdatingTableSyntax:
        if self._match(TokenType.CREATE):
            return self._read_create()
        if self._match(TokenType.INSERT):
            if not self._match(TokenType.INTO):
                raise self.expected_error("INTO")
            sink = self.read_name("a sink")
            if self.is_at(TokenType.L_PAREN) and self._next.token_type not in (TokenType.SELECT, TokenType.L_PAREN):
                raise self.unsupported_error("COLUMN LIST", self.locate_token(), "name the columns in the SELECT")
            return InsertSyntax(sink, self.read_query())
        if self.is_next("SELECT") or self.is_next("WITH") or self.is_at(TokenType.L_PAREN):
            return self.read_query()
        if self._curr.text.upper() in ("ISTREAM", "DSTREAM", "RSTREAM"):
            return self.read_query()
        if self.is_at_relation():
            return self.read_query()
        raise self.expected_error("CREATE, INSERT INTO, SELECT, ISTREAM, DSTREAM or RSTREAM")

    def _read_create(self) -> StatementSyntax | CreateUpdatingTableSyntax:
        if self.is_next("OR", "REPLACE"):
            raise self.unsupported_error("OR REPLACE", self.locate_token(), "remove it; a script declares a name once")
        if self._match_text_seq("STREAM"):
            name = self._read_new_name("a name for the stream")
            if self._match(TokenType.ALIAS):
                return CreateStreamAsSyntax(name, self.read_query())
            return self._read_stream(name)
        if self._match(TokenType.TABLE):
            name = self._read_new_name("a name for the table")
            if self.is_next("AS"):
                raise self.unsupported_error("CREATE TABLE AS", self.locate_token(), advice.TABLE_AS)
            return self._read_table(name)
        if self._match_text_seq("SINK"):
            name = self._read_new_name("a name for the sink")
            connector = self._read_connector("TO")
            if connector is None:
                raise self.expected_error("TO and a format")
            return CreateSinkSyntax(name, connector)
        if self.is_next("MATERIALIZED"):
            instead = "write CREATE VIEW: it is computed once"
            raise self.unsupported_error("MATERIALIZED VIEW", self.locate_token(), instead)
        if self._match_text_seq("VIEW"):
            name = self._read_new_name("a name for the view")
            self.expect_words("AS")
            return CreateViewSyntax(name, self.read_query())
        raise self.expected_error("STREAM, TABLE, VIEW or SINK")

    def _read_new_name(self, what: str) -> Name:
        if self.is_next("IF", "NOT", "EXISTS"):
            raise self.unsupported_error(
                "IF NOT EXISTS", self.locate_token(), "remove it; a script declares a name once"
            )
        return self.read_name(what)

    def _read_table(self, name: Name) -> CreateTableSyntax | CreateUpdatingTableSyntax:
        """A static table, or one with a PRIMARY KEY and a time column, whose rows change."""
        columns, key = self._read_table_columns()
        if key:
            return CreateUpdatingTableSyntax(self._read_declaration(name, columns), key)
        if self.is_next("TIMESTAMP", "BY"):
            message = f"the updating table {name.text} needs a key; write PRIMARY KEY (column) after the columns"
            raise self.origin.error("KEY_NEEDED", message, self.locate_token())
        return CreateTableSyntax(name, columns, self._read_connector("FROM"))

    def _read_table_columns(self) -> tuple[tuple[ColumnSyntax, ...], tuple[Name, ...]]:
        """The columns and the key, which is a clause of its own or follows the type of one column."""
        if not self._match(TokenType.L_PAREN):
            raise self.expected_error("the columns in parentheses")
        columns: list[ColumnSyntax] = []
        key: tuple[Name, ...] = ()
        while True:
            if self._match(TokenType.PRIMARY_KEY):
                self.expect_words("(")
                key = self.read_list(lambda: self.read_name("a column of the key"))
                self.expect_words(")")
            else:
                column = self._read_column()
                bare = re.sub(r"(?i)\s+primary\s+key\s*$", "", column.type.text)
                if bare != column.type.text:
                    key = (column.name,)
                columns.append(ColumnSyntax(column.name, Name(bare, column.type.span)))
            if not self._match(TokenType.COMMA):
                break
        self.expect_words(")")
        return tuple(columns), key

    def _read_stream(self, name: Name) -> CreateStreamSyntax:
        return self._read_declaration(name, self._read_columns())

    def _read_declaration(self, name: Name, columns: tuple[ColumnSyntax, ...]) -> CreateStreamSyntax:
        clauses = _StreamClauses()
        while self._read_stream_clause(clauses):
            pass
        if self.is_next("WATERMARK"):
            raise self.unsupported_error("WATERMARK", self.locate_token(), _WATERMARK_ADVICE)
        if clauses.time is None:
            raise self.expected_error("TIMESTAMP BY and the time column")
        return CreateStreamSyntax(
            name=name,
            columns=columns,
            time=clauses.time,
            lateness=clauses.lateness,
            timestamps=clauses.timestamps or "external",
            skew=clauses.skew,
            idle_after=clauses.idle_after,
            ahead=clauses.ahead,
            connector=self._read_connector("FROM"),
        )

    def _read_stream_clause(self, clauses: _StreamClauses) -> bool:
        """Read the next clause; each can appear once."""
        first = self._curr
        if self._match_text_seq("TIMESTAMP", "BY"):
            before, clauses.time = clauses.time, self.read_name("the time column")
            return self._check_once(before is None, first)
        if self._match_text_seq("LATENESS"):
            before_amount, clauses.lateness = clauses.lateness, self.read_amount("a duration such as 5 SECONDS")
            return self._check_once(before_amount is None, first)
        if self._match_text_seq("IDLE"):
            self.expect_words("AFTER")
            before_amount, clauses.idle_after = clauses.idle_after, self.read_amount("a duration such as 30 SECONDS")
            return self._check_once(before_amount is None, first)
        if self._match_text_seq("AHEAD"):
            before_amount, clauses.ahead = clauses.ahead, self.read_amount("a duration such as 1 DAY")
            return self._check_once(before_amount is None, first)
        if self._match_text_seq("TIMESTAMPS"):
            if self._curr.text.upper() not in _TIMESTAMPS:
                raise self.expected_error("EXTERNAL, INTERNAL or LATENT")
            self._advance()
            before_kind, clauses.timestamps = clauses.timestamps, _TIMESTAMPS[self._prev.text.upper()]
            if clauses.timestamps == "external" and self._match_text_seq("SKEW"):
                clauses.skew = self.read_amount("a duration such as 1 SECOND")
            return self._check_once(before_kind is None, first)
        return False

    def _check_once(self, fresh: bool, first: Token) -> bool:
        if not fresh:
            raise self.origin.error("SYNTAX_ERROR", f"a second {first.text.upper()}", self.span_since(first))
        return True

    def _read_columns(self) -> tuple[ColumnSyntax, ...]:
        if not self._match(TokenType.L_PAREN):
            raise self.expected_error("the columns in parentheses")
        columns = self.read_list(self._read_column)
        self.expect_words(")")
        return columns

    def _read_column(self) -> ColumnSyntax:
        if self.is_at(TokenType.PRIMARY_KEY):
            raise self.unsupported_error("PRIMARY KEY", self.locate_token(), advice.PRIMARY_KEY)
        if self.is_next("WATERMARK", "FOR"):
            raise self.unsupported_error("WATERMARK", self.locate_token(), _WATERMARK_ADVICE)
        name = self.read_name("a column")
        return ColumnSyntax(name, self.read_type((TokenType.COMMA, TokenType.R_PAREN)))

    def _read_connector(self, keyword: str) -> ConnectorSyntax | None:
        if self.is_at(TokenType.WITH):
            raise self.unsupported_error("WITH", self.locate_token(), f"write {keyword} format OPTIONS (key 'value')")
        if not self._match_text_seq(keyword):
            return None
        first = self._curr
        parts = [self.read_name("a format such as parquet").text]
        while self._match(TokenType.DOT):
            parts.append(self.read_name("the rest of the format's name").text)
        options: tuple[tuple[str, str], ...] = ()
        if self.is_at(TokenType.L_PAREN):
            raise self.expected_error("OPTIONS before the parenthesis")
        if self._match_text_seq("OPTIONS"):
            self.expect_words("(")
            options = self.read_list(self._read_option)
            self.expect_words(")")
        return ConnectorSyntax(".".join(parts), options, self.span_since(first))

    def _read_option(self) -> tuple[str, str]:
        """A key (a string or dotted words) and a value (a string, a number, true, false or a secret)."""
        if self._match(TokenType.STRING):
            key = self._prev.text
        else:
            key = self._read_word("an option")
            while self._match(TokenType.DOT):
                key += "." + self._read_word("the rest of the option's name")
        self._match(TokenType.EQ)
        if self._curr.text.casefold() in SECRET_FUNCTIONS and self._next and self._next.token_type == TokenType.L_PAREN:
            return key, self._read_secret()
        if self._match(TokenType.STRING):
            return key, self._prev.text
        sign = "-" if self._match(TokenType.DASH) else ""
        if self._match(TokenType.NUMBER):
            return key, sign + self._prev.text
        if not sign and self._match_set((TokenType.TRUE, TokenType.FALSE)):
            return key, self._prev.text.lower()
        raise self.expected_error("a string, a number, true, false, secret('NAME') or secret_file('path')")

    def _read_word(self, what: str) -> str:
        """Any word: keywords of SQL, such as `create`, are names of options too."""
        token = self._curr
        if token and token.token_type not in (TokenType.STRING, TokenType.NUMBER) and _WORD.fullmatch(token.text):
            self._advance()
            return str(token.text)
        return self.read_name(what).text

    def _read_secret(self) -> str:
        function = self._curr.text.casefold()
        self._advance()
        self.expect_words("(")
        if not self._match(TokenType.STRING) or not self._prev.text:
            raise self.expected_error(f"the place of the secret in quotes, such as {function}('PGPASSWORD')")
        reference = secret(self._prev.text) if function == "secret" else secret_file(self._prev.text)
        self.expect_words(")")
        return reference


def parse_query(text: str) -> QuerySyntax:
    """Parse one query, with or without a semicolon at its end."""
    statements = _split_statements(text)
    if not statements:
        raise CqlError("SYNTAX_ERROR", "expected SELECT, the text is empty", text, (0, len(text)))
    parser = ScriptParser(dialect=CqlDialect())
    try:
        parser.load_tokens(text, statements[0])
        query = parser.read_query()
        parser.expect_end()
    except ParseError as error:
        raise translate_error(error, text) from None
    except RecursionError:
        raise make_nesting_error(text) from None
    if len(statements) > 1:
        start = statements[1][0].start
        raise CqlError("SYNTAX_ERROR", "expected one query, found another statement", text, (start, len(text)))
    return query


def parse_script(text: str) -> list[StatementSyntax | CreateUpdatingTableSyntax]:
    """Parse every statement of a script."""
    parser = ScriptParser(dialect=CqlDialect())
    statements = []
    try:
        for words in _split_statements(text):
            parser.load_tokens(text, words)
            statements.append(parser.read_statement())
            parser.expect_end()
    except ParseError as error:
        raise translate_error(error, text) from None
    except RecursionError:
        raise make_nesting_error(text) from None
    return statements


def _split_statements(text: str) -> list[list[Token]]:
    """The tokens of each statement; empty statements are skipped."""
    statements: list[list[Token]] = [[]]
    for token in tokenize(text):
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [words for words in statements if words]
