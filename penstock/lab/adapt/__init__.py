"""Plans, state policies and budgets that follow changing data."""
