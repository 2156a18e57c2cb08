"""A daemon that learns from a file which tests write on: what it shows is what they wrote."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consumers.config.addresses import GeneratorSettings
from consumers.sources.generator import TweetMaker
from tests.endtoend.daemon_process import Daemon, write_config

SEED = 7
FIRST_TWEETS = 3_000
_SPAN_S = 900.0  # the first tweets are spread over the last quarter of an hour


class Book:
    """The file, and the daemon that follows it.

    Parameters
    ----------
    daemon : Daemon
        The daemon, running.
    path : Path
        The file.
    """

    def __init__(self, daemon: Daemon, path: Path) -> None:
        self.daemon = daemon
        self._path = path
        self._numbers = itertools.count(1)
        self.address = daemon.address

    def write(self, *texts: str, label: int | str | None = 4, **fields: object) -> list[str]:
        """Write tweets of now; return their ids, in the order of the texts.

        Parameters
        ----------
        *texts : str
            One tweet each.
        label : int or str, optional
            0 for negative, 4 for positive, or a class; None for tweets without a label.
        **fields : object
            Fields that all of them have: ``lang``, ``user``, ``created_at``.
        """
        tweets = []
        for text in texts:
            tweet = {"user": "reader", "lang": "en", "created_at": stamp(0.0), **fields}
            tweet |= {"id": f"b-{next(self._numbers)}", "text": text}
            tweets.append(tweet if label is None else {**tweet, "label": label})
        self._append(tweets)
        return [str(tweet["id"]) for tweet in tweets]

    def write_past(self, text: str, *, n: int = 90, label: int = 4) -> None:
        """Write a tweet again and again, spread over the quarter of an hour that ends now.

        What the book begins with ages while other tests run; this is of now whoever came before.
        """
        tweet = {"user": "reader", "lang": "en", "text": text, "label": label}
        ages_s = (_SPAN_S * (1 - i / n) for i in range(n))
        self._append(
            [
                {**tweet, "id": f"b-{next(self._numbers)}", "created_at": stamp(age_s)}
                for age_s in ages_s
            ]
        )

    def write_made_up(self, first: int, n: int) -> None:
        """Write made-up tweets `first` … `first + n - 1`, as if they were of now."""
        self._append([{**tweet, "created_at": stamp(0.0)} for tweet in made_up(first, n)])

    def _append(self, tweets: list[dict[str, Any]]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(tweet) + "\n" for tweet in tweets)

    def json(self, path: str) -> dict[str, Any]:
        """Return what the daemon answers at a path."""
        status, body = self.daemon.get(path)
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer

    def until_found(self, query: str, n: int) -> None:
        """Wait until a search counts so many tweets, at a start until the store is open too.

        `ValueError`: it counts more, as where two tests that share the daemon write of one animal.
        """

        def is_found() -> bool:
            status, body = self.daemon.get(f"/v1/summary?q={query}")
            # On a machine that stands still a search may take longer than it may.
            assert status in {200, 503} or (status == 422 and "took longer" in body), body
            n_found = json.loads(body)["n"] if status == 200 else 0
            if query and n_found > n:
                raise ValueError(f"{query!r} finds {n_found}, not {n}: is it another test's word?")
            return bool(n_found >= n)

        self.daemon.until(is_found, f"{n} of {query!r}")


@contextmanager
def open_book(folder: Path, **sections: object) -> Iterator[Book]:
    """Start a daemon on a new file, and wait until it has read the first tweets."""
    path = folder / "tweets.jsonl"
    path.write_text("".join(first_tweets()), encoding="utf-8")
    # Read in small pieces, so that what has a label and what has none come in turns, as they stand.
    reading = {"source": f"file:{path}", "file": {"batch_bytes": 4096}}
    config = write_config(folder / "config.yaml", **reading, **sections)
    with Daemon(config) as daemon:
        book = Book(daemon, path)
        book.until_found("", FIRST_TWEETS)
        daemon.until_it_takes_corrections()  # a page draws its rows anew when it learns of that
        yield book
        assert daemon.stop() == 0


def made_up(first: int, n: int) -> list[dict[str, Any]]:
    """Return made-up tweets, of which two in three have a label."""
    values = TweetMaker(GeneratorSettings(seed=SEED)).make(first, n)
    return [json.loads(value) for value in values]


def first_tweets() -> Iterator[str]:
    """Yield the lines that a book begins with: made-up tweets that end now."""
    for i, tweet in enumerate(made_up(0, FIRST_TWEETS)):
        age_s = _SPAN_S * (1 - i / FIRST_TWEETS)
        yield json.dumps({**tweet, "created_at": stamp(age_s)}) + "\n"


def stamp(age_s: float) -> str:
    """Return the time so long ago, as a tweet writes it."""
    moment = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)
    return moment.isoformat(timespec="milliseconds")
