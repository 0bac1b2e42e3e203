"""JAQPOT's execution: how many rows of a node may probe under a budget. The allocation is in `adapt`."""
