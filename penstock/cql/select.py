"""Binds SELECT and set operations against the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from penstock.cql.bound import QueryBody, Select, SelectItem, SequenceClause, SetOperation, Source, Subquery
from penstock.cql.dialect import find_span
from penstock.cql.errors import Origin, Span
from penstock.cql.expressions import ExpressionBinder
from penstock.cql.frames import check_frames
from penstock.cql.from_binder import FromBinder, FromBlock, check_column_names
from penstock.cql.group_relation import GroupRelation, is_reserved_value
from penstock.cql.grouping import (
    MAX_SETS,
    expand_sets,
    find_grouping_calls,
    has_sets,
    list_key_nodes,
    list_sets,
    resolve_grouping,
)
from penstock.cql.output_names import OutputColumn, expand_star, name_outputs
from penstock.cql.over import (
    TOP_ALIAS,
    RankCall,
    SortKey,
    WindowCalls,
    bind_sort_keys,
    has_rank,
    push_rank_limits,
    rank_select,
)
from penstock.cql.row_time import find_row_time
from penstock.cql.scope import Scope
from penstock.cql.sources import Names, bind_freshness, check_sources, check_time_types
from penstock.cql.subqueries import (
    Predicate,
    SubqueryJoiner,
    has_outer,
    list_predicates,
    list_queries,
    list_scalar_queries,
    match_predicate,
    split_conjunct_nodes,
)
from penstock.cql.syntax import BodySyntax, FromSyntax, SelectSyntax, SourceSyntax, WithSyntax
from penstock.cql.types import format_type
from penstock.cql.window_functions import rewrite_spark_windows
from penstock.cql.windows import CURRENT, Window
from penstock.expr import (
    AGGREGATE_SYNONYMS,
    NAMED_AGGREGATES,
    Aggregate,
    Call,
    Column,
    Expr,
    Literal,
    find_common_type,
    split_conjuncts,
    walk,
)


def bind_body(syntax: BodySyntax, names: Names) -> QueryBody:
    """Bind a SELECT, or a UNION ALL or EXCEPT of two bodies."""
    if isinstance(syntax, WithSyntax):
        return bind_body(syntax.body, _declare_queries(syntax, names))
    if isinstance(syntax, SelectSyntax):
        return _SelectBinder(rewrite_spark_windows(syntax, names.origin), names).bind()
    origin, names = names.origin, replace(names, outer=None)
    left, right = bind_body(syntax.left, names), bind_body(syntax.right, names)
    if len(left.items) != len(right.items):
        message = (
            f"{syntax.kind.upper()} needs equally many columns on both sides: {len(left.items)} and {len(right.items)}"
        )
        raise origin.error("COLUMN_COUNT", message, syntax.span)
    types: list[pa.DataType] = []
    for one, two in zip(left.items, right.items, strict=True):
        met = find_common_type(one.expr.type, two.expr.type)
        if met is None:
            sides = f"{one.name} ({format_type(one.expr.type)}) and {two.name} ({format_type(two.expr.type)})"
            raise origin.error("TYPE_MISMATCH", f"{syntax.kind.upper()} cannot pair {sides}", syntax.span)
        types.append(met)
    check_time_types([(left, syntax.span), (right, syntax.span)], origin)
    return SetOperation(syntax.kind, _cast_items(left, types), _cast_items(right, types))


def _declare_queries(syntax: WithSyntax, names: Names) -> Names:
    """The names with the queries of WITH; each can name those before it, and hides a declaration of its name."""
    known = replace(names, queries=names.queries.copy())
    written: set[str] = set()
    for name, columns, written_body in syntax.queries:
        if name.text.casefold() in written:
            raise names.origin.error("DUPLICATE_NAME", f"WITH has two queries {name.text}", name.span, name=name.text)
        written.add(name.text.casefold())
        body = bind_body(written_body, replace(known, outer=None))
        if columns:
            shown = check_column_names(columns, [item.name for item in body.items], name.text, names.origin)
            body = _name_items(body, shown)
        known.queries.add(Subquery(name.text, body))
    return known


def _name_items(body: QueryBody, names: list[str]) -> QueryBody:
    """The body with other names for its columns."""
    if isinstance(body, SetOperation):
        return replace(body, left=_name_items(body.left, names))
    items = (SelectItem(name, item.expr) for name, item in zip(names, body.items, strict=True))
    return replace(body, items=tuple(items))


def _cast_items(body: QueryBody, types: list[pa.DataType]) -> QueryBody:
    """The body with its columns cast to given types."""
    if isinstance(body, SetOperation):
        return replace(body, left=_cast_items(body.left, types), right=_cast_items(body.right, types))
    items = [
        item if item.expr.type == goal else SelectItem(item.name, Call("cast", (item.expr,), goal))
        for item, goal in zip(body.items, types, strict=True)
    ]
    return replace(body, items=tuple(items))


class _SelectBinder:
    """Binds one SELECT."""

    def __init__(self, syntax: SelectSyntax, names: Names) -> None:
        self.syntax = syntax
        self.names = names
        self.origin = names.origin
        self.user_defined = names.catalog.user_defined
        self.joiner = SubqueryJoiner(names.origin, lambda body, scope: bind_body(body, replace(names, outer=scope)),
                                     names.outer)  # fmt: skip
        block, self.written = self._bind_from(names)
        self.block = replace(block, sources=bind_freshness(block.sources, syntax, names.origin))
        """The FROM clause, with the subqueries that were joined to it."""
        self.written_sources = self.block.sources
        self.ranks = WindowCalls(names.origin, {name.text.casefold(): node for name, node in syntax.windows})
        self._keys_by_node: dict[int, Expr] = {}
        self._far: Predicate | None = None
        """A subquery that names columns of a query two levels above: its rows were joined."""

    @property
    def scope(self) -> Scope:
        return Scope(
            self.origin, self.block.items, self.block.merged, self.names.outer, find_row_time(self.written_sources)
        )

    def _bind_from(self, names: Names) -> tuple[FromBlock, tuple[SourceSyntax, ...]]:
        """The FROM clause, and the items of the text that it reads directly or in inner joins."""
        binder = FromBinder(names, self.syntax.window, bind_body, self._bind_on)
        blocks = []
        for syntax in self.syntax.from_items:
            blocks.append(binder.bind(syntax))
            for earlier in blocks[:-1]:
                binder.check_aliases(earlier, blocks[-1], syntax)
        block = reduce(FromBlock.join, blocks)
        written = tuple(source for syntax in self.syntax.from_items for source in _list_written(syntax))
        check_time_types(
            [(source, syntax.relation.span) for source, syntax in zip(block.sources, written, strict=True)],
            names.origin,
        )
        check_sources(block.sources, written, self.syntax, names)
        return block, written

    def _bind_on(self, node: exp.Expr, scope: Scope) -> tuple[Expr, ...]:
        values = self.joiner.read_values(scope)
        binder = ExpressionBinder(scope, self.user_defined, no_aggregates_in="WHERE or ON", queries=values)
        return split_conjuncts(binder.bind_condition(node, "a condition"))

    def bind(self) -> QueryBody:
        shown = [*self.syntax.items, *([] if self.syntax.having is None else [self.syntax.having])]
        correlated = self._join_where()
        is_grouped = self.syntax.group_by is not None or any(map(self._has_aggregate_call, shown))
        if is_grouped and any(map(list_queries, shown)):
            if has_sets(self.syntax.group_by):
                advice = "group in a subquery of FROM, and compare its rows"
                raise self.origin.unsupported_error("subquery beside GROUPING SETS", find_span(shown[0]), advice)
            return self._bind_grouped_queries(correlated)
        if not is_grouped:
            self._join_values(self.syntax.items)
        where = (*self.block.conditions, *self._bind_terms(correlated))
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
        self._check_grouping([*shown, *([having] if having else [])], group_by, outputs)
        self._check_slides(group_by)
        self._check_far(repeats_matter=group_by is not None or bool(self.ranks.calls) or self.syntax.top is not None)
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

    # ── WHERE, and subqueries ────────────────────────────────────────────────────────────────────────────────────────

    def _join_where(self) -> list[exp.Expr]:
        """Add the conditions of WHERE to the block; returns those that name columns of the query around this one."""
        terms = split_conjunct_nodes(self.syntax.where)
        nested = [term for term in terms if list_queries(term)]
        if not nested and self.names.outer is None:
            self._add_conditions([] if self.syntax.where is None else [self.syntax.where])
            return []
        plain = [term for term in terms if not list_queries(term)]
        correlated = [term for term in plain if any(map(has_outer, self._bind_on(term, self.scope)))]
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
            self._join_values([term], filters=True)
            if any(map(has_outer, self._bind_on(term, self.scope))):
                correlated.append(term)
            else:
                self._add_conditions([term])
        if far_negated:
            near = [expr for term in correlated for expr in self._bind_on(term, self.scope)]
            self.block = self.joiner.join_far_predicates(self.block, far_negated, near, self._bind_operand)
            self._far = far_negated[0]
        for predicate in far:  # they have conditions over columns of this block, which later joins would rename
            self.block = self.joiner.add_partners(self.block, predicate, self._bind_operand) or self.block
            self._far = predicate
        return correlated

    def _check_far(self, *, repeats_matter: bool) -> None:
        """Refuse rows that were joined with partners, and so repeat, where this matters."""
        if self._far is not None and repeats_matter:
            raise self.joiner.make_far_error(find_span(self._far.query))

    def _add_conditions(self, nodes: Iterable[exp.Expr]) -> None:
        self.block = replace(self.block, conditions=(*self.block.conditions, *self._bind_terms(nodes)))

    def _bind_terms(self, nodes: Iterable[exp.Expr]) -> list[Expr]:
        return [term for node in nodes for term in self._bind_on(node, self.scope)]

    def _bind_operand(self, node: exp.Expr, block: FromBlock) -> Expr:
        scope = Scope(self.origin, block.items, block.merged, self.names.outer)
        values = self.joiner.read_values(scope)
        return ExpressionBinder(scope, self.user_defined, "WHERE or ON", queries=values).bind_value(node)

    def _join_values(self, nodes: Sequence[exp.Expr], *, filters: bool = False) -> None:
        """Join the subqueries in some expressions, whose values these read."""
        if any(map(list_queries, nodes)):
            self._refuse_slides()
            self._check_far(repeats_matter=True)
            self.block = self.joiner.join_scalars(self.block, nodes)
            self.block = self.joiner.join_marks(self.block, nodes, self._bind_operand, filters=filters)

    def _refuse_slides(self) -> None:
        for source, written in zip(self.written_sources, self.written, strict=True):
            if source.window.slides and written.window is not None:
                instead = "aggregate in a subquery of FROM, and compare its rows"
                raise self.origin.unsupported_error("SLIDE with a subquery", written.window.span, instead)

    def _has_aggregate_call(self, node: exp.Expr) -> bool:
        names = (*NAMED_AGGREGATES, *AGGREGATE_SYNONYMS, *self.user_defined.aggregates)
        return any(
            call.name.casefold() in names and not isinstance(call.parent, exp.Window)
            for call in node.find_all(exp.Anonymous)
        )

    def _bind_grouped_queries(self, correlated: Sequence[exp.Expr]) -> Select:
        """Subqueries beside aggregates: the groups are a relation, to which the subqueries are joined."""
        self._check_far(repeats_matter=True)
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
        self._check_slides(keys)
        where = (*self.block.conditions, *self._bind_terms(correlated))
        below = Select(self.block.sources, where, (), group_by=keys)
        groups = GroupRelation.build(
            below, [*(item.expr for item in items), *(expr for expr, _ in conditions), *operands.values()]
        )
        block = groups.block
        for _, match in predicates:
            block = self.joiner.join_predicate(block, match, lambda node, now: groups.move(operands[id(node)], now, {}))
        block = self.joiner.join_scalars(block, queries, correlated=False)
        block = self.joiner.join_marks(block, marked, lambda node, now: groups.move(operands[id(node)], now, {}))
        now = {values[node]: value for node, value in self.joiner.read_values(_make_scope(self.origin, block)).items()
               if node in values}  # fmt: skip
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
        """DISTINCT ON and ORDER BY ... LIMIT, over the SELECT without them; `whole`: over its output columns only."""
        top = self.syntax.top
        if top is None:
            return select
        if self.syntax.distinct_on and top.limit is not None:
            advice = "write SELECT * FROM (SELECT DISTINCT ON ...) ORDER BY ... LIMIT n"
            raise self.origin.unsupported_error("DISTINCT ON with LIMIT", top.span, advice)
        binder = ExpressionBinder(self.scope, self.user_defined, "DISTINCT ON")
        on = tuple(binder.bind_value(node) for node in self.syntax.distinct_on)
        limit = 1 if on else top.offset + (top.limit or 0)
        call = RankCall("row_number", on, keys, top.offset, limit)
        if not select.distinct and not self.ranks.calls and not whole:
            return rank_select(select, (call,), ())
        shown = {item.expr: Column(TOP_ALIAS, item.name, item.expr.type) for item in items}
        if any(expr not in shown for expr in call.exprs):
            message = "with DISTINCT or a window function, ORDER BY names columns of SELECT"
            raise self.origin.error("ORDER_BY_NOT_SHOWN", message, top.span)
        outer = Select(
            (Source(TOP_ALIAS, Subquery("rows", select), CURRENT),),
            (),
            tuple(SelectItem(item.name, shown[item.expr]) for item in items),
        )
        moved = RankCall(
            "row_number",
            tuple(shown[expr] for expr in on),
            tuple(SortKey(shown[key.expr], key.descending, key.nulls_first) for key in keys),
            call.offset,
            call.limit,
        )
        return rank_select(outer, (moved,), ())

    def _check_grouped(self, expr: Expr, keys: tuple[Expr, ...], node: exp.Expr) -> None:
        """Every column outside an aggregate must be part of a grouping expression."""
        if expr in keys or isinstance(expr, (Aggregate, Literal)) or is_reserved_value(expr):
            return
        if has_rank(expr) and isinstance(expr, Column):
            return
        if isinstance(expr, Column):
            message = f"column {'.'.join(self.scope.describe(expr))} is outside an aggregate and not in GROUP BY"
            raise self.origin.error("NOT_GROUPED", message, self._find_column_span(expr, node))
        for arg in expr.args:
            self._check_grouped(arg, keys, node)

    def _find_column_span(self, column: Column, node: exp.Expr) -> Span:
        for written in node.find_all(exp.Column):
            if not isinstance(written.this, exp.Star) and self.scope.find(written) == column:
                return find_span(written)
        return find_span(node)

    def _check_grouping(
        self, exprs: Sequence[Expr], group_by: tuple[Expr, ...] | None, outputs: list[OutputColumn]
    ) -> None:
        for call in find_grouping_calls(exprs):
            if group_by is None or any(arg not in group_by for arg in call.args):
                message = "GROUPING takes keys of GROUP BY"
                raise self.origin.error("GROUPING_WITHOUT_KEY", message, find_span(outputs[0].node))

    def _check_slides(self, group_by: tuple[Expr, ...] | None) -> None:
        sliding: Source | None = None
        for source, written in zip(self.written_sources, self.written, strict=True):
            if written.window is None or not source.window.slides:
                continue
            if group_by is None:
                advice = "it makes aggregates report at each slide, and this query has none"
                raise self.origin.unsupported_error("SLIDE without aggregate", written.window.span, advice)
            if sliding is not None and not _slide_alike(sliding.window, source.window):
                message = "the windows of one aggregate slide by different amounts; it reports at the multiples of one"
                raise self.origin.error("SLIDES_DIFFER", f"{message} SLIDE", written.window.span)
            sliding = source


def _slide_alike(one: Window, other: Window) -> bool:
    """Whether two windows report at the same instants; the rows of two FROM items are counted separately."""
    return one.slide == other.slide and one.row_slide is None and other.row_slide is None


def _make_scope(origin: Origin, block: FromBlock) -> Scope:
    return Scope(origin, block.items, block.merged)


def _has_aggregate(expr: Expr) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(expr))


def _list_written(syntax: FromSyntax) -> tuple[SourceSyntax, ...]:
    """One item of the text for each source of a FROM item: of an outer join, its first one."""
    if isinstance(syntax, SourceSyntax):
        return (syntax,)
    left = _list_written(syntax.left)
    return (*left, *_list_written(syntax.right)) if syntax.kind in ("inner", "cross") else left[:1]
