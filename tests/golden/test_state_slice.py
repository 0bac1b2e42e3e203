"""The State-Slice paper: Table 2, Theorems 1 to 4 and Table 4, on a chain of sliced joins that runs tuple by tuple.

The chain follows Figures 6 and 9 of the paper and is deliberately naive. The engine must give the same results and
hold the same tuples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from penstock import Engine
from penstock.plan import Rates, SharedWindows, choose_cpu_opt_chain, choose_mem_opt_chain


@dataclass(frozen=True)
class Tuple:
    """A tuple of A or B; filters read `value`."""

    stream: str
    number: int
    time: int
    key: int = 0
    value: float = 0.0

    def __repr__(self) -> str:
        return f"{self.stream.lower()}{self.number}"


Wants = Callable[[Tuple], bool]
Reference = tuple[Tuple, str]
"""A tuple as a male, which purges and probes, or as a female, which is kept."""


@dataclass
class SlicedJoin:
    """One slice: Fig. 9, and Fig. 6 if only females of A and males of B come.

    `wants`: whether a query reads results of this slice, or of a later one, with the tuple. A male that no query needs
    still purges (Eq. 3 counts every tuple in every slice).
    """

    end: float
    wants: Wants = lambda _: True
    states: dict[str, list[Tuple]] = field(default_factory=lambda: {"A": [], "B": []})
    results: list[tuple[Tuple, Tuple]] = field(default_factory=list)

    def take(self, reference: Reference) -> list[Reference]:
        """The tuples that move to the next slice."""
        new, kind = reference
        if kind == "female":
            if self.wants(new):
                self.states[new.stream].append(new)
            return []
        other = "B" if new.stream == "A" else "A"
        purged = [old for old in self.states[other] if new.time - old.time >= self.end]
        self.states[other] = [old for old in self.states[other] if old not in purged]
        if self.wants(new):
            pairs = [(new, old) if new.stream == "A" else (old, new) for old in self.states[other]]
            self.results += [pair for pair in pairs if pair[0].key == pair[1].key]
        return [*((old, "female") for old in purged), reference]


class Chain:
    """Slices with queues between them; the operators may run in any order."""

    def __init__(self, ends: Sequence[float], wants: Sequence[Wants] = ()) -> None:
        each = wants or [lambda _: True] * len(ends)
        self.slices = [SlicedJoin(end, want) for end, want in zip(ends, each, strict=True)]
        self.queues: list[list[Reference]] = [[] for _ in ends]

    def arrive(self, references: Iterable[Reference]) -> None:
        self.queues[0] += references

    def run(self, place: int) -> None:
        """Slice number `place` takes the next tuple of its queue."""
        on = self.slices[place].take(self.queues[place].pop(0))
        if place + 1 < len(self.slices):
            self.queues[place + 1] += on

    def drain(self, rng: random.Random | None = None) -> None:
        """Run until the queues are empty, or with a generator for a random number of steps."""
        while waiting := [place for place, queue in enumerate(self.queues) if queue]:
            if rng is not None and rng.random() < 0.2:
                return
            self.run(waiting[0] if rng is None else rng.choice(waiting))

    @property
    def state(self) -> set[Tuple]:
        return {held for slice_ in self.slices for held in (*slice_.states["A"], *slice_.states["B"])}

    def results(self, place: int) -> list[tuple[Tuple, Tuple]]:
        """The union of the first slices, up to number `place`."""
        return [pair for slice_ in self.slices[: place + 1] for pair in slice_.results]


def one_way(new: Tuple) -> list[Reference]:
    return [(new, "female" if new.stream == "A" else "male")]


def binary(new: Tuple) -> list[Reference]:
    return [(new, "male"), (new, "female")]


# ── Table 2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ARRIVALS = {
    1: Tuple("A", 1, 1), 2: Tuple("A", 2, 2), 3: Tuple("A", 3, 3), 4: Tuple("B", 1, 4), 5: Tuple("B", 2, 5),
    8: Tuple("A", 4, 8),
}  # fmt: skip
RUNS = {1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 1, 7: 1, 8: 0, 9: 1, 10: 1}
JOINED = [("a2", "b1"), ("a3", "b1"), ("a3", "b2")], [("a1", "b1"), ("a1", "b2"), ("a2", "b2")]


def named(pairs: Iterable[tuple[Tuple, Tuple]]) -> list[tuple[str, str]]:
    return sorted((repr(a), repr(b)) for a, b in pairs)


def test_table_2() -> None:
    """Every second an operator takes one tuple. The table keeps a tuple as old as the window: ends are slightly later.

    Its last rows move a3 to the queue, which only a tuple of B can do: by Figure 6 it stays in the first slice.
    """
    chain = Chain([2.5, 4.5])
    states = []
    for second, place in RUNS.items():
        if second in ARRIVALS:
            chain.arrive(one_way(ARRIVALS[second]))
        chain.run(place)
        states.append([[repr(held) for held in slice_.states["A"]] for slice_ in chain.slices])
    assert states[:8] == [
        [["a1"], []], [["a1", "a2"], []], [["a1", "a2", "a3"], []], [["a2", "a3"], []], [["a3"], []],
        [["a3"], ["a1"]], [["a3"], ["a1"]], [["a3", "a4"], ["a1"]],
    ]  # fmt: skip
    assert states[-1][1] == ["a1", "a2"]
    assert {repr(held) for held in chain.state} == {"a1", "a2", "a3", "a4"}
    assert [named(slice_.results) for slice_ in chain.slices] == [sorted(pairs) for pairs in JOINED]


def test_table_2_in_engine() -> None:
    """Two queries share one join; `B [NOW]` makes it one-way. Times are integers: an age of at most 2 is RANGE 3."""
    engine = streams(Engine())
    for name, window in (("first", 3), ("both", 5)):
        engine.query(name, f"SELECT a.n AS a, b.n AS b FROM A [RANGE {window}] a, B [NOW] b WHERE a.k = b.k")
    answers = answered(engine, list(ARRIVALS.values()), size=1)
    assert engine.metrics("both")["members"] == 2
    assert answers["first"] == sorted((int(a[1]), int(b[1])) for a, b in JOINED[0])
    assert answers["both"] == sorted((int(a[1]), int(b[1])) for a, b in JOINED[0] + JOINED[1])


# ── Theorems 1 to 4 ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """Queries, each with a window and the share of A's tuples that it needs, and tuples."""

    queries: tuple[tuple[int, float], ...]
    tuples: tuple[Tuple, ...]

    @property
    def ends(self) -> list[int]:
        return sorted({window for window, _ in self.queries})

    def reach(self, held: Tuple) -> int:
        """How long some query needs a tuple."""
        wanting = [w for w, share in self.queries if held.stream == "B" or held.value < share]
        return max(wanting, default=0)

    def chain(self) -> Chain:
        wants: list[Wants] = [lambda held, start=start: self.reach(held) > start for start in (0, *self.ends[:-1])]
        return Chain(self.ends, wants)


def drawn(seed: int, *, filtered: bool, count: int = 120) -> Case:
    rng = random.Random(seed)
    shares = (0.0, 0.3, 0.6, 1.0) if filtered else (1.0,)
    queries = tuple((rng.randint(1, 25), rng.choice(shares)) for _ in range(rng.randint(1, 6)))
    time, tuples = 0, []
    for number in range(count):
        time += rng.choice([0, 0, 1, 1, 2, 5])
        tuples.append(Tuple(rng.choice("AB"), number, time, rng.randrange(3), rng.random()))
    return Case(queries, tuple(tuples))


def expected(case: Case, window: float, share: float = 1.0, *, both_ways: bool = True) -> list[tuple[str, str]]:
    """The definition: every pair whose times are close enough."""
    pairs = []
    for a in (t for t in case.tuples if t.stream == "A" and (share >= 1 or t.value < share)):
        for b in (t for t in case.tuples if t.stream == "B"):
            after = b.time > a.time or (b.time == a.time and b.number > a.number)
            if a.key == b.key and abs(a.time - b.time) < window and (both_ways or after):
                pairs.append((a, b))
    return named(pairs)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("feed", [one_way, binary])
def test_theorems_1_and_2_union_of_slices_is_join(seed: int, feed: Callable[[Tuple], list[Reference]]) -> None:
    """The results are the same for every order in which the operators run."""
    case = drawn(seed, filtered=False)
    chain, rng = Chain(case.ends), random.Random(seed)
    for new in case.tuples:
        chain.arrive(feed(new))
        chain.drain(rng)
    chain.drain()
    for place, end in enumerate(case.ends):
        assert named(chain.results(place)) == expected(case, end, both_ways=feed is binary)


@pytest.mark.parametrize("seed", range(20))
def test_theorem_3_slices_hold_largest_window(seed: int) -> None:
    case = drawn(seed, filtered=False)
    chain, regular = Chain(case.ends), Chain(case.ends[-1:])
    for new in case.tuples:
        for each in (chain, regular):
            each.arrive(binary(new))
            each.drain()
        assert chain.state == regular.state
        assert sum(len(s.states["A"]) + len(s.states["B"]) for s in chain.slices) == len(chain.state)


@pytest.mark.parametrize("seed", range(20))
def test_theorem_4_filters_give_least_state(seed: int) -> None:
    """A tuple is held while a query can still pair it with a tuple that comes, and no longer."""
    case = drawn(seed, filtered=True)
    chain = case.chain()
    latest = {"A": 0, "B": 0}
    for place, new in enumerate(case.tuples):
        chain.arrive(binary(new))
        chain.drain()
        latest[new.stream] = new.time
        seen = case.tuples[: place + 1]
        wanted = [t for t in seen if case.reach(t)]
        least = {t for t in wanted if latest["B" if t.stream == "A" else "A"] - t.time < case.reach(t)}
        assert chain.state == least
    for window, share in case.queries:
        own = [pair for pair in chain.results(case.ends.index(window)) if pair[0].value < share]
        assert named(own) == expected(case, window, share)


# ── the engine agrees ────────────────────────────────────────────────────────────────────────────────────────────────


def streams(engine: Engine) -> Engine:
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "n": "bigint", "k": "bigint", "v": "double"}, time="ts")
    return engine


def pushed(tuples: Sequence[Tuple]) -> dict[str, pa.Table]:
    parts = {name: [t for t in tuples if t.stream == name] for name in "AB"}
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
    return {
        name: pa.Table.from_pylist([{"ts": t.time, "n": t.number, "k": t.key, "v": t.value} for t in part], schema)
        for name, part in parts.items()
    }


def answered(engine: Any, tuples: Sequence[Tuple], size: int) -> dict[str, list[tuple[int, int]]]:
    """The pairs that each query found, with the tuples pushed in parts."""
    answers: dict[str, list[tuple[int, int]]] = {}
    outs = [engine.push(pushed(tuples[at : at + size])) for at in range(0, len(tuples), size)]
    for out in (*outs, engine.flush()):
        for name, table in out.items():
            answers.setdefault(name, []).extend((row["a"], row["b"]) for row in table.to_pylist())
    return {name: sorted(pairs) for name, pairs in answers.items()}


def shared(case: Case) -> Engine:
    engine = streams(Engine())
    for place, (window, share) in enumerate(case.queries):
        passing = "" if share >= 1 else f" AND a.v < {share}"
        text = f"SELECT a.n AS a, b.n AS b FROM A [RANGE {window}] a, B [RANGE {window}] b WHERE a.k = b.k{passing}"
        engine.query(f"q{place}", text)
    return engine


@pytest.mark.parametrize("seed", range(20))
def test_engine_results_match_chain(seed: int) -> None:
    case = drawn(seed, filtered=True)
    chain = case.chain()
    for new in case.tuples:
        chain.arrive(binary(new))
    chain.drain()
    answers = answered(shared(case), case.tuples, size=17)
    for place, (window, share) in enumerate(case.queries):
        own = [(a, b) for a, b in chain.results(case.ends.index(window)) if a.value < share or share >= 1]
        assert answers[f"q{place}"] == sorted((a.number, b.number) for a, b in own)


@pytest.mark.parametrize("seed", range(6))
def test_engine_state_matches_chain(seed: int) -> None:
    """The engine may also hold dead rows between living ones: one in twenty, and arrivals until the next check."""
    rng = random.Random(seed)
    queries = tuple(sorted((rng.randint(200, 4_000), rng.choice([0.1, 0.5, 1.0])) for _ in range(6)))
    tuples = tuple(Tuple("AB"[n % 2], n, n // 2, n % 97, rng.random()) for n in range(14_000))
    case = Case(queries, tuples)
    engine = shared(case)
    for at in range(0, len(tuples), 500):
        engine.push(pushed(tuples[at : at + 500]))
        now = tuples[at + 499].time
        held: Any = engine.metrics("q0")["window_rows"]
        for alias, name in (("a", "A"), ("b", "B")):
            least = sum(now < t.time + case.reach(t) for t in tuples[: at + 500] if t.stream == name)
            assert least <= held[alias] <= 1.1 * least + 64 + 250


# ── Table 4 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

UNIFORM = SharedWindows(tuple(2.5 * step for step in range(1, 13)))
MOSTLY_SMALL = SharedWindows((*range(1, 11), 20, 30))
SMALL_LARGE = SharedWindows((1, 2, 3, 4, 5, 6, 25, 26, 27, 28, 29, 30))
RATES = Rates(40, 40, 0.025)


def test_table_4_routing_by_lookup() -> None:
    """Uniform windows keep their slices; the small ones, and the large ones, become one slice each.

    The paper counts 2 slices for Small-Large; between the two merged ones lies [6, 25), which no overhead that keeps
    the uniform slices can pay for: it holds 19 seconds of results, two uniform slices hold 5.
    """
    assert choose_cpu_opt_chain(UNIFORM, RATES, overhead=0.5, router="lookup") == choose_mem_opt_chain(UNIFORM)
    assert choose_cpu_opt_chain(MOSTLY_SMALL, RATES, overhead=0.5, router="lookup") == (10, 20, 30)
    assert choose_cpu_opt_chain(SMALL_LARGE, RATES, overhead=0.5, router="lookup") == (6, 25, 30)


def test_table_4_overhead_for_two_slices() -> None:
    """By the paper's formula (one comparison per query that a result is routed to) there are 2 slices, cut at 6."""
    tried = [step / 4 for step in range(1, 800)]
    apart = [c for c in tried if choose_cpu_opt_chain(UNIFORM, RATES, c) == choose_mem_opt_chain(UNIFORM)]
    two = [c for c in tried if len(choose_cpu_opt_chain(SMALL_LARGE, RATES, c)) == 2]
    assert max(apart) < min(two)
    assert choose_cpu_opt_chain(SMALL_LARGE, RATES, min(two)) == (6, 30)


def test_table_4_more_queries_more_merging() -> None:
    """The windows of 24 and 36 queries are closer, so a slice saves less."""
    kept = []
    for more in (1, 2, 3):
        gaps = pairwise((0, *SMALL_LARGE.ends))
        ends = [start + (end - start) * part / more for start, end in gaps for part in range(1, more + 1)]
        kept.append(len(choose_cpu_opt_chain(SharedWindows(tuple(ends)), RATES, 0.5, "lookup")) / len(ends))
    assert kept == sorted(kept, reverse=True)
