"""Operators of the query graph, one a file. They depend only on the protocol in `protocol`."""

from penstock.ops.aggregate.operator import AggregateOperator
from penstock.ops.aggregate.reports import Reports, RowReports, TimeReports
from penstock.ops.aggregate.shared import SharedAggregation, WindowAggregates, can_be_sliced
from penstock.ops.aggregate.sliding import SlidingAggregateOperator
from penstock.ops.aggregate.user import check_aggregate_class
from penstock.ops.changelog import apply_changes, as_batch, as_table, undo
from penstock.ops.difference import DifferenceOperator
from penstock.ops.distinct import DistinctOperator
from penstock.ops.emit import (
    DerivedStreamOperator,
    DStreamOperator,
    EmitChangesOperator,
    IStreamOperator,
    RStreamOperator,
    WindowCloseOperator,
)
from penstock.ops.evaluation import EVALUATION_ERRORS, make_evaluation_error
from penstock.ops.expirations import Expirations
from penstock.ops.final_rows import FinalRowsOperator
from penstock.ops.frame.operator import FrameOperator
from penstock.ops.ingest import (
    SplitRows,
    check_required,
    fit_columns,
    fit_stream_columns,
    split_bad_rows,
    split_null_columns,
    to_tick,
)
from penstock.ops.keyed_source import KeyedSource
from penstock.ops.lateness import find_frontier, mark_late, stamp_times
from penstock.ops.notices import (
    FAR_AHEAD,
    HeldBack,
    Notice,
    describe_failed_query,
    describe_held_back,
    describe_late_rows,
    find_unit_difference,
    find_unit_mistake,
    read_utc,
)
from penstock.ops.operator_id import OperatorId, make_stream_id
from penstock.ops.outer_join import OuterJoinOperator
from penstock.ops.projection import ProjectionOperator
from penstock.ops.protocol import (
    CHANGES,
    END_TIME,
    INSERTS,
    Batch,
    Changes,
    FrontierBypass,
    FrontierGenerator,
    Inlet,
    Operator,
    Outlet,
    OutputMode,
    SavedState,
    StreamWriter,
    TimerOperator,
    as_changes,
    concat,
    merge_changes,
)
from penstock.ops.rank.operator import RankOperator
from penstock.ops.sequence.operator import SequenceInput, SequenceOperator
from penstock.ops.set_operation import SetOperationOperator
from penstock.ops.source import ClockedSource, LatentSource, SourceOperator, compute_clock_frontier
from penstock.ops.time_merge import LAST_INSTANT, compute_bound, find_cut, has_ready
from penstock.ops.time_window.hopping import WindowOperator
from penstock.ops.time_window.session import SessionOperator
from penstock.ops.timed_outer_join import TimedOuterJoinOperator
from penstock.ops.union import UnionOperator
from penstock.ops.view import ViewOperator, ViewReaderOperator

__all__ = [
    "CHANGES",
    "END_TIME",
    "EVALUATION_ERRORS",
    "FAR_AHEAD",
    "INSERTS",
    "LAST_INSTANT",
    "AggregateOperator",
    "Batch",
    "Changes",
    "ClockedSource",
    "DStreamOperator",
    "DerivedStreamOperator",
    "DifferenceOperator",
    "DistinctOperator",
    "EmitChangesOperator",
    "Expirations",
    "FinalRowsOperator",
    "FrameOperator",
    "FrontierBypass",
    "FrontierGenerator",
    "HeldBack",
    "IStreamOperator",
    "Inlet",
    "KeyedSource",
    "LatentSource",
    "Notice",
    "Operator",
    "OperatorId",
    "OuterJoinOperator",
    "Outlet",
    "OutputMode",
    "ProjectionOperator",
    "RStreamOperator",
    "RankOperator",
    "Reports",
    "RowReports",
    "SavedState",
    "SequenceInput",
    "SequenceOperator",
    "SessionOperator",
    "SetOperationOperator",
    "SharedAggregation",
    "SlidingAggregateOperator",
    "SourceOperator",
    "SplitRows",
    "StreamWriter",
    "TimeReports",
    "TimedOuterJoinOperator",
    "TimerOperator",
    "UnionOperator",
    "ViewOperator",
    "ViewReaderOperator",
    "WindowAggregates",
    "WindowCloseOperator",
    "WindowOperator",
    "apply_changes",
    "as_batch",
    "as_changes",
    "as_table",
    "can_be_sliced",
    "check_aggregate_class",
    "check_required",
    "compute_bound",
    "compute_clock_frontier",
    "concat",
    "describe_failed_query",
    "describe_held_back",
    "describe_late_rows",
    "find_cut",
    "find_frontier",
    "find_unit_difference",
    "find_unit_mistake",
    "fit_columns",
    "fit_stream_columns",
    "has_ready",
    "make_evaluation_error",
    "make_stream_id",
    "mark_late",
    "merge_changes",
    "read_utc",
    "split_bad_rows",
    "split_null_columns",
    "stamp_times",
    "to_tick",
    "undo",
]
