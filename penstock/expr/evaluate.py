"""Vectorised evaluation of expressions over Arrow arrays.

An expression is compiled once into a program: constants folded, a kernel chosen for each call by the types of its
arguments, common sub-expressions shared. Running it is a straight line of kernels, each over whole columns; constants
stay scalars. Programs are kept by the identity of their expressions, which plans hold for as long as they run.
Cost: one pass over the data for each distinct call; a few microseconds a call on small batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import InternalError
from penstock.expr import logic
from penstock.expr.arithmetic import ARITHMETIC, arithmetic
from penstock.expr.cast import try_cast
from penstock.expr.convert import Datum
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import (
    BOOL,
    COMPARISONS,
    DOUBLE,
    INT,
    STRING,
    Aggregate,
    Call,
    Column,
    Expr,
    Literal,
    Op,
    conjuncts,
)

Read = Callable[[Column], pa.Array]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

REMEMBERED = 4096  # programs


def evaluate(expr: Expr, read: Read, length: int) -> pa.Array:
    """The value of an expression for each of `length` rows: an array of exactly its type."""
    program = _program((expr,))
    slots = program.start()
    (stage,) = program.stages
    return _spread(stage.run(slots, read, length), length)


def mask(exprs: Sequence[Expr], read: Read, length: int) -> Mask:
    """The rows for which all predicates hold; NULL does not. Stops at the first that leaves no row."""
    program, terms = _filter(tuple(exprs))
    slots, holds = program.start(), None
    for term in terms:
        passing = term.passing(slots, read, length)
        if passing is not None:
            holds = passing if holds is None else holds & passing
            if not np.count_nonzero(holds):
                return holds
    return np.ones(length, np.bool_) if holds is None else holds


def _passing(verdict: Datum, length: int) -> Mask | None:
    """The rows for which a predicate holds; None for all, if it reads no column."""
    if isinstance(verdict, pa.Scalar):
        return None if verdict.as_py() else np.zeros(length, np.bool_)
    return _bits(verdict) if verdict.true_count else np.zeros(length, np.bool_)


def _bits(flags: pa.Array) -> Mask:
    """A boolean array that is not empty as numpy, NULL as false."""
    if flags.null_count:
        flags = pc.fill_null(flags, False)
    first, skip = divmod(flags.offset, 8)
    packed = np.frombuffer(flags.buffers()[1], np.uint8)[first:]
    return np.unpackbits(packed, count=skip + len(flags), bitorder="little")[skip:].view(np.bool_)


def _spread(value: Datum, length: int) -> pa.Array:
    return pa.repeat(value, length) if isinstance(value, pa.Scalar) else value


# Programs


@dataclass(frozen=True, slots=True)
class Load:
    """Reads a column into a slot."""

    column: Column
    slot: int

    def run(self, slots: list[Datum], read: Read, length: int) -> None:
        slots[self.slot] = _loaded(self.column, read, length)


@dataclass(frozen=True, slots=True)
class Apply:
    """Computes a call from the slots of its arguments, at least one of them an array."""

    kernel: Kernel
    args: tuple[int, ...]
    slot: int
    type: pa.DataType

    def run(self, slots: list[Datum], _read: Read, length: int) -> None:
        value = _spread(self.kernel(*[slots[arg] for arg in self.args]), length)
        slots[self.slot] = value if value.type == self.type else try_cast(value, self.type)


@dataclass(frozen=True, slots=True)
class Stage:
    """The steps one expression needs beyond those of the expressions before it."""

    steps: tuple[Load | Apply, ...]
    slot: int

    def run(self, slots: list[Datum], read: Read, length: int) -> Datum:
        for step in self.steps:
            step.run(slots, read, length)
        return slots[self.slot]

    def passing(self, slots: list[Datum], read: Read, length: int) -> Mask | None:
        return _passing(self.run(slots, read, length), length)


@dataclass(frozen=True, slots=True)
class Bound:
    """A predicate that compares a column of 64-bit numbers with a constant that is neither NULL nor NaN.

    Most filters are like that, and most batches are small: numpy tells in a third of the time.
    """

    predicate: Call
    column: Column
    value: int | float

    def passing(self, _slots: list[Datum], read: Read, length: int) -> Mask | None:
        array = _loaded(self.column, read, length)
        if array.null_count:
            return _passing(evaluate(self.predicate, lambda _: array, length), length)
        holds: Mask = BOUNDS[self.predicate.op](array.to_numpy(), self.value)
        return holds


BOUNDS: dict[Op, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": lambda values, bound: ~(values <= bound),  # NaN is greater than every other number
    ">=": lambda values, bound: ~(values < bound),
}


def _loaded(column: Column, read: Read, length: int) -> pa.Array:
    array = read(column)
    if not isinstance(array, pa.Array) or array.type != column.type or len(array) != length:
        name = f"{column.alias}.{column.name}"
        expected = f"an array of {length} {column.type}"
        got = f"{type(array).__name__} of {len(array)} {array.type}"
        raise InternalError("COLUMN_MISMATCH", f"{name} should be {expected} but is {got}", column=name)
    return array


def _bound(expr: Expr) -> Bound | None:
    """A predicate as a bound, if it is one."""
    if not isinstance(expr, Call) or expr.op not in BOUNDS:
        return None
    column, constant = expr.args
    if not isinstance(column, Column) or not isinstance(constant, Literal) or column.type != constant.type:
        return None
    value = constant.value
    if column.type not in (INT, DOUBLE) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return Bound(expr, column, value)


@dataclass(slots=True)
class Program:
    """Stages over slots; a constant is in its slot from the start."""

    stages: list[Stage] = field(default_factory=list)
    constants: list[pa.Scalar | None] = field(default_factory=list)
    slot_of: dict[Expr, int] = field(default_factory=dict)

    def start(self) -> list[Any]:
        return list(self.constants)

    def add(self, expr: Expr) -> None:
        steps: list[Load | Apply] = []
        slot = self._slot(expr, steps)
        self.stages.append(Stage(tuple(steps), slot))

    def _slot(self, expr: Expr, steps: list[Load | Apply]) -> int:
        if (known := self.slot_of.get(expr)) is not None:
            return known
        if isinstance(expr, Aggregate):
            message = f"{expr.function} reached the evaluator of scalar expressions"
            raise InternalError("AGGREGATE_IN_SCALAR", message, function=expr.function)
        if isinstance(expr, Literal):  # not shared: 0.0 and -0.0 are equal keys
            return self._new(pa.scalar(expr.value, expr.type))
        if isinstance(expr, Column):
            slot = self._new(None)
            steps.append(Load(expr, slot))
        else:
            slot = self._call(_without_untyped_nulls(expr), steps)
        self.slot_of[expr] = slot
        return slot

    def _call(self, call: Call, steps: list[Load | Apply]) -> int:
        args = tuple(self._slot(arg, steps) for arg in call.args)
        constants = [self.constants[arg] for arg in args]
        apply = Apply(_kernel(call, constants), args, len(self.constants), call.type)
        if any(constant is None for constant in constants):
            steps.append(apply)
            return self._new(None)
        # The kernels take one array at least: a batch of one row, then.
        folded = replace(apply, args=tuple(range(len(args))), slot=len(args))
        slots = [pa.repeat(constants[0], 1), *constants[1:], None]
        folded.run(slots, _reads_nothing, 1)
        return self._new(slots[-1][0])

    def _new(self, constant: pa.Scalar | None) -> int:
        self.constants.append(constant)
        return len(self.constants) - 1


def _reads_nothing(column: Column) -> pa.Array:
    raise InternalError("CONSTANT_READS", f"a constant reads {column.alias}.{column.name}")


Filter = tuple[Program, tuple[Stage | Bound, ...]]

_programs: dict[tuple[int, ...], tuple[tuple[Expr, ...], Program]] = {}
_filters: dict[tuple[int, ...], tuple[tuple[Expr, ...], Filter]] = {}


def _filter(exprs: tuple[Expr, ...]) -> Filter:
    """The terms of a conjunction in their order, and the program of those that are stages of one."""
    key = tuple(map(id, exprs))
    remembered = _filters.get(key)
    if remembered is None:
        terms = [term for expr in exprs for term in conjuncts(expr)]
        program = _program(tuple(term for term in terms if _bound(term) is None))
        stages = iter(program.stages)
        if len(_filters) >= REMEMBERED:
            _filters.clear()
        remembered = _filters[key] = (exprs, (program, tuple(_bound(term) or next(stages) for term in terms)))
    return remembered[1]


def _program(exprs: tuple[Expr, ...]) -> Program:
    key = tuple(map(id, exprs))
    remembered = _programs.get(key)
    if remembered is None:
        program = Program()
        for expr in exprs:
            program.add(expr)
        if len(_programs) >= REMEMBERED:
            _programs.clear()
        # Holding the expressions keeps their identities from being given to others.
        remembered = _programs[key] = (exprs, program)
    return remembered[1]


# Kernels


def _kernel(call: Call, constants: Constants) -> Kernel:
    if pt.is_null(call.type):
        return lambda *_args: pa.scalar(None, call.type)
    return BUILDERS[call.op](call, constants)


def _cast(call: Call, _constants: Constants) -> Kernel:
    return lambda value: try_cast(value, call.type)


def _arithmetic(call: Call, _constants: Constants) -> Kernel:
    return arithmetic(call)


BUILDERS: dict[Op, Callable[[Call, Constants], Kernel]] = {
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    **dict.fromkeys(COMPARISONS, logic.compare),
    "and": logic.conjunction,
    "or": logic.disjunction,
    "not": logic.negation,
    "is_null": logic.is_null,
    "in": logic.membership,
    "like": logic.like,
    "case": logic.case,
    "coalesce": logic.coalesce,
    "cast": _cast,
}


def _without_untyped_nulls(call: Call) -> Call:
    """The call with NULLs of no type given the type their place asks for."""
    if call.op in ("cast", "is_null") or not any(pt.is_null(arg.type) for arg in call.args):
        return call
    args = tuple(
        Call("cast", (arg,), _place(call, index)) if pt.is_null(arg.type) else arg
        for index, arg in enumerate(call.args)
    )
    return replace(call, args=args)


def _place(call: Call, index: int) -> pa.DataType:
    if call.op == "like":
        return STRING
    if call.op in (*COMPARISONS, "in"):
        return next((arg.type for arg in call.args if not pt.is_null(arg.type)), BOOL)
    condition = call.op == "case" and index % 2 == 0 and index < len(call.args) - 1
    return BOOL if condition or call.op in ("and", "or", "not") else call.type
