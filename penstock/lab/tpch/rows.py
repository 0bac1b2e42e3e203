"""Rows of the eight tables of TPC-H, from a seed, as streams: every row has a time, in no relation to its keys.

The columns and the rules between them are those of the benchmark: four suppliers for a part, one to seven lines in an
order, dates that follow one another, and a third of the customers without an order. The sizes are small, and the values
that the queries look for are more frequent, so that all 22 have an answer over a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

START = 1_735_732_800_000_000  # 2025-01-01 12:00:00 in microseconds
STEP = 1_000_000  # between two rows
_DAYS = {year: (np.datetime64(f"{year}-01-01") - np.datetime64("1970-01-01")).astype(int) for year in range(1992, 1999)}
_ORDER_DAYS = int(_DAYS[1992]), int(_DAYS[1998]) + 213  # the last order is on 1998-08-02
_CURRENT_DAY = int((np.datetime64("1995-06-17") - np.datetime64("1970-01-01")).astype(int))
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0),
    ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2),
    ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
_FREQUENT_NATIONS = (2, 3, 6, 7, 8, 18, 20)  # those that queries name, and two of Asia
_COLORS = ("forest", "green", "almond", "azure", "ivory", "lemon", "navy", "rose")
_TYPES = (
    "ECONOMY ANODIZED STEEL", "STANDARD BURNISHED BRASS", "PROMO PLATED TIN", "MEDIUM POLISHED COPPER",
    "LARGE BRUSHED NICKEL", "SMALL PLATED BRASS",
)  # fmt: skip
_BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
_CONTAINERS = (("SM CASE", "SM BOX"), ("MED BOX", "MED BAG"), ("LG CASE", "LG PKG"), ("JUMBO JAR", "WRAP CAN"))
_SIZES = (1, 3, 5, 9, 14, 15, 19, 23, 36, 45, 49)
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
_MODES = ("AIR", "AIR", "AIR REG", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK")
_MONEY = "decimal(15,2)"

SCHEMAS = {
    "region": {"r_regionkey": "int", "r_name": "string", "r_comment": "string", "ts": "timestamp"},
    "nation": {
        "n_nationkey": "int", "n_name": "string", "n_regionkey": "int", "n_comment": "string", "ts": "timestamp",
    },
    "supplier": {
        "s_suppkey": "bigint", "s_name": "string", "s_address": "string", "s_nationkey": "int", "s_phone": "string",
        "s_acctbal": _MONEY, "s_comment": "string", "ts": "timestamp",
    },
    "customer": {
        "c_custkey": "bigint", "c_name": "string", "c_address": "string", "c_nationkey": "int", "c_phone": "string",
        "c_acctbal": _MONEY, "c_mktsegment": "string", "c_comment": "string", "ts": "timestamp",
    },
    "part": {
        "p_partkey": "bigint", "p_name": "string", "p_mfgr": "string", "p_brand": "string", "p_type": "string",
        "p_size": "int", "p_container": "string", "p_retailprice": _MONEY, "p_comment": "string", "ts": "timestamp",
    },
    "partsupp": {
        "ps_partkey": "bigint", "ps_suppkey": "bigint", "ps_availqty": "int", "ps_supplycost": _MONEY,
        "ps_comment": "string", "ts": "timestamp",
    },
    "orders": {
        "o_orderkey": "bigint", "o_custkey": "bigint", "o_orderstatus": "string", "o_totalprice": _MONEY,
        "o_orderdate": "date", "o_orderpriority": "string", "o_clerk": "string", "o_shippriority": "int",
        "o_comment": "string", "ts": "timestamp",
    },
    "lineitem": {
        "l_orderkey": "bigint", "l_partkey": "bigint", "l_suppkey": "bigint", "l_linenumber": "int",
        "l_quantity": _MONEY, "l_extendedprice": _MONEY, "l_discount": _MONEY, "l_tax": _MONEY,
        "l_returnflag": "string", "l_linestatus": "string", "l_shipdate": "date", "l_commitdate": "date",
        "l_receiptdate": "date", "l_shipinstruct": "string", "l_shipmode": "string", "l_comment": "string",
        "ts": "timestamp",
    },
}  # fmt: skip
"""The columns of the streams, in SQL types. The time column is `ts`."""
_ARROW = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    _MONEY: pa.decimal128(15, 2),
}

Ints = NDArray[np.int64]
Columns = dict[str, Any]
"""Values by column: arrays or lists of one length."""


@dataclass(frozen=True)
class TpchRows:
    """The rows of one run, in proportion to the number of orders."""

    orders: int
    seed: int = 1

    def make_tables(self) -> dict[str, pa.Table]:
        """All rows by stream, in the order of time."""
        rng = np.random.default_rng(self.seed)
        suppliers, parts, customers = (max(5, self.orders // each) for each in (15, 8, 6))
        columns = {
            "region": {"r_regionkey": range(5), "r_name": _REGIONS, "r_comment": _write_comments(rng, 5)},
            "nation": {
                "n_nationkey": range(25),
                "n_name": [name for name, _ in _NATIONS],
                "n_regionkey": [region for _, region in _NATIONS],
                "n_comment": _write_comments(rng, 25),
            },
            "supplier": _make_suppliers(rng, suppliers),
            "customer": _make_customers(rng, customers),
            "part": _make_parts(rng, parts),
            "partsupp": _make_part_suppliers(rng, parts, suppliers),
        }
        columns["orders"], columns["lineitem"] = _make_orders(rng, self.orders, customers, parts, suppliers)
        return _stamp(rng, columns)

    def make_pushes(self, count: int) -> Iterator[dict[str, pa.Table]]:
        """The rows in pushes, by time."""
        tables = self.make_tables()
        ticks = {name: np.asarray(table.column("ts").cast(pa.int64())) for name, table in tables.items()}
        total = sum(table.num_rows for table in tables.values())
        for begin in range(0, total, -(-total // count)):
            bounds = START + STEP * np.array([begin, begin + -(-total // count)])
            cuts = {name: np.searchsorted(each, bounds) for name, each in ticks.items()}
            yield {name: table.slice(cuts[name][0], cuts[name][1] - cuts[name][0]) for name, table in tables.items()}


def _stamp(rng: np.random.Generator, columns: dict[str, Columns]) -> dict[str, pa.Table]:
    """The tables with times: all rows of all tables in one random order."""
    sizes = {name: len(next(iter(each.values()))) for name, each in columns.items()}
    times = START + STEP * rng.permutation(sum(sizes.values()))
    tables, used = {}, 0
    for name, schema in SCHEMAS.items():
        own = times[used : used + sizes[name]]
        used += sizes[name]
        arrays = {**columns[name], "ts": own}
        table = pa.table({column: _to_array(arrays[column], _ARROW[kind]) for column, kind in schema.items()})
        tables[name] = table.take(pa.array(np.argsort(own)))
    return tables


def _to_array(values: object, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):  # counted in cents
        cents = pc.cast(pa.array(values), pa.decimal128(19, 0))
        return pc.cast(pc.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))), kind)
    array = pa.array(values)
    return array.cast(pa.int32()).cast(kind) if kind == pa.date32() else array.cast(kind)


def _choose(rng: np.random.Generator, values: Sequence[str], rows: int) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), rows)))


def _number(prefix: str, numbers: Ints, digits: int = 9) -> list[str]:
    return [f"{prefix}{number:0{digits}d}" for number in numbers.tolist()]


def _write_comments(rng: np.random.Generator, rows: int, special: str = "quiet foxes", share: float = 0.0) -> pa.Array:
    plain = _choose(
        rng, ("carefully final deposits", "bold ideas sleep", "pending accounts nag", "even theodolites"), rows
    )
    return pc.if_else(pa.array(rng.random(rows) < share), special, plain)


def _choose_nations(rng: np.random.Generator, rows: int) -> Ints:
    """Three of four are of a nation that queries name."""
    frequent = np.array(_FREQUENT_NATIONS)[rng.integers(0, len(_FREQUENT_NATIONS), rows)]
    return np.where(rng.random(rows) < 0.75, frequent, rng.integers(0, 25, rows))


def _make_phones(rng: np.random.Generator, nations: Ints) -> list[str]:
    numbers = rng.integers(100, 1000, (nations.size, 2)).tolist()
    return [f"{10 + nation}-{a}-{b}-{a + b}" for nation, (a, b) in zip(nations.tolist(), numbers, strict=True)]


def _make_suppliers(rng: np.random.Generator, rows: int) -> Columns:
    keys, nations = np.arange(1, rows + 1), _choose_nations(rng, rows)
    return {
        "s_suppkey": keys,
        "s_name": _number("Supplier#", keys),
        "s_address": _number("street ", rng.integers(0, 1000, rows), 3),
        "s_nationkey": nations,
        "s_phone": _make_phones(rng, nations),
        "s_acctbal": rng.integers(-99_999, 1_000_000, rows),
        "s_comment": _write_comments(rng, rows, "Customer slow Complaints", 0.1),
    }


def _make_customers(rng: np.random.Generator, rows: int) -> Columns:
    keys, nations = np.arange(1, rows + 1), _choose_nations(rng, rows)
    return {
        "c_custkey": keys,
        "c_name": _number("Customer#", keys),
        "c_address": _number("street ", rng.integers(0, 1000, rows), 3),
        "c_nationkey": nations,
        "c_phone": _make_phones(rng, nations),
        "c_acctbal": rng.integers(-99_999, 1_000_000, rows),
        "c_mktsegment": _choose(rng, _SEGMENTS, rows),
        "c_comment": _write_comments(rng, rows),
    }


def _compute_prices(keys: Ints) -> Ints:
    """The retail prices of parts, in cents, by the formula of the benchmark."""
    return 90_000 + keys // 10 % 20_001 + 100 * (keys % 1_000)


def _make_parts(rng: np.random.Generator, rows: int) -> Columns:
    keys = np.arange(1, rows + 1)
    brand = rng.integers(0, len(_BRANDS), rows)
    brands = pa.array(_BRANDS).take(pa.array(brand))
    size = np.where(rng.random(rows) < 0.8, brand, rng.integers(0, len(_CONTAINERS), rows))  # a brand prefers one
    containers = pa.array([each for pair in _CONTAINERS for each in pair])
    return {
        "p_partkey": keys,
        "p_name": pc.binary_join_element_wise(_choose(rng, _COLORS, rows), _choose(rng, _COLORS, rows), " "),
        "p_mfgr": pc.binary_join_element_wise("Manufacturer#", pc.utf8_slice_codeunits(brands, 6, 7), ""),
        "p_brand": brands,
        "p_type": _choose(rng, _TYPES, rows),
        "p_size": np.array(_SIZES)[rng.integers(0, len(_SIZES), rows)],
        "p_container": containers.take(pa.array(2 * size + rng.integers(0, 2, rows))),
        "p_retailprice": _compute_prices(keys),
        "p_comment": _write_comments(rng, rows),
    }


def _find_supplier(part: Ints, place: Ints, suppliers: int) -> Ints:
    """One of the four suppliers of a part."""
    return (part + place * (suppliers // 4 + 1)) % suppliers + 1


def _make_part_suppliers(rng: np.random.Generator, parts: int, suppliers: int) -> Columns:
    keys, rows = np.repeat(np.arange(1, parts + 1), 4), parts * 4
    return {
        "ps_partkey": keys,
        "ps_suppkey": _find_supplier(keys, np.tile(np.arange(4), parts), suppliers),
        "ps_availqty": rng.integers(1, 10_000, rows),
        "ps_supplycost": rng.integers(100, 100_001, rows),
        "ps_comment": _write_comments(rng, rows),
    }


def _make_orders(
    rng: np.random.Generator, rows: int, customers: int, parts: int, suppliers: int
) -> tuple[Columns, Columns]:
    """Orders and their lines; some orders are large."""
    keys, day = np.arange(1, rows + 1), rng.integers(*_ORDER_DAYS, rows)
    customer = rng.integers(1, customers + 1, rows)
    customer = np.where(customer % 3 == 0, customer % customers + 1, customer)
    customer = np.where(customer % 3 == 0, 1, customer)
    large = rng.random(rows) < 0.03
    lines = np.where(large, 7, rng.integers(1, 8, rows))
    line = _make_lines(rng, np.repeat(keys, lines), np.repeat(day, lines), np.repeat(large, lines), parts, suppliers)
    first = np.cumsum(lines) - lines
    line["l_linenumber"] = np.arange(lines.sum()) - np.repeat(first, lines) + 1
    open_lines = np.add.reduceat(np.asarray(line["l_shipdate"]) > _CURRENT_DAY, first)
    orders = {
        "o_orderkey": keys,
        "o_custkey": customer,
        "o_orderstatus": np.where(open_lines == 0, "F", np.where(open_lines == lines, "O", "P")).tolist(),
        "o_totalprice": np.add.reduceat(np.asarray(line["l_extendedprice"]), first),
        "o_orderdate": day,
        "o_orderpriority": _choose(rng, _PRIORITIES, rows),
        "o_clerk": _number("Clerk#", rng.integers(1, 100, rows)),
        "o_shippriority": np.zeros(rows, np.int64),
        "o_comment": _write_comments(rng, rows, "special packages requests", 0.1),
    }
    return orders, line


def _make_lines(
    rng: np.random.Generator, order: Ints, day: Ints, large: NDArray[np.bool_], parts: int, suppliers: int
) -> Columns:
    rows = order.size
    part = rng.integers(1, parts + 1, rows)
    quantity = np.where(large, rng.integers(43, 51, rows), rng.integers(1, 51, rows))
    ship = day + rng.integers(1, 122, rows)
    receipt = ship + rng.integers(1, 31, rows)
    returned = np.where(rng.random(rows) < 0.5, "R", "A")
    return {
        "l_orderkey": order,
        "l_partkey": part,
        "l_suppkey": _find_supplier(part, rng.integers(0, 4, rows), suppliers),
        "l_quantity": quantity * 100,
        "l_extendedprice": quantity * _compute_prices(part),
        "l_discount": rng.integers(0, 11, rows),
        "l_tax": rng.integers(0, 9, rows),
        "l_returnflag": np.where(receipt <= _CURRENT_DAY, returned, "N").tolist(),
        "l_linestatus": np.where(ship > _CURRENT_DAY, "O", "F").tolist(),
        "l_shipdate": ship,
        "l_commitdate": day + rng.integers(30, 91, rows),
        "l_receiptdate": receipt,
        "l_shipinstruct": _choose(rng, _INSTRUCTIONS, rows),
        "l_shipmode": _choose(rng, _MODES, rows),
        "l_comment": _write_comments(rng, rows),
    }
