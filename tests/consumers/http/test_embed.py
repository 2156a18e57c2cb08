"""The card for frames of other sites, and what a link to the page shows elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from consumers.config.sections import HttpSettings
from consumers.http.app import HEADERS, PAGE, share_in_words
from consumers.http.state import COLOURS
from consumers.http.threads import THREADS
from consumers.monitoring.prequential import wilson
from consumers.monitoring.quality import Share
from consumers.search.store import RecentStore
from tests.consumers.http.api_daemon import SITE, reading_daemon
from tests.consumers.http.loopback_server import app_state, served, settings
from tests.consumers.search.stores import running, tell
from tests.endtoend.daemon_process import PATIENCE_S

POLICY = "content-security-policy"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yield a client of a daemon whose card one site may frame."""
    with (
        reading_daemon(tmp_path_factory.mktemp("embed")) as daemon,
        httpx.Client(base_url=daemon.address, trust_env=False, timeout=PATIENCE_S) as client,
    ):
        yield client


def plain(page: str) -> str:
    """Return what can be read of a page."""
    words = re.sub(r"<[^>]*>", " ", page.partition("<main>")[2])
    return " ".join(html.unescape(words).split())


def test_the_card_says_what_the_summary_does(http: httpx.Client) -> None:
    """Of each class it has the share with its interval, the count, and a bar."""
    for params in ({}, {"lang": "en"}):
        summary = http.get("/v1/summary", params=params).json()
        answer = http.get("/embed", params=params)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        shown = plain(answer.text)
        assert summary["enough"]
        for label in summary["classes"]:
            raw, size = summary["raw"][label], summary.get("n_even", summary["n"])
            low, high = wilson(raw * size, size)
            by_count = {"share": raw, "low": low, "high": high}
            own = (summary["corrected"] or {}).get(label) or by_count
            words = share_in_words(Share(**own))
            assert f"{label} {words} {summary['counts'][label]:,}" in shown
            assert f'width="{100 * own["share"]:.1f}"' in answer.text
        assert f"{summary['n']} messages" in shown


def test_a_card_of_shares_that_are_not_corrected() -> None:
    """Without labelled matches of each class the shares have the interval of their count."""
    of = settings(http={"embed_sites": [SITE]})
    with running(None) as store, app_state(of) as made, served(made, recent=store) as port:
        tell(store, [{"text": "a good tapir", "label": 4}] * 40)
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, trust_env=False, timeout=PATIENCE_S) as client:
            summary = client.get("/v1/summary?q=tapir").json()
            answer = client.get("/embed?q=tapir")
    assert (summary["n"], summary["corrected"]) == (40, None)
    shown = plain(answer.text)
    assert "negative 0% (0–9) 0 " in shown
    assert "positive 100% (91–100) 40 " in shown
    assert "40 tweets, with 95% intervals, not corrected for errors." in shown
    assert answer.text.count("<path d=") == 2  # an interval on each bar


def test_a_card_of_few_messages_has_counts_alone(http: httpx.Client) -> None:
    """Where the page shows no share, the card shows none."""
    summary = http.get("/v1/summary?q=quagga").json()
    shown = plain(http.get("/embed?q=quagga").text)
    assert not summary["enough"]
    assert "%" not in shown
    assert f"1 message; a share needs {summary['messages_min']}." in shown


def test_what_is_asked_stays_text(http: httpx.Client) -> None:
    """A query is shown and linked to as it was typed, and never becomes markup."""
    query = "obama \"<script>alert(1)</script>\" & 'x'"
    page = http.get("/embed", params={"q": query, "lang": '"><b>'}).text
    assert "<script>" not in page
    assert "<b>obama" not in page
    assert '"><b>' not in page
    assert plain(page).startswith(f'Sentiment analysis for {query} ("><b>)')
    (href,) = re.findall(r'<a href="([^"]*)"', page)
    assert httpx.URL(html.unescape(href)).params["q"] == query


def test_a_query_that_cannot_be_searched_for(http: httpx.Client) -> None:
    """The card says so, and asks again; a wrong parameter is a problem as elsewhere."""
    answer = http.get("/embed?q=%2B%2B")
    assert answer.status_code == 422
    assert "There is no word in '++'" in plain(answer.text)
    assert "/page/embed.js" in answer.text
    assert http.get("/embed?words=x").json()["status"] == 422


def test_one_site_may_frame_the_card_and_nobody_another_page(http: httpx.Client) -> None:
    """The card has one policy, which names the site; all else has that of all pages."""
    (policy,) = http.get("/embed").headers.get_list(POLICY)
    assert policy.endswith(f"; frame-ancestors {SITE}")
    assert "unsafe" not in policy
    safe = dict(HEADERS)[POLICY.encode()].decode()
    assert "frame-ancestors 'none'" in safe
    for path in ("/", "/docs", "/v1/summary", "/embed?words=x", "/page/style.css"):
        assert http.get(path).headers.get_list(POLICY) == [safe]


def test_there_is_no_card_by_default() -> None:
    """Without a site the answer says which setting names one."""
    with app_state(settings()) as of, served(of) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/embed", trust_env=False, timeout=60)
    assert answer.status_code == 404
    assert "http.embed_sites" in answer.json()["detail"]
    assert "frame-ancestors 'none'" in answer.headers[POLICY]


def card_of_a_closed_store() -> httpx.Response:
    """Return the card of a daemon whose store has not been opened."""
    of = settings(http={"embed_sites": [SITE]})
    store = RecentStore(of.recent, None, of.model.classes, of.model.fields, of.page.unsure_below)
    with app_state(of) as made, served(made, recent=store) as port:
        address = f"http://127.0.0.1:{port}/embed?q=tea"
        answer = httpx.get(address, trust_env=False, timeout=PATIENCE_S)
    store.stop()
    return answer


def test_a_card_of_a_store_that_is_not_open_yet() -> None:
    """It says so, and when to ask again."""
    answer = card_of_a_closed_store()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "still loading" in answer.text


def test_a_card_of_a_busy_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too much is asked at once it says so in the frame, and asks again."""
    monkeypatch.setattr("consumers.http.threads.WAITING_MAX", -THREADS)  # nobody may be served
    answer = card_of_a_closed_store()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers[POLICY].endswith(f"; frame-ancestors {SITE}")
    assert "too much is being asked at once" in plain(answer.text)
    assert "/page/embed.js" in answer.text


@pytest.mark.parametrize(
    "site", ["*", "https://*.example.org", f"{SITE}/", f"{SITE};script-src", f"{SITE},x", "data:"]
)
def test_a_site_is_written_out(site: str) -> None:
    """What is no origin is refused, above all what would add to the policy."""
    with pytest.raises(ValueError, match="embed_sites"):
        HttpSettings.model_validate({"embed_sites": [site]})


def test_the_card_and_the_page_have_the_same_colours() -> None:
    """A colour of the settings is the same variable in both."""
    style = Path(PAGE / "style.css").read_text(encoding="utf-8")
    named = dict(re.findall(r"--(\w+): var\(--(\w+)\);", style))
    del named["class"]  # the colour of whatever it is
    assert named == COLOURS


def test_a_link_to_the_page_has_a_preview(http: httpx.Client) -> None:
    """Title, description and picture are there before any script, of the search that is linked."""
    for path, title in (
        ("/", "streamnb"),
        ("/?q=obama+%22%3Cb%3E%22", "obama &quot;&lt;b&gt;&quot; · streamnb"),
    ):
        page = http.get(path)
        assert f"<title>{title}</title>" in page.text
        said = dict(re.findall(r'<meta property="([^"]+)" content="([^"]*)">', page.text))
        assert said["og:title"] == title
        assert said["og:description"].startswith("Sentiment analysis for ")
        picture = http.get(said["og:image"])
        assert (picture.status_code, picture.headers["content-type"]) == (200, "image/png")
        assert said["og:image"].startswith(str(http.base_url))
        same = http.get(path, headers={"If-None-Match": page.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
    behind = http.get("/", headers={"X-Forwarded-Proto": "https"}).text
    assert f'content="https://{http.base_url.netloc.decode()}/page/preview.png"' in behind
