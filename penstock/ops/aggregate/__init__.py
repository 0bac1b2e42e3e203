"""GROUP BY and aggregates, built in and user-defined."""
