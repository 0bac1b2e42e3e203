"""The storage of operators: rings of columns, interned key codes, indexes, window lifetimes, and compiled loops."""

from penstock.state.alloc import allocate, allocate_lines, concat_arrays, copy_array, gather, grow_array, release_unused
from penstock.state.arrow import decode_table, encode_table, flatten_column, flatten_table, take_values
from penstock.state.bloom import BloomFilter
from penstock.state.chain_index import ChainIndex
from penstock.state.code_set import CodeSet, Mask
from penstock.state.columns import (
    RingColumn,
    ring_move,
    ring_parts,
    ring_read,
    ring_resize,
    ring_take,
    ring_write,
)
from penstock.state.compiled import compile_kernel, find_cache_folder
from penstock.state.held_bytes import HeldBytes
from penstock.state.instants import AFTER_END, as_times, to_ticks
from penstock.state.interning import CodeTable, empty_codes
from penstock.state.kernels import (
    ALWAYS,
    FOREVER,
    I32,
    I64,
    NONE,
    U8,
    chain_append,
    collect_living_rows,
    probe_chain,
    rowset_add,
    skip_dead_rows,
)
from penstock.state.key_space import KeySpace
from penstock.state.maintenance import SHIPPED, Maintenance
from penstock.state.nested_columns import make_ring_column
from penstock.state.number_map import NumberMap
from penstock.state.number_ranges import NumberRanges
from penstock.state.probe_blocks import NO_AGE_LIMIT, PairBlock, ProbeBuffer, ProbeTarget, RowLines, find_equal_pairs
from penstock.state.renumbering import Renumbering
from penstock.state.sizes import format_size, parse_size
from penstock.state.sorted_index import F64, SortedIndex, compute_ranges, to_floats
from penstock.state.spilled_column import NewFile, Segment, SpilledColumn
from penstock.state.time_kernels import order_times, scan_times
from penstock.state.windows import AnnouncedEnds, LateEnds, RowsWindow, compute_expirations

__all__ = [
    "AFTER_END",
    "ALWAYS",
    "F64",
    "FOREVER",
    "I32",
    "I64",
    "NONE",
    "NO_AGE_LIMIT",
    "SHIPPED",
    "U8",
    "AnnouncedEnds",
    "BloomFilter",
    "ChainIndex",
    "CodeSet",
    "CodeTable",
    "HeldBytes",
    "KeySpace",
    "LateEnds",
    "Maintenance",
    "Mask",
    "NewFile",
    "NumberMap",
    "NumberRanges",
    "PairBlock",
    "ProbeBuffer",
    "ProbeTarget",
    "Renumbering",
    "RingColumn",
    "RowLines",
    "RowsWindow",
    "Segment",
    "SortedIndex",
    "SpilledColumn",
    "allocate",
    "allocate_lines",
    "as_times",
    "chain_append",
    "collect_living_rows",
    "compile_kernel",
    "compute_expirations",
    "compute_ranges",
    "concat_arrays",
    "copy_array",
    "decode_table",
    "empty_codes",
    "encode_table",
    "find_cache_folder",
    "find_equal_pairs",
    "flatten_column",
    "flatten_table",
    "format_size",
    "gather",
    "grow_array",
    "make_ring_column",
    "order_times",
    "parse_size",
    "probe_chain",
    "release_unused",
    "ring_move",
    "ring_parts",
    "ring_read",
    "ring_resize",
    "ring_take",
    "ring_write",
    "rowset_add",
    "scan_times",
    "skip_dead_rows",
    "take_values",
    "to_floats",
    "to_ticks",
]
