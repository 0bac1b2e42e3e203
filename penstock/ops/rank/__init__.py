"""ROW_NUMBER, RANK and DENSE_RANK over partitions, and ORDER BY ... LIMIT."""
