"""Plan shapes: binary trees over the aliases of a query, and their text form `((A B) C)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from penstock.errors import QueryError


@dataclass(frozen=True)
class Leaf:
    alias: str

    def __str__(self) -> str:
        return self.alias


@dataclass(frozen=True)
class Pair:
    """A join of two subtrees."""

    left: Tree
    right: Tree

    @cached_property
    def _hash(self) -> int:
        return hash((self.left, self.right))

    def __hash__(self) -> int:
        """Made once: trees are keys of many tables, and a hash goes down to all leaves."""
        return self._hash

    def __str__(self) -> str:
        return f"({self.left} {self.right})"


Tree = Leaf | Pair


def leaves(tree: Tree) -> tuple[str, ...]:
    """The aliases from left to right."""
    if isinstance(tree, Leaf):
        return (tree.alias,)
    return leaves(tree.left) + leaves(tree.right)


def left_deep(aliases: Sequence[str]) -> Tree:
    trees: list[Tree] = [Leaf(alias) for alias in aliases]
    return reduce(Pair, trees)


def right_deep(aliases: Sequence[str]) -> Tree:
    trees: list[Tree] = [Leaf(alias) for alias in reversed(aliases)]
    return reduce(lambda tree, leaf: Pair(leaf, tree), trees)


_TOKEN = re.compile(r"\s*(?:([(),])|([^\s(),]+))")


def parse_tree(text: str, aliases: Sequence[str]) -> Tree:
    """Read a plan string; every alias must stand in it exactly once.

    A group of more than two is left-deep: `(A B C)` is `((A B) C)`.
    """
    tree = _parse(text, aliases)
    seen = leaves(tree)
    doubled = sorted({alias for alias in seen if seen.count(alias) > 1})
    missing = [alias for alias in aliases if alias not in seen]
    if doubled or missing:
        wrong = f"{', '.join(doubled)} twice" if doubled else f"{', '.join(missing)} nowhere"
        raise _misfit(text, aliases, f"it has {wrong}")
    return tree


def _misfit(text: str, aliases: Sequence[str], why: str) -> QueryError:
    return QueryError(
        "PLAN_MISFIT",
        f"the plan {text!r} does not fit the query: {why}; "
        f"a plan names each of {', '.join(aliases)} once, as in {left_deep(aliases)}",
        plan=text,
    )


def _parse(text: str, aliases: Sequence[str]) -> Tree:
    known = {alias.casefold(): alias for alias in aliases}
    groups: list[list[Tree]] = [[]]
    for symbol, word in _tokens(text, aliases):
        if symbol == "(":
            groups.append([])
        elif symbol == ")":
            members = groups.pop()
            if not groups or not members:
                raise _misfit(text, aliases, "its brackets do not match" if members else "it has an empty group")
            groups[-1].append(reduce(Pair, members))
        elif word:
            if word.casefold() not in known:
                raise _misfit(text, aliases, f"it has no stream {word}")
            groups[-1].append(Leaf(known[word.casefold()]))
    if len(groups) != 1:
        raise _misfit(text, aliases, "its brackets do not match")
    if not groups[0]:
        raise _misfit(text, aliases, "it is empty")
    return reduce(Pair, groups[0])


def _tokens(text: str, aliases: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(text, str):
        raise _misfit(repr(text), aliases, "it is not a text")
    for match in _TOKEN.finditer(text):
        yield match[1] or "", match[2] or ""
