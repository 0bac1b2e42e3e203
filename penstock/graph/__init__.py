"""The query graph and its run: arcs with frontiers, next-operator selection, the execution cycle."""
