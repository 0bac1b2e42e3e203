"""A thread that turns samples into decisions. It depends neither on an engine nor on the source of the samples.

An error of the analysis becomes a failed decision. The thread ends when its `DecisionThread` is garbage-collected.
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
"""How many joins are kept in history for each join that runs."""

Analysis = Callable[[Sequence[JoinSample]], list[Decision]]
Deliver = Callable[[list[Decision], float], object]
"""Takes decisions and the processor seconds they took; called in the thread."""


def make_analysis(rules: Rules, actions: Collection[Action] = ACTIONS) -> Analysis:
    """A function that turns samples into decisions on some actions, with the history of each query."""
    seen: dict[str, Observation] = {}
    histories: dict[str, DecisionHistory] = {}

    def analyse(samples: Sequence[JoinSample]) -> list[Decision]:
        decisions: list[Decision] = []
        for sample in samples:
            seen[sample.join] = observe(sample, seen.pop(sample.join, None))
            history = histories.pop(sample.query, DecisionHistory())
            histories[sample.query], found = decide(seen[sample.join], history, rules, actions)
            decisions += found
            for table in (seen, histories):  # the latest come last: the first entries belong to dropped queries
                while len(table) > _KEPT_PER_JOIN * sample.join_count:
                    del table[next(iter(table))]
        return decisions

    return analyse


class DecisionThread:
    """Analyses lists of samples in order. The thread starts with the first list and ends with this object.

    If `deliver` refers to this object, call `close`: it is not garbage-collected before.
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
        """Send samples to the thread, which calls `deliver` once for them."""
        if self.thread is None:
            work = (self._inbox, self._analyse, self._deliver)
            self.thread = Thread(target=_run_thread, args=work, name="penstock controller", daemon=True)
            self.thread.start()
        self._inbox.put(samples)

    def close(self) -> None:
        """End the thread after it has analysed what was sent before."""
        self._finalizer()
        if self.thread is not None:
            self.thread.join()


def _run_thread(inbox: SimpleQueue[Sequence[JoinSample] | None], analyse: Analysis, deliver: Deliver) -> None:
    """The body of the thread: one delivery for every list of samples, until None comes."""
    while (samples := inbox.get()) is not None:
        begin = thread_time()
        try:
            decisions = analyse(samples)
        except Exception as error:  # an error here must not stop queries
            decisions = [make_failed_decision(error, max((sample.time for sample in samples), default=0.0))]
        deliver(decisions, thread_time() - begin)


def make_failed_decision(error: Exception, time: float = 0.0) -> Decision:
    """The decision for an error of the monitor or the analysis."""
    return Decision(None, time, {}, error=f"{type(error).__name__}: {error}")
