"""The streams and tables that the CQL tests name."""

from __future__ import annotations

from penstock.cql import Catalog, bind_script

DECLARATIONS = """
CREATE STREAM temperature (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts;
CREATE STREAM humidity (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts;
CREATE STREAM trades (At TIMESTAMP, sym STRING, price DECIMAL(10, 2), n INT, big BIGINT, f FLOAT, d DATE, ok BOOLEAN)
    TIMESTAMP BY At;
CREATE STREAM ticks (t BIGINT, x SMALLINT) TIMESTAMP BY t;
CREATE STREAM words (ts TIMESTAMP, range INT, rows INT, slide INT, now INT, unbounded INT, window INT, mode INT,
    seq INT, freshness INT, lateness INT, skew INT, idle INT, stream INT, sink INT, istream INT, timestamp TIMESTAMP,
    options INT, recent INT) TIMESTAMP BY ts;
CREATE TABLE rooms (location INT, name STRING);
CREATE SINK alarms TO parquet OPTIONS (path 'out/alarms');
"""


class SpreadAggregate:
    """A user-defined aggregate whose result is a bigint."""

    type = "bigint"


class MedianAggregate:
    """A user-defined aggregate with the default type."""


def build_catalog() -> Catalog:
    names = Catalog(aggregates={"spread": SpreadAggregate, "median": MedianAggregate})
    bind_script(DECLARATIONS, names)
    return names
