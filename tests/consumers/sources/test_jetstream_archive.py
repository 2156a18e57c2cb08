"""Jetstream's archive: blocks become the wire's frames, and live goes on where they end."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import zstandard
from pydantic import ValidationError

from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import NoLabels
from consumers.messages import Reason
from consumers.sources.records import BlockRow, block_rows, frame_of
from tests.consumers.decode.test_shaping import decoded, said
from tests.consumers.raw_batches import CLASSES, raw
from tests.consumers.sources.live_server import (
    PATIENCE_S,
    LiveServer,
    Peer,
    commit2,
    frame,
    time_us,
)
from tests.consumers.sources.test_live import begun

POST = "app.bsky.feed.post"
TOO_OLD = json.dumps({"error": "CursorTooOld", "message": "gone"})


def cbor(value: Any) -> bytes:
    """Return DAG-CBOR, plainly."""
    match value:
        case None | bool():
            found = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value]
        case str():
            found = head(3, len(value.encode())) + value.encode()
        case bytes():
            found = head(2, len(value)) + value
        case float():
            found = b"\xfb" + struct.pack(">d", value)
        case int():
            found = head(0, value) if value >= 0 else head(1, -1 - value)
        case dict():
            found = head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
        case _:
            found = head(4, len(value)) + b"".join(map(cbor, value))
    return found


def head(major: int, n: int) -> bytes:
    """Return the head of a value in its shortest form."""
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 24:
            return bytes([major << 5 | n])
        if n < 1 << 8 * size:
            return bytes([major << 5 | info]) + n.to_bytes(size)
    raise ValueError(n)


def row(n: int, record: bytes | None = None, **more: Any) -> BlockRow:
    """Return post number `n` as a block has it; `commit2` is its frame, but for what it adds."""
    text = cbor({"text": f"text {n}"}) if record is None else record
    given = BlockRow(100 + n, time_us(n), 0, 1, POST, "did:plc:a", f"k{n}", f"r{n}", text)
    return given._replace(**more)


def block(rows: Sequence[BlockRow]) -> bytes:
    """Return the bytes of a block, unpacked."""
    found = len(rows).to_bytes(4, "little")
    for i, kind in enumerate("Qqq"):
        found += struct.pack(f"<{len(rows)}{kind}", *(each[i] for each in rows))
    texts = [[str(each[i]).encode() for each in rows] for i in range(4, 8)]
    texts.append([each.payload for each in rows])
    found += bytes(each.kind for each in rows)
    for kind, column in zip("BHBBI", texts, strict=True):
        found += struct.pack(f"<{len(rows)}{kind}", *map(len, column))
    return found + b"".join(b"".join(column) for column in texts)


def segment(*blocks: bytes) -> bytes:
    """Return a segment's file, without what stands behind its blocks."""
    body = b"".join(len(each).to_bytes(8, "little") + each for each in blocks)
    header = bytearray(256)
    header[:4], header[12:14] = b"jss0", b"\1\0"
    header[58:66] = (256 + len(body)).to_bytes(8, "little")
    return bytes(header) + body + b"an index"


class Host:
    """A script of a host with an archive of packed blocks, and a live end."""

    def __init__(self, archive: Sequence[Sequence[BlockRow]], live: bytes, mode: str) -> None:
        self.asked: list[tuple[str, Any, str | None]] = []
        self._blocks = [zstandard.compress(block(rows)) for rows in archive]
        self._last = [rows[-1].seq for rows in archive]
        self._times = [rows[-1].witnessed_us for rows in archive]
        self._live = live
        self._mode = mode

    def __call__(self, peer: Peer) -> None:
        """Answer a question."""
        name = peer.path.rpartition(".")[2]
        self.asked.append((name, peer.asked, peer.header("Authorization")))
        if name == "subscribeEvents":
            cursor = int(peer.asked.get("cursor", 10**15))
            if cursor <= self._last[-1]:
                peer.answer("400 Bad Request", TOO_OLD)
                return
            peer.accept()
            peer.send(self._live)
            peer.until_closed()
            return
        found = getattr(self, name)(peer)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(found), found))

    def listSegments(self, peer: Peer) -> bytes:  # noqa: N802 -- as the protocol calls it
        """Return the segments, one a page."""
        i = int(peer.asked.get("cursor", 0))
        listed = {"minSeq": 1 + ([0, *self._last][i]), "maxWitnessedAt": self._times[i]}
        more = {"cursor": str(i + 1)} if i + 1 < len(self._last) else {}
        return json.dumps({"segments": [listed], **more}).encode()

    def planSnapshot(self, peer: Peer) -> bytes:  # noqa: N802
        """Return a plan of one segment a page."""
        after = int(json.loads(peer.body())["afterSeq"])
        left = [i for i, last in enumerate(self._last) if last > after][:1]
        planned = {"mode": self._mode, "blocks": [{"first": 0, "last": 0}]}
        through = self._last[left[0]] if left else self._last[-1]
        segments = [{"name": str(i), **planned} for i in left]
        return json.dumps(
            {"segments": segments, "plannedThroughSeq": through, "sealedTipSeq": self._last[-1]}
        ).encode()

    def getSegment(self, peer: Peer) -> bytes:  # noqa: N802
        """Return a segment of one block."""
        return segment(self._blocks[int(peer.asked["name"])])

    def getBlock(self, peer: Peer) -> bytes:  # noqa: N802
        """Return that block alone."""
        return self._blocks[int(peer.asked["segment"])]


def numbers(values: Sequence[bytes]) -> list[int]:
    """Return the numbers of frames."""
    return [json.loads(each)["payload"]["seq"] for each in values]


@pytest.mark.parametrize("mode", ["segment", "blocks"])
def test_the_archive_comes_first_and_then_what_is_live(mode: str) -> None:
    """What a subscription refuses comes from the archive, filtered as a subscription is, page after
    page; then a subscription goes on behind it. The key is for the archive alone.
    """
    other = row(3, collection="app.bsky.feed.like"), row(4, kind=4, payload=cbor({"seq": 4}))
    host = Host([[row(1), row(2)], [*other, row(5)]], frame(commit2(6)), mode)
    with LiveServer(host) as server:
        run = begun([server], 2, history=True, archive_key="k" * 20)
        run.until_n(4)
        run.source.close()
    assert numbers(run.values) == [101, 102, 105, 106]
    assert json.loads(run.values[0])["payload"]["record"] == {"text": "text 1"}
    assert run.source.gaps == 0
    keys = {name: key for name, _, key in host.asked}
    assert keys.pop("subscribeEvents") is None
    assert set(keys.values()) == {f"Bearer {'k' * 20}"}
    live = [query["cursor"] for name, query, _ in host.asked if name == "subscribeEvents"]
    assert live == ["1", "106"]


def test_a_time_finds_its_segment_and_a_young_one_is_live() -> None:
    """Asked by time, what is older is left out; a time behind all segments is a subscription's."""
    for begin, expected in ((4, [104, 105, 106]), (6, [106])):
        host = Host([[row(1), row(2)], [row(3), row(4), row(5)]], frame(commit2(6)), "segment")
        with LiveServer(host) as server:
            run = begun([server], 2, history=True, start_at=time_us(begin))
            run.until_n(len(expected))
            run.source.close()
        assert numbers(run.values) == expected


def test_pages_of_segments_that_begin_again_are_told() -> None:
    """A host whose cursors repeat would be asked for ever otherwise."""
    host = Host([[row(1)], [row(2)], [row(3)]], b"", "segment")
    listed = host.listSegments

    def again(peer: Peer) -> bytes:
        page = json.loads(listed(peer))
        return json.dumps({**page, "cursor": page.get("cursor", "1")}).encode()

    host.listSegments = again  # type: ignore[method-assign]
    with LiveServer(host) as server:
        run = begun([server], 2, history=True, start_at=time_us(4))
        run.until(lambda: run.source.trouble() is not None)
        run.source.close()
    assert "listSegments: the pages do not go on" in (run.source.trouble() or "")


def test_a_kill_in_the_archive_costs_nothing() -> None:
    """A checkpoint in the middle of the archive goes on there: nothing is missing or double."""
    host = Host([[row(n)] for n in range(1, 9)], frame(commit2(9)), "blocks")
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)
        run.until_n(4)
        facts = run.source.logs({run.source.partition: 3})
        run.source.close()
        again = begun([server], 2, 3, facts, history=True)
        again.until_n(6)
        again.source.close()
    assert numbers(run.values[:3] + again.values) == list(range(101, 110))
    assert again.source.gaps == 0


@pytest.mark.parametrize("cut", ["planSnapshot", "getBlock", "subscribeEvents"])
@pytest.mark.parametrize("has_blocks", [True, False])
def test_an_archive_without_what_is_asked_for_is_no_trouble_after_a_cut(
    cut: str, *, has_blocks: bool
) -> None:
    """Of few accounts nothing may come for long: that the archive is read shows that it goes on."""
    theirs = [row(1, collection="app.bsky.feed.like"), row(2, collection="app.bsky.feed.like")]
    host = Host([theirs], b"", "blocks")
    plan = host.planSnapshot

    def planned(peer: Peer) -> bytes:
        found = json.loads(plan(peer))
        return json.dumps(found if has_blocks else {**found, "segments": []}).encode()

    host.planSnapshot = planned  # type: ignore[method-assign]
    left = [cut, cut] if has_blocks or cut != "getBlock" else []

    def script(peer: Peer) -> None:
        is_first = cut == "subscribeEvents" and peer.asked.get("cursor") == "1"
        if left and peer.path.rpartition(".")[2] == left[-1] and not is_first:
            left.pop()
        else:
            host(peer)

    with LiveServer(script) as server:
        run = begun([server], 2, history=True)
        if left:
            run.until(lambda: run.source.trouble() is not None)
        run.until(lambda: not left and run.source.trouble() is None)
        run.source.close()
    assert run.values == []


def test_an_archive_whose_blocks_do_not_come_stays_a_trouble() -> None:
    """A plan, which comes each time, is no sign that it goes on."""
    host = Host([[row(1), row(2)]], b"", "blocks")
    n_plans, is_asked = 0, threading.Event()

    def script(peer: Peer) -> None:
        nonlocal n_plans
        if peer.path.endswith("getBlock"):
            is_asked.wait(PATIENCE_S)  # until the plan's bytes were seen
            return
        n_plans += peer.path.endswith("planSnapshot")
        host(peer)

    with LiveServer(script) as server:
        run = begun([server], 2, history=True)
        is_asked.set()
        run.until(lambda: run.source.trouble() is not None)
        is_asked.clear()
        seen = n_plans
        while n_plans == seen:
            run.poll()
        for _ in range(3):
            run.poll()
            assert run.source.trouble() is not None
        is_asked.set()
        run.source.close()
    assert run.values == []


def test_every_value_of_a_record_is_read() -> None:
    """Links and bytes are as JSON has them; of what cannot be read the bytes are the message."""
    cid = b"\0\1\x71\x12\x20" + bytes(32)
    link = b"\xd8\x2a" + cbor(cid)
    values = {"a": [1, -500, 1 << 40, 2.5, None, True, False], "b": b"\1\2", "c": {"é": "ü"}}
    record = cbor(values)[:1] + cbor(values)[1:]
    linked = b"\xa1" + cbor("d") + link
    read = json.loads(frame_of(row(1, record)))["payload"]["record"]
    assert read == {**values, "b": {"$bytes": "AQI"}}
    found = json.loads(frame_of(row(1, linked)))["payload"]["record"]["d"]["$link"]
    assert found == "bafyrei" + "a" * 52
    for broken in (record[:-1], b"\xff", b"\x5f", b"\xd8\x2b" + cbor(cid), b"\x81" * 500 + b"\0"):
        assert frame_of(row(1, broken)) == b"\0" + broken


def test_an_account_of_the_archive_is_deleted_by_the_preset() -> None:
    """The preset looks for an account's status where a frame has it."""
    own = {"active": False, "did": "did:plc:a", "seq": 7, "status": "deleted"}
    event = json.loads(frame_of(row(1, cbor(own), kind=5, collection="", rkey="", rev="")))
    assert event["payload"]["account"] == own
    assert said(decoded("jetstream-v2", [event])) == [("delete", "did:plc:a/~", "")]


def test_a_resync_of_the_archive_is_as_on_the_wire() -> None:
    """What an account had is deleted, and what it has is created behind it."""
    own = {"did": "did:plc:a", "rev": "r9", "seq": 7}
    rows = [row(1, cbor(own), kind=6, collection="", rkey="", rev=""), row(2, kind=7)]
    found = said(decoded("jetstream-v2", [json.loads(frame_of(each)) for each in rows]))
    assert [operation for operation, *_ in found] == ["delete", "create"]
    assert found[0][1] == "did:plc:a/~"


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_broken_block_is_an_error(cut: int) -> None:
    """A block that is cut off anywhere, or goes on behind its end, is refused as a whole."""
    whole = block([row(1), row(2)])
    assert list(block_rows(whole)) == [row(1), row(2)]
    assert list(block_rows(bytes(4))) == []
    for broken in (whole[:-cut], whole + bytes(cut)):
        with pytest.raises(ValueError, match=r"block|buffer"):
            list(block_rows(broken))


def test_a_broken_archive_is_told_and_tried_again() -> None:
    """A block that does not unpack is the trouble that is shown; the next try has what it asks."""
    host = Host([[row(1)], [row(2)]], frame(commit2(3)), "blocks")
    whole, host._blocks[1] = host._blocks[1], b"no block"
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)
        run.until(lambda: "history: " in (run.source.trouble() or ""))
        host._blocks[1] = whole
        run.until_n(3)
        run.source.close()
    assert numbers(run.values) == [101, 102, 103]
    assert run.source.gaps == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"history": True}, "history needs version: 2"),
        ({"version": 2, "archive_key": "k"}, "archive_key is for history: true"),
        ({"version": 2, "history": True, "archive_key": "a\nb"}, "must be ASCII, in one line"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], why: str) -> None:
    """Each is told in one line."""
    with pytest.raises(ValidationError, match=why):
        Settings.model_validate({"jetstream": given})


def test_broken_records_are_messages() -> None:
    """A record that looks like a frame of the wire, and even like its error, ends nothing."""
    error = b'{"$type":"error","error":"CursorTooOld"}'
    host = Host([[row(1, b"{}"), row(2, error), row(3)]], frame(commit2(4)), "blocks")
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)
        run.until_n(4)
        run.source.close()
    assert run.values[:2] == [b"\0{}", b"\0" + error]
    assert numbers(run.values[2:]) == [103, 104]
    assert run.source.gaps == 0


@pytest.mark.parametrize("at_us", [(1 << 63) - 1, -(1 << 63)])
def test_a_time_that_is_none_costs_its_own_row(at_us: int) -> None:
    """A row whose time no date can hold is rejected like a broken record; those behind it come."""
    host = Host([[row(1), row(2, indexed_us=at_us), row(3)], [row(4)]], frame(commit2(5)), "blocks")
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)
        run.until_n(5)
        run.source.close()
    assert run.values[1] == b"\0" + row(2).payload
    settings = Settings.model_validate({"message": "jetstream-v2"})
    done = Decoder(settings.message, NoLabels(CLASSES)).decode(raw(run.values[1:2]))
    assert [each.reason for each in done.rejects] == [Reason.NULL_BYTES]
    assert numbers(run.values[:1] + run.values[2:]) == [101, 103, 104, 105]
    assert run.source.trouble() is None


def test_a_segment_without_an_end_is_tried_again() -> None:
    """A footer that lies within the header leaves no block out in silence."""
    host = Host([[row(1)], [row(2)], [row(3)]], frame(commit2(4)), "segment")
    whole, n_broken = host.getSegment, [0]

    def broken_once(peer: Peer) -> bytes:
        found = bytearray(whole(peer))
        if peer.asked["name"] == "1" and not n_broken[0]:
            n_broken[0] += 1
            found[58:66] = bytes(8)
        return bytes(found)

    host.getSegment = broken_once  # type: ignore[method-assign]
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)
        run.until_n(4)
        run.source.close()
    assert numbers(run.values) == [101, 102, 103, 104]
    assert n_broken == [1]


def test_what_a_plan_names_twice_comes_once() -> None:
    """Also beyond what is known by key: numbers that were read are left out."""
    host = Host([[row(1), row(2)], [row(2), row(3)], [row(1), row(4)]], frame(commit2(5)), "blocks")
    plan = host.planSnapshot
    host.planSnapshot = lambda peer: plan(peer).replace(  # type: ignore[method-assign]
        b'"segments": [', b'"segments": [{"name": "0", "mode": "segment"}, '
    )
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)
        read: list[int] = []
        known = run.source._keys  # what is forgotten may come again
        while len(read) < 5:
            run.poll()
            known.clear()
            read = numbers(run.values)
        run.source.close()
    assert read == [101, 102, 103, 104, 105]


def test_a_live_end_behind_the_archive_is_a_gap() -> None:
    """What neither has is counted, and it goes on live."""
    host = Host([[row(1)], [row(2)]], frame(commit2(60)), "blocks")

    def script(peer: Peer) -> None:
        name = peer.path.rpartition(".")[2]
        if name == "subscribeEvents" and int(peer.asked.get("cursor", 10**15)) < 150:
            peer.answer("400 Bad Request", TOO_OLD)
        else:
            host(peer)

    with LiveServer(script) as server:
        run = begun([server], 2, history=True)
        run.until_n(3)
        run.source.close()
    assert numbers(run.values) == [101, 102, 160]
    assert run.source.gaps == 1


def test_an_archive_of_other_collections_is_not_silent() -> None:
    """Blocks that hold nothing wanted come for longer than a silence may last."""
    likes = [[row(n, collection="app.bsky.feed.like")] for n in range(1, 9)]
    host = Host([*likes, [row(9)]], frame(commit2(10)), "blocks")
    one = host.getBlock
    with LiveServer(host) as server:
        run = begun([server], 2, history=True)

        def later(peer: Peer) -> bytes:
            run.clock.now += 40.0  # of 60 that a silence may last
            return one(peer)

        host.getBlock = later  # type: ignore[method-assign]
        run.until_n(2)
        run.source.close()
    assert numbers(run.values) == [109, 110]
    assert sum(name == "getBlock" for name, _, _ in host.asked) == 9
