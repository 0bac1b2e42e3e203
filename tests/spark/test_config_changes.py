"""Pipeline configurations and their changes as pure values; cells that change in place (no Spark session)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pytest
from cell_runs import check, list_pushes, push_until_committed
from cell_support import Cluster, build_spec
from spark_support import merge_pushes, run_embedded

import penstock as ps
from penstock.adapt import (
    AddQuery,
    AlterQuery,
    DropQuery,
    Migrate,
    QueryCommand,
    SetBudget,
    SetPolicy,
    SetSchedule,
    ShedLoad,
)
from penstock.adapt.commands import Reslice
from penstock.cql import Stream
from penstock.spark.control_command import ControlCommand
from penstock.spark.driver.query_comparison import alter_query
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import ConfigSchedule, PipelineConfig, QuerySpec
from penstock.spark.worker.cell_state import CellCache, OutputRow
from penstock.testing import Case, Push, another_query, difference, random_case


def test_plan_changes() -> None:
    plan = PipelineConfig((QuerySpec("a", "A"),))
    more = AddQuery("b", "B").configure(plan, 3)
    assert more.find_query("b") == QuerySpec("b", "B", None, 3)
    assert Migrate("a", "(x y)").configure(more, 4).find_query("a").plan == "(x y)"
    altered = AlterQuery("A", "C").configure(SetPolicy("a", "jit").configure(more, 4), 5).find_query("a")
    assert altered == QuerySpec("a", "C", None, 5, state="jit")
    assert DropQuery("a").configure(more, 4).queries == (more.find_query("b"),)
    slow = SetSchedule("rr").configure(SetSchedule("bfs").configure(more, 5), 6)
    assert slow.orders == (SetSchedule("rr"),)
    cut = Reslice("cpu-opt", "a").configure(more, 5)
    cut = Reslice("mem-opt", "b").configure(cut, 6)
    assert [order.query for order in cut.orders] == ["a", "b"]
    assert [order.query for order in DropQuery("a").configure(cut, 7).orders] == ["b"]
    assert [order.query for order in Reslice("mem-opt").configure(cut, 7).orders] == [None]
    wrong: tuple[tuple[QueryCommand, str], ...] = (
        (AddQuery("a", "A"), "DUPLICATE_NAME"),
        (AddQuery("A", "A"), "DUPLICATE_NAME"),
        (DropQuery("c"), "UNKNOWN_QUERY"),
        (AlterQuery("c", "C"), "UNKNOWN_QUERY"),
        (DropQuery("a"), "LAST_QUERY"),
        (Migrate("c", ""), "UNKNOWN_QUERY"),
    )
    for command, condition in wrong:
        with pytest.raises(ps.QueryError, match=condition):
            command.configure(plan, 1)


def test_names_are_case_insensitive() -> None:
    plan = PipelineConfig((QuerySpec("a", "A"), QuerySpec("Bé", "B")))
    assert plan.find_query("BÉ").text == "B"
    assert plan.resolve_names(Migrate("bÉ", "x")) == Migrate("Bé", "x")
    assert plan.resolve_names(Reslice("cpu-opt", "A")) == Reslice("cpu-opt", "a")
    assert plan.resolve_names(DropQuery("c")) == DropQuery("c")
    assert plan.resolve_names(SetBudget(3)) == SetBudget(3)


def test_repeated_micro_batch_finds_its_plan() -> None:
    plans = [PipelineConfig((QuerySpec("q", str(number)),)) for number in range(4)]
    schedule = ConfigSchedule(((0, plans[0]),)).with_config(5, plans[1]).with_config(9, plans[2])
    assert [schedule.find_config(batch) for batch in (8, 9, 20)] == [plans[1], plans[2], plans[2]]
    again = schedule.with_config(9, plans[3])  # the previous micro-batch was repeated
    assert (again.find_config(8), again.find_config(9)) == (plans[1], plans[3])
    assert ConfigSchedule.decode(schedule.encode()) == schedule


def test_config_of_the_version_before_is_read() -> None:
    query = {"name": "a", "text": "A", "plan": None, "since": 2, "inlets": [1], "state": None,
             "bound": [["probes", 5.0], ["policy", "lp"]], "shed": None, "derived": False, "added": False,
             "sink": None}  # fmt: skip
    orders = [["budget", {"probes": "9 ms"}], ["reslice", {"slicing": "cpu-opt", "query": "a"}]]
    queries = [query, {**query, "name": "b", "bound": []}]
    config = PipelineConfig.from_json({"queries": queries, "orders": orders, "next_inlet": 2})
    assert config.orders == (SetBudget("9 ms"), Reslice("cpu-opt", "a"))
    assert [each.bound for each in config.queries] == [SetBudget(5.0, "lp", "a"), None]
    assert PipelineConfig.from_json(config.as_json()) == config


def test_plan_budgets_and_policies() -> None:
    plan = PipelineConfig((QuerySpec("a", "A"), QuerySpec("b", "B")))
    own = SetPolicy("b", "jit").configure(ShedLoad("a", "9 ms").configure(plan, 1), 2)
    assert (own.find_query("a").shed, own.find_query("b").state) == ("9 ms", "jit")
    assert own.clear_shedding().find_query("a").shed is None
    bound = SetBudget(5.0, "lp", "a").configure(own, 3)
    assert (bound.find_query("a").bound, bound.find_query("a").shed) == (SetBudget(5.0, "lp", "a"), None)
    assert bound.orders == ()
    assert ConfigSchedule.decode(ConfigSchedule(((0, bound),)).encode()).last == bound
    general = SetBudget("1 second").configure(bound, 4)  # takes the place of all others, as in the engine
    assert general.find_query("a").bound is None
    assert general.orders == (SetBudget("1 second"),)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_query_budget_separates_shared_join(order: tuple[str, str]) -> None:
    """The other query stays exact: while the budget is set, in a rebuilt cell, and after the budget is lifted."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    text = "SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
    case = Case(0, tuple(Stream(name, schema, "ts") for name in "AB"), {}, text, "", ())
    cluster = Cluster(build_spec(case, dict.fromkeys(order, text), 2))
    found: dict[str, list[int]] = {"a": [], "b": []}
    changes = {
        3: SetBudget(4.0, query="a"), 9: SetBudget(None, query="a"), 12: SetBudget(3.0), 15: SetBudget(None),
    }  # fmt: skip
    ways = []
    for number in range(20):
        if number in changes:
            spec = cluster.layout.spec
            cluster.layout = Layout(spec.with_config(changes[number].configure(spec.config, number)))
        if number in (6, 13):
            cluster.caches[0] = CellCache()
        rows = pa.table({"ts": [number] * 40, "k": [at % 10 for at in range(40)]}, schema=schema)
        out = cluster.push(Push({"A": rows, "B": rows}))
        ways.append(cluster.cache_outcomes[-1])
        for name, counts in found.items():
            counts.append(sum(table.num_rows for table in cluster.decode_tables(out, "result", name)))
    full = found["b"][11]
    assert found["b"][5:12] == [full] * 7
    assert all(count < full for count in found["a"][4:9])
    assert found["a"][9:12] == [full] * 3
    assert all(count < full for name in found for count in found[name][13:15])
    assert found["a"][15:] == found["b"][15:] == [full] * 5
    assert ways[3] == "rebuild"  # a change in place would have limited both
    assert ways[6] == ways[13] == "rebuild"
    assert ways.count("rebuild") == 3


def test_cells_obey_commands_to_engines_at_once() -> None:
    """A budget counts in the micro-batch that holds it; a command after an added query waits for that query."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    text = "SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
    case = Case(0, tuple(Stream(name, schema, "ts") for name in "AB"), {}, text, "", ())
    cluster = Cluster(build_spec(case, {"q": text}, 2))
    inbox: dict[int, list[QueryCommand]] = {
        8: [SetBudget(4.0)], 11: [SetBudget(None), Migrate("q", "(B A)"), SetPolicy("q", "jit"), SetSchedule("rr")],
        14: [AddQuery("late", text), SetBudget(4.0)],
    }  # fmt: skip
    counts, last = [], -1
    for number in range(18):
        commands = [ControlCommand(last + place, each) for place, each in enumerate(inbox.get(number, []), 1)]
        last += len(commands)
        rows = pa.table({"ts": [number] * 40, "k": [at % 10 for at in range(40)]}, schema=schema)
        out = cluster.push(Push({"A": rows, "B": rows}), commands=commands)
        counts.append(sum(table.num_rows for table in cluster.decode_tables(out, "result", "q")))
        spec = cluster.layout.spec  # what the driver does at the end of the micro-batch
        config = reduce(lambda config, each: each.command.configure(config, number), commands, spec.config)
        cluster.layout = Layout(spec.with_config(config))
    full = counts[7]
    assert all(count < full for count in counts[8:11])
    assert counts[11:15] == [full] * 4
    assert all(count < full for count in counts[15:])
    assert cluster.cache_outcomes == ["new"] * 2 + ["hit"] * 34


@pytest.mark.parametrize("seed", range(4))
def test_engine_commands_under_faults(seed: int) -> None:
    """Commands in micro-batches that fail and are repeated change no result, also where engines are rebuilt."""
    rng = random.Random(seed)
    case = merge_pushes(random_case(seed, limit=400, late=False), 10)
    queries = {"q": case.query, "q0": another_query(case, 10 * seed)}
    cluster = Cluster(build_spec(case, queries, rng.choice((1, 2, 3))), workers=2)
    outputs: list[OutputRow] = []
    for number, step in enumerate(list_pushes(case)):
        policy, strategy = rng.choice(("eager", "lazy", "jit", "none")), rng.choice(("dfs", "bfs", "rr"))
        chosen: list[QueryCommand] = rng.sample(
            [SetPolicy("q0", policy), SetSchedule(strategy), Migrate("q", case.plan)], rng.randrange(3)
        )
        commands = [ControlCommand(10 * number + place, each) for place, each in enumerate(chosen)]
        outputs += push_until_committed(cluster, step, rng, commands)
        spec = cluster.layout.spec
        config = reduce(lambda config, command: command.configure(config, number), chosen, spec.config)
        cluster.layout = Layout(spec.with_config(config))
    check(seed, case, cluster, outputs, queries)


ALTERED = (
    ("SELECT A.k, A.n FROM A [RANGE 9], B [RANGE 7] WHERE A.k = B.k", "keeps its windows"),
    ("SELECT A.k, B.n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND B.n > 2", "keeps its windows"),
    ("SELECT b.k, a.n FROM A [RANGE 5] AS a, B [NOW] AS b WHERE b.k = a.k AND a.n < 6", "keeps its windows"),
    ("SELECT A.k, COUNT(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY A.k", "keeps its windows"),
    ("SELECT A.k, A.n FROM A [RANGE 9], B [RANGE 10] WHERE A.k = B.k", "holds more rows"),
    ("SELECT A.k, A.n FROM A [RANGE 9], B [ROWS 3] WHERE A.k = B.k", "starts with empty windows"),
    ("SELECT B.k, B.n FROM B [RANGE 9]", "reads other streams"),
)


@pytest.mark.parametrize("number", range(len(ALTERED)))
def test_altered_query_keeps_windows_that_suffice(number: int) -> None:
    """Results that become certain later are those of the new text over all rows, or over those from the change on."""
    rng = random.Random(number)
    old = "SELECT A.k, A.n + B.n AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
    text, outcome = ALTERED[number]
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("n", pa.int64())])

    def draw(at: int) -> pa.Table:
        ts = sorted(at * 5 + rng.randrange(8) for _ in range(10))
        return pa.table({"ts": ts, "k": rng.choices(range(4), k=10), "n": rng.choices(range(9), k=10)}, schema=schema)

    steps = tuple(Push({"A": draw(at), "B": draw(at)}) for at in range(14))
    case = Case(0, tuple(Stream(name, schema, "ts", 4) for name in "AB"), {}, old, "", steps)
    cluster = Cluster(build_spec(case, {"q": old, "other": old}, rng.choice((1, 2, 3))), workers=2)
    parts: list[list[OutputRow]] = []
    for at, step in enumerate(steps):
        if at == 7:
            config, note = alter_query(cluster.layout, AlterQuery("q", text), 1)
            assert outcome in note
            cluster.layout = Layout(cluster.layout.spec.with_config(config))
        parts.append(push_until_committed(cluster, step, rng))
    wanted = [_list_results(case, old, steps, 7), _list_results(case, text, steps, 7)]
    if outcome != "keeps its windows":
        wanted[1] = _list_results(case, text, steps[7:], 0)
    for found, table in zip((parts[:7], parts[7:]), (wanted[0][0], wanted[1][1]), strict=True):
        flat = [row for part in found for row in part]
        tables = [table.slice(0, 0), *cluster.decode_tables(flat, "result", "q")]
        assert difference(pa.concat_tables(tables), table) is None
    whole = [row for part in parts for row in part]
    before, after = wanted[0]
    assert difference(
        pa.concat_tables(cluster.decode_tables(whole, "result", "other")), pa.concat_tables([before, after])
    ) is None  # fmt: skip


def _list_results(case: Case, text: str, steps: Sequence[Push], change: int) -> tuple[pa.Table, pa.Table]:
    """The results of a text over the steps: those before a step, and those from it on."""
    engine = ps.Engine()
    for stream in case.declarations:
        engine.declare(stream)
    engine.query("q", text)
    tables = [engine.push(step.batches)["q"] for step in steps]
    empty = tables[0].slice(0, 0)
    return pa.concat_tables([empty, *tables[:change]]), pa.concat_tables([empty, *tables[change:]])


@pytest.mark.parametrize("seed", range(8))
def test_query_changes_under_faults(seed: int) -> None:
    """Each query gives the results of a query alone over the rows that arrive while it runs or after it was altered."""
    rng = random.Random(seed)
    case = merge_pushes(random_case(seed, limit=500, late=False), 12)
    names = {f"q{number}": another_query(case, 100 + 10 * seed + number) for number in range(3)}
    spec = build_spec(case, {"q": case.query, "q0": names["q0"]}, rng.choice((1, 2, 3)))
    cluster = Cluster(spec, workers=2)
    steps = list_pushes(case)
    changes: list[tuple[int, AddQuery | AlterQuery | Migrate | DropQuery]] = [
        (len(steps) // 4, AddQuery("q1", names["q1"])),
        (len(steps) // 3, Migrate("q", case.plan)),
        (len(steps) // 2, DropQuery("q0")),
        (2 * len(steps) // 3, AddQuery("q2", names["q2"])),
        (5 * len(steps) // 6, AlterQuery("q1", names["q1"])),
    ]
    outputs: list[OutputRow] = []
    for number, step in enumerate(steps):
        for generation, (at, command) in enumerate(changes, 1):
            if at == number:
                spec = cluster.layout.spec
                cluster.layout = Layout(spec.with_config(command.configure(spec.config, generation)))
        outputs += push_until_committed(cluster, step, rng)
    begun = {command.name: at for at, command in changes if isinstance(command, AddQuery)}
    ended, altered = {"q0": len(steps) // 2}, {"q1": 5 * len(steps) // 6}
    for name, text in {"q": case.query, **names}.items():
        first, last = begun.get(name, 0), ended.get(name, len(steps))
        parts = [steps[first : altered.get(name, last)], steps[altered.get(name, last) : last]]
        cases = [Case(case.seed, case.declarations, case.tables, text, "", tuple(part)) for part in parts]
        wanted = pa.concat_tables([run_embedded(alone, {name: text})[name] for alone in cases if alone.steps])
        found = pa.concat_tables([wanted.schema.empty_table(), *cluster.decode_tables(outputs, "result", name)])
        fault = difference(found, wanted)
        assert fault is None, f"seed {seed}, {name}: {text}\n{fault}"
