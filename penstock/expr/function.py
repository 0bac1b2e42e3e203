"""What one scalar function or operator is: all that binder, evaluator, SQL writer, documentation and oracle need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import BOOL, STRING, Call
from penstock.expr.sql_formats import Format, format_function
from penstock.expr.type_rules import TypeRule, refuse_call

KernelMaker = Callable[[Call, Constants], Kernel]
NullType = Callable[[Call, int], pa.DataType]


def use_result_type(call: Call, _index: int) -> pa.DataType:
    return call.type


def use_other_type(call: Call, _index: int) -> pa.DataType:
    return next((arg.type for arg in call.args if not pt.is_null(arg.type)), BOOL)


def use_boolean(_call: Call, _index: int) -> pa.DataType:
    return BOOL


def use_string(_call: Call, _index: int) -> pa.DataType:
    return STRING


def use_branch_type(call: Call, index: int) -> pa.DataType:
    is_condition = index % 2 == 0 and index < len(call.args) - 1
    return BOOL if is_condition else call.type


@dataclass(frozen=True)
class Function:
    """A scalar function or operator. Unless its description says otherwise, a NULL argument gives NULL."""

    name: str
    """The value of `Call.op`."""
    make_kernel: KernelMaker
    """Chooses the kernel for the types of a call and for its constant arguments."""
    format: Format = format_function
    """SQL text."""
    type_rule: TypeRule = refuse_call
    mismatch: str = ""
    """The start of the message for arguments that do not fit; the arguments follow."""
    arity: tuple[int, int | None] | None = None
    """The least and the largest number of arguments of a function that CQL calls by name; None for an operator."""
    null_type: NullType | None = use_result_type
    """The type of an argument that is an untyped NULL; None if the function takes it as it is."""
    negated_format: Format | None = None
    """SQL text under NOT, if it differs from `NOT` before the text."""
    aliases: tuple[str, ...] = ()
    """Other names under which CQL finds the function."""
    usage: str = ""
    """How it is called, for the documentation."""
    meaning: str = ""
    """What it returns, for the documentation; with its meaning of NULL if a NULL argument does not give NULL."""
    duckdb: str | None = None
    """The same in DuckDB's SQL, for the oracle: a template of its arguments, in which times are counts of microseconds.
    None if DuckDB computes something else."""
