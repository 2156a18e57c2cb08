"""The made-up stream: the same at every run, from every position, and worth reading."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB

from consumers.config.addresses import GeneratorSettings
from consumers.messages import Partition
from consumers.sources.generator import BATCH_MESSAGES_MAX, GeneratorSource
from streamnb.testing import ManualClock

PARTITION = Partition("generator", 0)


def values(settings: GeneratorSettings, n: int, position: int | None = None) -> list[bytes]:
    """Return the first `n` messages from a position on, as fast as they come."""
    clock = ManualClock(50.0)
    source = GeneratorSource(settings, clock, clock.wait)
    source.open({PARTITION: position}.get)
    found: list[bytes] = []
    while len(found) < n:
        for raw in source.poll(1.0):
            found += [raw.value(i) or b"" for i in range(len(raw))]
    return found[:n]


def tweets(n: int, **settings: Any) -> list[dict[str, Any]]:
    """Return the first `n` messages, decoded."""
    made = values(GeneratorSettings(rate_per_s=0, **settings), n)
    return [msgspec.json.decode(value) for value in made]


def test_a_seed_makes_one_stream() -> None:
    """Two runs of one seed agree byte for byte, whatever their rates, and another seed differs."""
    fast = values(GeneratorSettings(seed=1, rate_per_s=0), 700)
    assert fast == values(GeneratorSettings(seed=1, rate_per_s=333), 700)
    assert fast != values(GeneratorSettings(seed=2, rate_per_s=0), 700)


@given(st.integers(0, 2**50), st.integers(0, 700), st.integers(0, 2**70))
def test_every_position_can_be_entered(first: int, further: int, seed: int) -> None:
    """A stream that is entered further on continues with the messages it would have had there."""
    settings = GeneratorSettings(seed=seed, rate_per_s=0)
    assert values(settings, further + 3, first)[further:] == values(settings, 3, first + further)


def test_offsets_are_the_numbers_of_the_messages() -> None:
    """Batches follow each other without a gap, and each says where the next begins."""
    source = GeneratorSource(GeneratorSettings(rate_per_s=0))
    source.open({PARTITION: 41}.get)
    first, second = (source.poll(0)[0] for _ in range(2))
    assert first.partition == PARTITION
    assert first.offsets.tolist() == list(range(41, 41 + BATCH_MESSAGES_MAX))
    assert second.offsets[0] == first.next_offset
    assert np.all(np.diff(first.times_ms) == 1)
    assert not source.at_end()
    assert source.lag() == {}
    assert source.trouble() is None
    source.report_positions({PARTITION: 5})
    source.close()


def test_the_rate_is_kept() -> None:
    """At 2,000 a second, ten seconds of the clock bring 20,000 messages, in small batches."""
    clock = ManualClock(50.0)
    source = GeneratorSource(GeneratorSettings(rate_per_s=2000), clock, clock.wait)
    source.open(lambda _: None)
    sizes = []
    while clock.now_s < 60.0:
        sizes += [len(raw) for raw in source.poll(0.5)]
    assert abs(sum(sizes) - 20_000) <= 20
    assert max(sizes) <= 25


def test_a_poll_waits_no_longer_than_it_may() -> None:
    """A slow stream's poll comes back empty when its time is up, and the message comes in time."""
    clock = ManualClock(50.0)
    source = GeneratorSource(GeneratorSettings(rate_per_s=0.5), clock, clock.wait)
    source.open(lambda _: None)
    assert [len(source.poll(0.75)) for _ in range(3)] == [0, 0, 1]
    assert max(clock.waits_s) <= 0.75
    assert source.poll(0.0) == []


def test_a_caller_that_was_away_is_not_flooded() -> None:
    """After an hour away about a second's messages are waiting, and not an hour's."""
    clock = ManualClock(50.0)
    source = GeneratorSource(GeneratorSettings(rate_per_s=100), clock, clock.wait)
    source.open(lambda _: None)
    clock.now_s += 3600
    assert len(source.poll(0.0)[0]) <= 110
    assert source.poll(0.0) == []


def test_the_labelled_share_is_kept() -> None:
    """About the configured share of messages has a label, 0 or 4, and the rest has none at all."""
    for share in (0.0, 0.4, 1.0):
        made = tweets(3000, labelled_share=share)
        labels = [tweet["label"] for tweet in made if "label" in tweet]
        assert abs(len(labels) / 3000 - share) < 0.03
        assert set(labels) <= {0, 4}


def test_the_new_phone_falls_from_grace() -> None:
    """Before the turn most tweets on the new phone are glad, after it most are not."""
    made = tweets(20_000, labelled_share=1.0, turn_after=10_000)
    shares = []
    for half in (made[:10_000], made[10_000:]):
        labels = [tweet["label"] for tweet in half if "the new phone" in tweet["text"].lower()]
        assert len(labels) > 200
        shares.append(labels.count(4) / len(labels))
    assert shares[0] > 0.75
    assert shares[1] < 0.25


def test_the_tweets_look_like_tweets() -> None:
    """There are hashtags, names, links, emoji, long words and many words, used as words are."""
    texts = [tweet["text"] for tweet in tweets(10_000)]
    for pattern in (r"#\w", r"@\w", r"http://", r"[😀-🥰]", r"([a-z])\1\1", r"\bnot\b", r":\)"):
        assert sum(bool(re.search(pattern, text)) for text in texts) > 100, pattern
    assert max(map(len, texts)) <= 160
    counts = Counter(re.findall(r"[a-z']+", " ".join(texts).lower()))
    ranked = [count for _, count in counts.most_common()]
    assert len([count for count in ranked if count >= 10]) > 400
    assert ranked[0] > 10 * ranked[100] > 10 * ranked[400]
    assert len(set(texts)) > 8000


def test_a_good_classifier_is_mostly_right() -> None:
    """Naive Bayes on words and pairs is right in 80 to 95 of 100 tweets: it learns, not all."""
    made = [tweet for tweet in tweets(8000) if "label" in tweet]
    texts, labels = [t["text"] for t in made], [t["label"] for t in made]
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\S+")
    half = len(made) // 2
    model = BernoulliNB().fit(words.fit_transform(texts[:half]), labels[:half])
    assert 0.8 < model.score(words.transform(texts[half:]), labels[half:]) < 0.95
