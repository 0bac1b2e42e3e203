"""Hashes: MD5 and SHA of texts, and HASH, which has the values of Spark's (Murmur3 with the seed 42)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from penstock.expr.convert import Datum
from penstock.expr.function import Function
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import DOUBLE, INT, STRING, Call, Expr
from penstock.expr.parameters import take
from penstock.expr.rowwise import make_by_row
from penstock.expr.type_rules import Mismatch, Signature
from penstock.expr.types import classify_type

U32 = NDArray[np.uint32]

SEED = 42
_HASHED = ("boolean", "integer", "float", "string", "date", "timestamp")


def _type_hash(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    wrong = tuple(place for place, arg in enumerate(args) if classify_type(arg.type) not in _HASHED)
    return Mismatch(wrong) if wrong else Signature(tuple(arg.type for arg in args), pa.int32())


def _make_hash(call: Call, _constants: Constants) -> Kernel:
    def kernel(*args: Datum) -> pa.Array:
        length = max(len(arg) for arg in args if isinstance(arg, pa.Array))
        state: U32 = np.full(length, SEED, np.uint32)
        for arg in args:
            column = arg if isinstance(arg, pa.Array) else pa.repeat(arg, length)
            state = _hash_column(column, state)
        return pa.array(state.view(np.int32), call.type)

    return kernel


def _hash_column(column: pa.Array, state: U32) -> U32:
    """The hashes after one more column; a NULL leaves them as they are."""
    if pt.is_string(column.type):
        texts, states = column.to_pylist(), state.tolist()
        rows = [
            seed if text is None else _hash_bytes(text.encode(), seed) for text, seed in zip(texts, states, strict=True)
        ]
        return np.array(rows, np.uint32)
    with np.errstate(over="ignore"):
        hashed = _hash_words(_to_words(column), state)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(known, hashed, state)


def _to_words(column: pa.Array) -> tuple[U32, ...]:
    """The values as one or two words of 32 bits, the lower one first."""
    kind = column.type
    if pt.is_boolean(kind) or pt.is_date32(kind) or (pt.is_integer(kind) and kind.bit_width <= 32):
        narrow = column.view(pa.int32()) if pt.is_date32(kind) else column.cast(pa.int32())
        return (narrow.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint32),)
    if pt.is_floating(kind):
        floats = column.fill_null(0.0).to_numpy(zero_copy_only=False) + kind.to_pandas_dtype()(0)
        floats = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats)
        if kind != DOUBLE:
            return (floats.view(np.uint32),)
        bits = floats.view(np.uint64)
    else:
        bits = column.view(INT).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    return (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)


def _hash_words(words: tuple[U32, ...], state: Any) -> Any:
    for word in words:
        state = _mix(state, word)
    return _finish(state, 4 * len(words))


def _rotate(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _mix(state: Any, word: Any) -> Any:
    word = _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotate(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(state: Any, length: int) -> Any:
    state = state ^ np.uint32(length)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _hash_bytes(data: bytes, seed: int) -> int:
    """Whole words of four bytes, then the bytes that remain, each as a signed number."""
    state: Any = np.array([seed], np.uint32)
    whole = len(data) // 4 * 4
    words = np.frombuffer(data, "<u4", whole // 4)
    rest: Any = np.frombuffer(data, np.int8, offset=whole).astype(np.int32).view(np.uint32) if len(data) > whole else []
    with np.errstate(over="ignore"):
        for word in (*words, *rest):
            state = _mix(state, np.uint32(word))
        return int(_finish(state, len(data))[0])


def _digest(name: str) -> Callable[[str], str]:
    return lambda text: hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


FUNCTIONS = (
    Function(
        "hash",
        _make_hash,
        type_rule=_type_hash,
        mismatch="HASH does not take",
        arity=(1, None),
        usage="HASH(a, b, …)",
        meaning="an INT with the value of Spark's `hash`; NULLs are left out",
    ),
    Function(
        "md5",
        make_by_row(_digest("md5")),
        type_rule=take("text", result=STRING),
        mismatch="MD5 needs a text, not",
        arity=(1, 1),
        usage="MD5(s)",
        meaning="32 hexadecimal digits",
        duckdb="md5({0})",
    ),
    Function(
        "sha1",
        make_by_row(_digest("sha1")),
        type_rule=take("text", result=STRING),
        mismatch="SHA1 needs a text, not",
        arity=(1, 1),
        aliases=("sha",),
        usage="SHA1(s)",
        meaning="40 hexadecimal digits",
        duckdb="sha1({0})",
    ),
    Function(
        "sha256",
        make_by_row(_digest("sha256")),
        type_rule=take("text", result=STRING),
        mismatch="SHA256 needs a text, not",
        arity=(1, 1),
        usage="SHA256(s)",
        meaning="64 hexadecimal digits",
        duckdb="sha256({0})",
    ),
    Function(
        "crc32",
        make_by_row(lambda text: zlib.crc32(text.encode())),
        type_rule=take("text", result=INT),
        mismatch="CRC32 needs a text, not",
        arity=(1, 1),
        usage="CRC32(s)",
        meaning="the cyclic redundancy check, as a BIGINT",
    ),
)
