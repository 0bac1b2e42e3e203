"""Planning as pure functions: shapes, equality classes, placement of predicates, cost and order, pictures."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from penstock.cql import Catalog, Select, Stream, bind_query, build_schema
from penstock.errors import QueryError
from penstock.expr import to_sql
from penstock.plan import (
    JoinGraph,
    JoinPlan,
    RangeCondition,
    Statistics,
    Tree,
    as_mermaid,
    as_text,
    build_join_graph,
    build_left_deep,
    choose_route,
    choose_tree,
    compute_tree_cost,
    describe_join,
    estimate_output_rate,
    estimate_state_rows,
    find_range_condition,
    list_leaves,
    parse_tree,
    plan_join,
)
from penstock.plan.cost import assume_statistics
from penstock.plan.tree import build_right_deep

COLUMNS = build_schema({"ts": "bigint", "x": "bigint", "y": "bigint", "v": "double", "i": "int"})


def bound(text: str) -> Select:
    catalog = Catalog()
    for name in "ABCDE":
        catalog.relations.add(Stream(name, COLUMNS, "ts"))
    body = bind_query(text, catalog).body
    assert isinstance(body, Select)
    return body


def graph_of(select: Select) -> JoinGraph:
    return build_join_graph(tuple(source.alias for source in select.sources), select.where)


def planned(text: str, shape: str) -> JoinPlan:
    select = bound(text)
    graph = graph_of(select)
    tree = parse_tree(shape, graph.aliases)
    return plan_join(graph, select.sources, tuple(item.expr for item in select.items), tree)


# Shapes


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("((A B) C)", "((A B) C)"),
        ("a (b c)", "(A (B C))"),
        ("(A B C)", "((A B) C)"),
        ("A, B, C", "((A B) C)"),
        ("((C) (B A))", "(C (B A))"),
        (" {b, A C}", "{B A C}"),
    ],
)
def test_plan_string_round_trip(text: str, shape: str) -> None:
    tree = parse_tree(text, ["A", "B", "C"])
    assert str(tree) == shape
    assert parse_tree(str(tree), ["A", "B", "C"]) == tree


@pytest.mark.parametrize(
    "text", ["", "(A B", "A B)", "(A B)", "((A B) (C A))", "(A (B D))", "(A () (B C))", "{A B}", "({A B} C)", "{A B C"]
)
def test_plan_mismatch_message(text: str) -> None:
    with pytest.raises(QueryError, match="each of A, B, C once") as caught:
        parse_tree(text, ["A", "B", "C"])
    assert caught.value.condition == "PLAN_MISFIT"


def test_deep_shapes() -> None:
    assert str(build_left_deep("ABCD")) == "(((A B) C) D)"
    assert str(build_right_deep("ABCD")) == "(A (B (C D)))"


# Classes and predicates


def test_equalities_form_join_classes() -> None:
    """Equalities form transitive join classes; other predicates become filters or residuals."""
    graph = graph_of(
        bound(
            "SELECT A.x FROM A, B, C WHERE A.x = B.x AND C.x = B.x AND A.y + 1 = C.y AND A.v > 3 AND A.v < C.v "
            "AND B.x = B.y AND 1 = 2"
        )
    )
    assert [{alias: to_sql(term) for alias, term in c.terms} for c in graph.classes] == [
        {"A": "A.x", "B": "B.x", "C": "C.x"},
        {"A": "A.y + 1", "C": "C.y"},
    ]
    assert [(alias, to_sql(expr)) for alias, expr in graph.filters] == [
        ("A", "A.v > 3.0"), ("B", "B.x = B.y"), ("A", "1 = 2"),
    ]  # fmt: skip
    assert [to_sql(expr) for expr in graph.residuals] == ["A.v < C.v"]


def test_equal_terms_of_one_stream_become_filter() -> None:
    graph = graph_of(bound("SELECT A.x FROM A, B WHERE A.x = B.x AND A.y = B.x"))
    assert len(graph.classes) == 1
    assert [(alias, to_sql(expr)) for alias, expr in graph.filters] == [("A", "A.y = A.x")]


def test_widening_casts_share_join_class() -> None:
    assert len(graph_of(bound("SELECT A.x FROM A, B, C WHERE A.i = B.x AND A.i = C.i")).classes) == 1
    assert len(graph_of(bound("SELECT A.x FROM A, B, C WHERE A.x = B.x AND A.x = C.v")).classes) == 2


def test_residual_at_lowest_node_with_columns() -> None:
    plan = planned(
        "SELECT A.x FROM A, B, C WHERE A.x = B.x AND B.x = C.x AND A.v < B.v AND A.v + B.v < C.v", "((A B) C)"
    )
    low, high = plan.nodes()
    assert [to_sql(expr) for expr in low.residuals] == ["A.v < B.v"]
    assert [to_sql(expr) for expr in high.residuals] == ["A.v + B.v < C.v"]
    assert plan.leaves[1].columns == ("v",)
    assert low.key == high.key == (0,)


# Ranges


@pytest.mark.parametrize(
    ("where", "low", "high"),
    [
        ("ABS(A.v - B.v) < 2", -2, 2),
        ("A.v BETWEEN B.v - 1 AND B.v + 3", -1, 3),
        ("A.v < B.v", -float("inf"), 0),
        ("B.v + 1 <= A.v", 1, float("inf")),
        ("A.v - 5 > B.v AND A.v < B.v + 7", 5, 7),
    ],
)
def test_inequalities_give_range_bounds(where: str, low: float, high: float) -> None:
    condition = find_range_condition(next(planned(f"SELECT A.x FROM A, B WHERE {where}", "(A B)").nodes()))
    assert condition is not None
    assert (condition.left.alias, condition.right.alias) == ("A", "B")
    assert (condition.low, condition.high) == pytest.approx((low, high))


@pytest.mark.parametrize("where", ["A.x <> B.x", "A.v * 2 < B.v", "A.v + B.v < 3", "A.x = 1 OR B.x = 2"])
def test_other_predicates_give_no_range_bounds(where: str) -> None:
    assert find_range_condition(next(planned(f"SELECT A.x FROM A, B WHERE {where}", "(A B)").nodes())) is None


def test_conditions_compare_by_value() -> None:
    node = next(planned("SELECT A.x FROM A, B WHERE A.v < B.v", "(A B)").nodes())
    assert isinstance(find_range_condition(node), RangeCondition)
    assert find_range_condition(node) == find_range_condition(node)


# Cost and order

CHAIN = bound(
    "SELECT A.x FROM A [RANGE 10], B [RANGE 10], C [RANGE 10], D [RANGE 10] WHERE A.x=B.x AND B.y=C.y AND C.i=D.i"
)


def every_tree(aliases: tuple[str, ...]) -> list[Tree]:
    if len(aliases) == 1:
        return [build_left_deep(aliases)]
    found = {}
    for order in permutations(aliases):
        for cut in range(1, len(order)):
            for left in every_tree(order[:cut]):
                for right in every_tree(order[cut:]):
                    tree = parse_tree(f"({left} {right})", aliases)
                    found[str(tree)] = tree
    return list(found.values())


@pytest.mark.parametrize("seed", range(10))
def test_best_tree_is_cheapest(seed: int) -> None:
    rng, graph = random.Random(seed), graph_of(CHAIN)
    stats = Statistics(
        {alias: rng.uniform(0.1, 10) for alias in "ABCD"},
        {alias: rng.uniform(1, 100) for alias in "ABCD"},
        {c.id: rng.uniform(1, 100) for c in graph.classes},
    )
    best = compute_tree_cost(choose_tree(graph, stats), graph, stats)
    assert best == pytest.approx(min(compute_tree_cost(tree, graph, stats) for tree in every_tree(graph.aliases)))


def test_best_tree_shape_and_no_cross_products() -> None:
    graph = graph_of(CHAIN)
    stats = assume_statistics(graph, CHAIN.sources, {})
    assert str(choose_tree(graph, stats, "left-deep")) == "(((A B) C) D)"
    assert str(choose_tree(graph, stats, "bushy")) == "((A B) (C D))"
    right = choose_tree(graph, stats, "right-deep")
    assert sorted(list_leaves(right)) == ["A", "B", "C", "D"]
    star = bound("SELECT A.x FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.x = C.x AND B.y = C.y")
    graph = graph_of(star)
    assert "(A B)" not in str(choose_tree(graph, assume_statistics(graph, star.sources, {})))


def test_cost_model_state_rows_and_output_rate() -> None:
    graph = graph_of(CHAIN)
    stats = Statistics(dict.fromkeys("ABCD", 2.0), dict.fromkeys("ABCD", 10.0), dict.fromkeys(range(3), 5.0))
    assert estimate_state_rows(frozenset("AB"), graph, stats) == 10 * 10 / 5
    assert estimate_output_rate(frozenset("AB"), graph, stats) == 2 * 20 / 10 + 2 * 20 / 10


# Pictures


def test_explain_formats_show_keys_and_windows() -> None:
    plan = planned("SELECT A.x FROM A [ROWS 3], B [RANGE 5], C WHERE A.x = B.x AND A.v < C.v AND B.y > 0", "((A B) C)")
    text = as_text(describe_join(plan, {"(A B)": (("state", "keeps its rows"),)}))
    for part in ("on: A.x = B.x", "where: A.v < C.v", "[ROWS 3]", "[RANGE 5]", "[UNBOUNDED]", "filter: B.y > 0",
                 "state: keeps its rows", "cross product"):  # fmt: skip
        assert part in text
    mermaid = as_mermaid(describe_join(plan, {}))
    assert mermaid.startswith("flowchart BT")
    assert "A.v &lt; C.v" in mermaid


# Routes


def test_cheapest_route() -> None:
    classes = {"A": frozenset({0}), "B": frozenset({0, 1}), "C": frozenset({1, 2}), "D": frozenset({2})}
    costs = {("B", (0,)): 3.0, ("C", ()): 100.0, ("D", ()): 50.0, ("C", (1,)): 2.0, ("D", (2,)): 0.1}
    assert choose_route("A", classes, lambda *step: costs[step]) == ("A", "B", "C", "D")
    costs |= {("D", ()): 1.0, ("B", (0,)): 2.0, ("C", (2,)): 0.5, ("B", (0, 1)): 1.0}
    assert choose_route("A", classes, lambda *step: costs[step]) == ("A", "D", "C", "B")


def test_route_applies_each_predicate_once() -> None:
    plan = planned("SELECT A.x FROM A, B, C WHERE A.x = B.x AND A.v < C.v AND B.v < C.v", "{A B C}")
    path = plan.root.plan_route(("C", "A", "B"))
    assert str(path.tree) == "((C A) B)"
    assert [to_sql(term) for term in path.left.residuals] == ["A.v < C.v"]
    assert [to_sql(term) for term in path.residuals] == ["B.v < C.v"]
