"""Sequence patterns: SEQ with the modes RECENT and CHRONICLE."""
