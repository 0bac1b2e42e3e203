"""Events of Nexmark: persons, auctions and bids of an online auction, from a seed.

Of fifty events one is a person, three are auctions and 46 are bids, as in the benchmark. Half of the bids are for a hot
auction, and half of the auctions are of a hot seller. Everything is computed in whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

START = 1_735_732_800_000_000  # 2025-01-01 12:00:00 in microseconds
_CYCLE = 50  # events
_PERSONS, _AUCTIONS = 1, 3  # of a cycle
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_TIME = pa.timestamp("us")

SCHEMAS = {
    "person": {
        "id": "bigint", "name": "string", "emailAddress": "string", "creditCard": "string", "city": "string",
        "state": "string", "dateTime": "timestamp", "extra": "string",
    },
    "auction": {
        "id": "bigint", "itemName": "string", "description": "string", "initialBid": "bigint", "reserve": "bigint",
        "dateTime": "timestamp", "expires": "timestamp", "seller": "bigint", "category": "bigint", "extra": "string",
    },
    "bid": {
        "auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "string", "url": "string",
        "dateTime": "timestamp", "extra": "string",
    },
}  # fmt: skip
"""The columns of the streams, in SQL types. The time column is `dateTime`."""


@dataclass(frozen=True)
class NexmarkEvents:
    """Events of one run. `rate` is how many there are in a second of event time."""

    count: int
    rate: int = 1_000
    seed: int = 1

    def make_tables(self) -> dict[str, pa.Table]:
        """All rows by stream, in the order of time."""
        rng = np.random.default_rng(self.seed)
        number = np.arange(self.count)
        place = number % _CYCLE
        times = START + number * (1_000_000 // self.rate)
        persons, auctions = place < _PERSONS, (place >= _PERSONS) & (place < _PERSONS + _AUCTIONS)
        bids = ~persons & ~auctions
        return {
            "person": _make_persons(rng, np.arange(int(persons.sum())), times[persons]),
            "auction": self._make_auctions(rng, number[auctions], times[auctions]),
            "bid": self._make_bids(rng, number[bids], times[bids]),
        }

    def make_pushes(self, size: int) -> Iterator[dict[str, pa.Table]]:
        """The rows in pushes of about `size` events, by time."""
        tables = self.make_tables()
        width = size * (1_000_000 // self.rate)
        ticks = {name: np.asarray(table.column("dateTime").cast(pa.int64())) for name, table in tables.items()}
        for begin in range(START, START + self.count * (1_000_000 // self.rate), width):
            cuts = {name: np.searchsorted(each, [begin, begin + width]) for name, each in ticks.items()}
            yield {name: table.slice(cuts[name][0], cuts[name][1] - cuts[name][0]) for name, table in tables.items()}

    def _make_auctions(self, rng: np.random.Generator, number: NDArray[np.int64], times: NDArray[np.int64]) -> pa.Table:
        rows = number.size
        persons = number // _CYCLE * _PERSONS + 1  # that exist at the time
        hot = rng.random(rows) < 0.5
        seller = np.where(hot, (persons - 1) // 100 * 100, rng.integers(0, persons))
        length = rng.integers(2_000_000, 12_000_000, rows)
        price = _make_prices(rng, rows)
        return pa.table({
            "id": np.arange(rows),
            "itemName": _number_texts("item-", rng.integers(0, 1000, rows)),
            "description": _number_texts("a fine piece, number ", rng.integers(0, 1000, rows)),
            "initialBid": price,
            "reserve": price + _make_prices(rng, rows),
            "dateTime": pa.array(times, _TIME),
            "expires": pa.array(times + length, _TIME),
            "seller": seller,
            "category": _FIRST_CATEGORY + rng.integers(0, _CATEGORIES, rows),
            "extra": _make_extra(rng, rows),
        })  # fmt: skip

    def _make_bids(self, rng: np.random.Generator, number: NDArray[np.int64], times: NDArray[np.int64]) -> pa.Table:
        rows = number.size
        auctions = number // _CYCLE * _AUCTIONS + _AUCTIONS  # that exist at the time
        persons = number // _CYCLE * _PERSONS + 1
        hot = rng.random(rows) < 0.5
        recent = auctions - 1 - rng.integers(0, np.minimum(auctions, 100))
        auction = np.where(hot, (auctions - 1) // 100 * 100, recent)
        channel = rng.integers(0, 2 * len(_CHANNELS), rows)
        other = _number_texts("channel-", rng.integers(0, 10_000, rows))
        known = pa.array(_CHANNELS).take(pa.array(np.minimum(channel, len(_CHANNELS) - 1)))
        is_known = pa.array(channel < len(_CHANNELS))
        item = _number_texts("https://www.nexmark.com/item/", rng.integers(0, 1000, rows))
        query = _number_texts("/path.htm?query=1&channel_id=", rng.integers(0, 10_000, rows))
        plain = pc.binary_join_element_wise(item, "/path.htm?query=1", "")
        return pa.table({
            "auction": auction,
            "bidder": rng.integers(0, persons),
            "price": _make_prices(rng, rows),
            "channel": pc.if_else(is_known, known, other),
            "url": pc.if_else(is_known, plain, pc.binary_join_element_wise(item, query, "")),
            "dateTime": pa.array(times, _TIME),
            "extra": _make_extra(rng, rows),
        })  # fmt: skip


def _make_persons(rng: np.random.Generator, ids: NDArray[np.int64], times: NDArray[np.int64]) -> pa.Table:
    def choose(values: tuple[str, ...]) -> pa.Array:
        return pa.array(values).take(pa.array(rng.integers(0, len(values), ids.size)))

    return pa.table({
        "id": ids,
        "name": pc.binary_join_element_wise(choose(_NAMES), choose(("Shultz", "Abrams", "Spencer", "White")), " "),
        "emailAddress": pc.binary_join_element_wise(_number_texts("p", ids), "example.com", "@"),
        "creditCard": pc.cast(pa.array(rng.integers(10**15, 10**16, ids.size)), pa.string()),
        "city": choose(_CITIES),
        "state": choose(_STATES),
        "dateTime": pa.array(times, _TIME),
        "extra": _make_extra(rng, ids.size),
    })  # fmt: skip


def _make_prices(rng: np.random.Generator, rows: int) -> NDArray[np.int64]:
    return np.round(10 ** (rng.random(rows) * 6) * 100).astype(np.int64)


def _make_extra(rng: np.random.Generator, rows: int) -> pa.Array:
    """Texts of three syllables."""
    parts = [pa.array(("abc", "cde", "ccc", "xyz")).take(pa.array(rng.integers(0, 4, rows))) for _ in range(3)]
    return pc.binary_join_element_wise(*parts, "")


def _number_texts(prefix: str, numbers: NDArray[np.int64]) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "")
