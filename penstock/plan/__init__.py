"""Bound query → physical plan: pure functions over frozen values, without data."""
