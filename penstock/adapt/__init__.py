"""Changing while running: how a scarce budget of probes is allocated, and what sets it."""
