"""What a join holds in memory, and how it gives memory back.

Law: results do not depend on what is given back. States are dropped whole: their rows follow from the windows, and are
looked up when a probe needs them (`completion`). The columns of window rows move to files; their lifetimes, key codes
and index entries stay in memory, so that a probe reads files only for the rows that match.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.join.leaf_store import LeafStore
from penstock.join.operator import JoinOperator
from penstock.state import HeldBytes, NewFile


def measure_join(join: JoinOperator, held: HeldBytes) -> dict[str, int]:
    """The bytes that a join holds, by kind. Arcs are counted before."""
    trees, sizes = join.trees.all, {}
    nodes = [node for tree in trees for node in tree.walk_joins()]
    stores = [store for tree in trees for store in tree.stores.values()]
    sizes["windows"] = held.add(*((store.rows, store.interest, store.late_ends) for store in stores))
    sizes["indexes"] = held.add(*(store.indexes for store in stores), *(tree.keys for tree in trees))
    leaves = [leaf for tree in trees for leaf in tree.walk_leaves()]
    held_back = (*(node.gate for node in nodes), *(leaf.demanded for leaf in leaves))
    sizes["states"] = held.add(*(node.state for node in nodes), *held_back)
    sizes["pending"] = held.add(join.output.pending)
    sizes["operators"] = held.add(join)
    return sizes


def count_state_rows(join: JoinOperator) -> int:
    """The rows in the states of a join."""
    nodes = (node for tree in join.trees.all for node in tree.walk_joins())
    return sum(len(node.state) for node in nodes if node.state is not None)


def drop_states(join: JoinOperator) -> bool:
    """Empty the states of a join, between two batches; returns whether there were any.

    States stay if rows are needed at once: on a parallel track, and where queries read a node of the tree.
    """
    tree = join.tree
    if tree.early_aliases is not None or join.trees.on_parallel_track:
        return False
    if not any(node.state is not None and len(node.state) for node in tree.walk_joins()):
        return False
    tree.restart()
    return True


def free_rows(join: JoinOperator, *, copy_results: bool) -> None:
    """Free the rows of the windows and states of a join, which is not used again.

    `copy_results`: results that exist copy their rows before.
    """
    for store in {store for tree in join.trees.all for store in tree.stores.values()}:  # two trees share the windows
        if copy_results:
            store.rows.materialize_viewers()
        vars(store).clear()
    for node in (node for tree in join.trees.all for node in tree.walk_joins()):
        if node.state is not None:
            vars(node.state).clear()


def list_spillable(join: JoinOperator) -> list[LeafStore]:
    """The windows whose rows can move to disk: not those of tables, which exist in memory in any case.

    An early node removes the newest rows again, so windows stay in memory while there is one.
    """
    if join.tree.early_aliases is not None:
        return []
    return [store for store in join.tree.stores.values() if store.table is None and store.rows.columns and len(store)]


def spill_windows(stores: Mapping[LeafStore, float], new_file: NewFile) -> None:
    """Move a share of the rows in memory of each window, the oldest, to files."""
    for store, share in stores.items():
        store.rows.spill(store.plan.source.schema, store.rows.find_spill_point(share), new_file)
