"""How much the State-Slice lab measures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.lab.papers.state_slice.streams import PoissonStreams

SIGMAS = (0.2, 0.5, 0.8)
JOINS = (0.025, 0.1, 0.4)
SCALING_STREAMS = PoissonStreams(2_000, 60, 5e-5)


@dataclass(frozen=True)
class SliceScale:
    """The parameters of a run. The paper has 20 to 80 tuples per second for 90 seconds, from empty windows."""

    seconds: int = 90
    rates: tuple[int, ...] = (20, 40, 60, 80)
    memory_rates: tuple[int, ...] = (500, 1_000, 2_000)
    """Rates for the measurement of state, which does not depend on S_⋈: high ones, as small rings waste more space."""
    sigmas: tuple[float, ...] = SIGMAS
    joins: tuple[float, ...] = JOINS
    counts: tuple[int, ...] = (12, 24, 36)
    query_counts: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    scaling_streams: PoissonStreams = SCALING_STREAMS
    fast_rate: int = 800
    fast_seconds: int = 36
    """The setting with strong filters and ten times the paper's highest rate."""
    read_queries: int = 100
    """The size of the crowd of which every result is read."""
    scaling_window: int = 20
    filters: int = 20
    sample: int = 5
    changing_queries: int = 100
    """The number of queries that run while another is added and dropped."""
    rounds: int = 3


FULL = SliceScale()
QUICK = SliceScale(
    seconds=36, rates=(80,), memory_rates=(1_000,), sigmas=(0.2, 0.5, 0.8), counts=(12, 36),
    query_counts=(1, 10, 100, 1_000), scaling_streams=replace(SCALING_STREAMS, seconds=40), rounds=1,
)  # fmt: skip
