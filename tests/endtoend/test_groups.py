"""Daemons that share a topic: every message is learned once, and each answers from the whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from consumers.config.model import READING, ModelSettings
from consumers.corrections.model import Correction, encode
from consumers.messages import Partition, part_name
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.decoded_messages import messages
from tests.consumers.kafka.topics import fill
from tests.consumers.test_decay_times import learned
from tests.endtoend.daemon_group import DaemonGroup, RevisedTopic
from tests.endtoend.daemon_process import Daemon
from tests.endtoend.expected_counts import Example, counts_at, counts_of, examples, message

PARTITIONS = 4


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("client", "n"), [("kafka-python", 16_000), ("librdkafka", 30_000)])
def test_members_that_come_go_die_and_sleep_learn_each_message_once(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, client: str, n: int
) -> None:
    """Three members, six events: their models are equal, and that of one undisturbed process.

    What one member learned is deleted or updated while another has the partition.
    """
    topic = new_topic(PARTITIONS)
    stream = RevisedTopic(broker.address, topic, PARTITIONS)
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, group_id=f"of-{topic}", client=client)
        names = ("first", "second", "third")
        stream.grow(n // 4)
        for name in names[:2]:
            group.start(name)
        group.until_it_knows("first", 1)
        stream.grow(n // 4)
        group.start("third")  # it joins
        group.daemons["second"].kill()  # it dies
        stream.grow(n // 4)
        group.daemons["first"].stand_still()  # it sleeps for longer than its session
        group.paused.add("first")
        group.until_it_knows("third", n // 2)  # what the others read was taken over
        group.start("second")  # it comes again
        stream.grow(n // 4)
        group.resume("first")  # a zombie for a moment
        assert group.daemons["third"].stop() == 0  # it leaves
        group.start("third")
        expected, n_left = stream.counts()
        for name in names:
            group.until_it_knows(name, n_left)
        for name in names:
            group.daemons[name].until_metric("streamnb_group_parts", PARTITIONS)
        group.until_all_answer_alike()
        for name in names:
            assert group.daemons[name].stop() == 0
    for name in names:
        assert counts_at(group.state(name)) == expected


@pytest.mark.deep
@pytest.mark.integration
def test_members_that_learned_the_same_log_apart_answer_alike(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """What two took back at other places of a log all have alike, whoever comes, goes or dies."""
    topic = new_topic(PARTITIONS)
    stream = RevisedTopic(broker.address, topic, PARTITIONS)
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, group_id=f"of-{topic}")

        def all_know() -> None:
            _, n_left = stream.counts()
            for name in group.daemons:
                group.until_it_knows(name, n_left)

        group.start("first", checkpoint_s=3600.0)  # it hands nothing on
        for _ in range(3):
            stream.grow(1_000)
            all_know()
        group.daemons["first"].stand_still()
        group.start("second")
        group.until_it_knows("second", stream.counts()[1])  # it has read all, at once
        group.resume("first")
        group.until_all_answer_alike()
        group.daemons.pop("first").kill()
        stream.grow(1_000)
        all_know()
        group.start("first")
        all_know()
        group.until_all_answer_alike()
        assert group.daemons.pop("second").stop() == 0
        stream.grow(1_000)
        for name in ("second", "third"):
            group.start(name)
        all_know()
        group.until_all_answer_alike()
        counts, _ = stream.counts()
        for daemon in group.daemons.values():
            assert daemon.stop() == 0
    assert [counts_at(group.state(name)) for name in group.daemons] == [counts] * 3


@pytest.mark.deep
@pytest.mark.integration
def test_who_joins_reads_words_as_the_group_did_before(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Beside parts and a state of an older reading, members old and new keep to that reading."""
    found, topic = examples(600), new_topic(2)
    plain = {"features": {"text": dict.fromkeys(READING, False)}}
    source, group_id = f"kafka://{broker.address}/{topic}", f"of-{topic}"

    def write(begin: int, end: int) -> None:
        for number in range(2):
            rows = [message(found[i], i) for i in range(begin + number, end, 2)]
            fill(broker.address, topic, rows, number)

    with ExitStack() as stack:
        write(0, 300)
        sections = {"model": plain}
        before = DaemonGroup(tmp_path, source, stack, sections=sections, group_id=group_id)
        before.start("first")
        before.until_it_knows("first", 300)
        assert before.daemons["first"].stop() == 0
        write(300, 600)
        group = DaemonGroup(tmp_path, source, stack, group_id=group_id)
        for name in ("second", "first"):
            group.start(name)
        for name in group.daemons:
            group.until_it_knows(name, 600)
        for name, daemon in group.daemons.items():
            assert daemon.stop() == 0
            assert daemon.count("words_read_as_stored") == 1
            assert counts_at(group.state(name)) == counts_of(found, ModelSettings(**plain))


@pytest.mark.deep
@pytest.mark.integration
def test_decayed_parts_move_with_their_times(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each part is, bit for bit, what one process learns of its log, whoever read which piece."""
    topic, n, half_life_s = new_topic(2), 2_000, 60.0
    logs = [
        [
            json.dumps(
                {"text": f"w{i % 97}", "label": i % 2 * 4, "created_at": int(1.7e12) + 977 * i
                 - i * i % 11 * 9_000}
            ).encode()
            for i in range(first, first + n)
        ]
        for first in (0, 31)
    ]  # fmt: skip
    with ExitStack() as stack:
        sections = {"model": {"half_life_s": half_life_s}, "learned": {"messages_max": 0}}
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, sections=sections, group_id=f"of-{topic}")
        for k, name in enumerate(("first", "second", "first")):
            for number, log in enumerate(logs):
                fill(broker.address, topic, log[k * 700 : (k + 1) * 700], number)
            group.start(name)
            group.until_it_knows(name, 2 * min(n, (k + 1) * 700) - 2)
            assert group.daemons[name].stop() == 0
    found = read(group.state("first") / "model.nb").model
    batches = [messages(Partition(topic, k), log) for k, log in enumerate(logs)]
    expected, _ = learned(*batches, half_life_s=half_life_s)
    for name in expected.parts:
        words = sorted(expected.part(name).words())
        own, theirs = (each.part(name).word_counts(words) for each in (expected, found))
        assert own.tolist() == theirs.tolist()


@pytest.mark.deep
@pytest.mark.integration
def test_corrections_move_with_the_partition_of_their_messages(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each is applied once, by whoever reads the message's partition, whoever comes, goes or dies.

    Negative messages are deleted or become positive, so the counts of the classes say when all is
    applied.
    """
    found = examples(1200)
    topic, labels = new_topic(PARTITIONS), new_topic(PARTITIONS)
    wanted = [k for k, (_, label) in enumerate(found) if label == "negative"]
    taught: dict[int | str, Example] = dict(enumerate(found))

    def correct(numbers: list[int]) -> None:
        lines: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for k in numbers:
            offset, number = divmod(k, PARTITIONS)
            place = Partition(topic, number)
            text, was = taught.pop(k)
            if k % 3:
                taught[k] = text, "positive"
            said = Correction(
                "label" if k % 3 else "delete", f"m{k}", 5, {"text": text},
                "positive" if k % 3 else None, was, part_name(place), (topic, number), offset,
            )  # fmt: skip
            lines[number].append(encode(said))
        for number, own in enumerate(lines):
            name = f"made {number} {numbers[0]}"
            taught[name] = name, "positive"
            made = Correction("label", name, 5, {"text": name}, "positive")
            fill(broker.address, labels, [*own, encode(made)], number)

    def counted() -> list[float]:
        return counts_of(taught.values())[0]

    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, f"kafka:{labels}", group_id=f"of-{topic}")
        correct(wanted[0::4])  # before their messages
        for number in range(PARTITIONS):
            rows = range(number, len(found), PARTITIONS)
            fill(broker.address, topic, [message(found[i], i) for i in rows], number)
        group.start("first")
        group.until_it_counts("first", counted())
        correct(wanted[1::4])
        group.start("second")
        for name in ("first", "second"):
            group.until_it_counts(name, counted())
        group.daemons["first"].kill()
        correct(wanted[2::4])
        group.until_it_counts("second", counted())
        group.start("first")
        assert group.daemons["second"].stop() == 0
        correct(wanted[3::4])
        group.until_it_counts("first", counted())
        group.start("second")
        for name in ("first", "second"):
            group.until_it_counts(name, counted())
            assert group.daemons[name].stop() == 0
    for name in ("first", "second"):
        assert counts_at(group.state(name)) == counts_of(taught.values())


@pytest.mark.deep
@pytest.mark.integration
def test_messages_that_wait_for_labels_move_with_their_partition(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Who reads a partition joins its two logs on where another left them, killed or not.

    Labels come before their messages and long after them, while another member had them.
    """
    n, window_s = 1_200, 600
    found = examples(n)
    topic, labels = new_topic(2), new_topic(2)
    taught: list[Example] = []

    def write(what: str, numbers: range, every: int = 1, rest: int = 0) -> None:
        for number in range(2):
            own = [i for i in numbers if i % 2 == number and i // 2 % every == rest]
            lines = [
                {"id": f"m{i}", "created_at": 1_000_000_000 + i} | {"text": found[i][0]}
                if what == topic
                else {"created_at": 1_000_000_000 + i + i % window_s, "label": found[i][1]}
                for i in own
            ]
            fill(
                broker.address, what, [json.dumps(each).encode() for each in lines], number,
                key=lambda k, own=own: f"m{own[k]}",  # type: ignore[misc]  # bound here
            )  # fmt: skip
            taught.extend(found[i] for i in own if what == labels)

    with ExitStack() as stack:
        late = {"late_labels": {"source": f"kafka:{labels}", "window_s": window_s}}
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, sections=late, group_id=f"of-{topic}")
        write(topic, range(n // 2))
        write(labels, range(n // 2), 3)
        group.start("first")
        group.until_it_counts("first", counts_of(taught)[0])
        write(labels, range(n // 2, n), 3)  # their messages are still to come
        n_known = len(taught) // 2
        group.start("second")
        group.until_it_knows("second", n_known)
        write(labels, range(n // 2), 3, 1)
        expected = counts_of(found[i] for i in range(n // 2) if i // 2 % 3 < 2)[0]
        for name in ("first", "second"):
            group.until_it_counts(name, expected)
        group.daemons["first"].kill()
        write(topic, range(n // 2, n))
        group.until_it_counts("second", counts_of(taught)[0])
        group.start("first")
        assert group.daemons["second"].stop() == 0
        write(labels, range(n), 3, 2)
        group.until_it_counts("first", counts_of(taught)[0])
        group.start("second")
        write(labels, range(n // 2, n), 3, 1)
        for name in ("first", "second"):
            group.until_it_counts(name, counts_of(taught)[0])
            assert group.daemons[name].stop() == 0
    for name in ("first", "second"):
        assert counts_at(group.state(name)) == counts_of(found)


@pytest.mark.integration
def test_a_label_topic_of_other_partitions_is_refused(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A correction would never find its message."""
    topic, labels = new_topic(2), new_topic(1)
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, f"kafka:{labels}", group_id=f"of-{topic}")
        daemon = group.start("first")
        assert daemon.wait() == 78


@pytest.mark.deep
@pytest.mark.integration
def test_partitions_may_be_added_to_one_topic_after_the_other(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Corrections wait, and the member says why, until both topics have as many again.

    So they do at a member that is started meanwhile, with a checkpoint of its own or without.
    """
    topic, labels = new_topic(1), new_topic(1)
    made = encode(Correction("label", "made", 5, {"text": "so made"}, "positive"))
    with ExitStack() as stack:
        source, to = f"kafka://{broker.address}/{topic}", f"kafka:{labels}"
        group = DaemonGroup(
            tmp_path, source, stack, to, group_id=f"of-{topic}", metadata_interval_s=0.5
        )
        fill(broker.address, topic, [message(examples(1)[0], 0)])
        fill(broker.address, labels, [made])
        daemon = group.start("first")
        group.until_it_knows("first", 2)
        broker.add_partitions(topic, 2)
        said = "its topic has 1 partitions, and that of source has 2"
        assert said in daemon.until_page("/readyz", 200, said)["degraded"]
        fill(broker.address, labels, [made])
        fill(broker.address, topic, [message(examples(1)[0], 1)], 1)
        group.until_it_knows("first", 3)  # the message; the correction waits
        daemon.kill()
        for name in ("first", "second"):
            daemon = group.start(name)
            assert said in daemon.until_page("/readyz", 200, said)["degraded"]
        assert group.daemons["second"].stop() == 0
        daemon = group.daemons["first"]
        broker.add_partitions(labels, 2)
        fill(broker.address, labels, [made], 1)
        group.until_it_knows("first", 5)
        assert daemon.until_page("/readyz", 200)["degraded"] is None
        assert daemon.stop() == 0


@pytest.mark.integration
def test_members_that_share_no_folder_say_that_they_do_not_know_the_whole(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """What one of them reads the other lacks, and what moves counts twice; alone it has all."""
    topic = new_topic(PARTITIONS)
    with ExitStack() as stack:
        source, alone = f"kafka://{broker.address}/{topic}", {"group": {"folder": None}}
        group = DaemonGroup(tmp_path, source, stack, sections=alone, group_id=f"of-{topic}")
        first = group.start("first")
        until_it_reads_all(first)
        group.start("second")
        for daemon in group.daemons.values():
            said = "2 of 4 partitions are read by other members of the group"
            assert "Set group.folder" in daemon.until_page("/readyz", 200, said)["degraded"]
            daemon.until_metric("streamnb_group_missing_parts", 2)
        assert group.daemons["second"].stop() == 0
        until_it_reads_all(first)
        assert first.stop() == 0
        for daemon in group.daemons.values():
            assert daemon.count("group_without_folder") == 1


def until_it_reads_all(daemon: Daemon) -> None:
    """Wait until a member has all partitions, and says so."""
    daemon.until_page("/readyz", 200, '"degraded":null')
    daemon.until(lambda: daemon.metric("streamnb_group_missing_parts") == 0, "it has all")


@pytest.mark.integration
def test_parts_of_a_topic_made_anew_enter_no_model(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A member without a state of its own ends, and has learned and saved nothing of the old."""
    topic = new_topic(1)
    fill(broker.address, topic, [message(each, i) for i, each in enumerate(examples(100))])
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, group_id=f"of-{topic}")
        first = group.start("first")
        group.until_it_knows("first", 100)
        assert first.stop() == 0
        broker.delete_topic(topic)
        broker.create_topic(topic)
        assert group.start("second").wait() == 78
        saved = group.state("second") / "model.nb"
        assert not saved.exists() or read(saved).model.n_examples == 0


@pytest.mark.integration
def test_positions_in_a_label_topic_made_anew_are_refused(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A member that goes on from the others' parts would pass over the new topic's beginning."""
    topic, labels = new_topic(1), new_topic(1)
    fill(broker.address, topic, [message(each, i) for i, each in enumerate(examples(100))])
    fill(broker.address, labels, [b"no correction"] * 3)
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, f"kafka:{labels}", group_id=f"of-{topic}")
        first = group.start("first")
        group.until_it_knows("first", 100)
        first.until_metric("streamnb_corrections_total", 3)
        assert first.stop() == 0
        (furthest,) = (tmp_path / "shared").rglob(f"*-{3:020d}-*.nb")
        assert read(furthest).header["notes"]["labels_id"]
        broker.delete_topic(labels)
        broker.create_topic(labels)
        fill(broker.address, labels, [b"no correction"] * 9)
        second = group.start("second")
        assert second.wait() == 78
        assert "topic of labels" in str(second.lines)
        saved = group.state("second") / "model.nb"
        assert not saved.exists() or f"{labels}/0" not in read(saved).positions


@pytest.mark.deep
@pytest.mark.integration
def test_who_takes_a_partition_over_erases_what_was_deleted_before(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The last reader had still to: it is in neither folder once further parts have come."""
    topic, secret, n = new_topic(1), "xylophonist", 100
    gone = json.dumps({"operation": "delete", "id": "secret"}).encode()
    rows = [message(each, i) for i, each in enumerate(examples(n))]
    first_rows = [json.dumps({"id": "secret", "text": secret, "label": "positive"}).encode(), gone]
    fill(broker.address, topic, [*first_rows, *rows])
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, group_id=f"of-{topic}")
        first = group.start("first", checkpoint_s=3600.0)
        group.until_it_knows("first", n)
        assert first.stop() == 0
        shared = tmp_path / "shared"
        assert all(holds(each, secret) for each in (group.state("first"), shared))
        second = group.start("second", checkpoint_s=0.1)
        group.until_it_knows("second", n)

        def is_erased() -> bool:
            fill(broker.address, topic, rows[:1])  # else no further checkpoint comes
            learned = group.state("second") / "learned"
            return learned.exists() and not holds(learned, secret) and not holds(shared, secret)

        second.until(is_erased, "it erased that")
        assert second.stop() == 0
    assert not holds(group.state("second"), secret)


def holds(folder: Path, word: str) -> bool:
    """Return whether a file in a folder has a word; one that has just left has none."""
    for path in filter(Path.is_file, folder.rglob("*")):
        with suppress(FileNotFoundError):
            if word.encode() in path.read_bytes():
                return True
    return False


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.integration
def test_the_group_begins_where_its_first_member_began(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """With `latest`, who comes later begins with what was written since, though the first died.

    One partition is still empty when the first member sees the topic.
    """
    found = examples(800)
    topic = new_topic(PARTITIONS)

    def write(begin: int, end: int, partitions: int = PARTITIONS) -> None:
        rows = [message(found[i], i) for i in range(begin, end)]
        for number in range(partitions):
            fill(broker.address, topic, rows[number::partitions], number)

    write(0, 400, PARTITIONS - 1)
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = DaemonGroup(tmp_path, source, stack, group_id=f"of-{topic}", start_from="latest")
        first = group.start("first")
        first.until(lambda: group.begun(PARTITIONS), "begun")
        first.kill()
        write(400, 800)
        group.start("second")
        group.until_it_knows("second", 400)
        assert group.daemons["second"].stop() == 0
    assert counts_at(group.state("second")) == counts_of(found[400:])
