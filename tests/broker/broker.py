"""A real Kafka broker for tests: one Java process on loopback, its own controller, its own folder.

With a new folder `start` takes one or two seconds, `stop` half a second, and a start after `kill`
five to six: the controller waits until the dead broker's session is over. Memory is bounded by
`-Xmx512m`, and the process ends with the tests that started it, even where they are killed.

The jars come from `fetch_jars.sh`, beside this file. `python -m tests.broker.broker` has Java
archive their classes, read and checked, for all brokers to come: a start then takes half the
processor time.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.stopped import stop

HERE = Path(__file__).parent
ARCHIVE = HERE / "libs" / "classes.jsa"  # Java looks past one that was made of other jars
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ARCHIVE_TIMEOUT_S = 60.0  # of a stop that writes the archive: some seconds of work
ADMIN_TIMEOUT_S = 60.0
# What a group's coordinator says before it has read what the group committed.
_COORDINATOR_BEGINS = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

# A single node needs one replica of everything, and a test wants the group to form at once. The
# session timeout decides how soon a broker may come back after it was killed. Topics are made when
# asked for, as Kafka's default is: so it shows when a reader asks for one that is not there.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:{controller},{listeners}
advertised.listeners={advertised}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}
log.dirs={folder}/data
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
log.cleaner.dedupe.buffer.size=16777216
log.retention.ms=-1
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
"""

LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss,SSS} %p %c{1} %m%n
logger.ready.name=kafka.server.KafkaRaftServer
logger.ready.level=INFO
"""
READY_LINE = "Kafka Server started"
_FORMATTED: dict[tuple[str, ...], dict[str, bytes]] = {}  # files of a new folder, by the options

_N_PORTS = 2_000  # of each worker
_FIRST_PORT = 16_000 + _N_PORTS * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
# Begin elsewhere in each process: two runs on one machine seldom try the same port.
_CLAIMS = Path(tempfile.gettempdir()) / f"streamnb-test-ports-{os.getuid()}"
_claimed: list[TextIO] = []  # open, and so locked, for as long as the process lives
_PORTS = itertools.cycle(_FIRST_PORT + (os.getpid() + i) % _N_PORTS for i in range(_N_PORTS))


def missing_parts() -> str | None:
    """Return one line on what a broker lacks on this machine, or None where it can run."""
    if shutil.which("java") is None:
        return "the Kafka tests need Java 17 or later on the PATH"
    if not list((HERE / "libs").glob("kafka_*.jar")):
        return "the Kafka tests need the broker's jars: run tests/broker/fetch_jars.sh"
    return None


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports that nobody listens on.

    They lie below those that Linux gives to outgoing connections, so that none of these takes the
    port of a broker that is down for a moment; each worker of pytest-xdist has ports of its own.
    Each port is claimed until this process ends: a broker needs a second or two before it listens,
    and another run would find the port free until then.
    """
    _CLAIMS.mkdir(exist_ok=True)
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        claim = (_CLAIMS / str(port)).open("w", encoding="ascii")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as trial:
                trial.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _claimed.append(claim)
            found.append(port)
    return found


class Broker:
    """One Kafka broker.

    Parameters
    ----------
    folder : Path
        Where its data, settings and log are; made when missing.
    **properties : str
        More of the broker's properties, with `_` for each `.` of their names.

    Attributes
    ----------
    protocols : dict of str to str
        The security protocol of each listener, by its name.
    ports : dict of str to int
        The ports of the listeners beside PLAINTEXT, whose port is `port`.
    advertised : dict of str to int
        The ports at which clients are told to find listeners, where these are others.
    format_options : list of str
        More options of the tool that formats the folder.
    java_options : list of str
        More options of Java.
    """

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.port = 0
        self.protocols = {"PLAINTEXT": "PLAINTEXT"}
        self.ports: dict[str, int] = {}
        self.advertised: dict[str, int] = {}
        self.format_options: list[str] = []
        self.java_options = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._reader: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Return `127.0.0.1:port`, the same before and after a restart."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Return whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, port: int = 0) -> str:
        """Start on `port`, or on a free one where it is 0; return the address once it answers.

        Raises
        ------
        RuntimeError
            When the broker ends or says nothing for a minute; the end of its log is in the message.
        """
        self.reserve(port)
        self._write_settings()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        self._ready.clear()
        self._process = subprocess.Popen(
            self._java("-Xmx512m", "kafka.Kafka", str(self.folder / "server.properties")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # so that Ctrl-C reaches pytest, and pytest stops it in order
        )
        self._reader = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._reader.start()
        if not self._ready.wait(READY_TIMEOUT_S) or not self.running:
            self.kill()
            tail = (self.folder / "log").read_text()[-2000:]
            message = f"the test broker in {self.folder} did not start; its log ends with:\n{tail}"
            raise RuntimeError(message)
        return self.address

    def reserve(self, port: int = 0) -> str:
        """Settle on an address without starting, and return it; a later `start` uses it."""
        self.port = port or self.port or free_ports(1)[0]
        return self.address

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the broker in good order, or after so long at once."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End the broker as a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Stop it where it runs, and start it at the same address."""
        self.stop()
        self.start(self.port)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop the process for a while: it answers nothing, and its connections stay."""
        assert self._process is not None
        stop(self._process.pid)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; `config` has `_` for each `.` of a setting's name."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self._admin()
        admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        self._until_known(name, partitions)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise a topic's number of partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(ADMIN_TIMEOUT_S)
        self._until_known(name, partitions)

    def _until_known(self, name: str, partitions: int) -> None:
        """Wait until the broker knows the partitions, as its controller does; others it refuses."""
        until_s = time.monotonic() + ADMIN_TIMEOUT_S
        while (
            len(self._admin().list_topics(name, ADMIN_TIMEOUT_S).topics[name].partitions)
            < partitions
        ):
            assert time.monotonic() < until_s, f"{name} has not got {partitions} partitions"

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all it holds."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Remove all messages of a partition that lie before an offset."""
        where = TopicPartition(name, partition, before)
        admin = self._admin()
        admin.delete_records([where])[where].result(ADMIN_TIMEOUT_S)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, by topic and partition."""
        # Not asked of the AdminClient, which dies of a group whose coordinator is not known yet
        # (librdkafka, issue 5040).
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        topics = consumer.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        places = [TopicPartition(name, at) for name in topics for at in topics[name].partitions]
        patient_until_s = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            try:
                found = consumer.committed(places, ADMIN_TIMEOUT_S)
                break
            except KafkaException as error:
                is_late = time.monotonic() > patient_until_s
                if is_late or error.args[0].code() not in _COORDINATOR_BEGINS:
                    raise
                consumer.poll(0.05)  # it reads nothing; meanwhile the coordinator gets further
        consumer.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def members(self, group: str) -> int:
        """Return how many members a consumer group has."""
        admin = self._admin()
        description = admin.describe_consumer_groups([group])[group].result(ADMIN_TIMEOUT_S)
        return len(description.members)

    def _admin(self) -> AdminClient:
        # Its caller holds it until the answer is there: a request dies with its client.
        return AdminClient({"bootstrap.servers": self.address})

    def _write_settings(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        controller = free_ports(1)[0]
        ports = {"PLAINTEXT": self.port, **self.ports}

        def listed(ports: dict[str, int]) -> str:
            return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())

        text = PROPERTIES.format(
            controller=controller,
            folder=self.folder,
            listeners=listed(ports),
            advertised=listed(ports | self.advertised),
            protocols=",".join(f"{name}:{kind}" for name, kind in self.protocols.items()),
        )
        extra = "".join(f"{name}={value}\n" for name, value in self._properties.items())
        (self.folder / "server.properties").write_text(text + extra)
        (self.folder / "log4j2.properties").write_text(LOGGING)

    def _format(self) -> None:
        """Make the folder of its data; one that was made alike is written anew, without Java."""
        data, alike = self.folder / "data", tuple(self.format_options)
        if alike in _FORMATTED:
            data.mkdir()
            for name, content in _FORMATTED[alike].items():
                (data / name).write_bytes(content)
            return
        command = self._java("-Xmx256m", "kafka.tools.StorageTool", "format")
        settings = str(self.folder / "server.properties")
        subprocess.run(
            [*command, "-t", "c3RyZWFtbmItdGVzdHMtMQ", "-c", settings, *self.format_options],
            check=True,
            capture_output=True,
        )
        _FORMATTED[alike] = {file.name: file.read_bytes() for file in data.iterdir()}

    def _java(self, heap: str, *arguments: str) -> list[str]:
        java = [
            "java",
            heap,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # the tests are short: quick to warm up is all that counts
            "-XX:+ExitOnOutOfMemoryError",
            *self.java_options,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            "-cp",
            str(HERE / "libs" / "*"),
        ]
        wrapper = [sys.executable, str(HERE / "die_with_parent.py"), str(os.getpid())]
        return [*wrapper, *java, *arguments]

    def _follow(self, process: subprocess.Popen[str]) -> None:
        """Write the broker's log, and notice the line that says it is ready, or its end."""
        assert process.stdout is not None
        with (self.folder / "log").open("a") as log, process.stdout:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if READY_LINE in line:
                    self._ready.set()
        self._ready.set()

    def _end(self, sign: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(sign)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join()


def archive_classes() -> None:
    """Have Java write, as a broker ends, the classes that it and its tools have used."""
    with tempfile.TemporaryDirectory(prefix="streamnb-broker-") as name:
        broker = Broker(Path(name))
        written = Path(name) / ARCHIVE.name
        broker.start()
        broker.stop()
        broker.java_options = [f"-XX:ArchiveClassesAtExit={written}"]
        broker.start()
        broker.create_topic("topic")
        broker.committed("group")
        broker.stop(ARCHIVE_TIMEOUT_S)
        shutil.move(written, ARCHIVE)


if __name__ == "__main__":
    archive_classes()
