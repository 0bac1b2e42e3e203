"""Adaptation of running queries: monitor, decisions, run-time commands, and the allocation of probe budgets."""
