"""Presets and the settings that they are made of: what becomes of single messages of a stream."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from consumers.config.message import PRESETS, LateLabelsSettings, MessageSettings
from consumers.config.settings import Settings, to_yaml
from consumers.decode.decoder import Decoder, LabelDecoder
from consumers.decode.fields import account_id, id_of, plain_text
from consumers.decode.labels import NoLabels
from consumers.decode.rows import RecordFormat
from consumers.messages import (
    Messages,
    Reason,
    account_of,
    account_prefixes,
    names_account,
    names_of,
)
from streamnb.kernels.layout import Texts
from tests.consumers.raw_batches import CLASSES, raw


def decoded(message: Any, events: list[Any]) -> Messages:
    """Decode events by settings; nothing is rejected."""
    settings = MessageSettings.model_validate(message)
    values = [json.dumps(event).encode() for event in events]
    found = Decoder(settings, NoLabels(CLASSES)).decode(raw(values))
    assert found.rejects == []
    assert len(found) + sum(found.ignored.values()) == len(events)
    return found


def said(found: Messages) -> list[tuple[str, str, str]]:
    """Return operation, id and text of each message."""
    every = [found.envelope(i) for i in range(len(found))]
    return [(str(each.operation), each.id, each.text) for each in every]


def commit(operation: str, rkey: str, collection: str = "app.bsky.feed.post", **record: Any) -> Any:
    """Return a commit of Jetstream's first wire."""
    body = {"operation": operation, "collection": collection, "rkey": rkey}
    whole = body | ({"record": record} if record else {})
    return {"did": "did:x", "time_us": 1_779_719_009_157_119, "kind": "commit", "commit": whole}


def test_posts_of_both_jetstream_wires_are_the_same() -> None:
    """An id has three parts, so records do not clash; the second wire has an envelope."""
    first = [
        commit("create", "1", text="hi", langs=["en"]),
        commit("create", "1", "app.bsky.feed.like", subject={"uri": "at://x"}),
        commit("update", "1", text="ho", langs=["en"]),
        commit("delete", "1"),
        commit("delete", "1", "app.bsky.graph.follow"),
        {"did": "did:x", "time_us": 1, "kind": "identity", "identity": {"did": "did:x"}},
    ]
    second = [
        {
            "$type": "message",
            "payload": {"$type": f"{EVENT}commit", "did": "did:x", "seq": k, "time": TIME}
            | each["commit"],
        }
        if each["kind"] == "commit"
        else {"$type": "message", "payload": {"$type": f"{EVENT}identity", "did": "did:x"}}
        for k, each in enumerate(first)
    ]
    name = "did:x/app.bsky.feed.post/1"
    expected = [("create", name, "hi"), ("update", name, "ho"), ("delete", name, "")]
    by_wire = [decoded("jetstream", first), decoded("jetstream-v2", second)]
    assert [said(found) for found in by_wire] == [expected, expected]
    assert by_wire[0].ignored == {"kind": 1, "commit.collection": 2}
    assert by_wire[1].ignored == {"payload.$type": 1, "payload.collection": 2}
    assert {each.envelope(0).time_ms for each in by_wire} == {1_779_719_009_157}


EVENT = "network.bsky.jetstream.subscribeEvents#"
TIME = "2026-05-25T14:23:29.157119Z"


STATES = ["deleted", "takendown", "suspended", "deactivated", "throttled", None]


@pytest.mark.parametrize("preset", ["jetstream", "jetstream-v2"])
def test_an_account_that_is_gone_for_good_is_deleted(preset: str) -> None:
    """One that may come back is left alone, and so is one that is active, whatever else is said."""
    events = []
    for active in (False, True):
        for status in STATES:
            own = {"active": active, "did": "did:x", "seq": 7, "time": TIME}
            own |= {} if status is None else {"status": status}
            first = {"did": "did:x", "time_us": 1, "kind": "account", "account": own}
            payload = {"$type": f"{EVENT}account", "did": "did:x", "seq": 9, "time": TIME}
            second = {"$type": "message", "payload": payload | {"account": own}}
            events.append(first if preset == "jetstream" else second)
    found = decoded(preset, events)
    assert said(found) == [("delete", "did:x/~", "")] * 2
    at = "account." if preset == "jetstream" else "payload.account."
    posts = "commit.collection" if preset == "jetstream" else "payload.collection"
    assert found.ignored == {f"{at}active": len(STATES), posts: len(STATES) - 2}


GONE = {"operations": {"create": "create", "gone": "delete_account"}, "id": ["user", "kind", "n"]}


@pytest.mark.parametrize(
    ("own", "event", "name"),
    [
        ({}, {"user": "ann"}, "ann/~"),
        ({}, {"user": "an~n/b", "kind": "post"}, "an~0n~1b/~"),
        ({}, {"user": 17, "text": 3, "n": "7"}, "17/~"),
        ({"sample": 1e-9}, {"user": "ann"}, "ann/~"),  # of no sample: all its messages are meant
        ({"keep": {"kind": ["post"]}}, {"user": "ann"}, "ann/~"),
        ({"unwrap": "payload"}, {"user": "ann", "payload": "{}"}, "ann/~"),
        ({"operation": {"first_of": ["op", "operation"]}}, {"user": "ann", "op": None}, "ann/~"),
        ({"retweets": "fold", "retweet": "original"}, {"user": "ann", "original": {}}, "ann/~"),
        ({}, {"n": 7}, "t-0-100"),  # of nobody
    ],
)
def test_an_operation_deletes_an_account(
    own: dict[str, Any], event: dict[str, Any], name: str
) -> None:
    """It names what all ids of the account begin with, and no message."""
    found = decoded(GONE | own, [event | {"operation": "gone"}])
    assert said(found) == [("delete", name, "")]
    assert names_of(found, np.arange(1)) == [name]


def test_an_account_of_a_wrong_type_is_rejected() -> None:
    """As an id would be."""
    settings = MessageSettings.model_validate(GONE)
    event = json.dumps({"user": ["ann"], "operation": "gone"}).encode()
    (found,) = Decoder(settings, NoLabels(CLASSES)).decode(raw([event])).rejects
    assert "the id at 'user' is ['ann']" in found.detail


@given(st.lists(st.text(alphabet="a/~01", max_size=4), min_size=2, max_size=3))
def test_no_id_names_an_account(parts: list[str]) -> None:
    """And each begins as that of its account does."""
    name, account = id_of(parts) or "", account_id(parts[0])
    assert not names_account(name)
    assert account_of(name) == account
    assert names_account(account or "")
    text = np.frombuffer(bytearray(name.encode()), np.uint8)
    texts = Texts(text, np.zeros(1, np.int64), np.array([len(text)]))
    (end,) = account_prefixes(texts).ends.tolist()
    assert name[:end] + "~" == account


def test_an_update_that_is_left_out_takes_its_message_back() -> None:
    """The model holds what the conditions keep; an update of what never counted is ignored."""
    message = {"preset": "jetstream", "keep": {"lang": ["en"]}, "replies": "drop"}
    found = decoded(
        message,
        [
            commit("update", "1", text="hei", langs=["no"]),
            commit("update", "2", text="yes", langs=["en"], reply={"parent": {}}),
            commit("update", "3", "app.bsky.actor.profile", displayName="x"),
            commit("create", "4", text="yes", langs=["de", "EN-us"]),
            commit("create", "5", text="yes"),
        ],
    )
    post = "did:x/app.bsky.feed.post"
    assert said(found) == [
        ("delete", f"{post}/1", ""),
        ("delete", f"{post}/2", ""),
        ("create", f"{post}/4", "yes"),
    ]
    assert found.ignored == {"commit.collection": 1, "lang": 1}


OF_MESSAGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"keep": {"lang": ["en"]}}, {"lang": "de"}),
    ({"ignore": {"lang": ["de"]}}, {"lang": "de"}),
    ({"keep": {"user": ["ann"]}}, {"user": "bob"}),
    ({"ignore": {"user": ["bob"]}}, {"user": "bob"}),
    ({"ignore": {"text": ["spam"]}}, {"text": "spam"}),
    ({"user": "from.name", "ignore": {"from.name": ["bob"]}}, {"from": {"name": "bob"}}),
    ({"ignore": {"user": "any"}}, {"user": {"name": "bob"}}),
    ({"replies": "drop", "reply": "of"}, {"of": "7"}),
]
NO_SCAN = {"unwrap": "nowhere"}  # messages are decoded one by one then


@pytest.mark.parametrize("path", [{}, NO_SCAN], ids=["scan", "one by one"])
@pytest.mark.parametrize(("message", "own"), OF_MESSAGES)
def test_what_is_said_of_a_message_keeps_no_deletion_out(
    message: dict[str, Any], own: dict[str, Any], path: dict[str, str]
) -> None:
    """By whomever and in whatever language: a deletion, or an update that leaves, takes back."""
    kind = {"kind": ["post"]} | message.get("keep", {})
    message = path | message | {"keep": kind, "sample": 1.0}
    event = {"id": 1, "kind": "post", "text": "hi", "user": "ann", "lang": "en"}
    event |= {"from": {"name": "ann"}} if "from" in own else {}
    event |= {"user": None} if message.get("ignore") == {"user": "any"} else {}
    events = [
        event,
        event | own | {"operation": "delete"},
        event | own | {"operation": "update"},
        event | own,
        # Of something else that has the same id: nothing is taken back.
        event | own | {"operation": "delete", "kind": "like"},
        event | own | {"operation": "update", "kind": "like"},
        event | own | {"operation": "update", "kind": None},
    ]
    found = decoded(message, events)
    assert said(found) == [("create", "1", "hi"), ("delete", "1", ""), ("delete", "1", "")]
    assert sum(found.ignored.values()) == 4


@pytest.mark.parametrize("path", [{}, NO_SCAN], ids=["scan", "one by one"])
def test_an_update_of_no_sample_takes_nothing_back(path: dict[str, str]) -> None:
    """Its message was not of the sample either, whatever condition leaves it out first."""
    message = path | {"sample": 0.25, "ignore": {"user": ["bob"]}}
    both = [
        [{"id": k, "text": "hi", "operation": "update"} | user for k in range(200)]
        for user in ({}, {"user": "bob"})
    ]
    kept, left = (decoded(message, events) for events in both)
    assert said(left) == [("delete", name, "") for _, name, _ in said(kept)]


def test_mastodon_sends_json_within_json_and_html() -> None:
    """A payload is an object in a string, or a deleted id alone; HTML becomes text."""
    status = {
        "id": "7",
        "created_at": "2026-05-25T14:23:29.157Z",
        "language": "en",
        "account": {"acct": "ann"},
        "content": '<p>I &lt;3 <a href="https://x.org">it</a><br>so</p><p>much &amp; more</p>',
    }
    boost = status | {"id": "8", "content": "", "reblog": status}
    events = [
        {"event": "update", "payload": json.dumps(status)},
        {"event": "status.update", "payload": json.dumps(status | {"content": "<p>no</p>"})},
        {"event": "update", "payload": json.dumps(boost)},
        {"event": "delete", "payload": "7"},
        {"event": "filters_changed"},
        {"event": "notification", "payload": json.dumps({"id": "9"})},
    ]
    found = decoded({"preset": "mastodon", "retweets": "fold"}, events)
    text = "I <3 it\nso\nmuch & more"
    assert said(found) == [
        ("create", "7", text),
        ("update", "7", "no"),
        ("update", "7", text),
        ("delete", "7", ""),
    ]
    assert found.ignored == {"event": 2}
    assert (found.envelope(0).user, found.envelope(0).lang) == ("ann", "en")
    dropped = decoded({"preset": "mastodon", "retweets": "drop"}, events)
    assert dropped.ignored == {"event": 2, "retweet": 1}


def test_a_reply_on_mastodon_names_the_status_it_answers() -> None:
    """Each status has the field, and that of one which answers nobody is null."""
    status: dict[str, Any] = {"id": "7", "account": {"acct": "ann"}, "content": "<p>hi</p>"}
    others = [status | {"id": "8", "in_reply_to_id": "7"}, status | {"id": "9"}]
    statuses = [status | {"in_reply_to_id": None}, *others]
    events = [{"event": "update", "payload": json.dumps(each)} for each in statuses]
    found = decoded({"preset": "mastodon", "replies": "drop"}, events)
    assert said(found) == [("create", "7", "hi"), ("create", "9", "hi")]
    assert found.ignored == {"reply": 1}


INNER = rb'"{\"id\":\"7\",\"content\":\"hi %s\"}"'


@pytest.mark.parametrize(
    ("payload", "more", "text"),
    [
        (INNER % rb"\\ud83d", b"", "hi \ufffd"),  # in the payload's own JSON
        (INNER % rb"\ud83d", b"", "hi \ufffd"),  # in the string that holds it
        (INNER % b"all", rb',"stream":["\ud83d"]', "hi all"),  # in another field
        (INNER % rb"\\ud83d\\ude00", b"", "hi \U0001f600"),
    ],
)
def test_half_a_pair_within_json_within_json_is_replaced(
    payload: bytes, more: bytes, text: str
) -> None:
    """Wherever it stands: the payload is read all the same, and no message is lost."""
    event = b'{"event":"update","payload":%s%s}' % (payload, more)
    found = Decoder(MessageSettings.model_validate("mastodon"), NoLabels(CLASSES)).decode(
        raw([event])
    )
    assert (found.rejects, found.ignored) == ([], {})
    assert said(found) == [("create", "7", text)]


def test_deletions_of_twitter_and_x_name_the_id_elsewhere() -> None:
    """They say no more than the id; what is no tweet at all is ignored."""
    tweet = {"id_str": "1", "text": "a &amp; b", "full_text": "a &amp; b c", "lang": "en"}
    extended = tweet | {"id_str": "2", "extended_tweet": {"full_text": "isn&#39;t it"}}
    gone = {"delete": {"status": {"id": 1, "id_str": "1", "user_id": 3}}}
    message = {"preset": "twitter-v1", "keep": {"lang": ["en"]}, "replies": "drop"}
    found = decoded(message, [tweet, extended, gone, {"limit": {"track": 1}}])
    assert said(found) == [
        ("create", "1", "a & b c"), ("create", "2", "isn't it"), ("delete", "1", ""),
    ]  # fmt: skip
    again = [{"type": "retweeted", "id": "1"}]
    lines = [
        {"data": {"id": "1", "text": "hi", "author_id": "3"}},
        {"data": {"delete": {"tweet": {"id": "1", "author_id": "3"}}}},
        {"data": {"id": "2", "text": "so", "referenced_tweets": again}},
        {"data": {"id": "3", "text": "so", "referenced_tweets": [{"type": "quoted", "id": "1"}]}},
        {"errors": [{"title": "operational-disconnect"}]},
    ]
    found = decoded({"preset": "x-v2", "retweets": "drop"}, lines)
    assert said(found) == [("create", "1", "hi"), ("delete", "1", ""), ("create", "3", "so")]
    assert found.ignored == {"data.id": 1, "retweet": 1}


def test_a_reply_on_x_is_told_by_either_field() -> None:
    """Which of them come along is for who reads the stream to ask; a thread is of replies too."""
    user = {"in_reply_to_user_id": "3"}
    kinds = ("replied_to", "quoted", "retweeted")
    to, quoted, again = ({"type": each, "id": "1"} for each in kinds)
    said_of: list[dict[str, Any]] = [
        user,
        {"referenced_tweets": [to]},
        user | {"referenced_tweets": [to]},
        {"referenced_tweets": [quoted, to]},
        {"referenced_tweets": [to | {"text": "a" * 300}]},
    ]
    others: list[dict[str, Any]] = [
        {}, {"in_reply_to_user_id": None}, {"referenced_tweets": [quoted]},
        {"referenced_tweets": [again]}, {"referenced_tweets": []},
        {"referenced_tweets": [quoted | {"text": "a" * 300}]},
    ]  # fmt: skip
    lines = [
        {"data": {"id": str(k), "text": "a"} | own} for k, own in enumerate([*said_of, *others])
    ]
    for more in ({}, {"unwrap": "more"}):  # with which each is read by itself
        found = decoded({"preset": "x-v2", "replies": "drop"} | more, lines)
        assert [name for _, name, _ in said(found)] == [str(k) for k in range(5, 11)]
        assert found.ignored == {"reply": 5}
    found = decoded({"preset": "x-v2", "replies": "drop", "retweets": "drop"}, lines)
    assert found.ignored == {"reply": 5, "retweet": 1}


@pytest.mark.parametrize(
    ("value", "is_reply"),
    [({}, True), ("9", True), (["9"], True), ([{"id": "9"}], True), ([], False), (None, False)],
)
def test_what_makes_a_reply_elsewhere(value: Any, is_reply: bool) -> None:
    """Whatever stands there, but for a list of messages that are no replies."""
    found = decoded({"reply": "to", "replies": "drop"}, [{"text": "a", "to": value}])
    assert found.ignored == ({"reply": 1} if is_reply else {})


def test_an_edit_of_wikimedia_is_named_as_its_label_is() -> None:
    """Canaries and other changes are ignored; a label's id may be of several parts too."""
    edit = {
        "type": "edit", "wiki": "enwiki", "title": "T", "comment": "typo", "user": "ann",
        "timestamp": 1_779_719_009, "revision": {"new": 12, "old": 11}, "meta": {"domain": "e"},
    }  # fmt: skip
    canary = edit | {"meta": {"domain": "canary"}}
    found = decoded("wikimedia", [edit, canary, {"type": "log", "meta": {"domain": "e"}}])
    assert said(found) == [("create", "enwiki/12", "typo")]
    assert found.ignored == {"meta.domain": 1, "type": 1}
    late = LateLabelsSettings(source="file:labels.jsonl", id=("database", "rev_id"))
    label = {"database": "enwiki", "rev_id": 12, "label": "negative"}
    labels = LabelDecoder(late, {}, CLASSES).decode(raw([json.dumps(label).encode()]))
    assert labels.envelope(0).id == "enwiki/12"


@pytest.mark.parametrize(
    ("keep", "left_out"),
    [
        ({"kind": ["post"]}, {"kind": 1}),
        ({"place": ["town", "sea"]}, {"place": 2}),
        ({"lang": ["en", "pt"]}, {"lang": 1}),
        ({"user": ["ann", "bob"]}, {"user": 2}),
        ({"user": ["ann", "bob"], "lang": ["en"]}, {"user": 2, "lang": 3}),
    ],
)
def test_what_conditions_leave_out_is_ignored_by_its_name(
    keep: dict[str, list[str]], left_out: dict[str, int]
) -> None:
    """By kind, collection, language and author; each message counts once, and none is rejected."""
    keys = ("id", "kind", "place", "lang", "user")
    rows = [
        (1, "post", "town", "en", "ann"),
        (2, "post", "town", "pt-BR", "ann"),
        (3, "post", "sea", "de", "bob"),
        (4, "like", "land", "en", "cat"),
        (5, "post", None, "en", None),
        (6, "post", "sea", "pt", "bob"),
    ]
    events = [dict(zip(keys, row, strict=True)) | {"text": "hi"} for row in rows]
    found = decoded({"keep": keep}, events)
    assert found.ignored == left_out
    assert len(found) == len(events) - sum(left_out.values())


def test_a_sample_takes_all_that_concerns_a_message() -> None:
    """A hash of the id decides, so a deletion goes with its message; the share is about right."""
    events = [
        each | ({"operation": operation} if operation else {})
        for operation in (None, "delete")
        for each in ({"id": k, "text": "hi"} for k in range(1_000))
    ]
    found = decoded({"sample": 0.25}, events)
    names = [found.envelope(i).id for i in range(len(found))]
    half = len(names) // 2
    assert names[:half] == names[half:]
    assert 200 < half < 300
    assert found.ignored == {"sample": len(events) - len(names)}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a < b > c", "a < b > c"),
        ('<a title="a > b">x</a>y', "xy"),
        ("<ul><li>a</li><li>b</li></ul>", "a\nb"),
        ("a<!-- b > c -->d<script>e<p></script>f", "adf"),
        ("<p>&amp;lt;</p>", "&lt;"),
        ("<3 and <unclosed", "<3 and <unclosed"),
        ('<span class="invisible">https://</span><span>x.org/</span>', "https://x.org/"),
    ],
)
def test_html_becomes_what_is_read(text: str, shown: str) -> None:
    """Tags leave, blocks are lines, entities are undone once, and what is no tag stays."""
    assert plain_text(text) == shown


@pytest.mark.parametrize(
    "piece", ["<!--", "<a ", '<a "', "<script", "&", "<p>", " \n", "</", " ", "\t"]
)
def test_long_html_takes_one_pass(piece: str) -> None:
    """A megabyte that opens again and again must not take a square of the time."""
    plain_text(f"<{piece * (1_000_000 // len(piece))}.")
    assert plain_text("<" + "a" * 1_000_000).startswith("<a")


@pytest.mark.parametrize("markup", ["entities", "html"])
def test_a_number_of_thousands_of_digits_is_an_entity(markup: str) -> None:
    """Python reads none of more than 4,300: one of zeros is a letter, others are no character."""
    text = f"a&#{'1' * 5_000};b&#{'0' * 5_000}65;&amp;"
    found = decoded({"preset": "twitter-v1", "markup": markup}, [{"id_str": "1", "text": text}])
    assert said(found) == [("create", "1", "a\ufffdbA&")]


def test_a_language_of_a_megabyte_is_one_of_none() -> None:
    """An author writes it, and each of its ranges would be as long as it."""
    message = {"preset": "jetstream", "keep": {"lang": ["en", "pt_BR"]}, "max_bytes": 1 << 21}
    langs = ["-" * 1_000_000, ["en" + "-a" * 400_000], ["pt-br"], "pt_BR", "pt"]
    found = decoded(
        message, [commit("create", f"{k}", text="hi", langs=v) for k, v in enumerate(langs)]
    )
    assert [name[-1] for _, name, _ in said(found)] == ["1", "2", "3"]
    assert found.ignored == {"lang": 2}


def test_a_payload_stays_within_its_place() -> None:
    """Text that is no JSON by itself must not become further fields of the event."""
    payload = '{"id": "7", "content": "x"}, "event": "delete"'
    message = MessageSettings.model_validate("mastodon")
    event = json.dumps({"event": "update", "payload": payload}).encode()
    found = Decoder(message, NoLabels(CLASSES)).decode(raw([event]))
    assert [reject.reason for reject in found.rejects] == [Reason.NOT_JSON]


def test_a_folded_reply_is_a_reply() -> None:
    """A retweet counts as its original: one that is left out does not come back by it."""
    reply = {"id_str": "1", "text": "a", "in_reply_to_status_id_str": "9"}
    retweet = {"id_str": "2", "text": "RT @x: a", "retweeted_status": reply}
    plain = retweet | {"id_str": "3", "retweeted_status": {"id_str": "4", "text": "b"}}
    message = {"preset": "twitter-v1", "retweets": "fold", "replies": "drop"}
    found = decoded(message, [reply, retweet, plain])
    assert said(found) == [("update", "4", "b")]
    assert found.ignored == {"reply": 2}


def test_an_original_that_is_a_retweet_by_its_text_stays_out() -> None:
    """Folded it would come back, and one without a text would be replaced by the retweet's."""
    marked = {"id_str": "1", "text": "RT @x: a"}
    events = [
        marked,
        {"id_str": "2", "text": "RT @y: RT @x: a", "retweeted_status": marked},
        {"id_str": "3", "text": "RT @y: b", "retweeted_status": {"id_str": "4"}},
        {"id_str": "5", "text": "RT @y: b", "retweeted_status": {"id_str": "6", "text": "b"}},
    ]
    found = decoded({"preset": "twitter-v1", "retweets": "fold"}, events)
    assert said(found) == [("update", "6", "b")]
    assert found.ignored == {"retweet": 3}


def test_columns_of_csv_are_found_by_several_names() -> None:
    """The first cell that is not empty counts, for texts and for the id of a deletion."""
    message = MessageSettings.model_validate(
        {"text": {"first_of": ["long", "text"]}, "deleted": "gone", "keep": {"id": "any"}}
    )
    form = RecordFormat("csv", ("id", "gone", "long", "text"))
    rows = [b"1,,whole,who", b"2,,,short", b"3,,,", b",1,,"]
    found = Decoder(message, NoLabels(CLASSES), form).decode(raw(rows))
    assert [(each.id, each.reason) for each in found.rejects] == [("3", Reason.MISSING_TEXT)]
    assert said(found) == [
        ("create", "1", "whole"), ("create", "2", "short"), ("delete", "1", "")
    ]  # fmt: skip


def test_presets_are_settings_like_any_other() -> None:
    """What stands beside wins, conditions are joined, and what is printed means the same again."""
    for name in PRESETS:
        settings = Settings.model_validate({"message": name})
        assert Settings.model_validate(settings.model_dump(mode="json")) == settings
        assert f"preset: {name}" in to_yaml(settings)
        assert settings.message.nfc
    own = {"preset": "jetstream", "keep": {"lang": ["en"], "kind": None}, "nfc": False}
    message = MessageSettings.model_validate(own)
    assert message.keep == {
        "kind": None, "commit.collection": ("app.bsky.feed.post",), "lang": ("en",),
    }  # fmt: skip
    assert not message.nfc
    assert MessageSettings.model_validate(message.model_dump(mode="json")) == message


@pytest.mark.parametrize("nfc", [True, False])
def test_presets_bring_texts_to_one_form(nfc: bool) -> None:
    """A letter and its accent become one character, unless `nfc: false` stands beside."""
    texts = ["cafe\u0301", "caf\u00e9", "plain"]
    events = [commit("create", str(k), text=text) for k, text in enumerate(texts)]
    found = said(decoded({"preset": "jetstream", "nfc": nfc}, events))
    assert [text for _, _, text in found] == ["caf\u00e9" if nfc else texts[0], *texts[1:]]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("bluesky", "must have a preset of jetstream"),
        ({"preset": "x-v3"}, "must have a preset of jetstream"),
        ({"text": {"first_of": []}}, "must be a field's name or path, or first_of"),
        ({"text": {"first_of": ["a", "a"]}}, "must be distinct"),
        ({"text": {"any_of": ["a"]}}, "must be a field's name or path, or first_of"),
        ({"keep": {"lang": "en"}}, "must be a list of values"),
        ({"keep": {"lang": []}}, "must be a list of values"),
        ({"retweets": "fold"}, "fold needs retweet"),
        ({"replies": "drop"}, "drop needs reply"),
        ({"id": ["a", "b"], "deleted": "c"}, "id must be a single path"),
        ({"unwrap": "a.b"}, "must be a name"),
        ({"sample": 0}, "greater than 0"),
        ({"operations": {"new": "insert"}}, "'create', 'update', 'delete' or 'delete_account'"),
        ({"operations": {"gone": "delete_account"}}, "needs id: a list of paths"),
    ],
)
def test_wrong_settings_are_named(message: Any, error: str) -> None:
    """Each says what was expected."""
    with pytest.raises(ValidationError, match=error):
        Settings.model_validate({"message": message})
