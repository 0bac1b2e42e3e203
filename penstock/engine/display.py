"""How an engine and its plans look on a terminal and in a notebook."""

from __future__ import annotations

from penstock.display import format_summary, render_block, render_svg, render_text
from penstock.engine.descriptions import EngineDescriptions
from penstock.plan import ExplainNode, draw_svg


class PlanText(str):
    """An explained plan. It is a text; a notebook also shows its picture."""

    __slots__ = ("_picture",)
    _picture: tuple[str, ExplainNode]

    @classmethod
    def of_query(cls, text: str, name: str, picture: ExplainNode) -> PlanText:
        """The plan of a query and its picture."""
        plan = cls(text)
        plan._picture = name, picture
        return plan

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        name, picture = self._picture
        text = f"<details><summary>text</summary>{render_text(self)}</details>"
        return render_svg(draw_svg({name: picture}), name) + text


def format_engine(descriptions: EngineDescriptions) -> str:
    """An engine in a line."""
    return format_summary("penstock.Engine", {
        "stream": list(descriptions.streams), "table": list(descriptions.tables), "query": list(descriptions.queries)
    })  # fmt: skip


def render_engine(descriptions: EngineDescriptions) -> str:
    """An engine in a notebook."""
    found = (descriptions.streams, descriptions.tables, descriptions.queries)
    return render_block("penstock.Engine", *(each._repr_html_() for each in found if each))
