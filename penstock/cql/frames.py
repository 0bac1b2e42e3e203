"""Aggregates, FIRST_VALUE, LAST_VALUE, NTH_VALUE, LAG and LEAD with OVER: functions of the rows around each row.

A frame is ordered by time and ends at a known distance from its row, so that no row changes it once it is complete:
every row has one result. This holds for rows that enter at the time by which they are ordered and never leave;
`find_entry_columns` says which columns have that time. A row whose frame ends behind it enters when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.bound import (
    Frame,
    FramedRows,
    FrameFunction,
    FrameFunctionKind,
    FrameWindow,
    QueryBody,
    Select,
    SelectItem,
    Source,
    Subquery,
    View,
)
from penstock.cql.catalog import Stream
from penstock.cql.dialect import find_span
from penstock.cql.durations import convert_duration
from penstock.cql.errors import Origin, Span
from penstock.cql.operands import Operand, OperandTyper
from penstock.cql.output_names import TIMESTAMP_COLUMN
from penstock.cql.windows import CURRENT, NOW, UNBOUNDED
from penstock.errors import QueryError
from penstock.expr import HIDDEN, Aggregate, Column, Expr

FRAME_FUNCTIONS: Mapping[str, tuple[FrameFunctionKind, int, int]] = {
    "first_value": ("first", 1, 1),
    "last_value": ("last", 1, 1),
    "nth_value": ("nth", 2, 2),
    "lag": ("first", 1, 3),
    "lead": ("first", 1, 3),
}
"""The functions besides aggregates: what they read of the frame, and how many arguments they take."""
BindExpr = Callable[[exp.Expr], Expr]
FRAME_INPUT = f"{HIDDEN}rows"
"""The alias of the rows below a frame."""


@dataclass(frozen=True)
class FrameCall:
    """One function over a frame, over expressions of the SELECT."""

    kind: FrameFunctionKind
    value: Expr
    partition: tuple[Expr, ...]
    order: Expr
    frame: Frame
    place: int = 1
    default: Expr | None = None
    span: Span = field(default=(0, 0), compare=False)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        read = self.value.args if isinstance(self.value, Aggregate) else (self.value,)
        default = () if self.default is None else (self.default,)
        return (*read, *self.partition, self.order, *default)


# ── binding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class FrameBinder:
    """Binds the functions over frames of one text."""

    typer: OperandTyper
    bind: BindExpr
    bind_default: BindExpr
    """Binds an expression that may be NULL without a type."""

    @property
    def origin(self) -> Origin:
        return self.typer.origin

    def bind_call(self, node: exp.Expr) -> FrameCall:
        """A function with OVER, whose window has its parts: `partition_by`, `order` and `spec`."""
        function, span = node.this, find_span(node)
        partition = tuple(self.bind(each) for each in node.args.get("partition_by") or ())
        order = self._bind_order(node)
        name = function.name.casefold() if isinstance(function, exp.Anonymous) else ""
        if name not in FRAME_FUNCTIONS:
            value = self.bind(function)
            if not isinstance(value, Aggregate):
                raise self.origin.unsupported_error("OVER", span, advice.OVER)
            return FrameCall("aggregate", value, partition, order, self._bind_frame(node, order), span=span)
        kind, least, most = FRAME_FUNCTIONS[name]
        arguments = list(function.expressions)
        if not least <= len(arguments) <= most:
            needed = f"{least}" if least == most else f"{least} to {most}"
            message = f"{name.upper()} takes {needed} argument(s), found {len(arguments)}"
            raise self.origin.error("ARGUMENT_COUNT", message, span)
        value = self.bind(arguments[0])
        if name in ("lag", "lead"):
            call = FrameCall(kind, value, partition, order, Frame("rows", 1, 1), span=span)
            return self._bind_neighbour(node, call, name, 1 if name == "lag" else -1)
        place = self._read_count(arguments[1], least=1) if len(arguments) > 1 else 1
        return FrameCall(kind, value, partition, order, self._bind_frame(node, order), place, span=span)

    def _bind_neighbour(self, node: exp.Expr, call: FrameCall, name: str, side: int) -> FrameCall:
        """LAG(x, n, default), or LEAD: the value n rows before or behind, as the first of a frame of one row."""
        if node.args.get("spec"):
            message = f"{name.upper()} takes no frame: remove ROWS or RANGE"
            raise self.origin.error("INVALID_FRAME", message, call.span)
        arguments = node.this.expressions
        distance = side * (self._read_count(arguments[1], least=0) if len(arguments) > 1 else 1)
        call = replace(call, frame=Frame("rows", distance, distance))
        if len(arguments) < 3:
            return call
        operands = [Operand(arguments[0], call.value), Operand(arguments[2], self.bind_default(arguments[2]))]
        value, default = self.typer.unify(operands, f"{name.upper()} cannot return both", node)
        return replace(call, value=value, default=default)

    def _read_count(self, node: exp.Expr, least: int) -> int:
        if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal() or int(node.name) < least:
            message = f"expected a whole number of rows, {least} or more"
            raise self.origin.error("INVALID_FRAME", message, find_span(node))
        return int(node.name)

    def _bind_order(self, node: exp.Expr) -> Expr:
        order = node.args.get("order")
        if order is None:
            message = (
                "an aggregate with OVER needs the order of time: write OVER (PARTITION BY ... ORDER BY ts ...), or "
                "GROUP BY for all rows of a window"
            )
            raise self.origin.error("ORDER_BY_MISSING", message, find_span(node))
        first = order.expressions[0]
        ordered = first if isinstance(first, exp.Ordered) else exp.Ordered(this=first)
        if len(order.expressions) > 1 or ordered.args.get("desc"):
            message = "OVER with a frame is ordered by the time column alone, ascending: write ORDER BY ts"
            raise self.origin.error("NOT_THE_TIME_COLUMN", message, find_span(order))
        return self.bind(ordered.this)

    def _bind_frame(self, node: exp.Expr, order: Expr) -> Frame:
        spec = node.args.get("spec")
        if spec is None:
            return Frame("range", None)
        span = find_span(node)
        kind, exclude = str(spec.args.get("kind") or "").upper(), spec.args.get("exclude")
        if kind not in ("ROWS", "RANGE") or exclude is not None:
            raise self.origin.unsupported_error("EXCLUDE" if exclude else kind, span, advice.FRAME)
        start = self._bind_bound(spec, "start", kind, order)
        end = self._bind_bound(spec, "end", kind, order) if spec.args.get("end") is not None else 0
        if end is None:
            raise self.origin.unsupported_error("UNBOUNDED FOLLOWING", span, advice.FRAME)
        if start is not None and start < end:
            raise self.origin.error("INVALID_FRAME", "the frame ends before it starts", span)
        return Frame("rows" if kind == "ROWS" else "range", start, end)

    def _bind_bound(self, spec: exp.Expr, which: str, kind: str, order: Expr) -> int | None:
        """How far before the current row the frame starts or ends, negative behind it; None for UNBOUNDED."""
        bound, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
        if isinstance(bound, str) and bound.upper() == "CURRENT ROW":
            return 0
        if side not in ("PRECEDING", "FOLLOWING"):
            raise self.origin.unsupported_error("this frame", find_span(spec), advice.FRAME)
        if not isinstance(bound, exp.Expr):
            if (which, side) in (("start", "FOLLOWING"), ("end", "PRECEDING")):
                raise self.origin.error("INVALID_FRAME", f"no frame {which}s at UNBOUNDED {side}", find_span(spec))
            return None
        distance = self._read_count(bound, least=0) if kind == "ROWS" else self._read_duration(bound, order)
        return distance if side == "PRECEDING" else -distance

    def _read_duration(self, node: exp.Expr, order: Expr) -> int:
        amount = node.this if isinstance(node, exp.Interval) else node
        unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
        if not isinstance(amount, exp.Literal):
            raise self.origin.error("INVALID_FRAME", "expected INTERVAL '5' MINUTES, or a number", find_span(node))
        number, _, word = amount.name.partition(" ")
        try:
            found = convert_duration(number, (unit.name if unit is not None else word) or None, order.type)
        except QueryError as error:
            raise self.origin.error(error.condition, error.message, find_span(node)) from None
        if found < 0:
            message = "a distance is not negative: write PRECEDING or FOLLOWING"
            raise self.origin.error("INVALID_FRAME", message, find_span(node))
        return found


# ── rows that enter at the time of a column ──────────────────────────────────────────────────────────────────────────


def find_entry_columns(sources: Sequence[Source]) -> tuple[Column, ...]:
    """The columns of FROM with the time at which its rows enter, if these never leave; else none.

    They are those of one stream without a window, or of a subquery over one, beside static tables.
    """
    timed = [source for source in sources if not source.is_table]
    if len(timed) != 1:
        return ()
    (source,) = timed
    match source.relation:
        case Stream():
            if source.relation.key or source.window != UNBOUNDED:
                return ()
            return (Column(source.alias, source.relation.time, source.relation.time_type),)
        case Subquery() if not isinstance(source.relation, View):
            schema = source.relation.schema
            names = _list_entry_items(source.relation.body)
            return tuple(Column(source.alias, name, schema.field(name).type) for name in names)
    return ()


def _list_entry_items(body: QueryBody) -> Iterator[str]:
    if isinstance(body, FramedRows):
        if not body.ahead:
            yield body.time.name
    elif isinstance(body, Select) and not body.distinct and body.group_by is None and body.sequence is None:
        times = find_entry_columns(body.sources)
        yield from (item.name for item in body.items if item.expr in times)


def check_frames(select: Select, calls: Sequence[FrameCall], origin: Origin) -> None:
    """Raise an error if a function over a frame is not ordered by the time at which the rows enter."""
    plain = not select.distinct and select.group_by is None and select.sequence is None
    times = find_entry_columns(select.sources) if plain else ()
    for call in calls:
        if not times:
            raise origin.unsupported_error("OVER of these rows", call.span, advice.OVER_SOURCE)
        if call.order not in times:
            names = " or ".join(f"{column.name}" for column in times)
            message = f"OVER with a frame is ordered by time: write ORDER BY {names}"
            raise origin.error("NOT_THE_TIME_COLUMN", message, call.span)
    _check_ahead([call for call in calls if call.frame.ahead], origin)


def _check_ahead(calls: Sequence[FrameCall], origin: Origin) -> None:
    """Raise an error if frames that end behind their row are not complete at the same row or time."""
    for call in calls[1:]:
        first = calls[0]
        if call.frame.unit != first.frame.unit:
            raise origin.unsupported_error("FOLLOWING in ROWS and in RANGE", call.span, advice.FRAMES_AHEAD)
        if call.frame.unit == "rows" and {*call.partition} != {*first.partition}:
            raise origin.unsupported_error("FOLLOWING in two partitions", call.span, advice.FRAMES_AHEAD)


def frame_rows(
    select: Select, calls: Sequence[FrameCall], names: Mapping[Expr, str], outputs: Sequence[str]
) -> FramedRows:
    """The rows of a SELECT with the functions as columns named `outputs`; `names` are its columns."""

    def read(expr: Expr) -> Column:
        return Column(FRAME_INPUT, names[expr], expr.type)

    windows: dict[tuple[tuple[Column, ...], Frame], list[FrameFunction]] = {}
    for call, name in zip(calls, outputs, strict=True):
        partition = tuple(dict.fromkeys(map(read, call.partition)))
        value = call.value
        moved = replace(value, args=tuple(map(read, value.args))) if isinstance(value, Aggregate) else read(value)
        default = None if call.default is None else read(call.default)
        found = windows.setdefault((partition, call.frame), [])
        found.append(FrameFunction(name, call.kind, moved, call.place, default))
    items = [SelectItem(item.name, Column(FRAME_INPUT, item.name, item.expr.type)) for item in select.items]
    items += [SelectItem(name, Column("", name, call.value.type)) for call, name in zip(calls, outputs, strict=True)]
    return FramedRows(
        Source(FRAME_INPUT, Subquery("rows", _pass_rows(select)), CURRENT),
        tuple(items),
        tuple(FrameWindow(partition, frame, tuple(found)) for (partition, frame), found in windows.items()),
        read(calls[0].order),
        _keeps_arrival(select),
    )


def _pass_rows(select: Select) -> Select:
    """The rows of a SELECT whose streams are not kept: the frames above need them only when they enter."""
    return replace(select, sources=tuple(map(_pass_source, select.sources)))


def _pass_source(source: Source) -> Source:
    match source.relation:
        case Stream():
            return replace(source, window=NOW)
        case Subquery(body=Select() as body) if not isinstance(source.relation, View):
            return replace(source, relation=replace(source.relation, body=_pass_rows(body)))
    return source


def _keeps_arrival(select: Select) -> bool:
    """Whether the rows of one time have the order of their arrival: not those of a join or of a derived stream."""
    relation = select.sources[0].relation
    return len(select.sources) == 1 and isinstance(relation, Stream) and relation.time != TIMESTAMP_COLUMN
