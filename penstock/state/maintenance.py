"""When stored rows, codes and indexes are reorganised.

State is grown, compacted, renumbered, recycled and merged once enough rows have been added or have died. This class
holds all thresholds. Law: results do not depend on any of these numbers. `SMALLEST` makes maintenance happen at almost
every step; the tests of the laws run with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from penstock.errors import QueryError

_RATIOS = ("regrowth", "dead_per_living", "dead_per_living_shared", "known_intersections", "relief_share", "range_gain")
_POWERS_OF_TWO = ("capacity", "state_capacity", "bloom_bits")
_MAY_BE_ZERO = (
    "rebuild_rows", "recycle_codes", "compact_rows", "dead_rows", "demand_rows", "listed_claims", "order_after",
    "order_share", "newest_segments", "bit_groups",
)  # fmt: skip
_MINIMUMS = {
    "bloom_bits": 8,
    "merged_segments": 2,
    "segment_bytes": 4096,
    **dict.fromkeys((*_RATIOS, *_MAY_BE_ZERO), 0),
}


@dataclass(frozen=True)
class Maintenance:
    """The thresholds of an engine or a pipeline. Capacities are powers of two."""

    capacity: int = 64
    """The smallest capacity, in rows, of a window, a code table or a set of codes."""
    state_capacity: int = 256
    """The smallest capacity of the state of a join node."""
    regrowth: float = 2.0
    """States and code tables are cleaned up when they have grown by this factor since the last time."""
    rebuild_rows: int = 1024
    """A join state with fewer rows is not cleaned up."""
    recycle_codes: int = 4096
    """Codes of join keys and groups are not recycled while there are fewer."""
    compact_rows: int = 4096
    """The heaps of MIN and MAX and the rows of a sequence are not compacted while there are fewer."""
    dead_per_living: float = 3.0
    """A window is compacted when it has more dead rows between living ones than this, for each living row, ..."""
    dead_per_living_shared: float = 1 / 40
    """... (in a two-way join that queries with different filters share: this many) ..."""
    dead_rows: int = 256
    """... plus this number of rows."""
    demand_rows: int = 4096
    """Demand is computed again after a quarter of this many tuples, or of the stored tuples, has arrived."""
    counted_rows: int = 1 << 14
    """After a migration, the keys of this many older tuples are counted per batch."""
    unite_every: int = 16
    """After every so many batches, filter groups with equal filters are merged if possible."""
    block: int = 1 << 16
    """A probe returns its matches in blocks of this size."""
    narrow_sets: int = 256
    """Up to this many sets of filter groups, codes take one byte and all intersections are kept in a table."""
    bit_groups: int = 256
    """With more sets than `narrow_sets`, intersections of combinations are rows of bits up to this many groups, ..."""
    known_intersections: float = 0.75
    """... and with more groups if less than this part of the intersections occurred before."""
    listed_claims: int = 3
    """Up to this many filters, the sets of filter groups are listed in advance."""
    order_after: int = 16
    """After this many members have selected results by age, the results are sorted by age, ..."""
    order_share: int = 8
    """... and members that take fewer than one result out of this many use the order."""
    range_rows: int = 64
    """Partners are found by a range beside a key where a key has this many rows, ..."""
    range_gain: float = 4.0
    """... and this many times those in a range."""
    label_gap: int = 1 << 40
    """The distance between the labels that put texts and decimals in order for MIN and MAX."""
    bloom_bits: int = 1 << 10
    """The initial size of a Bloom filter in bits."""
    bloom_bits_per_key: int = 8
    """A Bloom filter with fewer bits per key is rebuilt."""
    eddy_paths: int = 256
    """The number of eddy routes whose join steps are cached."""
    relief_share: float = 0.8
    """Memory is given back when more than this part of the limit of an engine is in use."""
    chunk_rows: int = 1 << 18
    """On Spark: rows of a stream are packed in chunks of this size."""
    packed_bytes: int = 60 << 10
    """On Spark: packed rows travel to their cells in parts of about this size."""
    newest_segments: int = 4
    """On Spark: this many of the newest segments of a cell are never merged."""
    merged_segments: int = 8
    """On Spark: this many neighbouring segments of similar size are merged into one."""
    segment_rows: int = 1024
    """On Spark: segments with fewer rows count as equal in size."""
    segment_bytes: int = 16 << 20
    """On Spark: segments are not merged into one of more bytes: a merge is part of a micro-batch."""
    lineage: int = 16
    """On Spark: an engine that is behind by more versions than this is rebuilt."""
    cached_cells: int = 64
    """On Spark: a worker caches the engines of this many cells, ..."""
    cached_bytes: int = 1 << 30
    """... as long as their base rows have no more bytes; one engine is always cached."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value, least = getattr(self, name), _MINIMUMS.get(name, 1)
            kinds = (int, float) if name in _RATIOS else (int,)
            fits = isinstance(value, kinds) and not isinstance(value, bool) and value >= least
            if not fits or (name in _POWERS_OF_TWO and value & (value - 1)):
                what = "a power of two" if name in _POWERS_OF_TWO else "a number" if name in _RATIOS else "an integer"
                message = f"the maintenance threshold {name} is {what} of at least {least}, not {value!r}"
                raise QueryError("BAD_MAINTENANCE", message, threshold=name)


SHIPPED = Maintenance()
"""The default thresholds."""

SMALLEST = Maintenance(
    capacity=1,
    state_capacity=1,
    regrowth=0.0,
    rebuild_rows=0,
    recycle_codes=0,
    compact_rows=0,
    dead_per_living=0.0,
    dead_per_living_shared=0.0,
    dead_rows=0,
    demand_rows=0,
    counted_rows=1,
    unite_every=1,
    block=1,
    narrow_sets=1,
    bit_groups=0,
    known_intersections=0.0,
    listed_claims=0,
    order_after=0,
    order_share=0,
    range_rows=1,
    range_gain=0.0,
    label_gap=1,
    bloom_bits=8,
    bloom_bits_per_key=1,
    eddy_paths=1,
    relief_share=0.0,
    chunk_rows=1,
    packed_bytes=1,
    newest_segments=0,
    merged_segments=2,
    segment_rows=1,
    segment_bytes=4096,
    lineage=1,
    cached_cells=1,
    cached_bytes=1,
)
"""Every threshold at its smallest."""
