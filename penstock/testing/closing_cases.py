"""Random cases with EMIT ON WINDOW CLOSE over joins of all kinds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from penstock.cql import Stream
from penstock.testing.case import Case
from penstock.testing.relation_cases import RelationText, draw_fitting_case
from penstock.testing.window_cases import WindowWriter

_FIRST_JOINS = ("LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "JOIN")
_LATER_JOINS = ("LEFT JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "JOIN")


def random_closing_case(seed: int, *, rows: int = 10, limit: int = 1500, **knobs: Any) -> Case:
    """A case whose query emits final rows of outer joins; other knobs are those of `random_case`."""

    def write(rng: random.Random, streams: Sequence[Stream]) -> str:
        return f"{ClosingWriter(rng, streams).write_joins()} EMIT ON WINDOW CLOSE"

    return draw_fitting_case(seed, "closing", write, rows=rows, limit=limit, **knobs)


class ClosingWriter(WindowWriter):
    """Writes joins from left to right, in which each optional side is a stream or an inner join."""

    def write_joins(self) -> str:
        """A SELECT over one to three joins, or the UNION ALL of two."""
        rng = self.rng
        text = self._write_chain()
        return f"{text} UNION ALL {self._write_chain()}" if rng.random() < 0.1 else text

    def _write_chain(self) -> str:
        rng, left = self.rng, self._write_side()
        for place in range(rng.choice((1, 1, 2, 2, 3))):
            left = self._join_side(left, self._write_side(), rng.choice(_LATER_JOINS if place else _FIRST_JOINS))
        one, other = self._draw_columns(left)
        terms = [self._write_condition(left)] if rng.random() < 0.3 else []
        if rng.random() < 0.25:
            inner = self._write_stream()
            test = rng.choice(("IN", "NOT IN"))
            terms.append(f"{one} {test} (SELECT {rng.choice(inner.columns)} FROM {inner.text})")
        if rng.random() < 0.25:
            inner = self._write_stream()
            match = f"{rng.choice(inner.columns)} = {rng.choice(left.columns)}"
            terms.append(f"{rng.choice(('', 'NOT '))}EXISTS (SELECT * FROM {inner.text} WHERE {match})")
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        return f"SELECT {one} AS k, {other} AS n FROM {left.text}{where}"

    def _write_side(self) -> RelationText:
        """A stream, or an inner join of two."""
        if self.rng.random() < 0.2:
            inner = self._join_side(self._write_stream(), self._write_stream(), "JOIN")
            return RelationText(f"({inner.text})", inner.columns)
        return self._write_stream()

    def _write_stream(self) -> RelationText:
        while True:
            item = self._write_item(0)
            if "SESSION" not in item.text:
                return item

    def _join_side(self, left: RelationText, right: RelationText, kind: str) -> RelationText:
        rng = self.rng
        terms = [f"{rng.choice(left.columns)} {rng.choice(('=', '=', '=', '<'))} {rng.choice(right.columns)}"]
        both = (*left.columns, *right.columns)
        if rng.random() < 0.2:
            terms.append(self._write_condition(RelationText("", both)))
        shown = left.columns if kind in ("SEMI JOIN", "ANTI JOIN") else both
        return RelationText(f"{left.text} {kind} {right.text} ON {' AND '.join(terms)}", shown)
