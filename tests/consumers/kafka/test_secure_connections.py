"""TLS, logins and certificates with a real broker: what works, and what is said if it does not."""

from __future__ import annotations

import gc
import itertools
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from structlog.testing import capture_logs

from consumers.config.addresses import KafkaSettings
from consumers.corrections.model import LogPosition
from consumers.kafka.producers import KafkaLog, KafkaSink
from consumers.sinks.records import Record
from tests.broker.cutting import CuttingLine
from tests.broker.secure import KEY_PASSWORD, PASSWORD, USER, SecureBroker
from tests.consumers.kafka.topics import CLIENTS, PATIENCE_S, Reader, fill, numbered, until_told
from tests.endtoend.daemon_process import Daemon, write_config
from tests.kafka_fixtures import require_parts

pytestmark = [
    # kafka-python leaves sockets of its own behind when an attempt to connect fails.
    pytest.mark.filterwarnings("ignore:unclosed <.*ocket:ResourceWarning")
]

_NUMBERS = itertools.count()
EACH = ["kafka-python", pytest.param("librdkafka", marks=pytest.mark.deep)]
LOGIN = {"sasl_username": USER, "sasl_password": PASSWORD}


@pytest.fixture(autouse=True)
def _forgotten_sockets() -> Iterator[None]:
    yield
    gc.collect()  # within the mark above


def topic_with(broker: SecureBroker, values: list[bytes]) -> str:
    """Return a new topic that holds these values."""
    topic = f"secure-{next(_NUMBERS)}"
    broker.create_topic(topic)
    fill(broker.address, topic, values)
    return topic


def until_read(reader: Reader, n_values: int) -> None:
    """Read until so many values came."""
    reader.until(lambda: reader.n_values >= n_values)


def ways_in(broker: SecureBroker) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return each way to connect: a listener, and the settings that it needs."""
    files = broker.certificates
    trust: dict[str, Any] = {"ssl_cafile": files.authority}
    own: dict[str, Any] = {
        **trust,
        "security_protocol": "SSL",
        "ssl_certfile": files.client,
        "ssl_keyfile": files.client_key,
    }
    locked = {"ssl_keyfile": files.locked_key, "ssl_key_password": KEY_PASSWORD}

    def sasl(protocol: str, mechanism: str) -> dict[str, Any]:
        return {**LOGIN, "security_protocol": protocol, "sasl_mechanism": mechanism}

    return {
        "TLS": ("TLS", {**trust, "security_protocol": "SSL"}),
        "a certificate": ("MUTUAL", own),
        "a locked key": ("MUTUAL", {**own, **locked}),
        "a key beside its certificate": (
            "MUTUAL",
            {**own, "ssl_certfile": files.chain("client"), "ssl_keyfile": None},
        ),
        "PLAIN": ("LOGIN", sasl("SASL_PLAINTEXT", "PLAIN")),
        "SCRAM-SHA-512": ("LOGIN", sasl("SASL_PLAINTEXT", "SCRAM-SHA-512")),
        "PLAIN and TLS": ("SECURE", {**trust, **sasl("SASL_SSL", "PLAIN")}),
        "SCRAM-SHA-256 and TLS": ("SECURE", {**trust, **sasl("SASL_SSL", "SCRAM-SHA-256")}),
    }


@pytest.mark.deep
@pytest.mark.parametrize("client", EACH)
def test_every_way_in_reads_the_same_messages(secure_broker: SecureBroker, client: str) -> None:
    """TLS, PLAIN, SCRAM and a client's certificate, its key locked or not, read all messages."""
    # More than one record of TLS holds, so that what TLS keeps back is asked for.
    values = [b"%d " % i + b"x" * 5_000 for i in range(100)]
    topic = topic_with(secure_broker, values)
    for way, (listener, settings) in ways_in(secure_broker).items():
        address = secure_broker.at(listener)
        with Reader(address, topic, f"{client} {way}", client=client, **settings) as reader:
            until_read(reader, len(values))
            assert reader.values[0] == values, way
            assert reader.source.trouble() is None, way


@pytest.mark.deep
@pytest.mark.parametrize("client", CLIENTS)
def test_a_line_that_is_cut_amid_answers_loses_and_doubles_nothing(
    secure_broker: SecureBroker, client: str
) -> None:
    """TLS ends in the middle of a record, again and again, without a word of goodbye."""
    values = [b"%d " % i + b"x" * 200 for i in range(5_000)]
    topic = topic_with(secure_broker, [])
    for at in range(0, len(values), 250):  # a batch is answered whole, however large it is
        fill(secure_broker.address, topic, values[at : at + 250])
    port = secure_broker.advertised["CUT"]
    line = CuttingLine(port, secure_broker.ports["CUT"], 150_000, seed=1)
    settings: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_cafile": secure_broker.certificates.authority,
        "fetch_max_bytes": 65_536,
        "message_max_bytes": 65_536,
    }
    with line.open(), Reader(f"127.0.0.1:{port}", topic, client=client, **settings) as reader:
        until_read(reader, len(values))
        assert reader.values[0] == values
        assert line.n_cuts >= 3


def faults(broker: SecureBroker) -> dict[str, tuple[str, dict[str, Any], Mapping[str, str]]]:
    """Return each fault: an address, the settings, and what each client's error must say."""
    files = broker.certificates
    tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": files.authority}
    found: dict[str, tuple[str, dict[str, Any], Mapping[str, str]]] = {
        "wrong authority": (
            broker.at("TLS"),
            {**tls, "ssl_cafile": files.stranger},
            dict.fromkeys(CLIENTS, r"kafka\.ssl_cafile has the authority.*verif"),
        ),
        "another host's certificate": (
            broker.at("NAMED"),
            tls,
            {
                "kafka-python": r"IP address mismatch, certificate is not valid for '127\.0\.0\.1'",
                "librdkafka": r"names the host in the broker's address.*verify failed",
            },
        ),
        "no certificate": (
            broker.at("MUTUAL"),
            tls,
            dict.fromkeys(CLIENTS, r"(?i)broker asks for.*kafka\.ssl_certfile.*bad.certificate"),
        ),
        "TLS to a plain port": (
            broker.address,
            tls,
            {
                "kafka-python": r"that it speaks SSL .*UNEXPECTED_EOF",
                "librdkafka": r"that it speaks SSL .*(PLAINTEXT broker listener|closed by peer)",
            },
        ),
        "plain to a port of TLS": (
            broker.at("TLS"),
            {},
            {
                "kafka-python": r"that it speaks PLAINTEXT .*Invalid frame length",
                "librdkafka": r"that it speaks PLAINTEXT .*client says",
            },
        ),
    }
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        settings = {**tls, **LOGIN, "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
        settings["sasl_password"] = "marked, and wrong"
        found[f"wrong password by {mechanism}"] = (
            broker.at("SECURE"),
            settings,
            dict.fromkeys(CLIENTS, r"kafka\.sasl_username and the password.*Authentication failed"),
        )
    return found


@pytest.mark.parametrize("client", EACH)
def test_every_fault_is_named_and_tried_again(secure_broker: SecureBroker, client: str) -> None:
    """A wrong authority, host, password or protocol is told with its reason, and tried again."""
    topic = topic_with(secure_broker, numbered(0, 3))
    with ExitStack() as opened:
        waiting = {}
        for name, (address, settings, said) in faults(secure_broker).items():
            group = f"{client} {name}"
            reader = Reader(address, topic, group, client=client, **settings)
            waiting[name] = (opened.enter_context(reader), time.monotonic(), said[client])
        while waiting:
            for name, (reader, opened_s, said_by_client) in list(waiting.items()):
                reader.step(0.01)
                trouble = reader.source.trouble() or ""
                assert "marked" not in trouble
                if re.search(said_by_client, trouble, re.DOTALL):
                    del waiting[name]
                # The machine may be busy; how long the attempts take is bounded all the same.
                assert time.monotonic() - opened_s < PATIENCE_S, f"{name}: {trouble}"


@pytest.mark.parametrize(
    "client", ["kafka-python", pytest.param("librdkafka", marks=pytest.mark.deep)]
)
def test_a_refused_login_is_tried_until_it_is_right(
    secure_broker: SecureBroker, client: str
) -> None:
    """A user whom the broker learns of later is let in without a restart."""
    values = numbered(0, 20)
    topic, user = topic_with(secure_broker, values), f"late {client}"
    settings: dict[str, Any] = {
        "sasl_username": user,
        "sasl_password": "a password of later",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
    }
    address = secure_broker.at("LOGIN")
    with Reader(address, topic, f"late {client}", client=client, **settings) as reader:
        reader.until(lambda: "Authentication failed" in (reader.source.trouble() or ""))
        change = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"a password of later"
        )
        admin = AdminClient({"bootstrap.servers": secure_broker.address})
        admin.alter_user_scram_credentials([change])[user].result(PATIENCE_S)
        reader.until(lambda: reader.n_values == len(values))
        assert reader.values[0] == values


@pytest.mark.deep
@pytest.mark.slow
def test_a_file_of_certificates_may_be_away_for_a_while(
    secure_broker: SecureBroker, tmp_path: Path
) -> None:
    """It is named, not taken for a fault of the client; later on new partitions are read too."""
    file = tmp_path / "authority.pem"
    shutil.copy(secure_broker.certificates.authority, file)
    topic = topic_with(secure_broker, numbered(0, 10))
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": file}
    settings["metadata_interval_s"] = 0.1
    with capture_logs() as said, Reader(secure_broker.at("TLS"), topic, **settings) as reader:
        until_read(reader, 10)
        away = file.rename(tmp_path / "away.pem")
        secure_broker.restart()
        reader.until(lambda: "FileNotFoundError" in (reader.source.trouble() or ""))
        away.rename(file)
        reader.until(lambda: reader.source.trouble() is None)
        secure_broker.add_partitions(topic, 2)
        fill(secure_broker.address, topic, numbered(10, 20), 1)
        until_read(reader, 20)
    assert "kafka_client_failed" not in {each["event"] for each in said}


@pytest.mark.deep
def test_outputs_and_label_topic_are_written_behind_a_login(secure_broker: SecureBroker) -> None:
    """A sink's records and a correction arrive by SASL_SSL, and by a client's certificate."""
    ways = ways_in(secure_broker)
    for way in ("SCRAM-SHA-256 and TLS", "a locked key"):
        listener, found = ways[way]
        settings = KafkaSettings.model_validate(found)
        servers = [secure_broker.at(listener)]
        topic = topic_with(secure_broker, [])
        with closing(KafkaSink(servers, topic, settings)) as sink:
            sink.add([Record(b"1", b"judged"), Record(b"2", b"judged too")])
            sink.flush(PATIENCE_S)
        with closing(KafkaLog(servers, topic, settings)) as labels:
            at = labels.append(b"1", b"a label").outcome(PATIENCE_S)
        assert isinstance(at, LogPosition)
        assert at.offset == 2
        with Reader(secure_broker.address, topic) as reader:
            until_read(reader, 3)
            assert reader.values[0] == [b"judged", b"judged too", b"a label"]


def test_a_sink_names_why_it_is_not_let_in(secure_broker: SecureBroker) -> None:
    """A sink with a wrong password says so at a flush, and not the password."""
    address, settings, said = faults(secure_broker)["wrong password by SCRAM-SHA-256"]
    sink = KafkaSink([address], "nowhere", KafkaSettings.model_validate(settings))
    with closing(sink):
        sink.add([Record(b"1", b"judged")])
        assert "marked" not in until_told(sink, said["kafka-python"])


class Rights:
    """A broker whose user may do nothing but what is given."""

    def __init__(self, folder: Path) -> None:
        require_parts()
        self.broker = SecureBroker(
            folder,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",  # whoever comes by the plain listener
        )
        self.broker.start()

    def change(self, kind: ResourceType, name: str, *, is_given: bool) -> None:
        """Let the user read a topic, or groups whose names begin so, or do so no longer."""
        is_topic = kind == ResourceType.TOPIC
        pattern = ResourcePatternType.LITERAL if is_topic else ResourcePatternType.PREFIXED
        right = AclOperation.READ, AclPermissionType.ALLOW
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        asked: Mapping[Any, Any] = (
            admin.create_acls([AclBinding(kind, name, pattern, f"User:{USER}", "*", *right)])
            if is_given
            else admin.delete_acls(
                [AclBindingFilter(kind, name, pattern, f"User:{USER}", "*", *right)]
            )
        )
        for each in asked.values():
            each.result(PATIENCE_S)


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rights]:
    """Return a broker that asks for rights."""
    made = Rights(tmp_path_factory.mktemp("rights") / "broker")
    yield made
    made.broker.stop()


BY_SCRAM: dict[str, Any] = {
    **LOGIN,
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
}


@pytest.mark.deep
@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_right_is_told_until_it_is_given(rights: Rights, client: str) -> None:
    """Of the topic or of the group, before reading and amid it: then reading goes on, exactly."""
    broker, group = rights.broker, f"group of {client}"
    topic = topic_with(broker, numbered(0, 20))

    def is_told() -> bool:
        trouble = reader.source.trouble() or ""
        return f"needs the right to read topic '{topic}' and group '{group}'" in trouble

    with (
        capture_logs() as said,
        Reader(broker.at("LOGIN"), topic, group, client=client, **BY_SCRAM) as reader,
    ):
        reader.until(is_told)
        rights.change(ResourceType.TOPIC, topic, is_given=True)
        reader.until(lambda: "roup authorization failed" in _plain(reader) and is_told())
        rights.change(ResourceType.GROUP, group, is_given=True)
        until_read(reader, 20)
        for n, (kind, name) in enumerate(
            [(ResourceType.TOPIC, topic), (ResourceType.GROUP, group)], 1
        ):
            reader.until(lambda: reader.source.trouble() is None)
            said.clear()
            rights.change(kind, name, is_given=False)
            reader.until(is_told)
            fill(broker.address, topic, numbered(20 * n, 20 * n + 20))
            for _ in range(20):
                reader.step(0.1)
                assert is_told()
            # It does not come and go: librdkafka's partition may leave once, and the topic is told.
            assert [each["event"] for each in said].count("source_trouble_over") <= 2
            rights.change(kind, name, is_given=True)
            until_read(reader, 20 * n + 20)
        assert reader.values[0] == numbered(0, 60)


def _plain(reader: Reader) -> str:
    """Return the trouble, with kafka-python's names of errors as words."""
    return (reader.source.trouble() or "").replace("AuthorizationFailed", " authorization failed")


@pytest.mark.deep
def test_a_label_topic_that_may_not_be_read_is_told(rights: Rights, tmp_path: Path) -> None:
    """Corrections of others would be missing, while the daemon passes for one that is well."""
    broker = rights.broker
    topic, labels = (
        topic_with(broker, [b'{"id": "1", "text": "good", "label": 4}']),
        topic_with(broker, []),
    )
    for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, f"of-{topic}")):
        rights.change(kind, name, is_given=True)
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.at('LOGIN')}/{topic}",
        kafka=BY_SCRAM | {"sasl_password": "${PASSWORD}", "group_id": f"of-{topic}"},
        corrections={"to": f"kafka:{labels}"},
    )
    with Daemon(config, env={"PASSWORD": PASSWORD}) as daemon:
        daemon.until_metric("streamnb_examples_learned_total", 1)
        page = daemon.until_page("/readyz", 200, f"needs the right to read topic '{labels}'")
        assert page["degraded"].startswith("corrections cannot be read back: ")
        rights.change(ResourceType.TOPIC, labels, is_given=True)
        daemon.until_page("/readyz", 200, '"degraded":null')
        daemon.until_it_takes_corrections()
        assert daemon.stop() == 0
