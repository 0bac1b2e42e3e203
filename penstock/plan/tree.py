"""Plan shapes: binary trees over the aliases of a query, and their text form `((A B) C)`; or an eddy, `{A B C}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import overload

from penstock.errors import InternalError, QueryError


def _quote_alias(alias: str) -> str:
    """An alias as a plan string has it: in backticks if it has blanks or signs of a plan."""
    return f"`{alias}`" if re.search(r"[\s(),{}]", alias) else alias


@dataclass(frozen=True)
class Leaf:
    alias: str

    def __str__(self) -> str:
        return _quote_alias(self.alias)


@dataclass(frozen=True)
class JoinPair:
    """A join of two subtrees."""

    left: Tree
    right: Tree

    @cached_property
    def _hash(self) -> int:
        return hash((self.left, self.right))

    def __hash__(self) -> int:
        """Computed once, because trees are keys of many tables and a hash visits all leaves."""
        return self._hash

    def __str__(self) -> str:
        return f"({self.left} {self.right})"


@dataclass(frozen=True)
class Eddy:
    """A join in no fixed order: the route of a tuple over the windows is chosen at run time."""

    aliases: tuple[str, ...]

    def __str__(self) -> str:
        return f"{{{' '.join(map(_quote_alias, self.aliases))}}}"


Tree = Leaf | JoinPair
PlanShape = Tree | Eddy


def list_leaves(tree: PlanShape) -> tuple[str, ...]:
    """The aliases from left to right."""
    if isinstance(tree, Leaf):
        return (tree.alias,)
    if isinstance(tree, Eddy):
        return tree.aliases
    return list_leaves(tree.left) + list_leaves(tree.right)


def list_joins(tree: Tree) -> Iterator[JoinPair]:
    """The joins of a tree, children first; the last one is the root."""
    if isinstance(tree, JoinPair):
        yield from list_joins(tree.left)
        yield from list_joins(tree.right)
        yield tree


def replace_subtree(tree: Tree, part: Tree) -> Tree:
    """The tree with `part` in place of its subtree over the same leaves."""
    if frozenset(list_leaves(tree)) == frozenset(list_leaves(part)):
        return part
    return (
        JoinPair(replace_subtree(tree.left, part), replace_subtree(tree.right, part))
        if isinstance(tree, JoinPair)
        else tree
    )


@overload
def rename_leaves(tree: Tree, names: Mapping[str, str]) -> Tree: ...
@overload
def rename_leaves(tree: PlanShape, names: Mapping[str, str]) -> PlanShape: ...


def rename_leaves(tree: PlanShape, names: Mapping[str, str]) -> PlanShape:
    """The tree with other aliases."""
    if isinstance(tree, Leaf):
        return Leaf(names[tree.alias])
    if isinstance(tree, Eddy):
        return Eddy(tuple(names[alias] for alias in tree.aliases))
    return JoinPair(rename_leaves(tree.left, names), rename_leaves(tree.right, names))


def require_tree(tree: PlanShape) -> Tree:
    """The shape as a tree, for callers that have refused eddies before: an eddy has no input paths."""
    if isinstance(tree, Eddy):
        raise InternalError("EDDY_HAS_NO_PATHS", f"{tree} is an eddy where a tree is needed", plan=str(tree))
    return tree


def build_left_deep(aliases: Sequence[str]) -> Tree:
    trees: list[Tree] = [Leaf(alias) for alias in aliases]
    return reduce(JoinPair, trees)


def build_right_deep(aliases: Sequence[str]) -> Tree:
    trees: list[Tree] = [Leaf(alias) for alias in reversed(aliases)]
    return reduce(lambda tree, leaf: JoinPair(leaf, tree), trees)


_TOKEN = re.compile(r"\s*(?:([(),])|`([^`]+)`|([^\s(),]+))")


def parse_tree(text: str, aliases: Sequence[str]) -> PlanShape:
    """Parse a plan string; every alias must occur in it exactly once.

    A group of more than two is left-deep: `(A B C)` is `((A B) C)`. Braces around all of them make an eddy.
    """
    braced = isinstance(text, str) and text.strip().startswith("{") and text.strip().endswith("}")
    plain = _parse_groups(text.strip()[1:-1] if braced else text, aliases)
    tree = Eddy(list_leaves(plain)) if braced and isinstance(plain, JoinPair) else plain
    seen = list_leaves(tree)
    doubled = sorted({alias for alias in seen if seen.count(alias) > 1})
    missing = [alias for alias in aliases if alias not in seen]
    if doubled or missing:
        wrong = f"{', '.join(doubled)} twice" if doubled else f"{', '.join(missing)} nowhere"
        raise _make_misfit_error(text, aliases, f"it has {wrong}")
    return tree


def _make_misfit_error(text: str, aliases: Sequence[str], why: str) -> QueryError:
    return QueryError(
        "PLAN_MISFIT",
        f"the plan {text!r} does not fit the query: {why}; "
        f"a plan names each of {', '.join(aliases)} once, as in {build_left_deep(aliases)}",
        plan=text,
    )


def _parse_groups(text: str, aliases: Sequence[str]) -> Tree:
    known = {alias.casefold(): alias for alias in aliases}
    groups: list[list[Tree]] = [[]]
    for symbol, word in _tokenize(text, aliases):
        if symbol == "(":
            groups.append([])
        elif symbol == ")":
            members = groups.pop()
            if not groups or not members:
                raise _make_misfit_error(
                    text, aliases, "its brackets do not match" if members else "it has an empty group"
                )
            groups[-1].append(reduce(JoinPair, members))
        elif word:
            if word.casefold() not in known:
                raise _make_misfit_error(text, aliases, f"it has no stream {word}")
            groups[-1].append(Leaf(known[word.casefold()]))
    if len(groups) != 1:
        raise _make_misfit_error(text, aliases, "its brackets do not match")
    if not groups[0]:
        raise _make_misfit_error(text, aliases, "it is empty")
    return reduce(JoinPair, groups[0])


def _tokenize(text: str, aliases: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(text, str):
        raise _make_misfit_error(repr(text), aliases, "it is not a text")
    for match in _TOKEN.finditer(text):
        if match[3] and ("{" in match[3] or "}" in match[3]):
            raise _make_misfit_error(text, aliases, "braces must enclose all streams or none")
        yield match[1] or "", match[2] or match[3] or ""


def parse_aliases(text: str) -> set[str]:
    """The case-folded aliases in a plan string, whatever its groups are."""
    words = (match[2] or match[3] for match in _TOKEN.finditer(text.replace("{", " ").replace("}", " ")))
    return {word.casefold() for word in words if word}
