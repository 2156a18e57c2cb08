"""Queries side by side: counts and words are those that a plain count over lists gives."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumers.config.sections import AlertSettings
from consumers.errors import ConfigError
from consumers.messages import KnownClasses
from consumers.search import comparison
from consumers.search.comparison import (
    PRIOR_SHARE,
    STANDARD_ERRORS_MIN,
    ComparedMessages,
    ComparedSide,
    compare,
    effects_on_shares,
    ranked,
    share_move,
    words_of,
)
from consumers.search.live_updater import ShareAlerts
from consumers.search.query_syntax import Query, QueryError, SlowQueryError, parse
from consumers.search.store import RecentStore
from consumers.web_request import RequestError
from tests.consumers.search.stores import (
    CLASSES,
    Clock,
    offer,
    running,
    settle,
    stream_shares,
    tell,
    tweets,
)

BEGIN_S = 1_700_000_000
Row = dict[str, Any]


def plain_rank(sides: Sequence[Mapping[str, int]]) -> list[dict[str, tuple[float, float]]]:
    """Return log-odds ratio and standard errors of every word of each side, one by one."""
    totals = [sum(side.values()) for side in sides]
    found = []
    for i, side in enumerate(sides):
        scores: dict[str, tuple[float, float]] = {}
        n_rest = sum(totals) - totals[i]
        for word in {word for one in sides for word in one}:
            y = side.get(word, 0)
            y_rest = sum(one.get(word, 0) for k, one in enumerate(sides) if k != i)
            alpha, prior = PRIOR_SHARE * (y + y_rest), PRIOR_SHARE * sum(totals)
            odds = (y + alpha) / (totals[i] + prior - y - alpha)
            odds_rest = (y_rest + alpha) / (n_rest + prior - y_rest - alpha)
            delta = math.log(odds) - math.log(odds_rest)
            scores[word] = delta, delta / math.sqrt(1 / (y + alpha) + 1 / (y_rest + alpha))
        found.append(scores)
    return found


SIDES = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 400), min_size=2),
    min_size=2,
    max_size=4,
)


@given(sides=SIDES)
def test_words_are_ranked_as_one_by_one(sides: list[dict[str, int]]) -> None:
    """Scores are those of the formula, and all words far enough above zero are there, in order."""
    for rank, scores in zip(ranked(sides), plain_rank(sides), strict=True):
        for word, log_odds, standard_errors in rank:
            assert (log_odds, standard_errors) == pytest.approx(scores[word])
        above = {word for word, (_, each) in scores.items() if each > STANDARD_ERRORS_MIN + 1e-9}
        assert above <= {word for word, *_ in rank}
        assert len(rank) <= sum(each > STANDARD_ERRORS_MIN - 1e-9 for _, each in scores.values())
        errors = [each for *_, each in rank]
        assert errors == sorted(errors, reverse=True)


@given(sides=SIDES, order=st.randoms(use_true_random=False))
def test_the_order_of_sides_changes_nothing(
    sides: list[dict[str, int]], order: random.Random
) -> None:
    """Each side has the same words wherever it stands."""
    places = list(range(len(sides)))
    order.shuffle(places)
    before, after = ranked(sides), ranked([sides[i] for i in places])
    for i, rank in zip(places, after, strict=True):
        assert [word for word, *_ in rank] == [word for word, *_ in before[i]]


@pytest.mark.parametrize("sides", [[{}, {}], [{"a": 5}, {}], [{"a": 5}, {"a": 900}]])
def test_next_to_nothing_sets_nothing_apart(sides: list[dict[str, int]]) -> None:
    """Without words, or with a single one, no word is listed."""
    assert ranked(sides) == [[], []]


@pytest.mark.parametrize(("n", "is_listed"), [(16, False), (18, True)])
def test_an_exclusive_word_needs_some_messages(n: int, is_listed: bool) -> None:
    """One that the other side lacks is listed from 18 messages on, however many words there are."""
    for n_common in (100, 100_000):
        common = {"the": n_common, "a": n_common}
        assert bool(ranked([common | {"rain": n}, common])[0]) == is_listed


def test_a_rare_word_does_not_win() -> None:
    """A word of one message is not listed, however exclusive; a frequent one that doubled is."""
    common = {f"word{i}": 300 for i in range(30)}
    first = common | {"rain": 200} | {f"once{i}": 1 for i in range(500)}
    assert [word for word, *_ in ranked([first, common | {"rain": 100}])[0]] == ["rain"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Great COFFEE, great coffee!", {"great", "coffee"}),
        ("@Ann: #Fun &lt;3 it's http://t.co/Xy www.x.org a", {"@ann", "#fun", "it's"}),
        ("naïve cafe\u0301", {"naïve", "cafe\u0301"}),
        ("🎉🎉👍🏽 🇩🇪", {"🎉", "👍", "🇩🇪"}),
        ("東京都 へ", {"東京", "京都", "へ"}),
        ("नमस्ते दुनिया।", {"नमस्ते", "दुनिया"}),
        ("''quoted'' _under_", {"quoted", "under"}),
        ("", set()),
    ],
)
def test_words(text: str, wanted: set[str]) -> None:
    """Words are small, once a message, with tags, names and emoji, and without links."""
    assert words_of(text) == wanted


# ---- in a store ----------------------------------------------------------------------------------


def rows_of(n: int) -> list[Row]:
    """Return messages of a second each, in two languages, whose words change halfway."""
    chance = random.Random(n)
    topics = ("coffee", "tea")
    return [
        {
            "text": " ".join(
                [topics[chance.random() < 0.4], *chance.sample(["sun", "rain", "bus"], k=1 + i % 2)]
                + ["outage"] * (i > n / 2 and chance.random() < 0.6)
            ),
            "lang": ("en", "de")[chance.random() < 0.3],
            "created_at": BEGIN_S + i,
        }
        for i in range(n)
    ]


def compared(
    store: RecentStore,
    *queries: str,
    spans: Sequence[tuple[int, int] | None] = (),
    left_out: frozenset[str] = frozenset(),
) -> list[ComparedMessages]:
    """Compare queries, each at its time if there are such."""
    each_at = spans or [None] * len(queries)
    return compare(
        store,
        [
            ComparedSide(store.parse(text), None, span)
            for text, span in zip(queries, each_at, strict=True)
        ],
        left_out,
    )


def test_words_that_are_left_out_are_not_listed() -> None:
    """Those that set the sides apart without them stay, with the same figures."""
    with running(None) as store:
        tell(store, [{"text": t} for t in 40 * ["tea the sun", "coffee an rain"]])
        (tea, _), (without, _) = (
            compared(store, "tea ", "coffee ", left_out=frozenset(words))
            for words in ((), ("the",))
        )
    assert {each.word for each in tea.words} == {"the", "sun"}
    assert list(without.words) == [each for each in tea.words if each.word != "the"]


CONDITIONS: list[tuple[str, Callable[[int, Row], bool]]] = [
    ("coffee ", lambda _, row: "coffee" in row["text"]),
    ("tea -rain ", lambda _, row: "tea" in row["text"] and "rain" not in row["text"]),
    ("lang:de", lambda _, row: row["lang"] == "de"),
    ("bus label:positive", lambda i, row: "bus" in row["text"] and i % 2 == 1),
    ("", lambda _, row: bool(row)),
]


def test_counts_and_words_are_those_of_lists() -> None:
    """Each side counts what matches, by class, and its words count messages, by class."""
    rows = rows_of(400)
    with running(None) as store:
        tell(store, rows)
        for first in range(0, len(CONDITIONS) - 1, 2):
            sides = CONDITIONS[first : first + 3]
            found = compared(store, *[query for query, _ in sides])
            for (_, is_wanted), each in zip(sides, found, strict=True):
                mine = [(i % 2, row) for i, row in enumerate(rows) if is_wanted(i, row)]
                labels = Counter(label for label, _ in mine)
                assert each.counted.counts == tuple(labels[k] for k in range(2))
                assert each.n_read == each.counted.n == len(mine)
                for word in each.words:
                    with_it = Counter(
                        label for label, row in mine if word.word in row["text"].split()
                    )
                    assert word.counts == tuple(with_it[k] for k in range(2))


def test_conditions_on_confidence_filter_each_side() -> None:
    """A condition belongs to its query alone."""
    with running(None) as store:
        offer(store, tweets(["good day"] * 3), probability=0.6)
        offer(store, tweets(["good day"] * 5, first=3), probability=0.9)
        settle(store)
        found = compared(store, "good confidence:<0.7", "good confidence:>=0.7", "good ")
        assert [each.counted.n for each in found] == [3, 5, 8]


def test_two_times_of_one_query() -> None:
    """Both times are cut to the millisecond, and what came up between them is told."""
    with running(None) as store:
        tell(store, rows_of(400))
        begin, middle, end = (1000 * (BEGIN_S + after_s) for after_s in (0, 201, 400))
        spans = [(begin, middle), (middle, end)]
        before, after = compared(store, "", "", spans=spans)
        assert (before.counted.n, after.counted.n) == (201, 199)
        assert [word.word for word in after.words] == ["outage"]
        assert "outage" not in [word.word for word in before.words]
        narrow = compared(store, "", "", spans=[(begin + 1, begin + 1000), (begin, begin + 1)])
        assert [each.counted.n for each in narrow] == [0, 1]


def test_what_the_queries_name_is_left_out() -> None:
    """Words of any of the queries are not listed, nor what a beginning stands for."""
    with running(None) as store:
        tell(store, ["coffee beans"] * 60 + ["tea leaves #tea"] * 60)
        found = compared(store, "coff*", "tea ")
        assert [[word.word for word in each.words] for each in found] == [["beans"], ["leaves"]]
        assert [word.counts for word in found[0].words] == [(30, 30)]


def test_series_have_common_steps() -> None:
    """Without times of their own, sides that lie apart are told by the same steps."""
    with running(None) as store:
        early = [{"text": "coffee", "created_at": BEGIN_S + i} for i in range(10)]
        late = [{"text": "tea", "created_at": BEGIN_S + 7_200 + i} for i in range(10)]
        tell(store, early + late)
        first, second = (each.counted for each in compared(store, "coffee ", "tea "))
        assert first.step_s == second.step_s > store.counted(parse("coffee ")).step_s
        assert [sum(map(sum, each.series)) for each in (first, second)] == [10, 10]


def test_as_much_is_read_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more matches the newest are counted, and of these the newest are read for words."""
    monkeypatch.setattr(comparison, "WORD_MESSAGES_MAX", 3)
    monkeypatch.setattr(comparison, "COUNTED_MAX", 5)
    with running(None) as store:
        tell(store, ["good day"] * 8)
        (few, all_of_them) = compared(store, "good ", "")
        assert (few.counted.n, few.counted.n_max, few.counted.newest_only) == (5, 5, True)
        assert (all_of_them.counted.n, all_of_them.counted.newest_only) == (8, False)
        assert [few.n_read, all_of_them.n_read] == [3, 3]


def test_what_was_removed_is_not_compared() -> None:
    """A message that a person removed is neither counted nor read."""
    with running(None) as store:
        tell(store, ["good day", "good secret", "bad day"])
        store.remove("m1")
        found = compared(store, "good ", "bad ")
        assert [(each.counted.n, each.n_read) for each in found] == [(1, 1), (1, 1)]
        assert found[0].counted.counts == tuple(int(k == 0) for k in range(len(CLASSES)))


# ---- what moved a share --------------------------------------------------------------------------

COUNTS = st.lists(st.lists(st.integers(0, 40), min_size=2, max_size=2), min_size=2, max_size=2)


@given(parts=st.lists(COUNTS, min_size=1, max_size=4))
def test_effects_sum_to_the_difference_of_the_shares(parts: list[list[list[int]]]) -> None:
    """Over parts that make up all messages; and those of the other side have the other sign."""
    each = np.array(parts, float) + [[[1, 1], [1, 1]]] * len(parts)
    whole = each.sum(axis=0)
    shares = whole / whole.sum(axis=1, keepdims=True)
    found = [[effects_on_shares(part, whole, i) for part in each] for i in range(2)]
    assert np.sum(found[1], axis=0) == pytest.approx(shares[1] - shares[0])
    assert np.array(found[0]) == pytest.approx(-np.array(found[1]))


def times(store: RecentStore) -> tuple[ComparedMessages, ComparedMessages]:
    """Compare the first and the second two hundred seconds."""
    middle_ms = (BEGIN_S + 200) * 1000
    spans = [(middle_ms - 200_000, middle_ms), (middle_ms, middle_ms + 200_000)]
    before, after = compared(store, "", "", spans=spans)
    return before, after


def goals() -> list[Row]:
    """Return 400 messages of a second each.

    First one in two is positive, and the others are of rain; then three in four are, all of a goal.
    """
    positive = [i % 2 if i < 200 else i % 4 > 0 for i in range(400)]
    topics = ["goal" if i >= 200 else ("rain", "sun")[is_so] for i, is_so in enumerate(positive)]
    return [
        {"text": f"w{i % 7} {topic}", "label": 4 * is_so, "created_at": BEGIN_S + i}
        for i, (topic, is_so) in enumerate(zip(topics, positive, strict=True))
    ]


def test_the_words_that_moved_a_share() -> None:
    """They are of the time that has or lacks them, and as strong as the messages with them."""
    with running(None) as store:
        tell(store, goals())
        move = share_move(*times(store), CLASSES)
    assert move is not None
    assert (move.label, move.before, move.after) == ("positive", 0.5, 0.75)
    assert (move.n_before, move.n_after) == (200, 200)
    # Pooled 5/8: all later ones have the goal, 1·(3/4 − 5/8); rain had none, −1/2·(0 − 5/8).
    effects = {each.word: each.effect for each in move.words}
    assert effects == pytest.approx({"rain": 0.3125, "goal": 0.125})
    assert [each.word for each in move.words] == ["rain", "goal"]


def test_nothing_moved_where_nothing_was() -> None:
    """Without messages on one side there is no share to compare."""
    with running(None) as store:
        tell(store, goals()[:200])
        assert share_move(*times(store), CLASSES) is None


def watching(store: RecentStore, now_s: float, **settings: Any) -> ShareAlerts:
    """Return what watches all messages, two hundred seconds against those before."""
    own = {"queries": ("", "goal"), "window_s": 200, "before_s": 200} | settings
    return ShareAlerts(store, AlertSettings(**own), stream_shares, wall_clock=Clock(now_s))


def test_an_alert_names_the_words() -> None:
    """A share that rose is told once, with its words, in the log and to who asks; then no more."""
    with running(None) as store, capture_logs() as logged:
        tell(store, goals())
        alerts = watching(store, BEGIN_S + 400)
        (alert,) = alerts.look()
        assert (alert.query, alert.split_ms) == ("", (BEGIN_S + 200) * 1000)
        plain = share_move(*times(store), CLASSES)
        # The model makes no mistake here: what is corrected is the same, and a little less sure.
        assert plain is not None
        assert 4.5 < alert.moved.standard_errors < plain.standard_errors
        told = replace(plain, standard_errors=alert.moved.standard_errors, corrected=True)
        assert alert.moved == told
        assert alerts.look() == []
        assert alerts.newest() == (alert,)
    (line,) = [each for each in logged if each["event"] == "share_moved"]
    assert line["words"] == ["rain (+31.2 points)", "goal (+12.5 points)"]
    assert (line["label"], line["before"], line["after"]) == ("positive", 0.5, 0.75)


def test_what_cannot_be_watched() -> None:
    """A query that cannot be read ends the start; without any nothing is watched."""
    with running(None) as store:
        own = AlertSettings(queries=("x*",))
        with pytest.raises(ConfigError, match=r"alerts\.queries: .*at least 2 letters"):
            ShareAlerts.of(store, own, stream_shares, frozenset())
        assert ShareAlerts.of(store, AlertSettings(), stream_shares, frozenset()) is None


def test_an_alert_may_wait_for_its_class() -> None:
    """With `model.new_classes` a query may name a class that is still to join, and one that has."""
    classes = KnownClasses(["negative"], open=True)
    with running(None, classes=classes) as store:
        alerts = watching(store, BEGIN_S + 400, queries=("label:positive", ""))
        assert alerts.look() == []
        classes.grow(CLASSES)
        tell(store, goals())
        assert [alert.query for alert in alerts.look()] == [""]


@pytest.mark.parametrize(("query", "n"), [("cat", 0), ("category", 1)])
def test_a_query_of_an_alert_is_read_as_by_the_page(query: str, n: int) -> None:
    """Its last word is a whole one, so what is told is what the page's link compares."""
    with running(None) as store:
        tell(store, [row | {"text": "category"} for row in goals()])
        own = AlertSettings(queries=(query,), window_s=200, before_s=200)
        assert (
            len(ShareAlerts(store, own, stream_shares, wall_clock=Clock(BEGIN_S + 400)).look()) == n
        )


def test_a_slow_query_holds_no_other_alert_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others find is told, once; the error names the query."""
    with running(None) as store:
        tell(store, goals())
        own = AlertSettings(queries=("goal", "", "rain"), window_s=200, before_s=200)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=Clock(BEGIN_S + 400))
        scan = store.scanned_keys

        def slow(query: Query, *rest: Any) -> Any:
            if "goal" in query.text:
                raise SlowQueryError("too long")
            return scan(query, *rest)

        monkeypatch.setattr(store, "scanned_keys", slow)
        for _ in range(2):
            with pytest.raises(QueryError, match="'goal': too long"):
                alerts.look()
            assert [each.query for each in alerts.newest()] == [""]


@pytest.mark.parametrize(
    ("settings", "n"), [({}, 1), ({"rise_min": 0.3}, 0), ({"before_s": 20}, 0)]
)
def test_what_is_too_little_for_an_alert(settings: dict[str, Any], n: int) -> None:
    """Less than `rise_min`, or fewer messages than a share is said of, is no alert."""
    with running(None) as store:
        tell(store, goals())
        own = AlertSettings.model_validate({"queries": [""], "window_s": 200} | settings)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=Clock(BEGIN_S + 400))
        assert len(alerts.look()) == n


def test_an_even_stream_raises_no_alert() -> None:
    """Shares that differ by chance alone are not told, however often one looks."""
    chance = random.Random(3)
    rows = [
        {"text": f"w{i % 7}", "label": chance.choice((0, 4)), "created_at": BEGIN_S + i}
        for i in range(600)
    ]
    with running(None) as store:
        tell(store, rows)
        clock = Clock(BEGIN_S)
        own = AlertSettings(queries=("",), window_s=60, before_s=200, rise_min=0.01)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=clock)
        for second in range(0, 600, 12):
            clock.now_s = BEGIN_S + second
            assert alerts.look() == []


def test_a_step_is_told_once_however_often_one_looks() -> None:
    """Also while the window is not yet whole of what came after it; a later step is told too."""
    shares = [(0, 0.25), (400, 0.5), (800, 0.75)]  # from second on
    rows, told = list[Row](), list[tuple[int, str]]()
    for second in range(1_200):
        share = [share for since, share in shares if second >= since][-1]
        for i in range(8):
            is_positive = i < 8 * share
            rows.append({"text": "w", "label": 4 * is_positive, "created_at": BEGIN_S + second})
    with running(None) as store:
        tell(store, rows)
        clock = Clock(BEGIN_S)
        own = AlertSettings(queries=("",), window_s=100, before_s=200)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=clock)
        for second in range(0, 1_200, 20):
            clock.now_s = BEGIN_S + second
            told += [(second // 400, alert.moved.label) for alert in alerts.look()]
    assert told == [(1, "positive"), (2, "positive")]


def test_a_clock_that_was_put_back_silences_no_alert() -> None:
    """An alert of a time that is still to come holds no later one up."""
    rows = [row | {"created_at": row["created_at"] + s} for s in (0, 10_000) for row in goals()]
    with running(None) as store:
        tell(store, rows)
        clock = Clock(BEGIN_S)
        own = AlertSettings(queries=("",), window_s=200, before_s=200)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=clock)
        for now_s in (BEGIN_S + 10_400, BEGIN_S + 400):
            clock.now_s = now_s
            assert len(alerts.look()) == 1


class Hook(BaseHTTPRequestHandler):
    """Takes what is posted, and answers with the next of some statuses."""

    statuses: ClassVar[list[int]] = []
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        """Take it."""
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.statuses.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hook() -> Iterator[str]:
    """Return the address of a server that takes alerts; it refuses the first."""
    Hook.statuses, Hook.bodies = [503, 204], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/alerts"
        server.shutdown()
        thread.join()


def test_an_alert_is_delivered(hook: str) -> None:
    """The webhook gets it as JSON with its words; a refused one is kept, and sent again."""
    with running(None) as store:
        tell(store, goals())
        alerts = watching(store, BEGIN_S + 400, webhook=hook)
        (alert,) = alerts.look()
        with pytest.raises(RequestError, match="status 503"):
            alerts.deliver()
        alerts.deliver()
        alerts.deliver()  # nothing is left
    bodies = [msgspec.json.decode(body) for body in Hook.bodies]
    assert bodies == 2 * [
        {"event": "share_moved"} | msgspec.json.decode(msgspec.json.encode(alert))
    ]
    assert bodies[0]["moved"]["words"][0]["word"] == "rain"


def test_an_alert_that_is_refused_holds_none_up(hook: str) -> None:
    """What the receiver does not want is logged and left out; the next one is delivered."""
    Hook.statuses = [410, 429, 204]
    with running(None) as store, capture_logs() as logged:
        tell(store, goals())
        own = AlertSettings(queries=("", "-none"), window_s=200, before_s=200, webhook=hook)
        least = partial(stream_shares, 10)
        alerts = ShareAlerts(store, own, least, wall_clock=Clock(BEGIN_S + 400))
        assert len(alerts.look()) == 2
        with pytest.raises(RequestError, match="status 429"):
            alerts.deliver()
        alerts.deliver()
    (line,) = [each for each in logged if each["event"] == "alert_refused"]
    assert (line["status"], line["query"]) == (410, "")
    asked = [msgspec.json.decode(body)["query"] for body in Hook.bodies]
    assert asked == ["", "-none", "-none"]


def test_no_delivery_begins_after_the_end(hook: str) -> None:
    """A stop waits for one delivery at most, however many wait."""
    with running(None) as store:
        tell(store, goals())
        alerts = watching(store, BEGIN_S + 400, webhook=hook)
        assert alerts.look()
        alerts.stop()
        alerts.deliver()
    assert Hook.bodies == []


def test_a_stop_waits_little_for_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is being made cannot be cut; it may take `alerts.timeout_s`."""
    began, is_over = threading.Event(), threading.Event()

    def connect(*_: Any) -> None:
        began.set()
        is_over.wait(60)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", connect)
    rows: list[Row] = [
        {"text": "w", "label": 4 * (i >= 50), "created_at": BEGIN_S + i // 5} for i in range(100)
    ]
    with running(None) as store:
        tell(store, rows)
        own = AlertSettings.model_validate(
            {"queries": [""], "window_s": 10, "before_s": 10, "webhook": "http://h.example/"}
        )
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=Clock(BEGIN_S + 20))
        alerts.start()
        assert began.wait(60)
        alerts.stop()
        assert alerts._thread.is_alive()
        is_over.set()
        alerts._thread.join()
    assert [each.query for each in alerts.newest()] == [""]
