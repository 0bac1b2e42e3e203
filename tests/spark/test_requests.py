"""Requests of other processes: leases, malformed files, time-outs."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from penstock.errors import DataError, PenstockError, QueryError
from penstock.spark.requests import (
    Add,
    ChangeBudget,
    Drop,
    PendingRequest,
    Request,
    RequestClient,
    RequestFolder,
    Status,
    decode_request,
)
from penstock.spark.storage import Folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "penstock.json").write_text("{}")
    return tmp_path


def send_failing(checkpoint: Path, request: Request, seconds: float = 0.3) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        RequestClient(str(checkpoint)).send(request, seconds)
    return caught.value


def test_no_request_without_active_run(checkpoint: Path) -> None:
    assert send_failing(checkpoint / "elsewhere", Status()).condition == "NO_CHECKPOINT"
    assert send_failing(checkpoint, Status()).condition == "NO_ACTIVE_RUN"
    folder = RequestFolder(Folder(str(checkpoint)))
    folder.begin()
    lease = checkpoint / "requests" / "lease.json"
    lease.write_text(json.dumps({"session": "killed", "time": 0.0}))
    assert send_failing(checkpoint, Status()).condition == "NO_ACTIVE_RUN"
    lease.write_text("[]")
    assert send_failing(checkpoint, Status()).condition == "BAD_LEASE"
    folder.end()
    assert send_failing(checkpoint, Status()).condition == "NO_ACTIVE_RUN"
    assert not list((checkpoint / "requests").glob("open/*"))


def test_request_without_answer_is_withdrawn(checkpoint: Path) -> None:
    folder = RequestFolder(Folder(str(checkpoint)))
    folder.begin()
    assert send_failing(checkpoint, Drop("q")).condition == "NO_ANSWER"
    assert folder.take() == []


@pytest.mark.parametrize("error", [None, QueryError("UNKNOWN_QUERY", "no q"), DataError("FOLDER_IN_USE", "used")])
def test_answer_reaches_the_client(checkpoint: Path, error: PenstockError | None) -> None:
    folder = RequestFolder(Folder(str(checkpoint)))
    folder.begin()
    taken: list[PendingRequest] = []

    def answer() -> None:
        while not taken:
            taken.extend(folder.take())
        if error is None:
            folder.answer(taken[0].id, {"dropped": "q"})
        else:
            folder.answer_error(taken[0].id, error)

    thread = threading.Thread(target=answer)
    thread.start()
    if error is None:
        assert RequestClient(str(checkpoint)).send(Drop("q"), 60) == {"dropped": "q"}
    else:
        said = send_failing(checkpoint, Drop("q"), 60)
        assert (type(said), said.condition, said.message) == (type(error), error.condition, error.message)
    thread.join()
    assert [pending.request for pending in taken] == [Drop("q")]
    assert not list((checkpoint / "requests" / "answers").iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"do": "drop"}',
        b'{"do": "drop", "arguments": {"name": 3}}',
        b'{"do": "drop", "arguments": {"name": "q", "other": 1}}',
        b'{"do": "eval", "arguments": {}}',
        b'{"do": ["drop"], "arguments": {}}',
        b'{"do": "drop", "arguments": {"name": "q"}, "session": "other"}',
    ],
)
def test_malformed_request_is_set_aside(checkpoint: Path, content: bytes) -> None:
    folder = RequestFolder(Folder(str(checkpoint)))
    folder.begin()
    (checkpoint / "requests" / "open").mkdir()
    (checkpoint / "requests" / "open" / "x.json").write_bytes(content)
    (pending,) = folder.take()
    assert pending.request is None
    assert pending.error is not None
    assert pending.error.condition in ("BAD_REQUEST", "REQUEST_EXPIRED")
    assert (checkpoint / "requests" / "rejected" / "x.json").read_bytes() == content
    assert folder.take() == []


@pytest.mark.parametrize(
    "request_",
    [Add("SELECT 1"), ChangeBudget(None), ChangeBudget(3.5, "jaqpot", "q"), ChangeBudget("500 ms"), Status()],
)
def test_request_survives_its_text(request_: Request) -> None:
    arguments = dict(vars(request_))
    assert decode_request(json.loads(json.dumps({"do": request_.key, "arguments": arguments}))) == request_
