"""Arrays, maps and structs: their parts, and values made of parts.

Law: what is not there is NULL: an index beyond the end, a key that a map does not have. `a[i]` counts from 0 and has
nothing before it; ELEMENT_AT counts from 1, and from the end if the index is negative. As in Spark without ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.expr.convert import Datum
from penstock.expr.function import Function
from penstock.expr.logic import Constants, Kernel, choose_comparison
from penstock.expr.nodes import BOOL, INT, Call, Expr, Literal
from penstock.expr.sql_formats import ATOM, TextWithPrecedence, Write
from penstock.expr.type_rules import Mismatch, Signature, unify
from penstock.expr.types import NULL, classify_type, find_common_type, is_nested

I64 = NDArray[np.int64]


# ── type rules ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _type_element(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """An array and an index, or a map and a key."""
    whole, place = args
    match classify_type(whole.type):
        case "array":
            fits = classify_type(place.type) == "integer" or place.type == NULL
            return Signature((whole.type, INT), whole.type.value_type) if fits else Mismatch((1,))
        case "map":
            key = whole.type.key_type
            fits = not is_nested(key) and find_common_type(key, place.type) is not None
            return Signature((whole.type, key), whole.type.item_type) if fits else Mismatch((1,))
    return Mismatch((0,))


def _type_contains(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    whole, sought = args
    if classify_type(whole.type) != "array" or is_nested(whole.type.value_type):
        return Mismatch((0,))
    element = whole.type.value_type
    fits = find_common_type(element, sought.type) is not None
    return Signature((whole.type, element), BOOL) if fits else Mismatch((1,))


def _type_size(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    (whole,) = args
    return Signature((whole.type,), pa.int32()) if classify_type(whole.type) in ("array", "map") else Mismatch((0,))


def _type_map_part(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    (whole,) = args
    if classify_type(whole.type) != "map":
        return Mismatch((0,))
    return Signature((whole.type,), pa.list_(whole.type.key_type if name == "map_keys" else whole.type.item_type))


def _type_array(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    goal = unify(args)
    return goal if isinstance(goal, Mismatch) else Signature((goal,) * len(args), pa.list_(goal))


def _type_struct(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """Names, which are constants, and values."""
    names = [arg.value if isinstance(arg, Literal) else None for arg in args[::2]]
    wrong = tuple(2 * place for place, name in enumerate(names) if not isinstance(name, str))
    folded = [str(name).casefold() for name in names]
    if wrong or len(args) % 2 or len(set(folded)) < len(names):
        return Mismatch(wrong or tuple(range(len(args))))
    types = [pa.string() if arg.type == NULL else arg.type for arg in args]
    return Signature(tuple(types), pa.struct(list(zip(map(str, names), types[1::2], strict=True))))


# ── kernels ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _spread(*args: Datum) -> list[Any]:
    """All arguments as arrays of one length."""
    length = max(len(arg) for arg in args if isinstance(arg, pa.Array))
    return [arg if isinstance(arg, pa.Array) else pa.repeat(arg, length) for arg in args]


def _get_bounds(values: pa.Array) -> tuple[I64, I64]:
    """Where the elements of each array or map start, and how many there are; none of NULL."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    if values.null_count:
        lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return offsets[:-1], lengths


def _take_known(values: pa.Array, places: I64, known: NDArray[np.bool_]) -> pa.Array:
    return values.take(pa.array(np.where(known, places, 0), mask=~known))


def _get_by_index(index_from: int) -> Kernel:
    def kernel(whole: Datum, place: Datum) -> Datum:
        values, index = _spread(whole, place)
        starts, lengths = _get_bounds(values)
        at = index.fill_null(0).to_numpy(zero_copy_only=False)
        known = index.is_valid().to_numpy(zero_copy_only=False)
        if index_from:  # from 1, or from the end
            at = np.where(at > 0, at - 1, np.where(at < 0, np.where(at >= -lengths, at + lengths, -1), -1))
        known = known & (at >= 0) & (at < lengths)
        return _take_known(values.values, starts + at, known)

    return kernel


def _get_by_key(key_type: pa.DataType) -> Kernel:
    equal = choose_comparison("=", [key_type])

    def kernel(whole: Datum, key: Datum) -> Datum:
        maps, sought = _spread(whole, key)
        starts, lengths = _get_bounds(maps)
        rows = np.repeat(np.arange(lengths.size), lengths)
        places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(rows.size)
        found = np.full(lengths.size, -1, np.int64)
        if rows.size:
            same = equal(maps.keys.take(pa.array(places)), sought.take(pa.array(rows)))
            hits = np.flatnonzero(pc.fill_null(same, False).to_numpy(zero_copy_only=False))
            found[rows[hits]] = places[hits]
        return _take_known(maps.items, found, found >= 0)

    return kernel


def _make_element(index_from: int) -> Callable[[Call, Constants], Kernel]:
    def make(call: Call, _constants: Constants) -> Kernel:
        whole = call.args[0].type
        return _get_by_key(whole.key_type) if classify_type(whole) == "map" else _get_by_index(index_from)

    return make


def _make_contains(call: Call, _constants: Constants) -> Kernel:
    equal = choose_comparison("=", [call.args[1].type])

    def kernel(whole: Datum, sought: Datum) -> Datum:
        values, wanted = _spread(whole, sought)
        starts, lengths = _get_bounds(values)
        rows = np.repeat(np.arange(lengths.size), lengths)
        places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(rows.size)
        found, unknown = np.zeros(lengths.size, np.bool_), np.zeros(lengths.size, np.bool_)
        if rows.size:
            same = equal(values.values.take(pa.array(places)), wanted.take(pa.array(rows)))
            found[rows[pc.fill_null(same, False).to_numpy(zero_copy_only=False)]] = True
            unknown[rows[same.is_null().to_numpy(zero_copy_only=False)]] = True
        known = values.is_valid().to_numpy(zero_copy_only=False) & wanted.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(found, mask=~known | (unknown & ~found))

    return kernel


def _count_elements(values: Datum) -> Datum:
    _, lengths = _get_bounds(values)
    return pa.array(lengths.astype(np.int32), mask=values.is_null().to_numpy(zero_copy_only=False))


def _make_map_part(call: Call, _constants: Constants) -> Kernel:
    def kernel(maps: Datum) -> Datum:
        starts, lengths = _get_bounds(maps)
        places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
        parts = (maps.keys if call.op == "map_keys" else maps.items).take(pa.array(places))
        return _build_lists(lengths, parts, maps.is_null().to_numpy(zero_copy_only=False))

    return kernel


def _build_lists(lengths: I64, elements: pa.Array, nulls: NDArray[np.bool_]) -> pa.Array:
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, elements, mask=pa.array(nulls) if nulls.any() else None)


def _build_array(*args: Datum) -> Datum:
    columns = _spread(*args)
    rows, width = len(columns[0]), len(columns)
    order = (np.arange(rows)[:, None] + rows * np.arange(width)).ravel()
    elements = pa.concat_arrays(columns).take(pa.array(order))
    return _build_lists(np.full(rows, width, np.int64), elements, np.zeros(rows, np.bool_))


def _make_struct(call: Call, _constants: Constants) -> Kernel:
    def kernel(*args: Datum) -> Datum:
        return pa.StructArray.from_arrays(_spread(*args)[1::2], fields=list(call.type))

    return kernel


def _make_field(call: Call, constants: Constants) -> Kernel:
    (name,) = (constant.as_py() for constant in constants[1:] if constant is not None)
    place = call.args[0].type.get_field_index(name)
    return lambda value, _name: pc.struct_field(value, [place])


def _format_field(call: Call, write: Write) -> TextWithPrecedence:
    whole, name = call.args
    text = str(name.value) if isinstance(name, Literal) else ""
    quoted = text if text.isidentifier() else f"`{text}`"
    return f"{write(whole, ATOM)}.{quoted}", ATOM


def _format_subscript(call: Call, write: Write) -> TextWithPrecedence:
    whole, place = call.args
    return f"{write(whole, ATOM)}[{write(place, 0)}]", ATOM


FIELD = Function("field", _make_field, _format_field, duckdb="struct_extract({0}, {1})")
"""A field of a struct: args[0].args[1], which is a string constant. The binder types it."""
SUBSCRIPT = Function(
    "subscript", _make_element(0), _format_subscript, _type_element, "[...] needs an array and an integer, or a map "
    "and a key, not", duckdb="CASE WHEN {1} >= 0 THEN list_extract({0}, {1} + 1) END",
)  # fmt: skip
"""args[0][args[1]]"""

FUNCTIONS = (
    Function(
        "element_at",
        _make_element(1),
        type_rule=_type_element,
        mismatch="ELEMENT_AT needs an array and an integer, or a map and a key, not",
        arity=(2, 2),
        usage="ELEMENT_AT(array, n), ELEMENT_AT(map, key)",
        meaning="the n-th element, from 1, or from the end if n is negative; the value of a key; NULL if there is none",
        duckdb="list_extract({0}, {1})",
    ),
    Function(
        "cardinality",
        lambda _call, _constants: _count_elements,
        type_rule=_type_size,
        mismatch="CARDINALITY needs an array or a map, not",
        arity=(1, 1),
        aliases=("size", "array_size", "array_length"),
        usage="CARDINALITY(array)",
        meaning="how many elements an array or a map has",
        duckdb="CAST(len({0}) AS INTEGER)",
    ),
    Function(
        "array_contains",
        _make_contains,
        type_rule=_type_contains,
        mismatch="ARRAY_CONTAINS needs an array and a value like its elements, not",
        arity=(2, 2),
        aliases=("list_contains",),
        usage="ARRAY_CONTAINS(array, value)",
        meaning="whether an element is equal to a value; NULL if none is and one of them is NULL",
    ),
    Function(
        "map_keys",
        _make_map_part,
        type_rule=_type_map_part,
        mismatch="MAP_KEYS needs a map, not",
        arity=(1, 1),
        usage="MAP_KEYS(map)",
        meaning="the keys of a map, as an array",
    ),
    Function(
        "map_values",
        _make_map_part,
        type_rule=_type_map_part,
        mismatch="MAP_VALUES needs a map, not",
        arity=(1, 1),
        usage="MAP_VALUES(map)",
        meaning="the values of a map, as an array",
    ),
    Function(
        "array",
        lambda _call, _constants: _build_array,
        type_rule=_type_array,
        mismatch="an array has elements of one type, not",
        arity=(1, None),
        usage="ARRAY(a, b, …), ARRAY[a, b, …]",
        meaning="an array of values; a NULL is an element",
        null_type=lambda call, _index: call.type.value_type,
        duckdb="list_value({args})",
    ),
    Function(
        "named_struct",
        _make_struct,
        type_rule=_type_struct,
        mismatch="NAMED_STRUCT needs different constant names, each before its value, not",
        arity=(2, None),
        usage="NAMED_STRUCT('a', x, 'b', y)",
        meaning="a struct with these fields; a NULL is the value of a field",
        null_type=None,
    ),
)
