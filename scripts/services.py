"""Start and stop what the tests of connectors need, on the loopback interface: a Kafka broker and PostgreSQL.

    python scripts/services.py start [--install]     # waits until both answer; --install: Debian packages, as root
    python scripts/services.py stop                  # ends exactly what `start` started
    python scripts/services.py status

Data, logs and jars are below build/services. Kafka runs in KRaft mode from its Maven artifacts, PostgreSQL from the
system's binaries, never as root. A service that cannot start does not stop the other one: `start` says why, and the
exit code is 1.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "services"
STATE = FOLDER / "state.json"
_CERTIFICATE = "postgres.crt"
KAFKA = "org.apache.kafka:kafka_2.13:3.9.1"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>penstock</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>
</dependencies></project>
"""
_KAFKA_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.guarded.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    user_penstock="{password}";
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=2
"""
_POSTGRES_SETTINGS = """listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = off
max_connections = 50
"""
_PORTS = range(15_000, 30_000)
_DOWNLOAD_SECONDS, _START_SECONDS, _STOP_SECONDS = 300, 60, 30
State = dict[str, dict[str, Any]]


class ServiceError(Exception):
    """A service that cannot be installed or started, and why."""


# ── the state file ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def lock_folder() -> Iterator[None]:
    """One process at a time starts or stops services."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_state() -> State:
    """The services that were started, by name."""
    try:
        return dict(json.loads(STATE.read_text()))
    except (OSError, ValueError):
        return {}


def write_state(state: State) -> None:
    handle = os.open(STATE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it has the password of the database
    with os.fdopen(handle, "w") as file:
        json.dump(state, file, indent=2)


def list_running() -> State:
    """The services that were started and still answer."""
    return {name: entry for name, entry in read_state().items() if answers(entry["port"]) and is_own(entry)}


def answers(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_own(entry: dict[str, Any]) -> bool:
    """Whether the process of an entry is still the one that was started: numbers of processes are used again."""
    return read_start_time(entry["pid"]) == entry["since"]


def read_start_time(pid: int) -> str | None:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def choose_port() -> int:
    """A free port, below those that systems give to clients: none has it while a service restarts."""
    while not is_free(port := secrets.choice(_PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def can_continue(entry: dict[str, Any] | None, *ports: str) -> bool:
    """Whether an earlier service can start again: another checkout or program may have its ports by now."""
    return entry is not None and all(name in entry and is_free(entry[name]) for name in ports)


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_command(command: list[str], seconds: float = _DOWNLOAD_SECONDS, **options: Any) -> None:
    """Run a command to its end; its last lines are the reason of a failure."""
    try:
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
            **options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"{command[0]}: {error}") from error
    if ended.returncode:
        lines = [line for line in ended.stdout.splitlines() if line.strip()]
        told = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no output")
        raise ServiceError(f"{' '.join(command[:3])}: {told[:300]}")


def launch(
    command: list[str], log: Path, port: int, ready: Callable[[int], bool] = answers, **options: Any
) -> dict[str, Any]:
    """Start a process that outlives this one, and wait until it is ready on a port."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, **options
        )
    end = time.monotonic() + _START_SECONDS
    while not ready(port):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise ServiceError(f"{command[0]} did not answer on port {port}; its log is {log}")
        time.sleep(0.1)
    return {"pid": process.pid, "since": read_start_time(process.pid), "port": port}


def end_process(entry: dict[str, Any], kind: signal.Signals) -> None:
    """End a service that `launch` started, and nothing else."""
    end = time.monotonic() + _STOP_SECONDS
    if is_own(entry):
        os.kill(entry["pid"], kind)
    while is_own(entry) and not is_ended_child(entry["pid"]):
        if time.monotonic() > end:
            os.kill(entry["pid"], signal.SIGKILL)
        time.sleep(0.05)


def is_ended_child(pid: int) -> bool:
    """Whether a process is an ended child of this one: it stays in the list of processes until it is asked for."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


# ── Kafka ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise ServiceError("Kafka needs Java 17 or newer on the PATH")
    return found


def copy_kafka() -> Path:
    """The folder with the jars of Kafka, from Maven."""
    folder = FOLDER / "kafka-jars"
    if not folder.exists():
        if shutil.which("mvn") is None:
            raise ServiceError("Kafka is copied by Maven, and there is no mvn on the PATH")
        pom, part = FOLDER / "pom.xml", FOLDER / "kafka-jars.part"
        pom.write_text(_POM.format(*KAFKA.split(":")))
        shutil.rmtree(part, ignore_errors=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
        run_command(["mvn", "-q", "-B", "-f", str(pom), *goal])
        part.rename(folder)
    return folder


def start_kafka(entry: dict[str, Any] | None) -> dict[str, Any]:
    """Start a broker, which asks for a password on a second port. With an earlier entry: with its ports and data."""
    java, jars = find_java(), copy_kafka()
    place = FOLDER / "kafka"
    if not can_continue(entry, "port", "controller", "guarded"):
        entry = None
    if entry is None:
        ports = {name: choose_port() for name in ("port", "controller", "guarded")}
        own: dict[str, Any] = {**ports, "password": secrets.token_hex(12)}
    else:
        own = {name: entry[name] for name in ("port", "controller", "guarded", "password")}
    command = [java, "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    settings = place / "server.properties"
    if entry is None or not settings.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        settings.write_text(_KAFKA_SETTINGS.format(**own, data=place / "data"))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run_command([*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)])
    return {**own, **launch([*command, "kafka.Kafka", str(settings)], place / "kafka.log", own["port"])}


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────────────────────


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's binaries; Debian keeps them off the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4))
    on_path = shutil.which("initdb")
    return folders[-1] if folders else Path(on_path).resolve().parent if on_path else None


def install_postgres() -> None:
    """Install Debian's package, without a database cluster that the system would start."""
    if os.getuid() or shutil.which("apt-get") is None:
        raise ServiceError("PostgreSQL is not installed: apt-get install postgresql")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    run_command(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"], env=environment)


def start_postgres(entry: dict[str, Any] | None, install: bool) -> dict[str, Any]:
    """Start PostgreSQL. With an entry of an earlier one: on the same port, with its data and password."""
    if find_postgres() is None and install:
        install_postgres()
    binaries = find_postgres()
    if binaries is None:
        raise ServiceError("PostgreSQL is not installed: make services as root, or apt-get install postgresql")
    place = FOLDER / "postgres"
    data = place / "data"
    # root may not run PostgreSQL: Debian's package has a user for it
    user = {} if os.getuid() else {"user": "postgres", "group": "postgres", "extra_groups": []}
    entry = entry if can_continue(entry, "port") else None
    port, password = (entry["port"], entry["password"]) if entry else (choose_port(), secrets.token_hex(12))
    if entry is None or not data.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        phrase = place / "password"
        phrase.write_text(password)
        if user:
            for path in (place, phrase):
                shutil.chown(path, "postgres", "postgres")
        options = ["-D", str(data), "-U", "penstock", "-A", "scram-sha-256", "--no-sync", "-E", "UTF8"]
        run_command([str(binaries / "initdb"), *options, f"--pwfile={phrase}"], cwd="/", **user)
        phrase.unlink()
        with (data / "postgresql.conf").open("a") as file:
            file.write(_POSTGRES_SETTINGS.format(port=port))
            if write_certificate(data, user):
                file.write("ssl = on\n")

    def is_ready(port: int) -> bool:
        command = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(command, check=False).returncode == 0

    command = [str(binaries / "postgres"), "-D", str(data)]
    found = launch(command, FOLDER / "postgres.log", port, is_ready, cwd="/", **user)
    own = {"user": "penstock", "database": "postgres", "password": password}
    certificate = FOLDER / _CERTIFICATE
    return {**found, **own, "certificate": str(certificate) if certificate.exists() else None}


def write_certificate(data: Path, user: dict[str, Any]) -> bool:
    """Make a certificate of the server and copy it to where tests read it; False without openssl."""
    (FOLDER / _CERTIFICATE).unlink(missing_ok=True)
    if shutil.which("openssl") is None:
        return False
    key, certificate = data / "server.key", data / "server.crt"
    options = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "3650"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    run_command(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *options, *files], cwd="/", **user)
    shutil.copyfile(certificate, FOLDER / _CERTIFICATE)
    return True


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_STOP_SIGNALS = {"kafka": signal.SIGTERM, "postgres": signal.SIGINT}


def start(install: bool = False, names: tuple[str, ...] = ("kafka", "postgres")) -> dict[str, str]:
    """Start the services that do not run. Returns why some of them could not be started."""
    starts: dict[str, Callable[[dict[str, Any] | None], dict[str, Any]]] = {
        "kafka": start_kafka,
        "postgres": lambda entry: start_postgres(entry, install),
    }
    failures = {}
    with lock_folder():
        state, running = read_state(), list_running()
        for name in (name for name in names if name not in running):
            try:
                if name in state:
                    end_process(state[name], _STOP_SIGNALS[name])  # it runs, but does not answer
                state[name] = starts[name](state.get(name))
            except (ServiceError, OSError) as error:
                failures[name] = str(error)
            write_state(state)
    return failures


def stop(names: tuple[str, ...] = ("kafka", "postgres"), *, keep: bool = False) -> None:
    """End services that `start` started. With `keep` their data and ports stay, for a later start."""
    with lock_folder():
        state = read_state()
        for name in (name for name in names if name in state):
            end_process(state[name], _STOP_SIGNALS[name])
            if not keep:
                del state[name]
                shutil.rmtree(FOLDER / name, ignore_errors=True)
            write_state(state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("start", "stop", "status"))
    parser.add_argument("--install", action="store_true", help="install Debian packages that are missing, as root")
    given = parser.parse_args()
    failures = start(given.install) if given.command == "start" else {}
    if given.command == "stop":
        stop()
    for name, entry in list_running().items():
        print(f"{name}: running on 127.0.0.1:{entry['port']}")
    for name, reason in failures.items():
        print(f"{name}: not running: {reason}", file=sys.stderr)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
