"""The multi-way window join: one operator of the query graph, with a tree of join nodes over leaf windows inside.

- `operator` drives `join_inputs`, `running_trees` and `join_output`; `join_snapshot` saves and restores it.
- `tree` has a `node` per join, made of `pair_join` and `node_state`, or an `eddy`; `tree_context` is what nodes share.
- `join_memory` counts what it holds, empties states and moves window rows to disk; `match_forecast` counts results.
- `node_takeover` moves the queries of a narrower join to a node of a wider one.
- `leaf_store` holds one window: `stored_rows`, `leaf_indexes`, `expiry_order`, `column_gaps`.
- `table_leaves` gives the leaves of static tables other rows when `table_versions` has them.
- `demand/` is JIT, `completion/` JISC, `sharing/` State-Slice, `shedding/` the probe budgets of JAQPOT.
"""

from penstock.join.completion.parallel_track import ParallelTrack
from penstock.join.demand.gate import DemandFilter
from penstock.join.demand.gate_cost import BATCH_COST, REQUEST_COST, TEST_COST
from penstock.join.join_inputs import JoinInput
from penstock.join.join_memory import (
    count_state_rows,
    drop_states,
    free_rows,
    list_spillable,
    measure_join,
    spill_windows,
)
from penstock.join.join_metrics import describe_nodes
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore
from penstock.join.match_batch import MatchBatch
from penstock.join.match_forecast import MatchForecast
from penstock.join.node import JoinNode, TreeNode
from penstock.join.node_takeover import can_be_taken_over, take_over
from penstock.join.operator import JoinOperator, JoinSpec, make_eddy_budget_error
from penstock.join.running_trees import Migration
from penstock.join.selection import SelectionOperator, is_selection
from penstock.join.sharing.aggregate_member import AggregateMember
from penstock.join.sharing.member import Member, WritingMember
from penstock.join.sharing.shared_needs import StartPoint
from penstock.join.sharing.slices import SLICE_OVERHEAD, Slice, Slicing, list_slices, measure_windows
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.join.state_policy import POLICIES, StatePolicy
from penstock.join.table_versions import FormerRows, TableVersions
from penstock.join.tree import JoinTree

__all__ = [
    "BATCH_COST",
    "POLICIES",
    "REQUEST_COST",
    "SLICE_OVERHEAD",
    "TEST_COST",
    "AggregateMember",
    "DemandFilter",
    "FormerRows",
    "JoinInput",
    "JoinNode",
    "JoinOperator",
    "JoinRows",
    "JoinSpec",
    "JoinTree",
    "LeafNode",
    "LeafStore",
    "LoadShedding",
    "MatchBatch",
    "MatchForecast",
    "Member",
    "Migration",
    "ParallelTrack",
    "SelectionOperator",
    "Slice",
    "Slicing",
    "StartPoint",
    "StatePolicy",
    "TableVersions",
    "TreeNode",
    "WritingMember",
    "can_be_taken_over",
    "concat_rows",
    "count_state_rows",
    "describe_nodes",
    "drop_states",
    "free_rows",
    "is_selection",
    "list_slices",
    "list_spillable",
    "make_eddy_budget_error",
    "measure_join",
    "measure_windows",
    "spill_windows",
    "take_over",
]
