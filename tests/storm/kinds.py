"""The kinds of seeds that `children.py` runs, by name."""

from __future__ import annotations

from collections.abc import Callable

from cells import check_cells
from storm import check_embedded

CHECKS: dict[str, Callable[[int], object]] = {"embedded": check_embedded, "cells": check_cells}
