"""The query graph and its run: arcs with frontiers, selection of the next operator, the execution cycle."""
