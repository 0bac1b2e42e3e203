"""A clock that moves only when the test moves it."""

from __future__ import annotations

from datetime import datetime, timedelta


class VirtualClock:
    """A clock that the test controls: `sleep` returns at once and moves the clock.

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
        """Seconds since 1970, like `time.time` in the time zone UTC."""
        return (self._now - datetime(1970, 1, 1)).total_seconds()

    def advance(self, by: timedelta | float) -> datetime:
        """Move the clock forward by a duration (a number is seconds) and return the new instant."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError(f"a clock does not go back: cannot advance by {step}")
        self._now += step
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock forward by so many seconds, and record them in `slept`."""
        self.advance(seconds)
        self.slept.append(seconds)
