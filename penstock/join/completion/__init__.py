"""JISC: what states lack after a change of plan, how it is completed, and the rivals of that."""
