"""The control stream: files do not pile up, bad ones are set aside, heartbeats survive errors of the storage."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_support import drain, read_stream, wait_until, write_file

import penstock as ps
from penstock.adapt import AdvanceStream, Begin, DropQuery, EndStreams, SetSchedule
from penstock.spark import sinks
from penstock.spark.control_command import ControlCommand
from penstock.spark.control_source import ControlReader
from penstock.spark.driver.control import CommandLog
from penstock.spark.heartbeat import Heartbeat
from penstock.spark.storage import Folder

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


def read_commands(reader: ControlReader, start: int, end: int) -> list[ControlCommand]:
    parts = reader.partitions({"command": start}, {"command": end})
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return [ControlCommand.decode(row["data"]) for row in rows]


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "control").iterdir())


def test_committed_commands_are_removed(tmp_path: Path) -> None:
    log = CommandLog(Folder(str(tmp_path)))
    reader = ControlReader(str(log.spool), (7,))
    at = -1
    for number in range(1, 200):
        log.append(AdvanceStream("s", number))
        end = reader.latestOffset({"command": at})["command"]
        assert [command.number for command in read_commands(reader, at, end)] == list(range(at + 1, end + 1))
        reader.commit({"command": end})
        at = end
    assert at == 199
    assert len(list_names(tmp_path)) <= 2
    assert reader.latestOffset({"command": at}) == {"command": at}


def test_uncommitted_commands_are_repeated_after_restart(tmp_path: Path) -> None:
    log = CommandLog(Folder(str(tmp_path)))
    for number in range(1, 6):
        log.append(AdvanceStream("s", number))
    ControlReader(str(log.spool), (7,)).commit({"command": 2})
    log.append(EndStreams())
    again = CommandLog(Folder(str(tmp_path)))
    reader = ControlReader(str(again.spool), (7, 8))
    assert reader.latestOffset({"command": 2}) == {"command": 6}
    commands = read_commands(reader, 2, 4)
    assert [command.number for command in commands] == [3, 3, 4, 4]
    assert read_commands(reader, 2, 4) == commands
    assert reader.partitions({"command": 6}, {"command": 6}) == []
    assert again.append(EndStreams()).number == 7
    # the offset of a checkpoint whose commands were read as files: all commands come again, and cells skip them
    assert reader.latestOffset({"logOffset": 3}) == {"command": 7}
    with pytest.raises(ps.InternalError, match="COMMAND_MISSING"):
        reader.partitions({"command": 7}, {"command": 8})


def test_available_now_reads_commands_of_the_start(tmp_path: Path) -> None:
    log = CommandLog(Folder(str(tmp_path)))
    log.append(AdvanceStream("s", 1))
    reader = ControlReader(str(log.spool), (7,))
    reader.prepareForTriggerAvailableNow()
    log.append(EndStreams())
    assert reader.latestOffset({"command": -1}) == {"command": 1}
    reader.commit({"command": 1})
    assert reader.latestOffset({"command": 1}) == {"command": 1}
    assert ControlReader(str(log.spool), (7,)).latestOffset({"command": 1}) == {"command": 2}


def test_available_now_obeys_limits_of_sources(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_file(tmp_path / "s" / f"{number}.parquet", pa.table({"ts": [number], "k": [1]}, schema=SCHEMA), number)
    sink = sinks.memory()
    pipe = ps.Pipeline(spark)
    pipe.stream("s", read_stream(spark, SCHEMA, tmp_path / "s"), "ts")
    pipe.query("q", "SELECT s.k FROM s [RANGE 5]", sink=sink)
    run = pipe.start(tmp_path / "checkpoint", trigger={"availableNow": True}, cells=1)
    run.awaitTermination()
    commits = [path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit()]
    assert len(commits) == (3 if spark.version >= "4.2" else 1)
    assert sink.table().num_rows == 3


def test_query_commands_of_an_ended_run_have_no_effect(tmp_path: Path) -> None:
    log = CommandLog(Folder(str(tmp_path)))
    for command in (SetSchedule("bfs"), AdvanceStream("s", 5), DropQuery("q")):
        log.append(command)
    again = CommandLog(Folder(str(tmp_path)))
    found = read_commands(ControlReader(str(again.spool), (7,)), -1, 3)
    assert [each.command for each in found] == [Begin(), Begin(), AdvanceStream("s", 5), Begin()]
    assert again.rejected == 0


def test_numbers_go_on_when_all_commands_are_done(tmp_path: Path) -> None:
    log = CommandLog(Folder(str(tmp_path)))
    log.append(EndStreams())
    ControlReader(str(log.spool), (7,)).commit({"command": 1})
    assert CommandLog(Folder(str(tmp_path))).append(EndStreams()).number == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"number": 1, "do": "format_disk", "arguments": {}}',
                                     b'{"number": 9, "do": "end", "arguments": {}}'])  # fmt: skip
def test_malformed_command_is_set_aside(tmp_path: Path, content: bytes) -> None:
    log = CommandLog(Folder(str(tmp_path)))
    log.append(EndStreams())
    (tmp_path / "control" / "00000001.json").write_bytes(content)
    (tmp_path / "control" / "notes.txt").write_text("not a command")
    again = CommandLog(Folder(str(tmp_path)))
    assert again.rejected == 1
    assert (tmp_path / "control" / "rejected" / "00000001.json").read_bytes() == content
    assert read_commands(ControlReader(str(again.spool), (7,)), 0, 1) == [ControlCommand(1, Begin())]
    assert CommandLog(Folder(str(tmp_path))).rejected == 0
    assert again.append(EndStreams()).number == 2


def test_heartbeat_survives_storage_errors() -> None:
    sent: list[int] = []
    failures = [OSError("the storage is away"), OSError("still away"), ValueError("odd")]
    done = threading.Event()

    def due(now: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return {"s": now}, {"s": now + 1}

    def send(name: str, frontier: int) -> None:
        del name
        if failures:
            raise failures.pop(0)
        sent.append(frontier)
        done.set()

    heart = Heartbeat([], due, send)
    assert done.wait(300)
    wait_until(lambda: heart.report()["last_error"] is None)
    heart.stop()
    assert heart.report()["errors"] == 3
    assert sent


def test_heartbeat_reports_its_last_error() -> None:
    def due(now: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        del now
        raise OSError("the storage is away")

    heart = Heartbeat([], due, lambda *_: None)
    wait_until(lambda: heart.report()["errors"])
    heart.stop()
    assert heart.report()["last_error"] == "OSError: the storage is away"


def test_commands_of_a_run_do_not_pile_up(spark: Any, tmp_path: Path) -> None:
    """After many commands a checkpoint holds a few files, and a replay after a restart has every effect once."""
    answers = sinks.memory()

    def start() -> ps.Pipeline:
        pipe = ps.Pipeline(spark)
        frame = read_stream(spark, SCHEMA, tmp_path / "s")
        pipe.stream("s", frame, "ts", lateness=1_000_000, late=sinks.memory(), dead=sinks.memory())
        pipe.query("q", "SELECT ts FROM s [NOW]", sink=answers)
        return pipe

    write_file(tmp_path / "s" / "0.parquet", pa.table([range(20), range(20)], schema=SCHEMA), 0)
    run = start().start(tmp_path / "ck", cells=2)
    try:
        for time in range(1, 13):
            run.advance("s", time)
            run.processAllAvailable()
        assert run.status["rejected_commands"] == 0
        assert run.status["heartbeat"] is None
    finally:
        run.stop()
    assert answers.table().column("ts").to_pylist() == list(range(13))
    assert len(list_names(tmp_path / "ck")) <= 3
    assert not (tmp_path / "ck" / "sources" / "1").exists()  # Spark keeps no list of command files
    run = start().start(tmp_path / "ck", cells=2)
    run.advance("s", 15)
    drain(run, finish=False)
    assert answers.table().column("ts").to_pylist() == list(range(16))
    offsets = max(
        (path for path in (tmp_path / "ck/offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    assert json.loads(offsets.read_text().splitlines()[-1]) == {"command": 13}
