"""Samples as JSON: decisions about a decoded sample are those about the sample."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

import penstock as ps
from penstock.adapt import JoinSample, Sampler, compare_codes, decode_samples, encode_samples
from penstock.adapt.monitor import SliceSample, observe
from penstock.expr import find_aliases
from penstock.plan import JoinGraph, Rates, SharedWindows, choose_tree

CONDITIONS = "A.x = B.x AND B.y = C.y AND A.y + C.x > 3 AND A.x > 0"
QUERIES = {
    "short": f"SELECT A.x FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE {CONDITIONS}",
    "long": f"SELECT A.x FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE {CONDITIONS}",
    "pair": "SELECT A.x FROM A [RANGE 7], B [RANGE 7] WHERE A.y = B.y",
    "pair2": "SELECT A.x FROM A [RANGE 4], B [RANGE 4] WHERE A.y = B.y",
}


@pytest.fixture(scope="module")
def samples() -> list[JoinSample]:
    engine, sampler = ps.Engine(), Sampler(1.0)
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
    for name in "ABC":
        engine.stream(name, schema, time="ts")
    engine.query("eddy", "SELECT A.x FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.x = C.x", plan="{A B C}")
    for name, text in QUERIES.items():
        engine.query(name, text)
    found: list[JoinSample] = []
    for start in range(0, 60, 10):
        times = list(range(start, start + 10))
        rows = pa.table({"ts": times, "x": [t % 3 for t in times], "y": [t % 4 for t in times]}, schema)
        sampler.begin()
        engine.push(dict.fromkeys("ABC", rows))
        sampler.end()
        found += engine.take_samples(sampler)
    return found


def list_connections(graph: JoinGraph) -> list[object]:
    return [
        graph.aliases, [(each.id, each.aliases) for each in graph.classes], [find_aliases(e) for e in graph.residuals],
    ]  # fmt: skip


def test_decoded_sample_leads_to_the_same_plan(samples: list[JoinSample]) -> None:
    slices = SliceSample((4.0, 7.0), SharedWindows((4.0, 7.0), (1.0, 0.5)), Rates(3.0, 2.0, 0.1))
    compared = [replace(compare_codes(sample), slices=slices) for sample in samples]
    compared += [compare_codes(sample) for sample in samples]
    decoded = decode_samples(encode_samples(compared))
    assert {sample.query for sample in compared} >= {"eddy", "pair"}
    for sample, found in zip(compared, decoded, strict=True):
        assert replace(found, graph=sample.graph) == sample
        assert list_connections(found.graph) == list_connections(sample.graph)
        plans = [choose_tree(each.graph, observe(each, None).statistics) for each in (sample, found)]
        assert plans[0] == plans[1]


def test_samples_are_plain_json(samples: list[JoinSample]) -> None:
    assert isinstance(json.loads(encode_samples([compare_codes(samples[0])])), list)
    with pytest.raises(ps.PenstockError, match="CODES_SENT"):
        encode_samples(samples[:1])
