"""The queries of a pipeline as a read-only mapping from names to frozen descriptions."""

from __future__ import annotations

from collections.abc import Callable

from penstock.engine import Descriptions, QueryDescription
from penstock.spark.spec import PipelineSpec


def describe_queries(read_spec: Callable[[], PipelineSpec]) -> Descriptions[QueryDescription]:
    """Descriptions of the queries, without derived streams, that follow the changes of a pipeline."""

    def list_names() -> list[str]:
        return [query.name for query in read_spec().queries if not query.derived]

    def describe(name: str) -> QueryDescription:
        spec = read_spec()
        query, bound = spec.config.find_query(name), spec.bound_queries[name]
        reads = tuple(dict.fromkeys(source.relation.name for source in bound.body.inputs))
        return QueryDescription(query.name, query.text, bound.schema, reads, query.plan, query.state or spec.state)

    return Descriptions("queries", QueryDescription, list_names, describe)
