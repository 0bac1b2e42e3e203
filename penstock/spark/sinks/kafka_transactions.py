"""Topics of Kafka, written by a transactional producer in the driver: each micro-batch once, for `read_committed`.

Law: readers with isolation.level=read_committed see the records of a micro-batch once, whatever attempts, retries and
restarts there were.
- The records of a micro-batch are one transaction, which also commits its number, plus one, as the offset of the
  consumer group `penstock-<run>-<query>` for partition 0 of the topic. A number that the group has is not written
  again.
- The identifier of the transactions is the same name, so a new producer fences an older one, and what that one left
  open is ended before the number is read. After every failure the outcome is asked for in this way, never assumed.
The driver gets the rows of a micro-batch for this, up to `limit` bytes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any

import pyarrow as pa

from penstock.cql import Connector, has_open_password, redact, resolve_secrets
from penstock.errors import DataError, PenstockError, QueryError, ResourceError
from penstock.spark.json_text import write_json
from penstock.spark.sinks.keys import check_key_columns
from penstock.spark.sinks.protocol import DRIVER_LIMIT
from penstock.spark.waits import watch_server

RETRY_SECONDS = 120.0
_PREFIX = "kafka."
_CALL_SECONDS, _SPARE_SECONDS = 30.0, 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_LOGIN = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_PRODUCER = {
    "transaction.timeout.ms": "300000",
    "partitioner": "murmur2_random",  # equal keys go where Java's producers put them
    "linger.ms": "20",
    "log_level": "2",  # failures are raised, and those that are tried again are shown as what the run waits for
}


class KafkaTransactionSink:
    """Appends JSON objects to a topic, one transaction per micro-batch."""

    def __init__(
        self,
        topic: str,
        options: Mapping[str, str],
        key: Sequence[str] = (),
        *,
        retry: float = RETRY_SECONDS,
        limit: int = DRIVER_LIMIT,
    ) -> None:
        import_confluent_kafka()
        unknown = [name for name in options if not name.startswith(_PREFIX)]
        if f"{_PREFIX}bootstrap.servers" not in options or unknown:
            message = "a topic that is written in transactions takes kafka.bootstrap.servers and other options kafka.…"
            raise QueryError("SINK_OPTIONS", f"{message}, not {', '.join(unknown)}" if unknown else message)
        self.limit = limit
        self._topic = topic
        self._options = dict(options)
        self._key = tuple(key)
        self._retry = retry
        self._run = self._output = ""
        self._schema = pa.schema([])
        self._producer: Any = None
        self._written = -1

    def __str__(self) -> str:
        return f"topic {self._topic} of Kafka at {self._options[_PREFIX + 'bootstrap.servers']}, in transactions"

    @property
    def connector(self) -> Connector | None:
        """None if a password is written out: a checkpoint must not have it."""
        if has_open_password(self._options):
            return None
        own = {"topic": self._topic, "key": ", ".join(self._key), "transactional": "true", "retry": str(self._retry)}
        return Connector("kafka", tuple((self._options | own).items()))

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        check_key_columns(name, schema, self._key)
        self._run, self._output, self._schema = run, f"penstock-{run}-{name}", schema
        self._producer = None
        self._try_again(_CALL_SECONDS, self._connect)

    def write(self, batch: int, rows: pa.Table) -> None:
        if rows.num_rows:
            self._try_again(self._retry, lambda: self._write_once(batch, rows))

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _write_once(self, batch: int, rows: pa.Table) -> None:
        if self._producer is None:
            self._connect()
        if batch <= self._written:
            return
        kafka = import_confluent_kafka()
        producer, refused = self._producer, list[Any]()

        def report(failure: Any, _record: object) -> None:
            if failure is not None:
                refused.append(failure)

        producer.begin_transaction()
        for key, value, headers in self._encode(batch, rows):
            while True:
                try:
                    producer.produce(self._topic, value, key, headers=headers, on_delivery=report)
                    break
                except BufferError:  # its queue is full
                    producer.poll(1)
            producer.poll(0)
        _call(producer.flush, max(self._retry, _CALL_SECONDS))  # what is not sent by then fails in the commit
        if refused:
            raise kafka.KafkaException(refused[0])
        place = kafka.TopicPartition(self._topic, 0, batch + 1)
        _call(producer.send_offsets_to_transaction, [place], self._group, _CALL_SECONDS)
        _call(producer.commit_transaction, _CALL_SECONDS)
        self._written = batch

    def _connect(self) -> None:
        """A new producer, which ends what an older one left open, and the last number that was committed."""
        kafka = import_confluent_kafka()
        given = {name.removeprefix(_PREFIX): value for name, value in resolve_secrets(self._options).items()}
        given = _translate_login(given)
        shared = {name: value for name, value in given.items() if name not in _PRODUCER and "transaction" not in name}
        try:
            producer = kafka.Producer({**_PRODUCER, **given, "transactional.id": self._output})
            consumer = kafka.Consumer(
                {**shared, "group.id": self._output, "isolation.level": "read_committed", "enable.auto.commit": "false"}
            )
        except kafka.KafkaException as error:
            said = redact(str(error.args[0].str()))
            raise QueryError("KAFKA_OPTIONS", f"{self}: {said}; check the kafka.… options") from None
        try:
            producer.list_topics(self._topic, _CALL_SECONDS)  # the broker may create it now
            _call(producer.init_transactions, _CALL_SECONDS)
            (place,) = consumer.committed([kafka.TopicPartition(self._topic, 0)], _CALL_SECONDS)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self._producer, self._written = producer, place.offset - 1

    def _try_again(self, seconds: float, work: Any) -> None:
        """Do work. After a failure of Kafka a new producer asks for the outcome, for some seconds."""
        kafka = import_confluent_kafka()
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        with watch_server(str(self)) as begin_wait:
            while True:
                try:
                    work()
                    return
                except (kafka.KafkaException, TimeoutError) as error:
                    self._producer = None
                    if _is_fenced(error):
                        message = (
                            f"{self}: another run writes the results of the same checkpoint, or a transaction took"
                        )
                        message += " longer than kafka.transaction.timeout.ms; stop the other one, or start again"
                        raise DataError("SINK_FENCED", message) from None
                    if _is_too_large(error):
                        message = (
                            f"{self} does not take a record of this size: select fewer columns, or raise "
                            "kafka.message.max.bytes of the sink and max.message.bytes of the topic"
                        )
                        raise DataError("SINK_VALUE", message) from None
                    if time.monotonic() + pause > end:
                        raise self._explain(error) from None
                begin_wait()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _explain(self, error: Exception) -> PenstockError:
        failure = error.args[0]
        said = failure if isinstance(failure, str) else failure.str()
        message = f"{self} cannot be written: {redact(str(said))}"
        return ResourceError("KAFKA_UNREACHABLE", f"{message}; check the kafka.… options, then start again")

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _encode(self, batch: int, rows: pa.Table) -> Iterator[tuple[str | None, str, list[tuple[str, str]]]]:
        """Keys, values and headers."""
        kind = pa.struct(list(rows.schema))
        texts = rows.select(self._key).cast(pa.schema([(name, pa.string()) for name in self._key])).to_pylist()
        marks = [("penstock-run", self._run), ("penstock-batch", str(batch))]
        for number, row in enumerate(rows.to_pylist()):
            key = "\x1f".join(text for text in texts[number].values() if text is not None) if self._key else None
            yield key, write_json(row, kind), [*marks, ("penstock-sequence", str(number))]


def _is_fenced(error: Exception) -> bool:
    kinds = import_confluent_kafka().KafkaError
    return _get_code(error) in (kinds._FENCED, kinds.PRODUCER_FENCED)


def _is_too_large(error: Exception) -> bool:
    """Whether the client or the broker refuses a record for its size: a new attempt would be refused too."""
    kinds = import_confluent_kafka().KafkaError
    return _get_code(error) in (kinds.MSG_SIZE_TOO_LARGE, kinds.RECORD_LIST_TOO_LARGE)


def _get_code(error: Exception) -> int | None:
    failure = error.args[0]
    return None if isinstance(failure, str) else failure.code()


def _call(method: Callable[..., object], *given: Any) -> None:
    """Call a method whose last argument is its time-out, in a thread of its own.

    After a restart of the broker librdkafka does not always return from a call in time, or at all. Such a thread stays
    behind with its producer, which the next producer fences.
    """
    ended: Future[object] = Future()

    def run() -> None:
        try:
            ended.set_result(method(*given))
        except BaseException as error:
            ended.set_exception(error)

    Thread(target=run, name="penstock-kafka", daemon=True).start()
    seconds = given[-1] + _SPARE_SECONDS
    try:
        ended.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"a call of its client did not return in {seconds:.0f} s") from None


def _translate_login(options: dict[str, str]) -> dict[str, str]:
    """User and password of sasl.jaas.config, which Java's clients have, as the options of this client."""
    text = options.pop("sasl.jaas.config", None)
    found = {} if text is None else dict(_LOGIN.findall(text))
    login = {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in found.items()}
    return {**login, **options}


def import_confluent_kafka() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415 - an optional extra
    except ImportError:
        message = "topics are written in transactions with the package confluent-kafka: pip install 'penstock[kafka]'"
        raise ResourceError("PACKAGE_MISSING", message, package="confluent-kafka") from None
    return confluent_kafka
