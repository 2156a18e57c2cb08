"""The whole API of a daemon that runs: every example of its guide, corrections, and the client."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from consumers.http import schemas
from consumers.http.client import ApiError, Client, MessageDict
from tests.consumers.http.api_daemon import N_MESSAGES, RARE, reading_daemon
from tests.endtoend.daemon_process import PATIENCE_S, Daemon

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8100"
OPTIONS = {"-H", "-d", "-X", "--max-time"}


class Example(NamedTuple):
    """A question of the guide and what it shows as the answer."""

    route: str
    command: str
    kind: str
    answer: str


EXAMPLES = [
    Example(*found)
    for found in re.findall(
        r"^##+ `?([^`\n]+)`?\n(?:(?!^##).)*?```sh\n(.*?)```\n\n```(json|text)\n(.*?)```",
        GUIDE,
        re.MULTILINE | re.DOTALL,
    )
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon that has read its messages."""
    with reading_daemon(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Client:
    """Return our own client of it."""
    return Client(daemon.address)


@pytest.fixture(scope="module")
def http(daemon: Daemon) -> Iterator[httpx.Client]:
    """Yield a client that says what it is told to."""
    with httpx.Client(base_url=daemon.address, trust_env=False, timeout=PATIENCE_S) as made:
        yield made


def sent(http: httpx.Client, command: str) -> httpx.Response:
    """Send what a curl command would send; of a stream the first summary is read."""
    words = shlex.split(command.replace("\\\n", ""))
    assert words.pop(0) == "curl"
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        found[word if word in OPTIONS else "url"] = words.pop(0) if word in OPTIONS else word
    assert found["url"].startswith(ADDRESS)
    name, _, value = found.get("-H", "Accept: */*").partition(": ")
    request = http.build_request(
        found.get("-X", "POST" if "-d" in found else "GET"),
        found["url"].removeprefix(ADDRESS),
        headers={name: value},
        content=found.get("-d"),
    )
    answer = http.send(request, stream=True)
    if answer.headers["content-type"].startswith("text/event-stream"):
        answer._content = next(part for part in answer.iter_bytes() if b"event: summary" in part)
    else:
        answer.read()
    answer.close()
    return answer


def same_form(shown: Any, found: Any, place: str = "$") -> None:
    """Fail unless two JSON values have the same fields in the same order, however deep."""
    if isinstance(shown, dict) and isinstance(found, dict):
        assert list(shown) == list(found), place
        for key in shown:
            same_form(shown[key], found[key], f"{place}.{key}")
    elif isinstance(shown, list) and isinstance(found, list):
        if shown and found:
            same_form(shown[0], found[0], f"{place}[0]")
    elif shown is not None and found is not None:
        numbers = (int, float)
        both = isinstance(shown, numbers) and isinstance(found, numbers)
        assert both or type(shown) is type(found), place


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.route)
def test_the_guide_shows_what_is_answered(http: httpx.Client, example: Example) -> None:
    """Each curl command of the guide is answered in the form that the guide shows."""
    answer = sent(http, example.command)
    shown = re.search(r'"status": (\d+)', example.answer)
    taken = 202 if example.route in {"POST /v1/labels", "DELETE /v1/messages/{id}"} else 200
    assert answer.status_code == (int(shown[1]) if shown else taken)
    if example.kind == "json":
        same_form(json.loads(example.answer), answer.json())
    else:
        assert example.answer.partition("\n")[0].partition("{")[0] in answer.text


def test_the_guide_and_the_description_have_the_same_routes(http: httpx.Client) -> None:
    """No route is missing in the guide, and none is made up."""
    paths = http.get("/openapi.json").json()["paths"]
    described = {f"{method.upper()} {path}" for path in paths for method in paths[path]}
    assert described == {example.route for example in EXAMPLES} - {"Problems"}


def test_every_status_is_described(http: httpx.Client) -> None:
    """Those that any route may answer with, and those of a probe that says no."""
    paths = http.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for operation in methods.values():
            assert {"400", "403", "500"} < operation["responses"].keys(), path
    assert http.get("/v1/model?x=%ff").status_code == 400
    assert http.get("/v1/model", headers={"Host": "elsewhere.example"}).status_code == 403
    for path in ("/healthz", "/readyz"):
        media = paths[path]["get"]["responses"]["503"]["content"]["application/json"]
        assert media["schema"]["$ref"].endswith("/HealthAnswer")
    assert paths["/v1/snapshot"]["get"]["responses"]["304"].keys() == {"description", "headers"}
    assert "503" in paths["/embed"]["get"]["responses"]


def test_the_description_has_the_examples_of_the_guide(http: httpx.Client) -> None:
    """Each operation shows the call of the guide and its answer, and what each problem says."""
    paths = http.get("/openapi.json").json()["paths"]
    for example in EXAMPLES:
        if example.route in {"Problems", "GET /v1/snapshot"}:  # of no route; of bytes
            continue
        method, _, path = example.route.partition(" ")
        operation = paths[path][method.lower()]
        words = shlex.split(example.command.replace("\\\n", ""))
        (url,) = (urlsplit(word) for word in words if word.startswith(ADDRESS))
        asked = parse_qs(url.query) | ({"id": [url.path.rpartition("/")[2]]} if "{" in path else {})
        shown = {each["name"]: each["example"] for each in operation["parameters"]
                 if "example" in each}  # fmt: skip
        assert {k: v if isinstance(v, list) else [str(v)] for k, v in shown.items()} == asked
        if "-d" in words:
            body = operation["requestBody"]["content"]["application/json"]["example"]
            assert body == json.loads(words[words.index("-d") + 1])
        for status, answer in operation["responses"].items():
            for media, content in answer["content"].items():
                place = f"{example.route} {status} {media}"
                assert "example" in content, place
                if int(status) >= 400 and media == "application/json":
                    assert content["example"]["reason"]  # of a probe
                elif int(status) >= 400 and media == "application/problem+json":
                    assert content["example"]["status"] == int(status)
                elif int(status) >= 400:
                    assert content["example"].startswith("<p"), place  # of the card
                elif media == "application/json":
                    assert content["example"] == json.loads(example.answer), place


def test_the_description_of_the_export_has_both_forms(http: httpx.Client) -> None:
    """Each form's example is like what comes if it is asked for."""
    operation = http.get("/openapi.json").json()["paths"]["/v1/export"]["get"]
    answers = operation["responses"]["200"]["content"]
    (example,) = (each for each in EXAMPLES if each.route == "GET /v1/export")
    assert json.loads(answers["application/jsonl"]["example"]) == json.loads(example.answer)
    for name, media in (("csv", "text/csv"), ("jsonl", "application/jsonl")):
        found = http.get(f"/v1/export?q=obama&format={name}&limit=1")
        assert found.headers["content-type"].partition(";")[0] == media
    head = http.get("/v1/export?q=obama").text.partition("\n")[0]
    assert answers["text/csv"]["example"].partition("\n")[0] == head


def test_a_search_goes_on_where_it_ended(client: Client) -> None:
    """Page by page every message comes once, the newest first."""
    found: list[MessageDict] = []
    page = client.search("obama", limit=7)
    while True:
        found += page["messages"]
        if not page["more"]:
            break
        page = client.search("obama", limit=7, before=page["before"])
    keys = [each["key"] for each in found]
    assert keys == sorted(set(keys), reverse=True)
    assert len(keys) == client.summary("obama")["n"] == N_MESSAGES // 3 - 1
    assert all("".join(each["marked"]) == each["text"] for each in found)


def test_a_summary_adds_up(client: Client) -> None:
    """Its counts, shares and series are of the same messages."""
    found = client.summary("morning", lang="en")
    assert sum(found["counts"].values()) == found["n"]
    assert sum(share or 0.0 for share in found["raw"].values()) == pytest.approx(1)
    points = found["series"]["points"]
    assert sum(sum(point["counts"].values()) for point in points) == found["n"]
    assert client.summary()["is_everything"]


def test_a_summary_of_a_time(http: httpx.Client, client: Client) -> None:
    """Messages from one time to before another are counted, and all others left out."""
    points = client.summary("morning")["series"]["points"]
    begin_ms, n_first = points[0]["time_ms"], sum(points[0]["counts"].values())
    span = {"from": begin_ms + 1, "to": begin_ms + 1000}
    first = http.get("/v1/summary", params={"q": "morning", **span}).json()
    assert (first["n"], first["series"]) == (n_first, {"step_s": 1, "points": points[:1]})
    assert client.summary("morning")["n"] > n_first
    for query, expected in (
        ("from=yesterday", "from is 'yesterday'; Unix milliseconds or an ISO time"),
        ("from=5&to=5", "from (5) is not before to (5)"),
    ):
        refused = http.get(f"/v1/summary?{query}")
        assert refused.status_code == 422
        assert expected in refused.json()["detail"]


def test_a_search_of_a_time(http: httpx.Client, client: Client) -> None:
    """The list has what the file of the same time has, page by page; an end may be open."""
    every = client.search("morning", limit=200)["messages"]
    begin_ms, end_ms = sorted({each["time_ms"] for each in every})[1:3]
    for span in ((begin_ms, end_ms), (begin_ms, None), (None, end_ms)):
        asked = {name: at for name, at in zip(("from", "to"), span, strict=True) if at is not None}
        file = http.get("/v1/export", params={"q": "morning", "format": "jsonl", **asked})
        expected = [json.loads(line)["id"] for line in file.text.splitlines()]
        assert 0 < len(expected) < len(every)
        found, before = list[str](), None
        while True:
            page = client.search("morning", span, limit=2, before=before)
            found += [each["id"] for each in page["messages"]]
            before = page["before"]
            if not page["more"]:
                break
        assert found == expected
    for query, said in (
        ("from=yesterday", "from is 'yesterday'; Unix milliseconds or an ISO time"),
        ("to=offset:3", "to is 'offset:3'; Unix milliseconds or an ISO time"),
        ("from=5&to=5", "from (5) is not before to (5)"),
    ):
        refused = http.get(f"/v1/search?{query}")
        assert refused.status_code == 422
        assert said in refused.json()["detail"]


def test_queries_side_by_side(client: Client) -> None:
    """Each side has what a summary of its query says, filters included, with its own words."""
    queries = ("obama ", "coffee lang:en", "morning label:positive")
    for query, side in zip(queries, client.compare(*queries), strict=True):
        summary = client.summary(query)
        for name in ("query", "n", "counts", "raw", "corrected", "is_everything"):
            assert side[name] == summary[name]
        assert side["n_read"] == side["n"]
        assert sum(sum(point["counts"].values()) for point in side["series"]["points"]) == side["n"]
    words = {word["word"]: word for word in client.compare("obama ", "coffee ")[1]["words"]}
    assert "coffee" not in words
    assert sum(words["news"]["counts"].values()) == client.summary("coffee ")["n"]


def test_one_query_at_two_times(client: Client, http: httpx.Client) -> None:
    """The times are the first and the second of `from` and `to`, in either form."""
    points = client.summary("morning")["series"]["points"]
    begin_ms, end_ms = points[0]["time_ms"], points[-1]["time_ms"] + 1000
    middle_ms = begin_ms + 20_000
    sides = client.compare(
        "morning", times=[(begin_ms, "2026-11-21T10:00:20Z"), (middle_ms, end_ms)]
    )
    query = f"q=morning&from={begin_ms}&to={middle_ms}&from={middle_ms}&to={end_ms}"
    moved = http.get(f"/v1/compare?{query}").json()["moved"]
    was, now = (side["raw"][moved["label"]] for side in sides)
    assert (moved["before"], moved["after"]) == (was, now)
    assert moved["after"] - moved["before"] == max(
        (sides[1]["raw"][label] or 0.0) - (share or 0.0) for label, share in sides[0]["raw"].items()
    )
    assert http.get("/v1/compare?q=a&q=b").json()["moved"] is None
    own = f"from={begin_ms}&to={middle_ms}"  # two queries at one time are no before and after
    assert http.get(f"/v1/compare?q=a&q=b&{own}").json()["moved"] is None
    begin_of_minute_ms = middle_ms // 60_000 * 60_000
    assert sides[0]["from_ms"] == begin_ms
    assert sides[0]["to_ms"] == begin_of_minute_ms + 20_000
    assert sides[1]["n"] == sum(
        sum(point["counts"].values()) for point in points if point["time_ms"] >= middle_ms
    )
    assert client.compare("ob*", "-obama", lang="fr")[0]["lang"] == "fr"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "there are 0 of q, 0 of from and 0 of to; give 2 to 4 of q"),
        ("q=a", "there are 1 of q, 0 of from and 0 of to"),
        ("q=a&q=b&q=c&q=d&q=e", "there are 5 of q"),
        ("q=a&from=1&from=2&to=3", "there are 1 of q, 2 of from and 1 of to"),
        ("q=a&q=b&from=1&from=2&to=3&to=4", "there are 2 of q, 2 of from and 2 of to"),
        ("q=a&from=1&from=9&to=3&to=4", "from (9) is not before to (4); give a later to"),
        ("q=a&from=1&from=&to=3&to=4", "from is ''; Unix milliseconds or an ISO time"),
        ("q=a&q=b&from=noon", "from is 'noon'"),
        ("q=a&q=income:%3E5", "There is no field 'income' to compare"),
        ("q=a&q=b&lang=en&lang=de", "lang is given 2 times; give it once"),
        ("q=a&q=b&limit=3", "there is no parameter 'limit'"),
    ],
)
def test_what_cannot_be_compared(http: httpx.Client, query: str, expected: str) -> None:
    """A comparison of something else is a problem that says what is wanted."""
    refused = http.get(f"/v1/compare?{query}")
    assert refused.status_code == 422
    assert expected in refused.json()["detail"]


@pytest.mark.parametrize("query", ["o*", '"', "-", "a AND", "NEAR(", "text:x", "' OR 1=1 --", "*"])
def test_no_query_breaks_the_search(http: httpx.Client, query: str) -> None:
    """Whatever is typed is searched for, or refused in a sentence."""
    answer = http.get("/v1/search", params={"q": query})
    assert answer.status_code in {200, 422}
    told = answer.json()
    assert told["query"] == query if answer.status_code == 200 else told["detail"].endswith(".")


def counts_of(client: Client, word: str) -> dict[str, float]:
    """Return how often a word was learned in each class; nothing where it is not known."""
    explanation = client.predict(word, explain=True)["explanation"]
    assert explanation is not None
    features = explanation["features"]
    found: dict[str, float] = features[0]["counts"] if features else {}
    return found


def test_a_label_is_taught_and_a_deletion_unlearned(daemon: Daemon, client: Client) -> None:
    """A correction is in the log when it is answered, in the counts and on the page soon after."""
    assert counts_of(client, "quagga") == {"negative": 1.0, "positive": 0.0}
    name = f"t{RARE}"
    receipt = client.label(name, "positive")
    assert (receipt["was"], receipt["label"]) == ("negative", "positive")
    assert receipt["position"].startswith("corrections.jsonl@")
    assert client.label(name, "positive")["was"] == "positive"
    daemon.until(
        lambda: counts_of(client, "quagga") == {"negative": 0.0, "positive": 1.0}, "it is learned"
    )
    (found,) = client.search("quagga")["messages"]
    assert found["corrected"] == "positive"
    assert client.delete(name)["was"] == "positive"
    assert not client.search("quagga")["messages"]
    daemon.until(lambda: not counts_of(client, "quagga"), "it is unlearned")
    for ask in (partial(client.label, name, "positive"), partial(client.delete, name)):
        with pytest.raises(ApiError, match=f"Not Found: no message '{name}' is kept"):
            ask()


def test_an_example_may_come_along(daemon: Daemon, client: Client, http: httpx.Client) -> None:
    """A text or a message with its label is learned under an id of its own."""
    for example in ({"text": "zebras"}, {"message": {"text": "zebras"}}):
        answer = http.post("/v1/labels", json=example | {"label": "negative"})
        assert answer.status_code == 202
        assert answer.json()["was"] is None
    daemon.until(lambda: counts_of(client, "zebras").get("negative") == 2, "both are learned")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"id": "t1"}, "missing required field `label`"),
        ({"label": "positive"}, "0 of them: give one of id, text and message"),
        ({"label": "positive", "id": "t1", "text": "a"}, "2 of them"),
        ({"label": "posit", "id": "t1"}, "label 'posit' is none of negative, positive"),
        ({"label": "positive", "id": ""}, "length >= 1"),
        ({"label": "positive", "message": {"tex": "a"}}, "no text at 'text'"),
        ({"label": "positive", "message": {"operation": "delete"}}, "deletion"),
    ],
)
def test_labels_that_cannot_be_meant(http: httpx.Client, body: Any, words: str) -> None:
    """Nothing is written, and the reason is told."""
    answer = http.post("/v1/labels", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_the_page_of_another_site_teaches_nothing(http: httpx.Client) -> None:
    """A request with a foreign Origin or Host is refused, and the message stays as it is."""
    evil = {"Origin": "http://evil.example"}
    assert http.delete("/v1/messages/t1", headers=evil).status_code == 403
    assert http.delete("/v1/messages/t1", headers={"Host": "evil.example"}).status_code == 403
    assert http.get("/v1/messages/t1").status_code == 200


def test_ids_may_hold_anything(client: Client) -> None:
    """An id with slashes, blanks and question marks is asked for as it is."""
    with pytest.raises(ApiError, match=r"no message 'a/b \?c#d%2F' is kept"):
        client.delete("a/b ?c#d%2F")


def test_the_client_judges_one_and_many(daemon: Daemon, client: Client) -> None:
    """Texts and messages, in their order; what goes wrong carries the daemon's own words."""
    texts = ["spoke so well", "spoke so badly"]
    messages = [{"text": text} for text in texts]

    def all_agree() -> bool:
        one_by_one = [client.predict(text) for text in texts]
        ways = (
            client.predict_many(texts),
            client.predict_many(messages),
            [client.predict(message) for message in messages],
        )
        return all(answers == one_by_one for answers in ways)

    # A correction of the test before may be learned between two of the calls.
    daemon.until(all_agree, "each way of asking has the same answers")
    assert [each["label"] for each in client.predict_many(texts)] == ["positive", "negative"]
    explanation = client.predict("good", explain=True)["explanation"]
    assert explanation is not None
    assert explanation["features"]
    with pytest.raises(ApiError, match="no text at 'text'") as caught:
        client.predict({"tex": "good"})
    assert caught.value.status == 422
    assert caught.value.problem["title"] == "Unprocessable Entity"


def test_the_client_reads_a_message_and_a_file(client: Client, http: httpx.Client) -> None:
    """A message comes with its reasons; a file comes whole, as it is without the client."""
    found = client.message("t7")
    assert (found["id"], found["now"]["label"]) == ("t7", "negative")
    assert found["explanation"] is not None
    for form in ("csv", "jsonl"):
        whole = b"".join(client.export("coffee", format=form, limit=9))
        assert whole == http.get(f"/v1/export?q=coffee&format={form}&limit=9").content
        assert whole.count(b"\n") == 9 + (form == "csv")
    with pytest.raises(ApiError, match="one of csv, jsonl is wanted"):
        next(client.export(format="xlsx"))
    with pytest.raises(ApiError, match="no message 'nobody' is stored"):
        client.message("nobody")


def test_the_client_says_when_nobody_answers() -> None:
    """Without a daemon it is told where none was found."""
    with pytest.raises(ApiError, match=r"No answer: http://127\.0\.0\.1:1: ") as caught:
        Client("http://127.0.0.1:1/").model()
    assert caught.value.status is None


def test_queries_of_events_are_described_as_the_lists_that_they_are(http: httpx.Client) -> None:
    """A generated client can watch several, as `/v1/compare` can compare several."""
    described = http.get("/openapi.json").json()["paths"]["/v1/events"]["get"]["parameters"]
    listed = {"type": "array", "items": {"type": "string"}, "maxItems": schemas.QUERIES_MAX}
    assert {each["name"]: each["schema"] for each in described} == {"q": listed, "lang": listed}
