"""Operators of the query graph, one a file; they know only the protocol in `operator`."""
