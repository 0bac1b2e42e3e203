"""Binds FROM and WHERE of a SELECT. Subqueries in its expressions are joined to the FROM clause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from penstock.cql.bound import Source
from penstock.cql.dialect import find_span
from penstock.cql.expressions import ExpressionBinder
from penstock.cql.from_binder import FromBinder, FromBlock
from penstock.cql.row_time import find_row_time
from penstock.cql.scope import Scope
from penstock.cql.sources import BindBody, Names, bind_freshness, check_sources, check_time_types
from penstock.cql.subqueries import SubqueryJoiner
from penstock.cql.subquery_nodes import Predicate, list_queries, match_predicate, split_conjunct_nodes
from penstock.cql.subquery_sides import has_outer
from penstock.cql.syntax import FromSyntax, SelectSyntax, SourceSyntax
from penstock.expr import Expr, split_conjuncts


class WhereBinder:
    """The FROM clause of one SELECT, its conditions, and the subqueries that were joined to it."""

    def __init__(self, syntax: SelectSyntax, names: Names, bind_body: BindBody) -> None:
        self.syntax = syntax
        self.names = names
        self.origin = names.origin
        self.user_defined = names.catalog.user_defined
        self.joiner = SubqueryJoiner(names.origin, lambda body, scope: bind_body(body, replace(names, outer=scope)),
                                     names.outer)  # fmt: skip
        block, self.written = self._bind_from(bind_body)
        self.block = replace(block, sources=bind_freshness(block.sources, syntax, names.origin))
        """The FROM clause, with the subqueries that were joined to it."""
        self.written_sources = self.block.sources
        self._far: Predicate | None = None
        """A subquery that names columns of a query two levels above: its rows were joined."""

    @property
    def scope(self) -> Scope:
        return Scope(
            self.origin, self.block.items, self.block.merged, self.names.outer, find_row_time(self.written_sources)
        )

    def _bind_from(self, bind_body: BindBody) -> tuple[FromBlock, tuple[SourceSyntax, ...]]:
        """The FROM clause, and the items of the text that it reads directly or in inner joins."""
        binder = FromBinder(self.names, self.syntax.window, bind_body, self.bind_on)
        blocks = []
        for syntax in self.syntax.from_items:
            blocks.append(binder.bind(syntax))
            for earlier in blocks[:-1]:
                binder.check_aliases(earlier, blocks[-1], syntax)
        block = reduce(FromBlock.join, blocks)
        written = tuple(source for syntax in self.syntax.from_items for source in _list_written(syntax))
        check_time_types(
            [(source, syntax.relation.span) for source, syntax in zip(block.sources, written, strict=True)],
            self.origin,
        )
        check_sources(block.sources, written, self.syntax, self.names)
        return block, written

    def bind_on(self, node: exp.Expr, scope: Scope) -> tuple[Expr, ...]:
        values = self.joiner.read_values(scope)
        binder = ExpressionBinder(scope, self.user_defined, no_aggregates_in="WHERE or ON", queries=values)
        return split_conjuncts(binder.bind_condition(node, "a condition"))

    def join_where(self) -> list[exp.Expr]:
        """Add the conditions of WHERE to the block; returns those that name columns of the query around this one."""
        terms = split_conjunct_nodes(self.syntax.where)
        nested = [term for term in terms if list_queries(term)]
        if not nested and self.names.outer is None:
            self._add_conditions([] if self.syntax.where is None else [self.syntax.where])
            return []
        plain = [term for term in terms if not list_queries(term)]
        correlated = [term for term in plain if any(map(has_outer, self.bind_on(term, self.scope)))]
        self._add_conditions(term for term in plain if term not in correlated)
        far: list[Predicate] = []
        far_negated: list[Predicate] = []
        for term in nested:
            self._refuse_slides()
            predicate = match_predicate(term)
            if predicate is not None:
                if self.joiner.add_partners(self.block, predicate, self._bind_operand) is not None:
                    far.append(predicate)
                elif predicate.negated and self.joiner.names_far_columns(self.block, predicate, self._bind_operand):
                    far_negated.append(predicate)
                else:
                    self.block = self.joiner.join_predicate(self.block, predicate, self._bind_operand)
                continue
            self.join_values([term], filters=True)
            if any(map(has_outer, self.bind_on(term, self.scope))):
                correlated.append(term)
            else:
                self._add_conditions([term])
        if far_negated:
            near = [expr for term in correlated for expr in self.bind_on(term, self.scope)]
            self.block = self.joiner.join_far_predicates(self.block, far_negated, near, self._bind_operand)
            self._far = far_negated[0]
        for predicate in far:  # they have conditions over columns of this block, which later joins would rename
            self.block = self.joiner.add_partners(self.block, predicate, self._bind_operand) or self.block
            self._far = predicate
        return correlated

    def check_far(self, *, repeats_matter: bool) -> None:
        """Refuse rows that were joined with partners, and so repeat, where this matters."""
        if self._far is not None and repeats_matter:
            raise self.joiner.make_far_error(find_span(self._far.query))

    def _add_conditions(self, nodes: Iterable[exp.Expr]) -> None:
        self.block = replace(self.block, conditions=(*self.block.conditions, *self.bind_terms(nodes)))

    def bind_terms(self, nodes: Iterable[exp.Expr]) -> list[Expr]:
        return [term for node in nodes for term in self.bind_on(node, self.scope)]

    def _bind_operand(self, node: exp.Expr, block: FromBlock) -> Expr:
        scope = Scope(self.origin, block.items, block.merged, self.names.outer)
        values = self.joiner.read_values(scope)
        return ExpressionBinder(scope, self.user_defined, "WHERE or ON", queries=values).bind_value(node)

    def join_values(self, nodes: Sequence[exp.Expr], *, filters: bool = False) -> None:
        """Join the subqueries in some expressions, whose values these read."""
        if any(map(list_queries, nodes)):
            self._refuse_slides()
            self.check_far(repeats_matter=True)
            self.block = self.joiner.join_scalars(self.block, nodes)
            self.block = self.joiner.join_marks(self.block, nodes, self._bind_operand, filters=filters)

    def list_written(self) -> list[tuple[Source, SourceSyntax]]:
        """The sources of FROM as they are written."""
        return list(zip(self.written_sources, self.written, strict=True))

    def _refuse_slides(self) -> None:
        for source, written in self.list_written():
            if source.window.slides and written.window is not None:
                instead = "aggregate in a subquery of FROM, and compare its rows"
                raise self.origin.unsupported_error("SLIDE with a subquery", written.window.span, instead)


def _list_written(syntax: FromSyntax) -> tuple[SourceSyntax, ...]:
    """One item of the text for each source of a FROM item: of an outer join, its first one."""
    if isinstance(syntax, SourceSyntax):
        return (syntax,)
    left = _list_written(syntax.left)
    return (*left, *_list_written(syntax.right)) if syntax.kind in ("inner", "cross") else left[:1]
