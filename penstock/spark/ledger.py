"""What a checkpoint remembers of the pipeline it belongs to: `penstock.json` beside Spark's own files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from penstock.errors import QueryError
from penstock.spark.spec import QuerySpec, Spec
from penstock.spark.storage import Folder

_NAME = "penstock.json"
_FORMAT = 1


def entered(folder: Folder, spec: Spec) -> tuple[str, Spec]:
    """The id of the run and the spec to go on with; a checkpoint of something else is a QueryError.

    Queries may come and go between two starts: one that is new sees what arrives from now on.
    """
    saved = folder.read(_NAME)
    if saved is None:
        run = uuid4().hex
        _save(folder, run, 0, spec)
        return run, spec
    try:
        record = json.loads(saved)
        known = {entry["name"]: QuerySpec(**entry) for entry in record["queries"]}
        run, generation, declared = record["run"], record["generation"], record["declared"]
        if record["format"] != _FORMAT:
            raise ValueError(f"format {record['format']}, this version reads {_FORMAT}")
    except (ValueError, KeyError, TypeError) as error:
        raise QueryError(
            "BAD_CHECKPOINT", f"{folder.place}/{_NAME} is not a record of a pipeline: {error}", checkpoint=folder.place
        ) from error
    _fits(folder.place, declared, json.loads(json.dumps(spec.declared())))
    spec = _continued(folder.place, spec, known, generation + 1)
    if {query.name: query for query in spec.queries} != known:
        _save(folder, run, generation + 1, spec)
    return run, spec


def _save(folder: Folder, run: str, generation: int, spec: Spec) -> None:
    record = {
        "format": _FORMAT,
        "run": run,
        "generation": generation,
        "declared": spec.declared(),
        "queries": [asdict(query) for query in spec.queries],
    }
    folder.write(_NAME, json.dumps(record, indent=1).encode())


def _fits(place: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    if before["cells"] != now["cells"]:
        raise QueryError(
            "CELLS_DIFFER",
            f"the checkpoint {place} was made with {before['cells']} cells, not {now['cells']}: its state is cut that "
            f"way; start with cells={before['cells']}, or with a new checkpoint",
            cells=before["cells"],
        )
    for kind in ("streams", "tables"):
        if before[kind] != now[kind]:
            names = sorted({*before[kind], *now[kind]})
            other = ", ".join(name for name in names if before[kind].get(name) != now[kind].get(name))
            raise QueryError(
                "CHECKPOINT_DIFFERS",
                f"the checkpoint {place} belongs to another pipeline: {kind} declared differently: {other}; "
                "give this pipeline a checkpoint of its own",
                checkpoint=place,
            )


def _continued(place: str, spec: Spec, known: dict[str, QuerySpec], generation: int) -> Spec:
    queries = []
    for query in spec.queries:
        before = known.get(query.name)
        if before is None:
            queries.append(replace(query, since=generation))
            continue
        if before.text != query.text:
            raise QueryError(
                "QUERY_DIFFERS",
                f"the checkpoint {place} has a query {query.name} with another text; "
                "give the new query a name of its own, or start with a new checkpoint",
                query=query.name,
            )
        queries.append(replace(query, since=before.since))
    if known and not any(query.name in known for query in spec.queries):
        raise QueryError(
            "CHECKPOINT_DIFFERS",
            f"the checkpoint {place} belongs to another pipeline: its queries are {', '.join(known)}; "
            "give this pipeline a checkpoint of its own",
            checkpoint=place,
        )
    return replace(spec, queries=tuple(queries))
