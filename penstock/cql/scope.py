"""Name resolution in one SELECT: its FROM items and their columns."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.bound import Source
from penstock.cql.dialect import find_span
from penstock.cql.errors import CqlError, Origin, suggest_similar
from penstock.expr import Column


def column_names(source: Source) -> list[str]:
    return list(source.relation.schema.names)


def find_column(source: Source, name: str) -> Column | None:
    """The column of a FROM item by its name, case-insensitive."""
    for field in source.relation.schema:
        if field.name.casefold() == name.casefold():
            return Column(source.alias, field.name, field.type)
    return None


@dataclass(frozen=True)
class Scope:
    """The FROM items that expressions of a SELECT can name."""

    origin: Origin
    sources: tuple[Source, ...]

    def find_source(self, alias: str) -> Source | None:
        return next((source for source in self.sources if source.alias.casefold() == alias.casefold()), None)

    def resolve(self, node: exp.Column) -> Column:
        """The column that a name refers to; an unknown name is an error that lists the known ones."""
        column = self.find(node)
        if column is None:
            raise self.unknown_column_error(node)
        return column

    def find(self, node: exp.Column) -> Column | None:
        """Like `resolve`, but None for a name without a qualifier that no FROM item has."""
        if node.args.get("db"):
            raise self.unknown_column_error(node)
        if node.table:
            source = self.resolve_qualifier(node)
            return find_column(source, node.name)
        found = self.list_candidates(node.name)
        if len(found) > 1:
            candidates = ", ".join(f"{column.alias}.{column.name}" for column in found)
            message = f"column {node.name} is ambiguous; it can be {candidates}"
            raise self.origin.error("AMBIGUOUS_COLUMN", message, find_span(node), name=node.name)
        return found[0] if found else None

    def list_candidates(self, name: str) -> list[Column]:
        """Every column that a name without a qualifier can refer to."""
        return [column for source in self.sources if (column := find_column(source, name))]

    def resolve_qualifier(self, node: exp.Column) -> Source:
        """The FROM item that qualifies a column."""
        source = self.find_source(node.table)
        if source is None:
            aliases = [source.alias for source in self.sources]
            message = f"unknown alias {node.table}; FROM has {', '.join(aliases)}{suggest_similar(node.table, aliases)}"
            raise self.origin.error("UNKNOWN_ALIAS", message, find_span(node), alias=node.table)
        return source

    def unknown_column_error(self, node: exp.Column) -> CqlError:
        written = ".".join(part.name for part in node.parts)
        source = self.find_source(node.table) if node.table else None
        looked_at = (source,) if source else self.sources
        known = "; ".join(f"{each.relation.name} has {', '.join(column_names(each))}" for each in looked_at)
        if not node.table and node.name.casefold() in advice.FUNCTIONS:
            return self.origin.unsupported_error(
                written.upper(), find_span(node), advice.FUNCTIONS[node.name.casefold()][1]
            )
        hint = suggest_similar(node.name, [name for each in looked_at for name in column_names(each)])
        message = f"unknown column {written}; {known}{hint}"
        return self.origin.error("UNKNOWN_COLUMN", message, find_span(node), name=written)
