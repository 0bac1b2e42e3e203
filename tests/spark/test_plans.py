"""Plans and their changes as pure values; cells that change in place (no Spark session)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from cellkit import Cluster, spec_of
from sparkkit import embedded, in_batches
from test_cells import pushes, until_committed

import penstock as ps
from penstock.spark.keeper import Output
from penstock.spark.layout import Layout
from penstock.spark.plans import Plan, QuerySpec, Schedule
from penstock.testing import Case, another_query, difference, random_case


def test_changes_of_a_plan() -> None:
    plan = Plan((QuerySpec("a", "A"),))
    more = plan.changed("add", {"name": "b", "text": "B", "plan": None}, 3)
    assert more.query("b") == QuerySpec("b", "B", None, 3)
    assert more.changed("migrate", {"name": "a", "plan": "(x y)"}, 4).query("a").plan == "(x y)"
    assert more.changed("drop", {"name": "a"}, 4).queries == (more.query("b"),)
    slow = more.changed("schedule", {"strategy": "bfs"}, 5).changed("schedule", {"strategy": "rr"}, 6)
    assert [dict(order.arguments) for order in slow.orders] == [{"strategy": "rr"}]
    for do, arguments, condition in (
        ("add", {"name": "a", "text": "A"}, "DUPLICATE_NAME"),
        ("drop", {"name": "c"}, "UNKNOWN_QUERY"),
        ("drop", {"name": "a"}, "LAST_QUERY"),
        ("migrate", {"name": "c", "plan": ""}, "UNKNOWN_QUERY"),
    ):
        with pytest.raises(ps.QueryError, match=condition):
            plan.changed(do, arguments, 1)


def test_a_repeated_micro_batch_finds_its_plan() -> None:
    plans = [Plan((QuerySpec("q", str(number)),)) for number in range(4)]
    schedule = Schedule(((0, plans[0]),)).followed_by(5, plans[1]).followed_by(9, plans[2])
    assert [schedule.at(batch) for batch in (8, 9, 20)] == [plans[1], plans[2], plans[2]]
    again = schedule.followed_by(9, plans[3])  # the micro-batch before was repeated
    assert (again.at(8), again.at(9)) == (plans[1], plans[3])
    assert Schedule.unpacked(schedule.packed()) == schedule


@pytest.mark.parametrize("seed", range(8))
def test_queries_come_go_and_change_their_plans_among_faults(seed: int) -> None:
    """Each query answers as if it were alone with the rows of its time."""
    rng = random.Random(seed)
    case = in_batches(random_case(seed, limit=500, late=False), 12)
    names = {f"q{number}": another_query(case, 100 + 10 * seed + number) for number in range(3)}
    spec = spec_of(case, {"q": case.query, "q0": names["q0"]}, rng.choice((1, 2, 3)))
    cluster = Cluster(spec, workers=2)
    steps = pushes(case)
    changes = [
        (len(steps) // 4, "add", {"name": "q1", "text": names["q1"], "plan": None}),
        (len(steps) // 3, "migrate", {"name": "q", "plan": case.plan}),
        (len(steps) // 2, "drop", {"name": "q0"}),
        (2 * len(steps) // 3, "add", {"name": "q2", "text": names["q2"], "plan": None}),
    ]
    outputs: list[Output] = []
    for number, step in enumerate(steps):
        for generation, (at, do, arguments) in enumerate(changes, 1):
            if at == number:
                spec = cluster.layout.spec
                cluster.layout = Layout(spec.planned(spec.plan.changed(do, arguments, generation)))
        outputs += until_committed(cluster, step, rng)
    begun = {arguments["name"]: at for at, do, arguments in changes if do == "add"}
    ended = {"q0": len(steps) // 2}
    for name, text in {"q": case.query, **names}.items():
        part = steps[begun.get(name, 0) : ended.get(name, len(steps))]
        alone = Case(case.seed, case.declarations, case.tables, text, "", tuple(part))
        wanted = embedded(alone, {name: text})[name]
        found = pa.concat_tables([wanted.schema.empty_table(), *cluster.tables(outputs, "result", name)])
        fault = difference(found, wanted)
        assert fault is None, f"seed {seed}, {name}: {text}\n{fault}"
