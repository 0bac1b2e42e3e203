"""The analyst: a thread that turns samples into decisions. It knows no engine, nor where samples come from.

An error of the analysis becomes a decision that failed. The thread ends with whoever holds its analyst.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue
from threading import Thread
from time import thread_time
from weakref import finalize

from penstock.adapt.commands import ACTIONS, Action
from penstock.adapt.decide import Decision, DecisionHistory, Rules, decide
from penstock.adapt.monitor import JoinSample, Observation, observe

_KEPT_PER_JOIN = 4
"""How many joins are remembered for each there is."""

Analysis = Callable[[Sequence[JoinSample]], list[Decision]]
Deliver = Callable[[list[Decision], float], object]
"""Takes decisions, and the processor's seconds that they took; called in the thread."""


def make_analysis(rules: Rules, actions: Collection[Action] = ACTIONS) -> Analysis:
    """A function that turns samples into decisions on some matters and remembers what it must."""
    seen: dict[str, Observation] = {}
    memories: dict[str, DecisionHistory] = {}

    def analyse(samples: Sequence[JoinSample]) -> list[Decision]:
        decisions: list[Decision] = []
        for sample in samples:
            seen[sample.join] = observe(sample, seen.pop(sample.join, None))
            memory = memories.pop(sample.query, DecisionHistory())
            memories[sample.query], found = decide(seen[sample.join], memory, rules, actions)
            decisions += found
            for table in (seen, memories):  # the latest come last: what goes is of queries that were dropped
                while len(table) > _KEPT_PER_JOIN * sample.join_count:
                    del table[next(iter(table))]
        return decisions

    return analyse


class DecisionThread:
    """Analyses what it is sent, list by list. The thread starts with the first, and ends with the analyst.

    If `deliver` holds the analyst, that end is `close`.
    """

    def __init__(self, analyse: Analysis, deliver: Deliver) -> None:
        self._analyse = analyse
        self._deliver = deliver
        self._inbox: SimpleQueue[Sequence[JoinSample] | None] = SimpleQueue()
        self._finalizer = finalize(self, self._inbox.put, None)
        self.thread: Thread | None = None

    @property
    def open(self) -> bool:
        return self._finalizer.alive

    def send(self, samples: Sequence[JoinSample]) -> None:
        """Have samples analysed: `deliver` is called once for them."""
        if self.thread is None:
            work = (self._inbox, self._analyse, self._deliver)
            self.thread = Thread(target=_run_thread, args=work, name="penstock controller", daemon=True)
            self.thread.start()
        self._inbox.put(samples)

    def close(self) -> None:
        """End the thread; what was sent before is still analysed."""
        self._finalizer()
        if self.thread is not None:
            self.thread.join()


def _run_thread(inbox: SimpleQueue[Sequence[JoinSample] | None], analyse: Analysis, deliver: Deliver) -> None:
    """The thread: an answer for every list of samples, until None comes."""
    while (samples := inbox.get()) is not None:
        begin = thread_time()
        try:
            decisions = analyse(samples)
        except Exception as error:  # whatever it is, it must not reach a query
            decisions = [make_failed_decision(error, max((sample.time for sample in samples), default=0.0))]
        deliver(decisions, thread_time() - begin)


def make_failed_decision(error: Exception, time: float = 0.0) -> Decision:
    """The decision for an error of the monitor or the analysis."""
    return Decision(None, time, {}, error=f"{type(error).__name__}: {error}")
