"""The queries of Nexmark by PyFlink, in an interpreter of its own; `flink_queries` is the program that runs there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pyarrow import parquet as pq

from penstock.lab.meters import create_temp_dir
from penstock.lab.nexmark.answers import make_side_input
from penstock.lab.nexmark.events import SCHEMAS, NexmarkEvents
from penstock.lab.nexmark.queries import QUERIES
from penstock.lab.peers.peer_engines import PEERS, run_program

FLINK = next(peer for peer in PEERS if peer.name == "flink")
_DIALECT = {
    "AS day": "AS `day`",
    "AS minute": "AS `minute`",
    "S.value": "S.`value`",
    "S.key": "S.`key`",
    "LENGTH(": "CHAR_LENGTH(",
}
"""Names that Flink reserves, and its name of LENGTH."""


def run_on_flink(python: str, events: NexmarkEvents) -> tuple[Mapping[str, float], list[str]]:
    """Events per second of each query that Flink runs, and a note for each one that it does not run."""
    with create_temp_dir() as folder:
        tables = {**events.make_tables(), "side_input": make_side_input()}
        for name, table in tables.items():
            pq.write_table(table, Path(folder) / f"{name}.parquet")
        queries = {query.name: _to_flink(query.text) for query in QUERIES}
        request = json.dumps({"folder": folder, "schemas": SCHEMAS, "queries": queries})
        program = Path(__file__).parent / "flink_queries.py"
        answer = json.loads(run_program(FLINK, [python, str(program), request]).splitlines()[-1])
    rates = {name: events.count / seconds for name, seconds in answer["seconds"].items()}
    return rates, [f"{name} did not run on PyFlink: {reason}" for name, reason in answer["refused"].items()]


def _to_flink(text: str) -> str:
    for own, theirs in _DIALECT.items():
        text = text.replace(own, theirs)
    text = re.sub(r"\bdateTime\b", "`dateTime`", text)
    return re.sub(r"SPLIT_PART\((.*?), (\d+)\)", lambda m: f"SPLIT_INDEX({m[1]}, {int(m[2]) - 1})", text)
