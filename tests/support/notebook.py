"""A notebook as it shows values: by IPython's protocol."""

from __future__ import annotations

from typing import Any


def show_html(value: Any) -> str:
    """The HTML that a notebook shows for a value."""
    html: str = value._repr_html_()
    return html
