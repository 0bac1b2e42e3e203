"""Functions of one text, for calls whose parameters are columns or beyond what Arrow's kernels take."""

from __future__ import annotations

from typing import Literal

MAX_TEXT = 1 << 20  # characters that a function makes at most; beyond that the result is NULL


def slice_text(text: str, start: int, length: int | None = None) -> str:
    """SUBSTRING: the first character is 1, the last -1; 0 counts as 1."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + max(length, 0)
    return text[max(first, 0) : max(last, 0)]


def find_position(text: str, sought: str) -> int:
    return text.find(sought) + 1


def strip_text(text: str, characters: str, side: Literal["both", "left", "right"]) -> str:
    if not characters:
        return text
    return {"both": text.strip, "left": text.lstrip, "right": text.rstrip}[side](characters)


def extract_part(text: str, separator: str, number: int) -> str | None:
    """SPLIT_PART: the parts are counted from 1, or from the end by negative numbers."""
    if number == 0:
        return None
    parts = text.split(separator) if separator else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def pad_left(text: str, width: int, padding: str = " ") -> str | None:
    missing = _build_padding(width - len(text), padding)
    return None if missing is None else missing + text[: max(width, 0)]


def pad_right(text: str, width: int, padding: str = " ") -> str | None:
    missing = _build_padding(width - len(text), padding)
    return None if missing is None else text[: max(width, 0)] + missing


def _build_padding(length: int, padding: str) -> str | None:
    if length > MAX_TEXT:
        return None
    return (padding * (length // len(padding) + 1))[:length] if length > 0 and padding else ""
