"""Bound query → physical plan: pure functions over frozen values, no data."""
