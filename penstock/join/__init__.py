"""The multi-way window join: one operator of the query graph, with a tree of join nodes over leaf windows inside.

- `operator` drives `join_inputs`, `running_trees` and `join_output`; `join_snapshot` saves and restores it.
- `tree` has a `node` per join, made of `pair_join` and `node_state`, or an `eddy`; `tree_context` is what nodes share.
- `leaf_store` holds one window: `stored_rows`, `leaf_indexes`, `expiry_order`, `column_gaps`.
- `demand/` is JIT, `completion/` JISC, `sharing/` State-Slice, `shedding/` the probe budgets of JAQPOT.
"""
