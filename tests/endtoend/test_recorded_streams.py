"""Recordings of well-known streams are read by the name of their preset alone.

Each event is learned, judged, unlearned, ignored or rejected with its reason, and none is rejected.
"""

from __future__ import annotations

import html
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from consumers.cli import evaluation
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.decode.fields import to_unix_ms
from consumers.errors import QuestionError
from consumers.features import build_model
from consumers.monitoring.status import Status, Summary

JETSTREAM = "jetstream_corpus_expected_v1.jsonl"
GOLDEN = "jetstream_golden_v1.jsonl"
TWITTER = "twitter_v1_stream_2016.jsonl.xz"
X = "x_v2_filtered_stream_sample.jsonl"
NO_POSTS = {"account.active": 1, "commit.collection": 132, "kind": 1}


class NoView:
    """Shows nothing, and keeps the last status."""

    status: Status

    def start(self) -> None:
        """Begin."""

    def update(self, status: Status) -> None:
        """Keep it."""
        self.status = status

    def stop(self) -> None:
        """End."""


def settings_of(folder: Path, source: Path, message: Any, **sections: Any) -> Settings:
    """Return settings of a run over a file, which writes what it judged and rejected."""
    return Settings.model_validate(
        {
            "source": f"file:{source}",
            "message": message,
            "http": {"enabled": False},
            "recent": {"enabled": False},
            "checkpoint": {"folder": folder / "state"},
            "predictions": {"to": f"file:{folder / 'predictions.jsonl'}"},
            "rejects": {"to": f"file:{folder / 'rejects.jsonl'}"},
            **sections,
        }
    )


def ran(folder: Path, source: Path, message: Any, **sections: Any) -> tuple[Summary, list[Any]]:
    """Return the summary of a run and its predictions; nothing was rejected."""
    view = NoView()
    summary = run(settings_of(folder, source, message, **sections), view, until_end=True)
    assert (folder / "rejects.jsonl").read_bytes() == b""
    assert not summary.rejected
    ends = summary.learned + summary.judged + summary.deletions + summary.superseded
    assert summary.messages == ends + sum(summary.ignored.values())
    assert view.status.ignored == summary.ignored
    lines = (folder / "predictions.jsonl").read_bytes().splitlines()
    return summary, [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "message", "judged", "deletions", "ignored"),
    [
        (JETSTREAM, "jetstream", 17, 1, NO_POSTS),
        (
            JETSTREAM,
            {"preset": "jetstream", "keep": {"lang": ["en"]}},
            9,
            1,
            NO_POSTS | {"lang": 8},
        ),
        (JETSTREAM, {"preset": "jetstream", "replies": "drop"}, 9, 1, NO_POSTS | {"reply": 8}),
        (GOLDEN, "jetstream", 1, 0, {"account.active": 1, "commit.collection": 7, "kind": 1}),
        (TWITTER, "twitter-v1", 427, 0, {}),
        (TWITTER, {"preset": "twitter-v1", "keep": {"lang": ["en"]}}, 396, 0, {"lang": 31}),
        (TWITTER, {"preset": "twitter-v1", "retweets": "drop"}, 162, 0, {"retweet": 265}),
        (TWITTER, {"preset": "twitter-v1", "retweets": "fold"}, 426, 0, {"retweet": 1}),
        (X, "x-v2", 2, 0, {}),
        (X, {"preset": "x-v2", "retweets": "fold"}, 1, 0, {"retweet": 1}),
    ],
)
def test_a_preset_reads_a_recording(
    tmp_path: Path,
    data_folder: Path,
    name: str,
    message: Any,
    judged: int,
    deletions: int,
    ignored: dict[str, int],
) -> None:
    """The figures are those of the recording, counted by hand; nothing is rejected."""
    summary, predictions = ran(tmp_path, data_folder / "streams" / name, message)
    assert (summary.judged, summary.deletions) == (judged, deletions)
    assert summary.ignored == ignored
    assert len(predictions) == judged


def test_the_texts_are_those_that_people_read(tmp_path: Path, data_folder: Path) -> None:
    """Ids, times and whole texts are those of the originals; no entity is left."""
    source = data_folder / "streams" / TWITTER
    message = {"preset": "twitter-v1", "retweets": "fold"}
    _, predictions = ran(tmp_path, source, message)
    with lzma.open(source) as file:
        tweets = [json.loads(line) for line in file]
    originals = [tweet.get("retweeted_status") or tweet for tweet in tweets]
    # One was itself written as a retweet, by hand: it has no original, and is left out.
    originals = [each for each in originals if not each["text"].startswith("RT @")]
    assert len(originals) == len(tweets) - 1
    assert [(line["id"], line["time_ms"]) for line in predictions] == [
        (each["id_str"], to_unix_ms(each["created_at"])) for each in originals
    ]
    assert [line["text"] for line in predictions] == [
        html.unescape(each["text"]) for each in originals
    ]
    assert any("&amp;" in each["text"] for each in originals)
    assert not any("&amp;" in line["text"] for line in predictions)


def test_a_folded_retweet_teaches_once(tmp_path: Path) -> None:
    """However often a tweet is repeated, its text counts once, and a deletion takes it back."""
    tweet = {"id_str": "1", "text": "so happy :)", "lang": "en"}
    other = {"id_str": "2", "text": "so sad :(", "lang": "en"}
    repeats: list[dict[str, Any]] = [
        {"id_str": f"9{k}", "text": "RT @a: so…", "lang": "en", "retweeted_status": tweet}
        for k in range(5)
    ]
    stream = tmp_path / "tweets.jsonl"
    lines: list[dict[str, Any]] = [repeats[0], tweet, *repeats[1:], other, {"limit": {"track": 3}}]
    message = {"preset": "twitter-v1", "retweets": "fold"}
    labels = {"kind": "emoticons"}
    for name, more, counted in (("kept", [], 1.0), ("gone", [{"delete": {"status": tweet}}], 0.0)):
        folder = tmp_path / name
        folder.mkdir()
        stream.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))
        summary, _ = ran(folder, stream, message, labels=labels)
        assert summary.ignored == {"id_str": 1}
        assert dict(zip(summary.classes, summary.class_counts, strict=True)) == {
            "negative": 1.0,
            "positive": counted,
        }


def test_commands_read_by_the_same_preset(tmp_path: Path, data_folder: Path) -> None:
    """Both judge what the daemon judges or learns, ignore the rest, and say how much that is."""
    source = data_folder / "streams" / JETSTREAM
    settings = settings_of(tmp_path, source, "jetstream", labels={"kind": "emoticons"})
    model = build_model(settings.model)
    lines: list[bytes] = []
    done = evaluation.predict_all(settings, model, model, lines.append)
    assert done == {"judged": 17, "deletions": 1, "rejected": 0, "ignored": 134}
    assert len(b"".join(lines).splitlines()) == 17
    with pytest.raises(QuestionError, match="of 152 read, 17 without a label and none rejected"):
        evaluation.judge(settings, evaluation.Method(), show=False)
