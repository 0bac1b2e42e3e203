"""Random runs of queries whose predicates bound the same terms by different constants, all from one seed.

The queries are added and dropped while data flows. Some values are so large that a sum overflows for one constant and
not for another.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
from sharing_runs import SharingRun, check_sharing_run

LARGEST = 2**63 - 1


def draw_bounds_run(seed: int) -> SharingRun:
    rng = random.Random(f"bounds {seed}")
    run, steps, time = SharingRun(rng), rng.randint(3, 9), 0
    streams = rng.sample("ABC", rng.choice([2, 2, 3]))
    smallest = rng.choice([0, 0, LARGEST - 39])
    for _ in range(steps):
        time += rng.randint(0, 30)
        run.pushes.append({name: _draw_rows(rng, name, time, smallest) for name in "ABC" if rng.random() < 0.9})
    form = rng.choice(["less", "band", "distance"])
    keyed = rng.random() < 0.3
    for number in range(rng.choice([2, 3, 5, 8])):
        name = f"q{number}"
        run.texts[name] = _draw_query(rng, streams, form, keyed=keyed)
        run.added_at[name] = rng.choice([0, 0, rng.randrange(steps)])
        run.dropped_at[name] = rng.choice([steps, steps, rng.randint(run.added_at[name], steps)])
    return run


def _draw_rows(rng: random.Random, name: str, time: int, smallest: int) -> pa.Table:
    count = rng.choice([0, 1, 3, 12, 25])
    times = [time + rng.randint(0, 30) for _ in range(count)]
    numbers = [smallest + rng.randrange(40) for _ in range(count)]
    numbers = [rng.choice([x, x, x, x, x, x, x, x, -x, None]) for x in numbers]
    other = {"s": pa.array(["a"] * count)} if name == "C" else {"y": pa.array([time] * count, pa.int64())}
    return pa.table({"ts": pa.array(times, pa.int64()), "x": pa.array(numbers, pa.int64()), **other})


def draw_bound(rng: random.Random, less: str, more: str, constant: int) -> str:
    """`less < more + constant`, in one of several forms, some with another constant or none."""
    return rng.choice([
        f"{less} < {more} + {constant}", f"{less} < {more} + {constant}", f"{less} <= {more} + {constant}",
        f"{more} > {less} - {constant}", f"{less} < {more} - {-constant}", f"{constant} + {more} > {less}",
        f"{less} < {more}",
    ])  # fmt: skip


def draw_bounds(rng: random.Random, form: str, left: str, right: str) -> list[str]:
    """The predicates of a query for two terms; `form` determines what they bound."""
    constant = rng.choice([*range(-6, 20), *range(0, 20, 4), LARGEST - 30])
    if form == "distance":
        return [rng.choice([f"ABS({left} - {right}) < {constant}", f"{constant} >= ABS({left} - {right})"])]
    found = [draw_bound(rng, left, right, constant)]
    if form == "band":
        found.append(draw_bound(rng, right, left, rng.randrange(15)))
    if rng.random() < 0.1:
        found.append(draw_bound(rng, left, right, rng.randrange(15)))
    return found


def _draw_query(rng: random.Random, streams: list[str], form: str, *, keyed: bool) -> str:
    if keyed and len(streams) > 2 and rng.random() < 0.4:  # it reads a node of the others' join
        streams = streams[:2]
    names = [f"{name.lower()}{rng.choice(['', 'x'])}" for name in streams]
    where = [each for left, right in pairwise(names) for each in draw_bounds(rng, form, f"{left}.x", f"{right}.x")]
    if keyed:
        where += [f"{left}.ts % 2 = {right}.ts % 2" for left, right in pairwise(names)]
    where += [f"{name}.x % 3 {rng.choice(['=', '<>'])} 0" for name in names if rng.random() < 0.2]
    size = rng.randint(1, 40)
    sizes = [size if rng.random() < 0.8 else rng.randint(1, 40) for _ in names]
    items = [f"{stream} [RANGE {size}] AS {name}" for stream, size, name in zip(streams, sizes, names, strict=True)]
    rng.shuffle(items)
    shown = rng.sample([f"{name}.{column}" for name in names for column in ("x", "ts")], rng.randint(1, 3))
    shown = [f"{each} AS c{place}" for place, each in enumerate(shown)]
    tail = f" FROM {', '.join(items)} WHERE {' AND '.join(where)}"
    match rng.choice(["plain"] * 8 + ["dstream", "rstream", "distinct", "count"]):
        case "dstream" | "rstream" as emit:
            return f"{emit.upper()} (SELECT {', '.join(shown)}{tail})"
        case "distinct":
            return f"SELECT DISTINCT {', '.join(shown)}{tail}"
        case "count":
            return f"SELECT {names[0]}.x, COUNT(*) AS n{tail} GROUP BY {names[0]}.x"
    return f"SELECT {', '.join(shown)}{tail}"


def check_bounds(seed: int) -> None:
    """Check that the queries of a seed give together what each gives alone."""
    check_sharing_run(seed, draw_bounds_run(seed))
