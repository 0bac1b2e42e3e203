"""Cell keys: integers that Spark's hash partitioning sends to given partitions."""

from __future__ import annotations

from itertools import count


def find_cell_keys(cells: int) -> tuple[int, ...]:
    """Keys that Spark's hash partitioning sends to partitions 0, 1, … of `cells`: the smallest for each."""
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(_murmur3(key) % cells, key)
        if len(found) == cells:
            return tuple(found[partition] for partition in range(cells))
    raise AssertionError


def _murmur3(value: int, seed: int = 42) -> int:
    """Spark's `hash` of one INT, as a signed 32-bit integer."""
    mask = 0xFFFFFFFF

    def rotated(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & mask

    mixed = rotated(value * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
