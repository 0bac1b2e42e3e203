"""Requests to a running pipeline from another process: JSON files in a folder of its checkpoint.

A run that takes requests renews a lease file while it lasts. `RequestClient` writes a request for the run that has the
lease and waits for the answer. `RequestFolder` is the other side, which the run reads. Files are written atomically.

Law: a request is one of a fixed list with checked arguments. It is executed at most once, by the run it was written
for. A file that is not a request is set aside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, get_args, get_type_hints
from uuid import uuid4

from penstock.errors import DataError, InternalError, PenstockError, QueryError, ResourceError, UnsupportedError
from penstock.spark.storage import Folder

REQUESTS_FOLDER = "requests"
_LEASE = "lease.json"
_LEASE_SECONDS = 15.0
"""A lease that is older has ended with its process."""
_POLL_SECONDS = 0.1
_METADATA = "penstock.json"


@dataclass(frozen=True)
class Add:
    """Add the queries of a script: CREATE SINK, INSERT INTO and SELECT statements."""

    key: ClassVar[str] = "add"
    script: str
    mode: str | None = None


@dataclass(frozen=True)
class AddOne:
    """Add one query with a sink."""

    key: ClassVar[str] = "add-one"
    name: str
    text: str
    sink: str
    """The format of the sink."""
    path: str | None = None
    plan: str | None = None
    mode: str | None = None


@dataclass(frozen=True)
class Drop:
    key: ClassVar[str] = "drop"
    name: str


@dataclass(frozen=True)
class Alter:
    key: ClassVar[str] = "alter"
    name: str
    text: str
    plan: str | None = None


@dataclass(frozen=True)
class MigratePlan:
    key: ClassVar[str] = "migrate"
    name: str
    plan: str


@dataclass(frozen=True)
class ChangeBudget:
    key: ClassVar[str] = "budget"
    probes: float | int | str | None
    policy: str | None = None
    query: str | None = None


@dataclass(frozen=True)
class Schedule:
    key: ClassVar[str] = "schedule"
    strategy: str


@dataclass(frozen=True)
class Policy:
    key: ClassVar[str] = "policy"
    name: str
    state: str


@dataclass(frozen=True)
class Status:
    key: ClassVar[str] = "status"


@dataclass(frozen=True)
class Stop:
    key: ClassVar[str] = "stop"


Request = Add | AddOne | Drop | Alter | MigratePlan | ChangeBudget | Schedule | Policy | Status | Stop
_BY_KEY: dict[str, type[Request]] = {kind.key: kind for kind in get_args(Request)}


def decode_request(entry: Any) -> Request:
    """The request of a JSON value; BAD_REQUEST if it is none."""
    key = entry.get("do") if isinstance(entry, Mapping) else None
    if not isinstance(key, str) or key not in _BY_KEY:
        raise QueryError("BAD_REQUEST", f"a request is one of {', '.join(_BY_KEY)}")
    kind, given = _BY_KEY[key], entry.get("arguments")
    if not isinstance(given, Mapping):
        raise QueryError("BAD_REQUEST", f"{kind.key}: the arguments are an object of JSON")
    try:
        request = kind(**given)
    except TypeError as error:
        raise QueryError("BAD_REQUEST", f"{kind.key} does not take these arguments: {error}") from error
    types = get_type_hints(kind)
    for each in fields(kind):
        value = getattr(request, each.name)
        if isinstance(value, bool) or not isinstance(value, types[each.name]):
            raise QueryError("BAD_REQUEST", f"{kind.key}: {each.name} cannot be {value!r}")
    return request


@dataclass(frozen=True)
class Lease:
    """Says that a run takes requests. `session` is new with every start; `time` is that of the last renewal."""

    session: str
    time: float

    @property
    def is_valid(self) -> bool:
        return abs(time.time() - self.time) < _LEASE_SECONDS


@dataclass(frozen=True)
class PendingRequest:
    """A request file: its id, and the request or the reason why it is refused."""

    id: str
    request: Request | None
    error: PenstockError | None = None


@dataclass
class RequestFolder:
    """The folder of requests, as a run sees it."""

    checkpoint: Folder
    session: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        root = self.checkpoint.child(REQUESTS_FOLDER)
        self._root, self._open = root, root.child("open")
        self._answers, self._rejected = root.child("answers"), root.child("rejected")

    def begin(self) -> None:
        """Remove what an earlier run left, and take the lease."""
        self._open.delete_all()
        self._answers.delete_all()
        self.renew_lease()

    def renew_lease(self) -> None:
        self._root.write(_LEASE, json.dumps(asdict(Lease(self.session, time.time()))).encode())

    def end(self) -> None:
        self._root.remove(_LEASE)

    def take(self) -> list[PendingRequest]:
        """Read the request files and remove them."""
        try:
            names = [name for name in self._open.list_names() if not name.startswith((".", "_"))]
        except FileNotFoundError:  # a file was moved while the folder was listed; the next call finds it
            return []
        files = ((name, self._open.read(name)) for name in names)
        return [self._take_file(name, content) for name, content in files if content is not None]

    def _take_file(self, name: str, content: bytes) -> PendingRequest:
        number = name.removesuffix(".json")
        try:
            entry = json.loads(content)
            request = decode_request(entry)
            if entry.get("session") != self.session:
                raise QueryError("REQUEST_EXPIRED", "the request was made for another start of the run; repeat it")
            found = PendingRequest(number, request)
        except (ValueError, RecursionError) as error:
            self._rejected.write(name, content)
            found = PendingRequest(number, None, QueryError("BAD_REQUEST", f"a request is JSON: {error}"))
        except QueryError as error:
            self._rejected.write(name, content)
            found = PendingRequest(number, None, error)
        self._open.remove(name)
        return found

    def answer(self, number: str, result: Mapping[str, Any]) -> None:
        self._answers.write(f"{number}.json", json.dumps({"result": result}, default=str).encode())

    def answer_error(self, number: str, error: PenstockError) -> None:
        said = {"kind": _find_kind(error).__name__, "class": error.condition, "message": error.message}
        self._answers.write(f"{number}.json", json.dumps({"error": said}).encode())


class RequestClient:
    """Sends requests to the run that is active on a checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = Folder(checkpoint)
        self._root = self._checkpoint.child(REQUESTS_FOLDER)

    def send(self, request: Request, seconds: float) -> dict[str, Any]:
        """Send a request and wait for its result; raises the error that the run answers."""
        lease, number = self._find_lease(), uuid4().hex
        entry = {"do": request.key, "arguments": asdict(request), "session": lease.session}
        self._root.child("open").write(f"{number}.json", json.dumps(entry).encode())
        answer = None
        try:
            answer = self._wait(lambda: self._root.child("answers").read(f"{number}.json"), seconds)
        finally:
            if answer is None:  # the caller does not wait any longer; an interrupt counts as well
                self._root.child("open").remove(f"{number}.json")
        if answer is None:
            message = f"no answer after {seconds:g} seconds; the run may be in a long micro-batch, see `status`"
            raise ResourceError("NO_ANSWER", message, checkpoint=self._checkpoint.path)
        self._root.child("answers").remove(f"{number}.json")
        return _read_answer(answer)

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until no run is active; False after a time-out."""
        return self._wait(lambda: None if self._has_lease() else b"ended", seconds) is not None

    def _wait(self, read: Callable[[], bytes | None], seconds: float) -> bytes | None:
        end = time.monotonic() + seconds
        while (found := read()) is None and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        return found

    def _has_lease(self) -> bool:
        lease = self._read_lease()
        return lease is not None and lease.is_valid

    def _find_lease(self) -> Lease:
        place = self._checkpoint.path
        lease = self._read_lease()
        if lease is not None and lease.is_valid:
            return lease
        if lease is None and self._checkpoint.read(_METADATA) is None:
            message = f"{place} is not a checkpoint of a run; `penstock run` prints the folder at its start"
            raise QueryError("NO_CHECKPOINT", message, checkpoint=place)
        message = f"no run is active on {place}; start one with `penstock run SCRIPT --checkpoint {place}`"
        raise QueryError("NO_ACTIVE_RUN", message, checkpoint=place)

    def _read_lease(self) -> Lease | None:
        content = self._root.read(_LEASE)
        try:
            return None if content is None else Lease(**json.loads(content))
        except (ValueError, TypeError) as error:
            message = f"{self._root.path}/{_LEASE} is not a lease: {error}; remove it"
            raise QueryError("BAD_LEASE", message) from error


_KINDS = (QueryError, DataError, UnsupportedError, ResourceError, InternalError, PenstockError)


def _find_kind(error: PenstockError) -> type[PenstockError]:
    return next(kind for kind in _KINDS if isinstance(error, kind))


def _read_answer(content: bytes) -> dict[str, Any]:
    answer = json.loads(content)
    if "error" in answer:
        said = answer["error"]
        kind = next((kind for kind in _KINDS if kind.__name__ == said["kind"]), PenstockError)
        raise kind(said["class"], said["message"])
    return dict(answer["result"])
