"""What is typed into the search box: how it is read, and that it finds just what it says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.messages import Partition
from consumers.search.live_query import BatchIndex
from consumers.search.query_syntax import LENGTH_MAX, TERMS_MAX, Query, QueryError, parse, signs_of
from consumers.search.rows import MessageRow

# Few words, near each other in every way that must not be mixed up.
WORDS = ["obama", "Obamas", "ob", "o", "café", "CAFE", "über", "AND", "near", "text", "1984"]
SIGNS = [
    "#obama",
    "#Obama_care",
    "#o",
    "@obama",
    "@the_other",
    "#café",
    "😀",
    "😀😀",
    "👍🏽",
    "天気",
    "良い天気",
]
TOKENS = st.sampled_from([*WORDS, *SIGNS])
GLUED = ["obama🤣", "🥰ob", "👍🏽café", "x❤️obama"]
TEXTS = st.lists(TOKENS | st.sampled_from(GLUED), max_size=6).map(" ".join)


def row(text: str, lang: str | None = None) -> MessageRow:
    """Return a row with a text."""
    return MessageRow(
        key=0, id="x", partition=Partition("t", 0), offset=0, time_ms=0, arrived_ms=0, user=None,
        lang=lang, text=text, example={"text": text}, label="positive", probability=0.8,
        probabilities=(0.2, 0.8), truth=None, taught=None, taught_part=None, corrected=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def empty() -> Iterator[BatchIndex]:
    """Return an index of a message that no query of nonsense finds."""
    index = BatchIndex([row("a quiet day", "en")])
    yield index
    index.close()


# A twin of the rules, by another road: texts and queries as lists of what stands in them.
def folded(text: str) -> str:
    """Return a text in small letters without accents."""
    apart = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in apart if not unicodedata.combining(c))


def is_cjk(token: str) -> bool:
    """Return whether a token is written without blanks."""
    return "CJK" in unicodedata.name(token[0]) or "HIRAGANA" in unicodedata.name(token[0])


def is_emoji(token: str) -> bool:
    """Return whether a token is of emoji."""
    return unicodedata.category(token[0]) == "So"


def holds(text: str, wanted: str, *, prefix: bool) -> bool:
    """Return whether a text has what one token of a query asks for."""
    tokens = [folded(token) for token in text.split()]
    wanted = folded(wanted)
    if is_emoji(wanted):
        runs = [re.sub("[\U0001f3fb-\U0001f3ff]", "", token) for token in tokens]
        return any(re.sub("[\U0001f3fb-\U0001f3ff]", "", wanted) in run for run in runs)
    if is_cjk(wanted):
        return any(wanted in token for token in tokens)
    if wanted[0] not in "#@":
        tokens = [word for token in tokens for word in re.findall(r"[^\W_]+", token)]
    return any(token.startswith(wanted) if prefix else token == wanted for token in tokens)


ASKED = st.lists(
    st.tuples(st.booleans(), TOKENS, st.booleans()), min_size=1, max_size=3
)  # negated, token, starred


def can_go_on(token: str) -> bool:
    """Return whether a token may be the beginning of another."""
    return len(token.lstrip("#@")) > 1 and not is_emoji(token) and not is_cjk(token)


@given(texts=st.lists(TEXTS, min_size=1, max_size=8), asked=ASKED, typed=st.booleans())
def test_a_query_finds_what_its_words_say(
    texts: list[str], asked: list[tuple[bool, str, bool]], typed: bool
) -> None:
    """A text is found just when it has all that is asked for, and nothing of what is ruled out."""
    pieces, wants = [], []
    for k, (negated, token, starred) in enumerate(asked):
        star = "*" * (starred and can_go_on(token))
        goes_on = typed and k == len(asked) - 1 and not negated and can_go_on(token)
        pieces.append("-" * negated + token + star)
        wants.append((negated, token, bool(star) or goes_on))
    query = parse(" ".join(pieces) + ("" if typed else " "))
    expected = [
        i
        for i, text in enumerate(texts)
        if all(holds(text, token, prefix=goes_on) != negated for negated, token, goes_on in wants)
    ]
    index = BatchIndex([row(text) for text in texts])
    assert index.matches(query) == expected
    found = index.newest(query, None, len(texts))
    assert [i for i, _ in found] == expected
    for i, marked in found:
        assert "".join(marked) == texts[i]
        assert len(marked) % 2
        assert (len(marked) > 1) == any(not negated for negated, _, _ in wants)
        assert all(marked[1::2])
    index.close()


@given(text=TEXTS, phrase=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
def test_a_phrase_is_words_side_by_side(text: str, phrase: list[str]) -> None:
    """Words in quotes are found just where they stand in that order, nothing between them."""
    words = [word for token in text.split() for word in re.findall(r"[^\W_]+", folded(token))]
    wanted = [folded(word) for word in phrase]
    n = len(wanted)
    # Emoji separate words, but FTS5 counts words only: what they separate stays side by side.
    stands = any(words[i : i + n] == wanted for i in range(len(words)))
    index = BatchIndex([row(text)])
    assert index.matches(parse(f'"{" ".join(phrase)}"')) == [0] * stands
    index.close()


@given(
    st.text(max_size=60) | st.text(alphabet='ab"*-#@^():{}+ \0\x01\ud800ANDORNEARtext', max_size=30)
)
def test_no_input_is_syntax(empty: BatchIndex, text: str) -> None:
    """Whatever is typed is answered, or refused with a sentence; it never means anything else."""
    refusal = "."
    try:
        query = parse(text)
        assert empty.matches(query) in ([], [0])
        assert all("".join(text) == "a quiet day" for _, text in empty.newest(query, None, 1))
    except QueryError as error:
        refusal = str(error)
    assert refusal.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        '" OR "a', "a OR nothing ", "nothing OR a ", "text:a nothing ", "NEAR(a quiet nothing)",
        "{text signs}:nothing", "signs:nothing", "^nothing", 'a" NOT "b nothing',
        "x');DROP TABLE rows1;--",
    ],
)  # fmt: skip
def test_operators_are_words(empty: BatchIndex, text: str) -> None:
    """What FTS5 and SQL would take for operators are words that this text does not have."""
    assert empty.matches(parse(text)) == []


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("obam", True), ("obam ", False), ("obam!", False), ("o", False), ("day obam", True),
        ("#ob", True), ("@o", False), ('"good da', True), ('"good day"', False), ("-obam", False),
        ("e\u0301", False), ("e\u0301t", True),
        ("obam*", False), ("天気", False), ("😀", False), ("don't", False), ("", False),
    ],
)  # fmt: skip
def test_the_last_word_may_go_on(text: str, typed: bool) -> None:
    """The last word, of two letters or more and with nothing behind it, is being typed."""
    assert parse(text).prefix_last is typed


def test_nothing_typed_asks_for_everything() -> None:
    """An empty box asks for everything, and a box without a word is refused."""
    assert parse(" \t ").is_everything
    assert parse("") == Query()
    with pytest.raises(QueryError, match=r"There is no word in '!! -\"\"' to look for"):
        parse('!! -""')


@pytest.mark.parametrize("text", ["a*", "#a*", "good o*", "-x*", "é*", "e\u0301*", "#x\u030c*"])
def test_beginnings_of_one_letter_are_refused(text: str) -> None:
    """A single letter before a star would find nearly everything, and the answer says so."""
    with pytest.raises(QueryError, match="would find nearly everything: type at least 2 letters"):
        parse(text)


def test_long_queries_are_refused() -> None:
    """A query has a bounded length and a bounded number of words, and the refusal says which."""
    with pytest.raises(QueryError, match=f"{LENGTH_MAX} are read at most"):
        parse("x" * (LENGTH_MAX + 1))
    with pytest.raises(QueryError, match=f"{TERMS_MAX} are read at most"):
        parse("x " * (TERMS_MAX + 1))


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Obama met OBAMACARE", "obama", ("", "Obama", " met ", "OBAMACARE", "")),
        ("#obama is not obama", "#obama", ("", "#obama", " is not obama")),
        ("a #obama, obama", "obama ", ("a #", "obama", ", ", "obama", "")),
        ("so 😀👍🏽 good", "👍", ("so 😀", "👍🏽", " good")),
        ("今日は良い天気", "天気", ("今日は良い", "天気", "")),
        ("don't stop now", "don't", ("", "don't", " stop now")),
        ("love🤣 and love🥰", "love ", ("", "love", "🤣 and ", "love", "🥰")),
        ("by day by night", '"by night"', ("by day ", "by night", "")),
        ("a <b>bold</b> one", "bold", ("a <b>", "bold", "</b> one")),
        ("nothing here", "", ("nothing here",)),
    ],
)
def test_what_was_found_is_marked(text: str, query: str, marked: tuple[str, ...]) -> None:
    """Every second piece of a text is of the query's words, and all pieces together the text."""
    index = BatchIndex([row(text)])
    assert index.matches(parse(query)) == [0]
    assert index.newest(parse(query), None, 1) == [(0, marked)]
    index.close()


def test_a_language_is_asked_for_whole() -> None:
    """A language finds its own messages alone, whatever its name is made of."""
    langs = ["en", "en-GB", None, "e", "😀", "en"]
    index = BatchIndex([row("good day", lang) for lang in langs])
    for lang in ("en", "en-GB", "e", "😀", "fr"):
        expected = [i for i, own in enumerate(langs) if own == lang]
        assert index.matches(parse("good"), lang) == expected
        assert index.matches(parse(""), lang) == expected
        assert index.matches(parse("-night"), lang) == expected
    assert index.matches(parse("")) == list(range(6))
    index.close()


@given(st.text("ab_#@&1- \n.'"))
def test_the_short_way_through_ascii_finds_the_same_signs(text: str) -> None:
    """A letter that stands apart makes a text take the long way, and adds nothing."""
    assert signs_of(text) == signs_of(f"{text} é")
