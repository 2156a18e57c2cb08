"""Decode odd and broken messages on every way that they may come, and damaged record batches."""

from __future__ import annotations

import random
import struct
from typing import Any

from consumers.config.message import FieldLabels, MessageSettings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import FieldLabeller
from consumers.kafka.client import from_kafka_python
from consumers.kafka.fetch_columns import ColumnRecords
from consumers.messages import Messages, Partition, RawColumns, Reason
from consumers.sources.records import raw_columns, split_lines
from streamnb.kernels import warm_up
from tests.campaigns.campaign import Run
from tests.campaigns.watchdog import resident_mb, watchdog, watched_steps
from tests.consumers.kafka.test_fetch_columns import CODECS, STOCK, drained, opened
from tests.consumers.raw_batches import CLASSES
from tests.endtoend.test_any_message import USUAL, odd_message
from tests.kernels.record_batches import batch, next_offset

N_DRAWN, N_MADE = 50, 1_000
SHORT = 2_000  # bytes: what is longer takes its time, and is not changed
N_RESPONSES = 100
GROWTH_MB_MAX = 64  # of resident memory after the first tenth; the largest batches take some
_LOG = Partition("topic", 3)
_READS: Any = {
    "text": "words", "amount": "numbers", "flag": "flags", "kind": "categories", "x": "words",
}  # fmt: skip


def decoders(run: Run) -> None:
    """Every message, however broken, ends in one place: from a file and by both Kafka decoders."""
    warm_up()
    decoder = Decoder(
        MessageSettings(fields=("amount", "flag", "kind", "x")),
        FieldLabeller(FieldLabels(), CLASSES),
        reads=_READS,
    )
    first_mb = 0.0
    with watchdog() as say:
        for i, (chance, _) in enumerate(run.steps()):
            say(run.replay)
            values = _odd_values(chance)
            data = batch(
                0, [(b"k", value) for value in values], codec=chance.choice([*CODECS.values()])
            )
            ends = [
                _ends(decoder.decode(raw))
                for raw in (
                    _of_file(values),
                    _of_kafka(ColumnRecords, data),
                    _of_kafka(STOCK, data),
                )
            ]
            assert ends[0] == ends[1] == ends[2]
            run.figures["messages"] += len(values)
            run.figures["rejects"] += sum(isinstance(end, Reason) for end in ends[0].values())
            if i == run.n // 10:
                first_mb = resident_mb()
    growth_mb = max(0, round(resident_mb() - first_mb))
    run.figures["MB of growth"] = growth_mb
    assert growth_mb <= GROWTH_MB_MAX


def _odd_values(chance: random.Random) -> list[bytes]:
    """Return odd messages, and what comes of them when bytes change, leave or come twice."""
    drawn = [odd_message(chance) for _ in range(N_DRAWN)]
    values, drawn = list(drawn), [value for value in drawn if len(value) < SHORT]
    drawn += [_usual_message(chance) for _ in range(2 * N_DRAWN)]
    while len(values) < N_MADE:
        value = bytearray(chance.choice(drawn))
        for _ in range(chance.choice((1, 1, 1, 3))):
            begin = chance.randrange(len(value) + 1)
            end = begin + chance.choice((0, 1, 1, 2, 8, 50))
            other = chance.choice(drawn)
            at = chance.randrange(len(other) + 1)
            value[begin:end] = chance.choice(
                (
                    b"",
                    value[begin:end] * 2,
                    chance.randbytes(end - begin),
                    other[at : at + 20],
                    *[bytes([chance.choice(b"abcxyz014 \\")])] * 6,
                )
            )
        made = bytes(value).replace(b"\n", b" ").replace(b"\r", b" ")
        if made.strip():  # an empty line of a file is no message
            values.append(made)
    return values


def _usual_message(chance: random.Random) -> bytes:
    fields = [f'"{name}":{chance.choice(values)}' for name, values in USUAL.items()]
    return ("{" + ",".join(fields) + "}").encode()


def _of_file(values: list[bytes]) -> RawColumns:
    buffer = b"\n".join(values) + b"\n"
    records = split_lines(buffer, last=True)
    n = len(records.starts)
    return raw_columns(_LOG, buffer, records, records.starts * 0 + range(n), n)


def _of_kafka(cls: Any, data: bytes) -> RawColumns:
    return from_kafka_python(_LOG, list(opened(cls, data).take(None)))


def _ends(found: Messages) -> dict[int, Any]:
    """Return where each message of a batch ended, by its offset; none in two places."""
    ends: dict[int, Any] = {
        offset: (label, operation)
        for offset, label, operation in zip(
            found.offsets.tolist(), found.labels.tolist(), found.operations.tolist(), strict=True
        )
    }
    rejects = {reject.offset: reject.reason for reject in found.rejects}
    assert Reason.DECODER_FAILED not in rejects.values()
    assert not ends.keys() & rejects.keys()
    assert ends.keys() | rejects.keys() == set(found.raw.offsets.tolist())
    return ends | rejects


def record_batches(run: Run) -> None:
    """Record batches with flipped bits or without their end give what the client gives, or less."""
    warm_up()
    for chance, _ in watched_steps(run):
        _read_responses(chance, run)


def _read_responses(chance: random.Random, run: Run) -> None:
    for _ in range(N_RESPONSES):
        whole = bytearray(b"".join(_batches(chance)))
        for _ in range(chance.choice((0, 1, 1, 3)) if whole else 0):
            whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        cut = bytes(whole[: chance.choice((len(whole), chance.randrange(len(whole) + 1)))])
        found, error = drained(opened(ColumnRecords, cut), chance.choice((1, 3, 50)))
        run.figures["responses"] += 1
        run.figures["refused"] += error is not None
        try:
            expected, stock_error = drained(opened(STOCK, cut), 50)
        except (struct.error, AssertionError):  # the client stumbles over its own header
            assert error is not None
            continue
        assert found == expected[: len(found)]
        if error is None:
            assert (len(found), stock_error) == (len(expected), None)


def _batches(chance: random.Random) -> list[bytes]:
    made, at = [], chance.randrange(3)
    for _ in range(chance.randrange(4)):
        pairs = [
            (chance.choice((None, b"key")), chance.randbytes(chance.choice((0, 3, 130))))
            for _ in range(chance.randint(1, 20))
        ]
        codec = chance.choice([*CODECS.values()])
        made.append(batch(at, pairs, codec=codec, gaps=[chance.choice((0, 0, 9))]))
        at = next_offset(made[-1])
    return made
