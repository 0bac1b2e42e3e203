"""Operators of the query graph, one a file. They depend only on the protocol in `protocol`."""
