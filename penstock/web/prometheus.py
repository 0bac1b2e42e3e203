"""Counters and sizes in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine import EngineStatus
from penstock.web.series import measure_lags

Sample = tuple[tuple[tuple[str, str], ...], float]


def format_metrics(status: EngineStatus) -> str:
    """The metrics of a status; `docs/page.md` lists them."""
    streams, queries, operators = status.streams, status.queries, status.operators
    families: list[tuple[str, str, str, list[Sample]]] = [
        ("penstock_pushes_total", "counter", "Pushes or micro-batches.", [((), float(status.pushes))]),
        ("penstock_busy_seconds_total", "counter", "Time spent in pushes.", [((), status.busy)]),
        ("penstock_stream_rows_total", "counter", "Tuples that arrived.", _label("stream", streams, "arrived")),
        ("penstock_stream_late_total", "counter", "Late tuples.", _label("stream", streams, "late")),
        ("penstock_stream_dead_total", "counter", "Rejected tuples.", _label("stream", streams, "dead")),
        ("penstock_stream_lag", "gauge", "How far a stream is behind the furthest one, in seconds or ticks.",
         [((("stream", name),), lag) for name, lag in measure_lags(status).items()]),
        ("penstock_query_results_total", "counter", "Results.", _label("query", queries, "emitted")),
        ("penstock_query_completeness", "gauge", "Part of the results that were found.",
         _label("query", queries, "completeness")),
        ("penstock_query_failed", "gauge", "1 if a query stopped with an error.",
         [((("query", each.name),), float(each.error is not None)) for each in queries]),
        ("penstock_operator_rows_total", "counter", "Rows that an operator wrote.",
         [((("operator", each.id), ("kind", each.kind)), float(each.rows_out)) for each in operators]),
        ("penstock_operator_state_rows", "gauge", "Rows in windows and states.",
         [((("operator", each.id),), float(each.state_rows)) for each in operators]),
        ("penstock_operator_state_bytes", "gauge", "Bytes of windows and states.",
         [((("operator", each.id),), float(each.bytes)) for each in operators]),
        ("penstock_operator_suppressed_total", "counter", "Rows not built, because no result can use them yet.",
         [((("operator", each.id),), float(each.suppressed)) for each in operators]),
    ]  # fmt: skip
    lines = []
    for name, kind, text, samples in families:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_format_labels(labels)} {value:.17g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _label(label: str, parts: Iterable[object], field: str) -> list[Sample]:
    return [(((label, str(vars(each)["name"])),), float(vars(each)[field])) for each in parts]


def _format_labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
