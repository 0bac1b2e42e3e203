"""The queries of Nexmark in the text of the benchmark (Flink's), and the same questions to DuckDB.

`note` says what of the text differs from the benchmark's, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Answer = Literal["rows", "answer", "windows"]
"""What is compared with DuckDB: all rows that enter the answer; the answer at the end; or the rows of each window as
they are when it ends."""


@dataclass(frozen=True)
class NexmarkQuery:
    """One query. `duckdb` is empty if DuckDB takes the same text."""

    name: str
    title: str
    text: str
    answer: Answer = "rows"
    duckdb: str = ""
    note: str = ""


def _tumble(stream: str, seconds: int = 10) -> str:
    return f"TABLE(TUMBLE(TABLE {stream}, DESCRIPTOR(dateTime), INTERVAL '{seconds}' SECOND))"


def _bucket(seconds: int) -> str:
    return f"time_bucket(INTERVAL '{seconds} seconds', dateTime)"


_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_HOP_DUCKDB = (
    "(SELECT auction, time_bucket(INTERVAL '2 seconds', dateTime) - to_seconds(2 * n) AS starttime "
    "FROM bid, range(5) AS r(n))"
)
_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}


def _count_ranks(what: str, name: str) -> str:
    return ",\n       ".join(f"COUNT({what}) FILTER (WHERE {test}) AS {rank}_{name}" for rank, test in _RANKS.items())


_Q15 = f"""SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, COUNT(*) AS total_bids,
       {_count_ranks("*", "bids")},
       COUNT(DISTINCT bidder) AS total_bidders,
       {_count_ranks("DISTINCT bidder", "bidders")},
       COUNT(DISTINCT auction) AS total_auctions,
       {_count_ranks("DISTINCT auction", "auctions")}
FROM bid
GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')"""
_Q16 = _Q15.replace(
    "SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day,",
    "SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS minute,",
).replace("GROUP BY", "GROUP BY channel,")
_Q17 = f"""SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, COUNT(*) AS total_bids,
       {_count_ranks("*", "bids")},
       MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')"""


_Q19 = """SELECT *
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
    FROM bid
)
WHERE rank_number <= 10"""


def _to_duckdb_dates(text: str) -> str:
    """DuckDB's STRFTIME for DATE_FORMAT."""
    text = text.replace("'yyyy-MM-dd'", "'%Y-%m-%d'").replace("'HH:mm'", "'%H:%M'")
    return text.replace("DATE_FORMAT(", "STRFTIME(")


_Q10 = """SELECT auction, bidder, price, dateTime, extra,
       DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, DATE_FORMAT(dateTime, 'HH:mm') AS minute
FROM bid"""
_Q14 = """SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
            WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"""
_Q21 = """SELECT auction, bidder, price, channel,
       CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
            WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) <> ''
   OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"""

_Q6 = """WITH winners AS (
    SELECT seller, final, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY dateTime) AS place
    FROM (
        SELECT A.seller, B.price AS final, B.dateTime,
               ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS rownum
        FROM auction A, bid B
        WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    )
    WHERE rownum <= 1
)
SELECT Q.seller, AVG(R.final) AS average
FROM winners Q JOIN winners R ON Q.seller = R.seller AND R.place BETWEEN Q.place - 10 AND Q.place
GROUP BY Q.seller, Q.place"""

QUERIES = (
    NexmarkQuery("q0", "pass through", "SELECT auction, bidder, price, dateTime, extra FROM bid"),
    NexmarkQuery(
        "q1", "currency conversion", "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    ),
    NexmarkQuery("q2", "selection", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    NexmarkQuery(
        "q3", "local item suggestion",
        """SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
    ),
    NexmarkQuery(
        "q4", "average price for a category",
        """SELECT Q.category, AVG(Q.final) AS average
FROM (
    SELECT MAX(B.price) AS final, A.category
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    GROUP BY A.id, A.category
) Q
GROUP BY Q.category""",
        "answer",
    ),
    NexmarkQuery(
        "q5", "hot items",
        f"""SELECT AuctionBids.auction, AuctionBids.num, AuctionBids.endtime
FROM (
    SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM {_HOP}
    GROUP BY auction, window_start, window_end
) AS AuctionBids
JOIN (
    SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
    FROM (
        SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
        FROM {_HOP}
        GROUP BY auction, window_start, window_end
    ) AS CountBids
    GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
   AND AuctionBids.num >= MaxBids.maxn""",
        "windows",
        f"""WITH counts AS (SELECT auction, starttime, COUNT(*) AS num FROM {_HOP_DUCKDB} GROUP BY auction, starttime)
SELECT auction, num, starttime + INTERVAL '10 seconds' AS endtime FROM counts
QUALIFY num = MAX(num) OVER (PARTITION BY starttime)""",
        note="endtime is in SELECT, so that windows can be told apart",
    ),
    NexmarkQuery(
        "q6", "average selling price by seller", _Q6, "answer",
        """SELECT seller, AVG(final) OVER (
    PARTITION BY seller ORDER BY dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
) AS average
FROM (
    SELECT A.seller, B.price AS final, B.dateTime FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    QUALIFY ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) = 1
)""",
        note="winning bids are replaced by higher ones, so AVG OVER the ten rows before each one is a join of numbered "
        "rows; Flink does not run the text of the benchmark either",
    ),
    NexmarkQuery(
        "q7", "highest bid",
        f"""SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra, B1.dateTime AS window_end
FROM bid B
JOIN (
    SELECT MAX(price) AS maxprice, window_end AS dateTime
    FROM {_tumble("bid")}
    GROUP BY window_start, window_end
) B1 ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime""",
        "windows",
        f"""SELECT auction, price, bidder, dateTime, extra, {_bucket(10)} + INTERVAL '10 seconds' AS window_end FROM bid
QUALIFY price = MAX(price) OVER (PARTITION BY {_bucket(10)})""",
        note="window_end is in SELECT; a bid at the end of a window is in the next one, not in both",
    ),
    NexmarkQuery(
        "q8", "monitor new users",
        f"""SELECT P.id, P.name, P.starttime
FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime
    FROM {_tumble("person")}
    GROUP BY id, name, window_start, window_end
) P
JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime
    FROM {_tumble("auction")}
    GROUP BY seller, window_start, window_end
) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime""",
        duckdb=f"""SELECT P.id, P.name, P.starttime
FROM (SELECT DISTINCT id, name, {_bucket(10)} AS starttime FROM person) P
JOIN (SELECT DISTINCT seller, {_bucket(10)} AS starttime FROM auction) A
ON P.id = A.seller AND P.starttime = A.starttime""",
    ),
    NexmarkQuery(
        "q9", "winning bids",
        """SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
       auction, bidder, price, bid_dateTime, bid_extra
FROM (
    SELECT A.id, A.itemName, A.description, A.initialBid, A.reserve, A.dateTime, A.expires, A.seller, A.category,
           A.extra, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
           ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS rownum
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
)
WHERE rownum <= 1""",
        "answer",
        note="columns are named one by one instead of A.*",
    ),
    NexmarkQuery("q10", "log to file system", _Q10, duckdb=_to_duckdb_dates(_Q10), note="the sink is not measured"),
    NexmarkQuery(
        "q11", "user sessions",
        """SELECT B.bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) B
GROUP BY B.bidder, window_start, window_end""",
        "rows",
        """WITH marked AS (
    SELECT bidder, dateTime, COALESCE(dateTime - LAG(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
           >= INTERVAL '10 seconds', TRUE)::INT AS starts FROM bid
), numbered AS (
    SELECT bidder, dateTime, SUM(starts) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM marked
)
SELECT bidder, COUNT(*) AS bid_count, MIN(dateTime), MAX(dateTime) + INTERVAL '10 seconds'
FROM numbered GROUP BY bidder, session""",
    ),
    NexmarkQuery(
        "q12", "processing time windows",
        f"""SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM {_tumble("bid")}
GROUP BY bidder, window_start, window_end""",
        "windows",
        f"""SELECT bidder, COUNT(*), {_bucket(10)} AS starttime, starttime + INTERVAL '10 seconds' FROM bid
GROUP BY bidder, starttime""",
        note="by event time: an answer by processing time depends on the machine",
    ),
    NexmarkQuery(
        "q13", "bounded side input join",
        """SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM bid B JOIN side_input S ON MOD(B.auction, 10000) = S.key""",
        note="FOR SYSTEM_TIME AS OF is left out: the side input is a static table",
    ),
    NexmarkQuery(
        "q14", "calculation", _Q14,
        note="count_char, a user function, is LENGTH(extra) - LENGTH(REPLACE(extra, 'c', ''))",
    ),
    NexmarkQuery("q15", "bidding statistics", _Q15, "answer", _to_duckdb_dates(_Q15)),
    NexmarkQuery("q16", "channel statistics", _Q16, "answer", _to_duckdb_dates(_Q16)),
    NexmarkQuery("q17", "auction statistics", _Q17, "answer", _to_duckdb_dates(_Q17)),
    NexmarkQuery(
        "q18", "find last bid",
        """SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number
    FROM bid
)
WHERE rank_number <= 1""",
        "answer",
    ),
    NexmarkQuery(
        "q19", "auction top 10", _Q19, "answer",
        duckdb=_Q19.replace("price DESC", "price DESC, bidder, channel, url, dateTime, extra"),
        note="bids of one price are ordered by their other columns",
    ),
    NexmarkQuery(
        "q20", "expand bid with auction",
        """SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
       A.itemName, A.description, A.initialBid, A.reserve, A.dateTime AS auction_dateTime, A.expires, A.seller,
       A.category, A.extra AS auction_extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10""",
    ),
    NexmarkQuery(
        "q21", "add channel id", _Q21, note="REGEXP_EXTRACT without a match is an empty text, as in Spark, not NULL",
    ),
    NexmarkQuery(
        "q22", "get URL directories",
        """SELECT auction, bidder, price, channel,
       SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2, SPLIT_PART(url, '/', 6) AS dir3
FROM bid""",
        note="SPLIT_PART counts from 1, Flink's SPLIT_INDEX from 0",
    ),
)  # fmt: skip


def write_script(schemas: Mapping[str, Mapping[str, str]]) -> str:
    """The queries as a script: examples/nexmark.cql."""
    parts = [
        "-- The queries of the benchmark Nexmark. `penstock lab nexmark` runs them and compares them with DuckDB.\n"
    ]
    for name, columns in schemas.items():
        listed = ", ".join(f"{column} {kind.upper()}" for column, kind in columns.items())
        source = f"FROM parquet OPTIONS (path 'data/nexmark/{name}')"
        parts.append(f"CREATE STREAM {name} ({listed})\n    TIMESTAMP BY dateTime {source};\n")
    side = "FROM parquet OPTIONS (path 'data/nexmark/side_input')"
    parts.append(f"CREATE TABLE side_input (key BIGINT, value STRING) {side};\n")
    for query in QUERIES:
        changes = "" if query.answer == "rows" else "\nEMIT CHANGES"
        note = f"-- {query.note}\n" if query.note else ""
        sink = f"CREATE SINK {query.name} TO parquet OPTIONS (path 'out/nexmark/{query.name}');\n"
        parts.append(f"-- {query.name}: {query.title}\n{note}{sink}INSERT INTO {query.name}\n{query.text}{changes};\n")
    return "\n".join(parts)
