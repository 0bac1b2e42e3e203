"""JAQPOT below the allocation: how many rows of a node may probe under a budget."""
