"""Samples of joins as JSON: a driver reads them from its workers as data, not as code.

Decisions read only which streams a condition connects. So the conditions of the join graph are sent as aliases: a term
of an equality class becomes a column without a name, a residual becomes a conjunction of such columns. Codes are not
sent: they are compared in the worker, see `compare_codes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from penstock.adapt.monitor import JoinSample, PushStats, SliceSample
from penstock.errors import InternalError
from penstock.expr import BOOL, Call, Column, Expr, find_aliases
from penstock.plan import Eddy, EqualityClass, JoinGraph, JoinPair, Leaf, PlanShape, Rates, SharedWindows, Tree


def encode_samples(samples: Sequence[JoinSample]) -> bytes:
    """Samples whose codes were compared, as JSON."""
    return json.dumps([_encode_sample(sample) for sample in samples], default=_to_plain_number).encode()


def decode_samples(blob: bytes) -> list[JoinSample]:
    return [_decode_sample(entry) for entry in json.loads(blob)]


def _to_plain_number(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item()


def _encode_sample(sample: JoinSample) -> dict[str, Any]:
    if sample.codes:
        raise InternalError("CODES_SENT", "the codes of a sample are valid only inside their engine")
    plain = replace(sample, graph=JoinGraph((), (), (), ()), pairs={}, slices=None)
    graph, slices = sample.graph, sample.slices
    return {
        **{name: value for name, value in vars(plain).items() if name not in ("graph", "tree", "push_stats", "codes")},
        "aliases": graph.aliases,
        "classes": [[each.id, each.aliases] for each in graph.classes],
        "residuals": [sorted(find_aliases(each)) for each in graph.residuals],
        "tree": _encode_tree(sample.tree),
        "push_stats": asdict(sample.push_stats),
        "pairs": [[sorted(pair), counts] for pair, counts in sample.pairs.items()],
        "slices": None if slices is None else asdict(slices),
    }


def _decode_sample(entry: Mapping[str, Any]) -> JoinSample:
    fields = {name: value for name, value in entry.items() if name not in ("aliases", "classes", "residuals")}
    classes = tuple(
        EqualityClass(number, tuple((alias, _make_term(alias)) for alias in aliases))
        for number, aliases in entry["classes"]
    )
    residuals = tuple(Call("and", tuple(map(_make_term, aliases)), BOOL) for aliases in entry["residuals"])
    return JoinSample(
        **{
            **fields,
            "shapes": tuple(entry["shapes"]),
            "graph": JoinGraph(tuple(entry["aliases"]), classes, (), residuals),
            "tree": _decode_tree(entry["tree"]),
            "codes": {},
            "push_stats": PushStats(**entry["push_stats"]),
            "pairs": {frozenset(pair): (agreed, compared) for pair, (agreed, compared) in entry["pairs"]},
            "slices": None if entry["slices"] is None else _decode_slices(entry["slices"]),
        }
    )


def _make_term(alias: str) -> Expr:
    return Column(alias, "", BOOL)


def _encode_tree(tree: PlanShape) -> Any:
    if isinstance(tree, Eddy):
        return {"eddy": tree.aliases}
    return tree.alias if isinstance(tree, Leaf) else [_encode_tree(tree.left), _encode_tree(tree.right)]


def _decode_tree(entry: Any) -> PlanShape:
    return Eddy(tuple(entry["eddy"])) if isinstance(entry, dict) else _decode_binary_tree(entry)


def _decode_binary_tree(entry: Any) -> Tree:
    return Leaf(entry) if isinstance(entry, str) else JoinPair(*map(_decode_binary_tree, entry))


def _decode_slices(entry: Mapping[str, Any]) -> SliceSample:
    windows = {name: tuple(values) for name, values in entry["windows"].items()}
    return SliceSample(tuple(entry["chain"]), SharedWindows(**windows), Rates(**entry["rates"]))
