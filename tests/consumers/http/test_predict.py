"""`POST /v1/predict`: what it says is what the model says, and what it refuses the stream would."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.settings import Settings
from consumers.features import build_model
from consumers.http.routes_model import FEATURES_MAX, credible_interval, explain
from consumers.http.schemas import (
    EXPLAINED_MAX,
    PROBABILITIES_MAX,
    TEXTS_MAX,
    Interval,
    PredictAnswer,
)
from consumers.http.threads import THREADS, predict_columns
from streamnb import AnswerRule, Calibrator, Hybrid, NaiveBayes, Snapshot
from tests.consumers.http.loopback_server import PATIENCE_S, app_state, served, settings, taught

LOANS = {
    "classes": ["granted", "refused"],
    "features": {
        "words": {"kind": "words", "fields": ["purpose"], "hybrid": False},
        "bands": {"kind": "categories", "fields": ["income"]},
        "answers": {"kind": "flags", "fields": ["has_car"]},
        "measures": {"kind": "numbers", "fields": ["age"]},
    },
}
ODD = 'say "no" \\ \n'  # a class whose name JSON has to escape


def test_a_rule_says_set_and_decision_beside_each_prediction() -> None:
    """Probabilities are the snapshot's, the set by its threshold, the decision by its costs."""
    of = settings(model={"features": {"text": {"hybrid": False}}})
    model = taught(of)
    costs = np.array([[0.0, 1e9], [1.0, 0.0]])
    snapshot = Snapshot(model, 3, AnswerRule(threshold=1.0, costs=costs))
    found = msgspec.json.decode(
        msgspec.json.encode(predict_columns(snapshot, {"text": ["sun", "rain"]}))
    )
    classes = [str(each) for each in model.classes]
    for each in found["predictions"]:
        assert each["prediction_set"] == classes
        assert each["decision"] == classes[0]
    calibrated = Snapshot(model, 3, AnswerRule(Calibrator().curve))
    assert credible_interval(calibrated, {"text": "sun"}, 0.9) is None
    assert credible_interval(snapshot, {"text": "sun"}, 0.9) is not None
    plain = predict_columns(Snapshot(model, 3), {"text": ["sun"]})
    assert b"prediction_set" not in msgspec.json.encode(plain)


class Api:
    """A server around a model, and a client of it."""

    def __init__(self, of: Settings, model: NaiveBayes, client: httpx.Client) -> None:
        self.settings, self.model, self._client = of, model, client

    def post(self, body: Any, **headers: str) -> httpx.Response:
        """Send a body: JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json"} | headers
        return self._client.post("/v1/predict", content=content, headers=sent)

    def ask(self, body: Any) -> PredictAnswer:
        """Return an answer that has to be one, as its type."""
        answer = self.post(body)
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=PredictAnswer)

    def refused(self, body: Any, status: int = 422) -> str:
        """Return why a body is refused."""
        answer = self.post(body)
        assert answer.status_code == status, answer.text
        return str(answer.json()["detail"])


def apis(of: Settings, model: NaiveBayes) -> Iterator[Api]:
    """Yield a model behind the API."""
    with (
        app_state(of, model) as made,
        served(made) as port,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
        ) as client,
    ):
        yield Api(of, model, client)


@pytest.fixture(scope="module")
def tweets() -> Iterator[Api]:
    """Yield a model of texts."""
    of = settings()
    yield from apis(of, taught(of))


@pytest.fixture(scope="module")
def skewed() -> Iterator[Api]:
    """Yield a model of texts of which nearly all were negative."""
    of = settings()
    model = taught(of)
    model.learn_many({"text": ["rain again"] * 40}, ["negative"] * 40)
    yield from apis(of, model)


@pytest.fixture(scope="module")
def plain() -> Iterator[Api]:
    """Yield a model of texts without a hybrid."""
    of = settings(model={"features": {"text": {"hybrid": False}}})
    yield from apis(of, taught(of))


@pytest.fixture(scope="module")
def loans() -> Iterator[Api]:
    """Yield a model of every kind of field."""
    of = settings(model=LOANS)
    model = build_model(of.model)
    columns = {
        "purpose": ["a new car", "school", None, "old debts"],
        "income": ["high", "low", "high", None],
        "has_car": [1.0, 0.0, 1.0, np.nan],
        "age": [41.0, 23.0, 55.0, 30.0],
    }
    model.learn_many(columns, ["granted", "refused", "granted", "refused"])
    yield from apis(of, model)


# A message that holds a NUL is refused, as in the stream.
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)


@given(st.lists(_TEXTS, min_size=1, max_size=5))
def test_one_text_is_judged_as_the_model_judges_it(tweets: Api, texts: list[str]) -> None:
    """Alone or among others, by text or by message: to the last bit what the model answers."""
    together = tweets.ask({"texts": texts})
    by_message = tweets.ask({"messages": [{"id": 1, "text": text} for text in texts]})
    for text, found, same in zip(texts, together.predictions, by_message.predictions, strict=True):
        reader = tweets.model.without_prior()
        logs = reader.predict_log_proba_one({"text": text})
        assert found.log_posteriors == logs
        assert found.label == reader.predict_one({"text": text})
        assert found.probabilities == {label: float(np.exp(value)) for label, value in logs.items()}
        assert tweets.ask({"text": text}).predictions == [found]
        assert same == found


def test_an_answer_says_what_it_comes_from(tweets: Api) -> None:
    """Classes in their order, the snapshot and its examples; explanation only where asked for."""
    answer = tweets.post({"text": "good"}).json()
    assert answer["classes"] == ["negative", "positive"]
    assert answer["n_examples"] == tweets.model.n_examples
    assert answer["snapshot_version"] >= 1
    assert set(answer["predictions"][0]) == {"label", "probabilities", "log_posteriors"}


def test_those_who_ask_together_each_get_their_own(tweets: Api) -> None:
    """However many single texts travel in one batch, nobody gets another's answer."""
    words = ["good", "bad", "lovely", "awful", "day", "weather", "unknown"]

    async def all_at_once(port: str) -> list[httpx.Response]:
        import asyncio  # noqa: PLC0415 -- for this one test

        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(
            base_url=port, trust_env=False, limits=limits, timeout=PATIENCE_S
        ) as client:
            return await asyncio.gather(
                *(client.post("/v1/predict", json={"text": words[i % 7]}) for i in range(300))
            )

    import asyncio  # noqa: PLC0415

    answers = asyncio.run(all_at_once(str(tweets._client.base_url)))
    alone = [tweets.ask({"text": word}).predictions for word in words]
    for i, answer in enumerate(answers):
        found = msgspec.json.decode(answer.content, type=PredictAnswer)
        assert found.predictions == alone[i % 7]


def test_an_explanation_adds_up(plain: Api, loans: Api) -> None:
    """The scores and the prior's are the log-odds of the label against the other class."""
    text = {"text": "a good lovely day"}
    form = {"purpose": "a new car", "income": "low", "has_car": True, "age": 40}
    for api, asked in ((plain, {"text": text["text"]}), (loans, {"message": form})):
        (found,) = api.ask(asked | {"explain": True, "interval": 0.9}).predictions
        why, how_sure = found.explanation, found.interval
        assert why is not None
        assert isinstance(how_sure, Interval)
        assert why.label == found.label
        odds = found.log_posteriors[why.label] - found.log_posteriors[why.other]
        assert sum((each.score for each in why.features), why.intercept) == pytest.approx(odds)
        assert how_sure.level == 0.9
        assert how_sure.low < found.probabilities[found.label] < how_sure.high
    assert why is not None
    groups = {each.group: each for each in why.features}
    assert groups["bands"].feature == "income=low"
    assert groups["answers"].feature == "has_car=true"
    assert groups["measures"].feature.startswith("age=40")
    assert groups["measures"].likelihoods == {}
    assert {name: each.kind for name, each in groups.items()} == {
        "words": "word", "bands": "category", "answers": "flag", "measures": "number"
    }  # fmt: skip
    assert groups["bands"].counts == {"granted": 0.0, "refused": 1.0}
    assert groups["answers"].counts == {"granted": 2.0, "refused": 0.0}
    assert groups["measures"].counts == {"granted": 2.0, "refused": 2.0}
    assert groups["measures"].means == {"granted": 48.0, "refused": 26.5}
    assert groups["measures"].deviations == {"granted": 7.0, "refused": 3.5}
    assert groups["bands"].means == groups["bands"].deviations == {}


def test_what_no_class_has_learned_is_said_to_be_unseen(loans: Api) -> None:
    """A value, flag or number: by smoothing it has a score, and nothing of it is known."""
    model = build_model(loans.settings.model)
    model.learn_many({"income": ["high", "low", "high"]}, ["granted", "refused", "granted"])
    for form, unseen, known in (
        ({"income": "none"}, {"income=none"}, False),
        ({"has_car": True, "age": 40.0}, {"has_car=true"}, False),
        ({"income": "none", "has_car": True}, {"income=none", "has_car=true"}, False),
        ({"income": "high"}, set(), True),
        ({}, set(), False),
    ):
        why = explain(model, form)
        assert {each.feature for each in why.features if each.unseen} == unseen
        assert why.known is known, form
    (found,) = loans.ask({"message": {"income": "none", "age": 40}, "explain": True}).predictions
    assert found.explanation is not None
    assert found.explanation.known
    said = {each.feature: each.unseen for each in found.explanation.features}
    assert said == {"income=none": True, "age=40": False}
    (found,) = loans.ask({"message": {"income": "none"}, "explain": True}).predictions
    assert found.explanation is not None
    assert not found.explanation.known


def test_an_explanation_says_that_every_class_was_impossible() -> None:
    """Then the scores add up to nothing: the log-odds are the class prior's alone."""
    groups = {"text": {"hybrid": False}, "income": {"kind": "categories", "alpha": 0}}
    model = build_model(settings(model={"features": groups}).model)
    columns = {"text": ["bad", "bad", "good"], "income": ["high", "low", "low"]}
    model.learn_many(columns, ["negative", "negative", "positive"])
    for income, by_prior in (("none", True), ("low", False)):
        example = {"text": "bad", "income": income}
        why, logs = explain(model, example), model.predict_log_proba_one(example)
        assert why.by_prior is by_prior
        scores = [why.intercept, *(each.score for each in why.features if not by_prior)]
        assert math.fsum(scores) == pytest.approx(logs[why.label] - logs[why.other])


def test_an_explanation_of_a_long_text_adds_up() -> None:
    """It lists the weightiest features and has the sum of the others."""
    model = taught(settings())
    model.learn_one({"text": " ".join(f"word{i}" for i in range(FEATURES_MAX))}, "positive")
    example = {"text": " ".join(["lovely bad", *(f"word{i}" for i in range(FEATURES_MAX))])}
    why = explain(model, example)
    assert len(why.features) == FEATURES_MAX
    assert why.rest != 0
    logs = model.predict_log_proba_one(example)
    odds = logs[why.label] - logs[why.other]
    listed = (each.score for each in why.features)
    assert math.fsum([why.intercept, why.rest, *listed]) == pytest.approx(odds)
    short = explain(model, {"text": "lovely bad"})
    assert len(short.features) < FEATURES_MAX
    assert short.rest == 0


def test_a_hybrid_explains_itself_and_has_no_interval(tweets: Api) -> None:
    """The scores add up with its weights too; the interval that was asked for is null."""
    asked = {"text": "a good lovely day", "explain": True, "interval": 0.9}
    assert tweets.post(asked).json()["predictions"][0]["interval"] is None
    (found,) = tweets.ask(asked).predictions
    why = found.explanation
    assert why is not None
    odds = found.log_posteriors[why.label] - found.log_posteriors[why.other]
    assert sum((each.score for each in why.features), why.intercept) == pytest.approx(odds)
    raw = tweets.model.raw().without_prior().predict_log_proba_one({"text": asked["text"]})
    assert found.log_posteriors != raw
    assert tweets.model.state.groups["text"].hybrid == Hybrid()


@pytest.mark.parametrize("prior", ["none", "model"])
@pytest.mark.parametrize("n", [1, 3])
def test_the_prior_is_counted_if_it_is_asked_for(skewed: Api, prior: str, n: int) -> None:
    """Without it the stream's mix of classes says nothing; the counts alone stand beside it."""
    texts = ["a good day", "nothing that is known", "so bad"][:n]
    given: dict[str, Any] = {"text": texts[0]} if n == 1 else {"texts": texts}
    found = skewed.ask(given | {"prior": prior, "raw": True, "explain": True}).predictions
    reader = skewed.model if prior == "model" else skewed.model.without_prior()
    for text, own in zip(texts, found, strict=True):
        assert own.log_posteriors == reader.predict_log_proba_one({"text": text})
        by_counts = reader.raw().predict_log_proba_one({"text": text})
        assert own.raw == {label: float(np.exp(value)) for label, value in by_counts.items()}
        assert own.raw != own.probabilities or text == texts[1]
        assert own.explanation is not None
        assert (own.explanation.intercept != 0.0) is (prior == "model")
        odds = own.log_posteriors[own.explanation.label] - own.log_posteriors[own.explanation.other]
        scores = (each.score for each in own.explanation.features)
        assert sum(scores, own.explanation.intercept) == pytest.approx(odds)
    if n == 3:
        unknown = found[1].probabilities
        assert unknown == pytest.approx(
            {"negative": 0.5, "positive": 0.5}
            if prior == "none"
            else dict(zip(skewed.model.classes, skewed.model.class_priors().tolist(), strict=True))
        )
    if prior == "none":
        assert skewed.ask(given | {"raw": True, "explain": True}).predictions == found
        alone = skewed.ask(given).predictions
        assert [each.probabilities for each in alone] == [each.probabilities for each in found]
        assert {each.raw for each in alone} == {None}


def test_an_explained_word_has_what_was_learned_of_it(tweets: Api) -> None:
    """Its counts and likelihoods are the model's own, by class."""
    (found,) = tweets.ask({"text": "lovely", "explain": True}).predictions
    assert found.explanation is not None
    (word,) = (each for each in found.explanation.features if each.feature == "lovely")
    assert word.group == "text"
    assert word.counts == dict(
        zip(tweets.model.classes, tweets.model.word_counts(["lovely"])[0], strict=True)
    )
    assert word.likelihoods == dict(
        zip(tweets.model.classes, tweets.model.word_likelihoods(["lovely"])[0], strict=True)
    )


def test_fields_are_read_as_the_stream_is(loans: Api) -> None:
    """A message of fields is judged as the model judges them; what is missing says nothing."""
    form = {"purpose": "school", "income": "high", "has_car": None, "age": 23}
    (found,) = loans.ask({"message": form}).predictions
    example = {"purpose": "school", "income": "high", "has_car": None, "age": 23.0}
    expected = loans.model.without_prior().predict_log_proba_one(example)
    assert found.log_posteriors == expected
    (nothing,) = loans.ask({"message": {}}).predictions
    assert nothing.probabilities == {"granted": 0.5, "refused": 0.5}
    # A text alone goes where the model reads its only text.
    assert loans.ask({"text": "school"}) == loans.ask({"message": {"purpose": "school"}})


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b'{"text": "a", "age": "old"}', "age"),
        (b'{"has_car": 2}', "true, false, 1 or 0"),
        (b'{"income": [1]}', "a string, number, true or false"),
        (b'{"operation": "delete"}', "nothing in it to judge"),
        (b'{"age": 1e999}', "it must be between"),
        (b'["a"]', "a message is one JSON object"),
        (b'{"income": "\xff"}', "0xff"),
    ],
)
def test_what_the_stream_refuses_is_refused(loans: Api, message: bytes, words: str) -> None:
    """In the stream's own words, with the place in the request."""
    assert words in loans.refused(b'{"message": ' + message + b"}")
    found = loans.refused(b'{"messages": [{}, ' + message + b"]}")
    assert words in found
    assert found.startswith("messages[1]")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"text": "\xff"}', 400, "not JSON"),
        (b'{"message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested too deeply"),
        ([], 422, "Expected `object`"),
        ({}, 422, "the body has 0 of them: give one of text, texts"),
        ({"text": "a", "texts": ["b"]}, 422, "the body has 2 of them"),
        ({"text": 1}, 422, "Expected `str | null`, got `int` - at `$.text`"),
        ({"texts": []}, 422, "length >= 1"),
        ({"messages": []}, 422, "length >= 1"),
        ({"texts": ["a", 1]}, 422, "$.texts[1]"),
        ({"texts": ["a"] * (TEXTS_MAX + 1)}, 422, f"length <= {TEXTS_MAX}"),
        ({"text": "a", "interval": 1.0}, 422, "$.interval"),
        ({"text": "a", "interval": 0}, 422, "$.interval"),
        ({"text": "a", "explain": 1}, 422, "Expected `bool`"),
        ({"text": "a", "prior": "stream"}, 422, "$.prior"),
        ({"text": "a", "explian": True}, 422, "unknown field `explian`"),
        ({"texts": ["a"] * 101, "explain": True}, 422, f"{EXPLAINED_MAX} may be at once"),
        ({"texts": ["a " * 50_001] * 2, "interval": 0.9}, 422, "200004 characters are to be"),
        ({"message": {"text": "a " * 100_000}, "explain": True}, 422, "200011 characters are to"),
    ],
)
def test_other_bodies_are_refused(tweets: Api, body: Any, status: int, words: str) -> None:
    """Each says what was found and where, or what is wanted."""
    assert words in tweets.refused(body, status)


def test_answers_have_a_size(tweets: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many classes fewer examples may be asked at once; of two as many as of one."""
    assert 2 * TEXTS_MAX <= PROBABILITIES_MAX
    monkeypatch.setattr("consumers.http.schemas.PROBABILITIES_MAX", 6)
    for raw in (False, True):
        assert len(tweets.ask({"texts": ["a"] * 3, "raw": raw}).predictions) == 3
        assert "8 probabilities, and 6 may be" in tweets.refused({"texts": ["a"] * 4, "raw": raw})


def test_explanations_hold_up_no_other_answer(tweets: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """While some are made, as many as at once may be, the predictor answers all else."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def explain_slowly(*args: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE_S)
        return explain(*args)

    monkeypatch.setattr("consumers.http.routes_model.explain", explain_slowly)
    with ThreadPoolExecutor(THREADS) as askers:
        asked = [
            askers.submit(tweets.ask, {"text": "good", "explain": True}) for _ in range(THREADS)
        ]
        try:
            assert begun.acquire(timeout=PATIENCE_S)
            assert tweets.ask({"text": "good"}).predictions[0].explanation is None
        finally:
            go_on.set()
        assert all(each.result().predictions[0].explanation for each in asked)


def test_explanations_end_once_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has its 503; the examples behind the one that took too long are left."""
    explained, go_on = list[Any](), threading.Event()
    limits = list[tuple[asyncio.AbstractEventLoop, asyncio.Timeout]]()

    def noted_timeout(delay_s: float | None) -> asyncio.Timeout:
        limits.append((asyncio.get_running_loop(), timeout(delay_s)))
        return limits[-1][1]

    def explain_slowly(reader: Any, example: Any) -> Any:
        if not explained:  # the time is over once it has begun
            loop = limits[-1][0]
            # The loop may come to this task's own limit only now, so it looks for it itself.
            loop.call_soon_threadsafe(lambda: limits[-1][1].reschedule(loop.time()))
        explained.append(example)
        assert go_on.wait(PATIENCE_S)
        return explain(reader, example)

    timeout = asyncio.timeout
    monkeypatch.setattr("consumers.http.threads.asyncio.timeout", noted_timeout)
    monkeypatch.setattr("consumers.http.routes_model.explain", explain_slowly)
    of = settings(http={"request_timeout_s": PATIENCE_S})
    for api in apis(of, taught(of)):
        why = api.refused({"texts": ["good"] * 9, "explain": True}, 503)
        assert f"no answer within {PATIENCE_S:g} s" in why
        go_on.set()
        while api.post({"text": "bad", "explain": True}).status_code != 200:
            pass  # the same thread has yet to come to it
    assert [example["text"] for example in explained][:2] == ["good", "bad"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["text", "texts", "message", "messages", "explain", "interval"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_is_our_own_mistake(tweets: Api, body: Any) -> None:
    """Whatever JSON is sent, it is answered or refused with a reason."""
    content = json.dumps(body).encode()
    answer = tweets.post(content)
    assert answer.status_code in {200, 400, 422}
    assert answer.status_code == 200 or answer.json()["detail"]


def test_half_an_emoji_is_read_as_the_stream_reads_it(tweets: Api) -> None:
    """A lone surrogate, which a text cut in two leaves, becomes U+FFFD instead of an error."""
    half = tweets.ask(b'{"text": "good \\ud83d"}')
    assert half.predictions == tweets.ask({"text": "good \ufffd"}).predictions
    by_message = tweets.ask(b'{"message": {"text": "good \\ud83d"}}')
    assert by_message.predictions == half.predictions


def test_classes_may_be_called_anything(tweets: Api) -> None:
    """A class whose name holds quotes and backslashes is a key like any other."""
    of = settings(model={"classes": ["yes", ODD]})
    model = build_model(of.model)
    model.learn_many({"text": ["good", "bad"]}, ["yes", ODD])
    for api in apis(of, model):
        (found,) = api.ask({"text": "bad"}).predictions
        assert found.label == ODD
        assert set(found.probabilities) == {"yes", ODD}
    assert tweets.ask({"text": "bad"}).classes != ["yes", ODD]


def test_a_predictor_that_is_stopped_is_a_problem_with_a_way_out() -> None:
    """503 says to ask again in a moment, for single texts and for many."""
    of = settings()
    with app_state(of) as made, served(made) as port:
        made.predictor.stop()
        for body in ({"text": "a"}, {"texts": ["a", "b"]}, {"text": "a"}):
            answer = httpx.post(
                f"http://127.0.0.1:{port}/v1/predict",
                json=body,
                trust_env=False,
                timeout=PATIENCE_S,
            )
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert "stopping" in answer.json()["detail"]
