"""Window functions: ROW_NUMBER, RANK and DENSE_RANK, aggregates with OVER, QUALIFY, ORDER BY ... LIMIT, DISTINCT ON.

A SELECT with them becomes bodies: a SELECT of everything that they read, its rows with functions over frames (see
`frames`), these with their ranks, and a SELECT of the columns of the text. A condition such as `rank <= 10` on the
answer of such a query becomes the limit of the ranks, so that only the first rows are kept up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from penstock.cql.bound import QueryBody, RankedRows, RankFunction, Select, SelectItem, SortTerm, Source, Subquery, View
from penstock.cql.dialect import find_span
from penstock.cql.errors import Origin
from penstock.cql.frames import BindExpr, FrameBinder, FrameCall, frame_rows
from penstock.cql.operands import OperandTyper
from penstock.cql.windows import CURRENT
from penstock.expr import HIDDEN, INT, Aggregate, Call, Column, Expr, Literal, children, find_columns, rewrite, walk

_FUNCTIONS: dict[str, RankFunction] = {"row_number": "row_number", "rank": "rank", "dense_rank": "dense_rank"}
_RANKS = f"{HIDDEN}ranks"
"""The alias of columns that stand for window functions while a SELECT is bound."""
_INNER, _RANKED = f"{HIDDEN}rows", f"{HIDDEN}ranked"
TOP_ALIAS = f"{HIDDEN}top"
"""The alias of a SELECT whose rows ORDER BY ... LIMIT chooses from."""


@dataclass(frozen=True)
class SortKey:
    """A term of ORDER BY over the FROM items."""

    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class RankCall:
    """One window function, over expressions of the SELECT; `limit` and `offset` are those of LIMIT."""

    function: RankFunction
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    offset: int = 0
    limit: int | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*self.partition, *(key.expr for key in self.order))


def bind_sort_keys(nodes: Sequence[exp.Expr], bind: BindExpr) -> tuple[SortKey, ...]:
    """The terms of ORDER BY. As in Spark, NULLs come first if ascending, and last if descending."""
    keys = []
    for node in nodes:
        inner = node.this if isinstance(node, exp.Ordered) else node
        descending = bool(node.args.get("desc"))
        nulls_first = bool(node.args.get("nulls_first", not descending))
        keys.append(SortKey(bind(inner), descending, nulls_first))
    return tuple(keys)


@dataclass
class WindowCalls:
    """The window functions of one SELECT, in the order of the text. `named` are the windows of its WINDOW clause."""

    origin: Origin
    named: Mapping[str, exp.Expr] = field(default_factory=dict)
    calls: list[RankCall | FrameCall] = field(default_factory=list)

    @property
    def frames(self) -> list[FrameCall]:
        return [call for call in self.calls if isinstance(call, FrameCall)]

    def bind(self, node: exp.Expr, typer: OperandTyper, bind: BindExpr, bind_default: BindExpr) -> Expr:
        """A column that stands for a window function."""
        node = self._resolve_name(node)
        name = node.this.name.casefold() if isinstance(node.this, exp.Anonymous) else ""
        if name not in _FUNCTIONS:
            call = FrameBinder(typer, bind, bind_default).bind_call(node)
            return self.add(call, call.value.type)
        if node.args.get("spec"):
            message = f"{name.upper()} takes no frame: remove ROWS or RANGE"
            raise self.origin.error("INVALID_FRAME", message, find_span(node))
        if node.this.expressions:
            message = f"{name.upper()} takes no argument, found {len(node.this.expressions)}"
            raise self.origin.error("ARGUMENT_COUNT", message, find_span(node))
        order = node.args.get("order")
        if order is None:
            message = f"{name.upper()} needs an order: write OVER (PARTITION BY ... ORDER BY ...)"
            raise self.origin.error("ORDER_BY_MISSING", message, find_span(node))
        partition = tuple(bind(each) for each in node.args.get("partition_by") or ())
        return self.add(RankCall(_FUNCTIONS[name], partition, bind_sort_keys(order.expressions, bind)), INT)

    def _resolve_name(self, node: exp.Expr) -> exp.Expr:
        """A window function whose window has the parts of the window that it names."""
        name = node.args.get("alias")
        if name is None:
            return node
        window = self.named.get(name.name.casefold())
        if window is None:
            known = ", ".join(each.this.name for each in self.named.values())
            hint = f"the WINDOW clause has {known}" if known else "add WINDOW name AS (...) after WHERE"
            message = f"unknown window {name.name}; {hint}"
            raise self.origin.error("UNKNOWN_WINDOW", message, find_span(node), name=name.name)
        window = self._resolve_name(window)
        parts = {part: node.args.get(part) or window.args.get(part) for part in ("partition_by", "order", "spec")}
        resolved = exp.Window(this=node.this.copy(), **parts)
        start, end = find_span(node)
        resolved.meta.update(start=start, end=end - 1)
        return resolved

    def add(self, call: RankCall | FrameCall, kind: pa.DataType) -> Column:
        if call not in self.calls:
            self.calls.append(call)
        return Column(_RANKS, f"{self.calls.index(call)}", kind)


def has_rank(expr: Expr) -> bool:
    """Whether an expression has a window function."""
    return any(isinstance(node, Column) and node.alias == _RANKS for node in walk(expr))


def rank_select(select: Select, calls: Sequence[RankCall | FrameCall], qualify: Sequence[Expr]) -> Select:
    """The bodies of a SELECT with window functions; `qualify` are the conditions on their results."""
    inner: dict[Expr, str] = {item.expr: item.name for item in select.items if not has_rank(item.expr)}
    hoisted = [part for item in select.items if has_rank(item.expr) for part in _list_parts(item.expr)]
    hoisted += [part for term in qualify for part in _list_parts(term)]
    framed = {f"{_RANKS}{number}": call for number, call in enumerate(calls) if isinstance(call, FrameCall)}
    for expr in (*hoisted, *(expr for call in calls if isinstance(call, RankCall) for expr in call.exprs)):
        if not isinstance(expr, Literal):
            inner.setdefault(expr, f"{HIDDEN}{len(inner)}")
    for expr in (expr for call in framed.values() for expr in call.exprs):
        inner.setdefault(expr, f"{HIDDEN}{len(inner)}")
    items = tuple(SelectItem(name, expr) for expr, name in inner.items())
    rows = replace(select, items=items, distinct=False)
    body: QueryBody = frame_rows(rows, list(framed.values()), inner, list(framed)) if framed else rows
    for number, call in enumerate(calls):
        if isinstance(call, RankCall):
            body = _rank_rows(body, call, f"{_RANKS}{number}", inner)

    def read(node: Expr) -> Expr:
        if isinstance(node, Column) and node.alias == _RANKS:
            return Column(_RANKED, f"{_RANKS}{node.name}", node.type)
        return Column(_RANKED, inner[node], node.type) if node in inner else node

    def show(expr: Expr) -> Expr:
        return read(expr) if expr in inner else rewrite(expr, read)

    shown = tuple(SelectItem(item.name, show(item.expr)) for item in select.items)
    source = Source(_RANKED, Subquery("ranked rows", body), CURRENT)
    return Select((source,), tuple(show(term) for term in qualify), shown, select.distinct)


def _list_parts(expr: Expr) -> list[Expr]:
    """The columns and aggregates of an expression, without window functions."""
    if isinstance(expr, Aggregate) or (isinstance(expr, Column) and expr.alias != _RANKS):
        return [expr]
    return [part for arg in children(expr) for part in _list_parts(arg)]


def _rank_rows(body: QueryBody, call: RankCall, rank: str, names: dict[Expr, str]) -> RankedRows:
    source = Source(_INNER, Subquery("rows", body), CURRENT)

    def read(expr: Expr) -> Column:
        return Column(_INNER, names[expr], expr.type)

    items = tuple(SelectItem(item.name, Column(_INNER, item.name, item.expr.type)) for item in body.items)
    return RankedRows(
        source,
        (*items, SelectItem(rank, Column("", rank, INT))),
        call.function,
        tuple(read(expr) for expr in call.partition if not isinstance(expr, Literal)),
        tuple(
            SortTerm(read(key.expr), key.descending, key.nulls_first)
            for key in call.order
            if not isinstance(key.expr, Literal)
        ),
        rank,
        call.offset,
        call.limit,
    )


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_FLIPPED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "=": "="}


def push_rank_limits(select: Select) -> Select:
    """A SELECT whose conditions on ranks are limits of them, and whose ranks are computed only where they are read."""
    kept = []
    for term in select.where:
        pushed = _push_term(select, term)
        if pushed is None:
            kept.append(term)
            continue
        select, implied = pushed
        if not implied:
            kept.append(term)
    select = replace(select, where=tuple(kept))
    exprs = [*(item.expr for item in select.items), *select.where, *(select.group_by or ())]
    exprs += [select.having] if select.having is not None else []
    read = {(column.alias, column.name) for expr in exprs for column in find_columns(expr)}
    sources = (
        _hide_ranks(source, {name for alias, name in read if alias == source.alias}) for source in select.sources
    )
    return replace(select, sources=tuple(sources))


def _push_term(select: Select, term: Expr) -> tuple[Select, bool] | None:
    """The SELECT with the limit that a condition sets, and whether the limit implies the condition."""
    limit = _match_limit(term)
    if limit is None:
        return None
    column, most, implied = limit
    for place, source in enumerate(select.sources):
        if source.alias == column.alias and (changed := _limit_source(source, column.name, most)) is not None:
            sources = (*select.sources[:place], changed, *select.sources[place + 1 :])
            return replace(select, sources=sources), implied
    return None


def _match_limit(term: Expr) -> tuple[Column, int, bool] | None:
    """The column, the largest value and whether it says all, of a condition such as `column <= 10`."""
    if not isinstance(term, Call) or term.op not in _FLIPPED:
        return None
    op, (left, right) = term.op, term.args
    if isinstance(left, Literal):
        left, right, op = right, left, _FLIPPED[op]
    if not isinstance(left, Column) or not isinstance(right, Literal) or op in (">", ">="):
        return None
    if not isinstance(right.value, int) or isinstance(right.value, bool):
        return None
    most = right.value - 1 if op == "<" else right.value
    return left, max(most, 0), op != "=" or most <= 1


def _limit_source(source: Source, name: str, most: int) -> Source | None:
    """A FROM item with a limit on the rank in one of its columns; None if that column is not a rank."""
    query = source.relation
    if not isinstance(query, Subquery) or isinstance(query, View):
        return None
    body = _limit_body(query.body, name, most)
    return None if body is None else replace(source, relation=replace(query, body=body))


def _limit_body(body: QueryBody, name: str, most: int) -> QueryBody | None:
    if isinstance(body, RankedRows):
        if name == body.rank:
            return replace(body, limit=most if body.limit is None else min(most, body.limit))
        return None
    if not isinstance(body, Select) or body.group_by is not None or body.distinct or body.sequence is not None:
        return None
    expr = next((item.expr for item in body.items if item.name == name), None)
    if not isinstance(expr, Column):
        return None
    for place, source in enumerate(body.sources):
        if source.alias == expr.alias and (changed := _limit_source(source, expr.name, most)) is not None:
            return replace(body, sources=(*body.sources[:place], changed, *body.sources[place + 1 :]))
    return None


def _hide_ranks(source: Source, read: set[str]) -> Source:
    """A FROM item without the ranks that are not read."""
    query = source.relation
    if not isinstance(query, Subquery) or isinstance(query, View):
        return source
    body = query.body
    if isinstance(body, RankedRows):
        if body.rank is None or body.rank in read:
            return source
        body = replace(body, rank=None, items=body.items[:-1])
    elif isinstance(body, Select) and _reads_ranks(body):
        items = tuple(item for item in body.items if item.name in read or not _is_rank(item.expr, body))
        if len(items) == len(body.items) or not items:
            return source
        body = push_rank_limits(replace(body, items=items))
    else:
        return source
    return replace(source, relation=replace(query, body=body))


def _reads_ranks(body: Select) -> bool:
    return not body.distinct and body.group_by is None and body.sequence is None


def _is_rank(expr: Expr, body: Select) -> bool:
    """Whether a column of a SELECT is a rank."""
    if not isinstance(expr, Column):
        return False
    source = next((source for source in body.sources if source.alias == expr.alias), None)
    query = None if source is None else source.relation
    return isinstance(query, Subquery) and isinstance(query.body, RankedRows) and expr.name == query.body.rank
