"""The page: engines and runs in a browser, and pictures of query graphs. The server needs the extra `penstock[ui]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import ResourceError

if TYPE_CHECKING:
    from penstock.engine import Engine, EngineStatus
    from penstock.spark.run import Run
    from penstock.spark.spec import PipelineSpec
    from penstock.web.monitor import PageMonitor
    from penstock.web.server import PageServer

__all__ = ["draw_graph", "draw_spec", "record_run", "require_server", "serve_engine", "serve_folder", "serve_run"]

DEFAULT_INTERVAL = 1.0


def draw_graph(status: EngineStatus, sinks: Mapping[str, str] | None = None) -> str:
    """The query graph of a status as one SVG picture. `sinks` name the sinks of queries."""
    from penstock.web import picture  # noqa: PLC0415 - the engine loads slowly

    return picture.draw_graph(status, sinks)


def draw_spec(spec: PipelineSpec) -> str:
    """The query graph of a pipeline as one SVG picture."""
    from penstock.web import picture, run_source  # noqa: PLC0415 - the engine loads slowly

    return picture.draw_graph(run_source.build_spec_status(spec))


def require_server() -> None:
    """Refuse to serve a page without the packages for it."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        message = f"the page needs {' and '.join(missing)}: pip install 'penstock[ui]'"
        raise ResourceError("PAGE_NEEDS_EXTRAS", message, missing=missing)


def _serve(source: Any, port: int, interval: float, save: Callable[[bytes], object] | None = None) -> PageServer:
    from penstock.web.server import PageServer  # noqa: PLC0415 - an extra

    if not isinstance(interval, int | float) or isinstance(interval, bool) or not interval > 0:
        raise ResourceError("BAD_INTERVAL", f"the time between two readings is above 0 seconds, not {interval!r}")
    return PageServer(source, port, interval, save)


def serve_engine(engine: Engine, port: int = 0, interval: float = DEFAULT_INTERVAL) -> PageServer:
    """Show an engine of this process."""
    require_server()
    from penstock.web.sources import EngineSource  # noqa: PLC0415 - loads slowly

    return _serve(EngineSource(engine), port, interval)


def serve_run(run: Run, port: int = 0, interval: float = DEFAULT_INTERVAL) -> PageServer:
    """Show a run of this process, and save what the page shows in its checkpoint."""
    require_server()
    from penstock.web.run_source import RunSource  # noqa: PLC0415 - loads slowly

    return _serve(RunSource(run), port, interval, _make_saver(run.checkpointLocation))


def record_run(run: Run, interval: float = 2 * DEFAULT_INTERVAL) -> PageMonitor:
    """Save what the page would show of a run in its checkpoint, for `penstock ui`, until the monitor is closed."""
    from penstock.web.monitor import PageMonitor  # noqa: PLC0415 - loads slowly
    from penstock.web.run_source import RunSource  # noqa: PLC0415

    monitor = PageMonitor(RunSource(run), interval, _make_saver(run.checkpointLocation))
    monitor.start()
    return monitor


def _make_saver(checkpoint: str) -> Callable[[bytes], object]:
    from penstock.spark.storage import Folder  # noqa: PLC0415 - loads slowly
    from penstock.web.sources import RECORD_FILE  # noqa: PLC0415

    folder = Folder(checkpoint)
    return lambda content: folder.write(RECORD_FILE, content)


def serve_folder(path: str, port: int = 0, interval: float = DEFAULT_INTERVAL) -> PageServer:
    """Show what a run saved in its checkpoint."""
    require_server()
    from penstock.web.sources import FolderSource  # noqa: PLC0415 - loads slowly

    return _serve(FolderSource(path), port, interval)
