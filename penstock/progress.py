"""Progress of long work: a bar on a terminal, plain lines elsewhere.

Progress goes to stderr, so that the output of a command on stdout can be piped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ProgressStep = Callable[[str], None]


@contextmanager
def show_progress(
    title: str, total: int, console: Console | None = None, *, lines: bool = True
) -> Iterator[ProgressStep]:
    """Yields `step(label)`. Call it at the start of each of `total` pieces of work.

    `lines=False` is for work that prints its own lines: it shows the bar on a terminal, and nothing elsewhere.
    """
    console = console or Console(stderr=True)
    if console.is_terminal:
        with _show_bar(title, total, console) as step:
            yield step
        return

    done = 0

    def print_line(label: str) -> None:
        nonlocal done
        done += 1
        if lines:
            console.print(f"{title} {done}/{total}: {label}", highlight=False, soft_wrap=True, markup=False)

    yield print_line


@contextmanager
def _show_bar(title: str, total: int, console: Console) -> Iterator[ProgressStep]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        begun = False

        def advance(label: str) -> None:
            nonlocal begun
            progress.update(task, advance=int(begun), description=f"{title}: {label}")
            begun = True

        yield advance
        progress.update(task, completed=total)
