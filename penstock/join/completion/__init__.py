"""JISC: which rows states lack after a change of plan, how they are completed, and the rival parallel track."""
