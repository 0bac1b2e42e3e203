"""The multi-way window join: one operator of the query graph, with a tree of join nodes over leaf windows inside."""
