"""The functions that CQL calls by name: one module for each kind, with one entry for each function."""
