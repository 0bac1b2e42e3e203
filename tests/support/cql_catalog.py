"""The streams and tables of the CQL tests."""

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

INTERFACE_SCRIPT = """
CREATE STREAM temperature (ts TIMESTAMP, location INT, value DOUBLE)
    TIMESTAMP BY ts LATENESS 5 SECONDS TIMESTAMPS EXTERNAL SKEW 1 SECOND IDLE AFTER 30 SECONDS
    FROM parquet OPTIONS (path 'data/temperature', maxFilesPerTrigger 1);
CREATE STREAM humidity (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts TIMESTAMPS INTERNAL;
CREATE TABLE rooms (location INT, name STRING) FROM csv OPTIONS (path 'rooms.csv', header true);
CREATE SINK alarms TO parquet OPTIONS (path 'out/alarms');

INSERT INTO alarms
SELECT t.location, t.value, h.value AS humidity
FROM temperature [RANGE 5 MINUTES] AS t, humidity [ROWS 1000] AS h, rooms AS r
WHERE t.location = h.location AND t.location = r.location AND t.value > 40
FRESHNESS t 12 MINUTES, h 15 MINUTES;
"""
"""The example script of the interface, with every kind of statement."""


class SpreadAggregate:
    """A user-defined aggregate whose result is a bigint."""

    type = "bigint"


class MiddleAggregate:
    """A user-defined aggregate with the default type."""


def build_catalog() -> Catalog:
    names = Catalog(aggregates={"spread": SpreadAggregate, "middle": MiddleAggregate})
    bind_script(DECLARATIONS, names)
    return names
