"""A clock that stands still until it is told to move."""

from __future__ import annotations

from datetime import datetime, timedelta


class VirtualClock:
    """Time under the test's control: `sleep` returns at once and moves the clock.

    >>> clock = VirtualClock(datetime(2026, 1, 1))
    >>> clock.sleep(1.5)
    >>> clock.now()
    datetime.datetime(2026, 1, 1, 0, 0, 1, 500000)
    >>> clock.slept
    [1.5]
    """

    def __init__(self, start: datetime = datetime(2000, 1, 1)) -> None:
        self._now = start
        self.slept: list[float] = []

    def now(self) -> datetime:
        """The current instant."""
        return self._now

    def time(self) -> float:
        """Seconds since 1970, like `time.time` in a place where clocks show UTC."""
        return (self._now - datetime(1970, 1, 1)).total_seconds()

    def advance(self, by: timedelta | float) -> datetime:
        """Move on by a duration (a number is seconds) and return the new instant."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError(f"a clock does not go back; advance by {step} was asked for")
        self._now += step
        return self._now

    def sleep(self, seconds: float) -> None:
        """What a sleeping program would see: the time has passed. Naps are kept in `slept`."""
        self.advance(seconds)
        self.slept.append(seconds)
