"""Binds SELECT and set operations against the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.cql.bound import QueryBody, Select, SelectItem, SequenceClause, Source, Subquery
from penstock.cql.dialect import find_span
from penstock.cql.expressions import ExpressionBinder
from penstock.cql.frames import check_frames
from penstock.cql.from_binder import FromBlock
from penstock.cql.group_relation import GroupRelation
from penstock.cql.grouping import (
    MAX_SETS,
    expand_sets,
    has_sets,
    list_key_nodes,
    list_sets,
    resolve_grouping,
)
from penstock.cql.output_names import OutputColumn, expand_star, name_outputs
from penstock.cql.over import (
    TOP_ALIAS,
    SortKey,
    WindowCalls,
    bind_sort_keys,
    has_rank,
    push_rank_limits,
    rank_select,
)
from penstock.cql.scope import Scope
from penstock.cql.select_checks import check_grouped, check_grouping, check_slides
from penstock.cql.sources import BindBody, Names
from penstock.cql.subquery_nodes import (
    list_predicates,
    list_queries,
    list_scalar_queries,
    match_predicate,
    split_conjunct_nodes,
)
from penstock.cql.syntax import SelectSyntax
from penstock.cql.tops import take_top
from penstock.cql.where import WhereBinder
from penstock.cql.windows import CURRENT
from penstock.expr import (
    AGGREGATE_SYNONYMS,
    NAMED_AGGREGATES,
    Aggregate,
    Column,
    Expr,
    Literal,
    split_conjuncts,
    walk,
)


class SelectBinder:
    """Binds one SELECT."""

    def __init__(self, syntax: SelectSyntax, names: Names, bind_body: BindBody) -> None:
        self.syntax = syntax
        self.origin = names.origin
        self.user_defined = names.catalog.user_defined
        self.where = WhereBinder(syntax, names, bind_body)
        self.joiner = self.where.joiner
        self.ranks = WindowCalls(names.origin, {name.text.casefold(): node for name, node in syntax.windows})
        self._keys_by_node: dict[int, Expr] = {}

    @property
    def block(self) -> FromBlock:
        return self.where.block

    @property
    def scope(self) -> Scope:
        return self.where.scope

    def bind(self) -> QueryBody:
        shown = [*self.syntax.items, *([] if self.syntax.having is None else [self.syntax.having])]
        correlated = self.where.join_where()
        is_grouped = self.syntax.group_by is not None or any(map(self._has_aggregate_call, shown))
        if is_grouped and any(map(list_queries, shown)):
            if has_sets(self.syntax.group_by):
                advice = "group in a subquery of FROM, and compare its rows"
                raise self.origin.unsupported_error("subquery beside GROUPING SETS", find_span(shown[0]), advice)
            return self._bind_grouped_queries(correlated)
        if not is_grouped:
            self.where.join_values(self.syntax.items)
        where = (*self.block.conditions, *self.where.bind_terms(correlated))
        outputs = self._bind_outputs(self.joiner.read_values(self.scope))
        return self._bind_select(where, outputs)

    def _bind_select(self, where: tuple[Expr, ...], outputs: list[OutputColumn]) -> QueryBody:
        items = name_outputs(outputs, self.scope)
        aliases = {output.alias.casefold(): output.expr for output in outputs if output.alias}
        group_by = self._bind_group_by(items, aliases)
        having = self._bind_having(aliases)
        qualify = self._bind_qualify(aliases)
        keys = self._bind_order(items, aliases)
        ranked = [expr for call in self.ranks.calls for expr in call.exprs] + [key.expr for key in keys]
        shown = [*(item.expr for item in items), *qualify, *ranked]
        aggregated = any(_has_aggregate(expr) for expr in [*shown, *([having] if having else [])])
        if group_by is None and aggregated:
            group_by = ()
        if group_by is not None:
            for output in outputs:
                self._check_grouped(output.expr, group_by, output.node)
            for expr in (*qualify, *ranked):
                self._check_grouped(expr, group_by, outputs[0].node)
            if having is not None and self.syntax.having is not None:
                self._check_grouped(having, group_by, self.syntax.having)
        elif self.syntax.having is not None:
            message = "HAVING needs GROUP BY or an aggregate; write WHERE for single rows"
            raise self.origin.error("HAVING_WITHOUT_GROUP", message, find_span(self.syntax.having))
        check_grouping([*shown, *([having] if having else [])], group_by, outputs[0].node, self.origin)
        check_slides(self.where.list_written(), self.origin, is_grouped=group_by is not None)
        self.where.check_far(
            repeats_matter=group_by is not None or bool(self.ranks.calls) or self.syntax.top is not None
        )
        select = Select(
            sources=self.block.sources,
            where=where,
            items=items,
            distinct=self.syntax.distinct,
            group_by=group_by,
            having=having,
            sequence=SequenceClause(self.syntax.sequence) if self.syntax.sequence else None,
        )
        check_frames(select, self.ranks.frames, self.origin)
        if has_sets(self.syntax.group_by):
            return self._bind_sets(select, items, keys)
        select = resolve_grouping(select) if group_by is not None else select
        return push_rank_limits(self._take_top(self._rank(select, qualify), items, keys))

    def _bind_sets(self, select: Select, items: tuple[SelectItem, ...], keys: tuple[SortKey, ...]) -> QueryBody:
        """GROUPING SETS, ROLLUP and CUBE: the groups of all sets, then DISTINCT and ORDER BY ... LIMIT over them."""
        nodes = self.syntax.group_by or ()
        if self.ranks.calls:
            advice = "group in a subquery of FROM, and rank its rows"
            raise self.origin.unsupported_error("window function with GROUPING SETS", find_span(nodes[0]), advice)
        sets = [[self._keys_by_node[id(node)] for node in chosen] for chosen in list_sets(nodes)]
        if len(sets) > MAX_SETS:
            message = f"GROUP BY has {len(sets)} sets of keys; a query can have {MAX_SETS}"
            raise self.origin.error("TOO_MANY_GROUPING_SETS", message, find_span(nodes[0]))
        body = expand_sets(replace(select, distinct=False), sets)
        if not select.distinct and self.syntax.top is None:
            return body
        columns = tuple(SelectItem(item.name, Column(TOP_ALIAS, item.name, item.expr.type)) for item in items)
        whole = Select((Source(TOP_ALIAS, Subquery("groups", body), CURRENT),), (), columns, select.distinct)
        return push_rank_limits(self._take_top(whole, items, keys, whole=True))

    def _has_aggregate_call(self, node: exp.Expr) -> bool:
        names = (*NAMED_AGGREGATES, *AGGREGATE_SYNONYMS, *self.user_defined.aggregates)
        return any(
            call.name.casefold() in names and not isinstance(call.parent, exp.Window)
            for call in node.find_all(exp.Anonymous)
        )

    def _bind_grouped_queries(self, correlated: Sequence[exp.Expr]) -> Select:
        """Subqueries beside aggregates: the groups are a relation, to which the subqueries are joined."""
        self.where.check_far(repeats_matter=True)
        having = split_conjunct_nodes(self.syntax.having)
        predicates = [(term, match) for term in having if (match := match_predicate(term)) is not None]
        plain = [term for term in having if match_predicate(term) is None]
        queries = [query for node in (*self.syntax.items, *plain) for query in list_scalar_queries(node)]
        marked = [each for node in (*self.syntax.items, *plain) for each in list_predicates(node)]
        values = self.joiner.reserve_values(queries, marked)
        outputs = self._bind_outputs(values)
        items = name_outputs(outputs, self.scope)
        aliases = {output.alias.casefold(): output.expr for output in outputs if output.alias}
        keys = self._bind_group_by(items, aliases) or ()
        binder = ExpressionBinder(self.scope, self.user_defined, None, aliases, values)
        conditions = [(binder.bind_condition(term, "HAVING"), term) for term in plain]
        predicates_of_marks = [(node, match) for node in marked if (match := match_predicate(node)) is not None]
        tested = [*predicates, *predicates_of_marks]
        operands = {id(match.operand): binder.bind_value(match.operand) for _, match in tested if match.operand}
        for expr, node in (*((output.expr, output.node) for output in outputs), *conditions):
            self._check_grouped(expr, keys, node)
        for term, match in tested:
            if match.operand is not None:
                self._check_grouped(operands[id(match.operand)], keys, term)
        check_slides(self.where.list_written(), self.origin, is_grouped=True)
        where = (*self.block.conditions, *self.where.bind_terms(correlated))
        below = Select(self.block.sources, where, (), group_by=keys)
        groups = GroupRelation.build(
            below, [*(item.expr for item in items), *(expr for expr, _ in conditions), *operands.values()]
        )
        block = groups.block
        for _, match in predicates:
            block = self.joiner.join_predicate(block, match, lambda node, now: groups.move(operands[id(node)], now, {}))
        block = self.joiner.join_scalars(block, queries, correlated=False)
        block = self.joiner.join_marks(block, marked, lambda node, now: groups.move(operands[id(node)], now, {}))
        joined = self.joiner.read_values(Scope(self.origin, block.items, block.merged))
        now = {values[node]: value for node, value in joined.items() if node in values}
        select = Select(
            sources=block.sources,
            where=(*block.conditions, *(groups.move(expr, block, now) for expr, _ in conditions)),
            items=tuple(SelectItem(item.name, groups.move(item.expr, block, now)) for item in items),
            distinct=self.syntax.distinct,
        )
        return push_rank_limits(self._take_top(select, items, self._bind_order(items, aliases), whole=True))

    # ── SELECT, GROUP BY, HAVING ─────────────────────────────────────────────────────────────────────────────────────

    def _bind_outputs(self, values: Mapping[int, Expr]) -> list[OutputColumn]:
        binder = ExpressionBinder(self.scope, self.user_defined, queries=values, ranks=self.ranks)
        outputs: list[OutputColumn] = []
        for node in self.syntax.items:
            if (columns := expand_star(node, self.scope)) is not None:
                outputs.extend(OutputColumn(column, None, node, name) for name, column in columns)
            elif isinstance(node, exp.Alias):
                outputs.append(OutputColumn(binder.bind_value(node.this), node.alias, node))
            else:
                outputs.append(OutputColumn(binder.bind_value(node), None, node))
        return outputs

    def _bind_group_by(self, items: tuple[SelectItem, ...], aliases: dict[str, Expr]) -> tuple[Expr, ...] | None:
        if self.syntax.group_by is None:
            return None
        binder = ExpressionBinder(self.scope, self.user_defined, "GROUP BY", aliases)
        keys: list[Expr] = []
        for node in list_key_nodes(self.syntax.group_by):
            key = binder.bind(node)
            if isinstance(key, Literal) and isinstance(node, exp.Literal) and isinstance(key.value, int):
                if not 1 <= key.value <= len(items):
                    message = f"GROUP BY {key.value} is not a position in SELECT; it has {len(items)} columns"
                    raise self.origin.error("GROUP_BY_POSITION", message, find_span(node))
                key = items[key.value - 1].expr
            if _has_aggregate(key):
                message = "GROUP BY names an aggregate; group by the columns that it is computed from"
                raise self.origin.error("AGGREGATE_NOT_ALLOWED", message, find_span(node))
            keys.append(key)
            self._keys_by_node[id(node)] = key
        return tuple(dict.fromkeys(keys))

    def _bind_having(self, aliases: dict[str, Expr]) -> Expr | None:
        if self.syntax.having is None:
            return None
        return ExpressionBinder(self.scope, self.user_defined, None, aliases).bind_condition(
            self.syntax.having, "HAVING"
        )

    # ── window functions and tops ────────────────────────────────────────────────────────────────────────────────

    def _bind_qualify(self, aliases: dict[str, Expr]) -> tuple[Expr, ...]:
        if self.syntax.qualify is None:
            return ()
        binder = ExpressionBinder(self.scope, self.user_defined, None, aliases, ranks=self.ranks)
        terms = split_conjuncts(binder.bind_condition(self.syntax.qualify, "QUALIFY"))
        if not any(map(has_rank, terms)):
            message = "QUALIFY is a condition on a window function; write WHERE or HAVING for other conditions"
            raise self.origin.error("QUALIFY_WITHOUT_WINDOW", message, find_span(self.syntax.qualify))
        return terms

    def _bind_order(self, items: tuple[SelectItem, ...], aliases: dict[str, Expr]) -> tuple[SortKey, ...]:
        """The terms of ORDER BY: expressions, names of output columns, or their positions."""
        if self.syntax.top is None:
            return ()
        binder = ExpressionBinder(self.scope, self.user_defined, None, aliases)

        def bind(node: exp.Expr) -> Expr:
            if isinstance(node, exp.Column) and not node.table and node.name.casefold() in aliases:
                return aliases[node.name.casefold()]  # as in SQL, an output column hides those of FROM
            key = binder.bind_value(node)
            if isinstance(node, exp.Literal) and isinstance(key, Literal) and isinstance(key.value, int):
                if not 1 <= key.value <= len(items):
                    message = f"ORDER BY {key.value} is not a position in SELECT; it has {len(items)} columns"
                    raise self.origin.error("ORDER_BY_POSITION", message, find_span(node))
                return items[key.value - 1].expr
            return key

        return bind_sort_keys(self.syntax.top.order, bind)

    def _rank(self, select: Select, qualify: tuple[Expr, ...]) -> Select:
        return rank_select(select, self.ranks.calls, qualify) if self.ranks.calls else select

    def _take_top(
        self, select: Select, items: tuple[SelectItem, ...], keys: tuple[SortKey, ...], *, whole: bool = False
    ) -> Select:
        """The first rows, if the query asks for them; `whole`: only the output of `select` is known."""
        if self.syntax.top is None:
            return select
        binder = ExpressionBinder(self.scope, self.user_defined, "DISTINCT ON")
        on = tuple(binder.bind_value(node) for node in self.syntax.distinct_on)
        by_output = whole or select.distinct or bool(self.ranks.calls)
        return take_top(select, self.syntax.top, on, keys, items, self.origin, by_output=by_output)

    def _check_grouped(self, expr: Expr, keys: tuple[Expr, ...], node: exp.Expr) -> None:
        check_grouped(expr, keys, node, self.scope)


def _has_aggregate(expr: Expr) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(expr))
