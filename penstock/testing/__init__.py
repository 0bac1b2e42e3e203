"""The public testing kit: an oracle, random cases from a seed, in-memory sources and sinks, and a virtual clock.

```python
import penstock as ps
from penstock.testing import random_case, run, same_rows

case = random_case(42)
same_rows(run(lambda: ps.Engine(state="eager"), case, plan=case.plan), case.expected)
```
"""

from penstock.testing.case import Advance, Case, Push, Step
from penstock.testing.clock import VirtualClock
from penstock.testing.combinations import TooManyRows
from penstock.testing.compare import difference, same_rows
from penstock.testing.duckdb_oracle import expected_by_duckdb
from penstock.testing.generate import Knobs, another_query, random_case
from penstock.testing.memory import MemorySink, MemorySource
from penstock.testing.operator_cases import random_operators_case, random_operators_text
from penstock.testing.oracle import expected
from penstock.testing.query_text import random_plan
from penstock.testing.runner import declare, run, run_all
from penstock.testing.shrink import shrink

__all__ = [
    "Advance",
    "Case",
    "Knobs",
    "MemorySink",
    "MemorySource",
    "Push",
    "Step",
    "TooManyRows",
    "VirtualClock",
    "another_query",
    "declare",
    "difference",
    "expected",
    "expected_by_duckdb",
    "random_case",
    "random_operators_case",
    "random_operators_text",
    "random_plan",
    "run",
    "run_all",
    "same_rows",
    "shrink",
]
