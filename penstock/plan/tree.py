"""Plan shapes: binary trees over the aliases of a query, and their text form `((A B) C)`; or an eddy, `{A B C}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import overload

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


@dataclass(frozen=True)
class Eddy:
    """A join in no fixed order: the route of a tuple over the windows is chosen while it runs."""

    aliases: tuple[str, ...]

    def __str__(self) -> str:
        return f"{{{' '.join(self.aliases)}}}"


Tree = Leaf | Pair
Outline = Tree | Eddy


def leaves(tree: Outline) -> tuple[str, ...]:
    """The aliases from left to right."""
    if isinstance(tree, Leaf):
        return (tree.alias,)
    if isinstance(tree, Eddy):
        return tree.aliases
    return leaves(tree.left) + leaves(tree.right)


def subtrees(tree: Tree) -> Iterator[Pair]:
    """The joins of a tree, children first."""
    if isinstance(tree, Pair):
        yield from subtrees(tree.left)
        yield from subtrees(tree.right)
        yield tree


def grafted(tree: Tree, part: Tree) -> Tree:
    """The tree with another shape of the part over the same leaves."""
    if frozenset(leaves(tree)) == frozenset(leaves(part)):
        return part
    return Pair(grafted(tree.left, part), grafted(tree.right, part)) if isinstance(tree, Pair) else tree


@overload
def renamed(tree: Tree, names: Mapping[str, str]) -> Tree: ...
@overload
def renamed(tree: Outline, names: Mapping[str, str]) -> Outline: ...


def renamed(tree: Outline, names: Mapping[str, str]) -> Outline:
    """The tree with other aliases."""
    if isinstance(tree, Leaf):
        return Leaf(names[tree.alias])
    if isinstance(tree, Eddy):
        return Eddy(tuple(names[alias] for alias in tree.aliases))
    return Pair(renamed(tree.left, names), renamed(tree.right, names))


def fixed(tree: Outline) -> Tree:
    """A shape in which every tuple has its paths."""
    assert not isinstance(tree, Eddy), "an eddy is refused where paths are needed"
    return tree


def left_deep(aliases: Sequence[str]) -> Tree:
    trees: list[Tree] = [Leaf(alias) for alias in aliases]
    return reduce(Pair, trees)


def right_deep(aliases: Sequence[str]) -> Tree:
    trees: list[Tree] = [Leaf(alias) for alias in reversed(aliases)]
    return reduce(lambda tree, leaf: Pair(leaf, tree), trees)


_TOKEN = re.compile(r"\s*(?:([(),])|([^\s(),]+))")


def parse_tree(text: str, aliases: Sequence[str]) -> Outline:
    """Read a plan string; every alias must stand in it exactly once.

    A group of more than two is left-deep: `(A B C)` is `((A B) C)`. Braces around all of them make an eddy.
    """
    braced = isinstance(text, str) and text.strip().startswith("{") and text.strip().endswith("}")
    plain = _parse(text.strip()[1:-1] if braced else text, aliases)
    tree = Eddy(leaves(plain)) if braced and isinstance(plain, Pair) else plain
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
    if "{" in text or "}" in text:
        raise _misfit(text, aliases, "braces stand around all streams or none")
    for match in _TOKEN.finditer(text):
        yield match[1] or "", match[2] or ""
