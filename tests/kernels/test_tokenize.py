"""Text into words: examples for each rule, and the kernel against its twin on any text."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Multinomial, Words
from streamnb.kernels import tokenize as characters
from streamnb.tokenizer import EMOTICONS, NEGATORS, Tokenizer, composed
from tests import naive, naive_text
from tests.encoding import KEY, read, state_of, text_column, words_of
from tests.strategies import byte_texts, groups, texts

EXAMPLES = {
    # 1. Emoticons, longest first, their last sign repeated or not.
    ":-) <3 :)))) >:((": [":-)", "<3", ":)", ">:("],
    "lol:) ok</3": ["lol", ":)", "ok", "</3"],
    "xD xDDD :DDDx D8 D80 D88": ["xD", "ddx", "D8", "d80", "d88"],
    ":P :Pa :p! at 12:30 12:33": [":P", "pa", ":p", "at", "12", "30", "33"],
    "^_^ T_T ;_; o_O": ["^_^", "T_T", ";_;", "o_O"],
    # 2. Links, up to white space.
    "see http://a.b/c?d=:) now": ["see", "<link>", "now"],
    "HTTPS://A www.a WwW.b": ["<link>"],
    "https:/ http:x wwww.a http://": ["https", ":/", "http", ":x", "ww", "a"],
    "https://a\nb": ["<link>", "b"],
    # 3. Mentions.
    "@me @me2_ .@you": ["<user>"],
    "@ home me@example.org": ["home", "me", "example", "org"],
    # 4. Emoji, flags and ideographs.
    "😀😀 👍🏽": ["😀", "👍🏽"],
    "👩‍👩‍👧‍👦x ❤️": ["👩‍👩‍👧‍👦", "x", "❤️"],
    "🇩🇪🇫🇷🇩": ["🇩🇪", "🇫🇷", "🇩"],
    "日本語 ひら カナ 한국어": ["日", "本", "語", "ひ", "ら", "カナ", "한국어"],
    # 5. Words.
    "it's rock’n’roll 'quoted' dogs'": ["it's", "rock'n'roll", "quoted", "dogs"],
    "#tag ##two a#b #": ["#tag", "#two", "a", "#b"],
    "sooooo goooood AAaa 1111 x___y ÉéÉé": ["soo", "good", "aa", "1111", "x__y", "éé"],
    "Straße STRASSE ǅ ﬃ": ["strasse", "ǆ", "ffi"],
    "İstanbul ISTANBUL ıslak ΣΊΣΥΦΟΣ": ["i̇stanbul", "istanbul", "ıslak", "σίσυφοσ"],
    "e\u0301té हिन्दी مرحبا": ["e\u0301té", "हिन्दी", "مرحبا"],
    "100 3.14 x² ½ ٣": ["100", "3", "14", "x²", "½", "٣"],
    "a\0b\u00adc—d": ["a", "b", "c", "d"],
    "": [],
    " \t\r\n.,;!?(": [],
}
NEGATED = {
    "not a good day": ["not", "¬a", "¬good", "day"],
    "I don't like it at all": ["i", "don't", "¬like", "¬it", "at", "all"],
    "not bad. good": ["not", "¬bad", "good"],
    "not, good": ["not", "good"],
    "never :) @me 😀 rain": ["never", ":)", "<user>", "😀", "¬rain"],
    "not never good": ["not", "never", "¬good"],
    "no 日本 x": ["no", "¬日", "¬本", "x"],
    "ain’t n't x": ["ain't", "¬n't", "¬x"],
    "NOT\nme": ["not", "me"],
}
LONG = "abcdefghij" * 9
PLAIN = Tokenizer(
    case_fold=False, fold_mentions=False, fold_links=False, squeeze=False, emoticons=False
)


@pytest.mark.parametrize("text", EXAMPLES)
def test_rules(text: str) -> None:
    """Each rule of the tokeniser reads its examples as its docstring says, and so does the twin."""
    assert words_of(text) == EXAMPLES[text]
    assert list(naive_text.grams(text, Tokenizer())) == EXAMPLES[text]


@pytest.mark.parametrize("text", NEGATED)
def test_negation(text: str) -> None:
    """A negating word marks the two words behind it, unless the clause ends before."""
    group = Words(Multinomial(), negation=True)
    assert words_of(text, group) == NEGATED[text]
    assert list(naive_text.grams(text, group.tokenizer)) == NEGATED[text]


def test_every_rule_can_be_switched_off() -> None:
    """With all rules off, signs separate words, and letters stay as they are."""
    group = Words(
        Multinomial(),
        case_fold=False,
        fold_mentions=False,
        fold_links=False,
        squeeze=False,
        emoticons=False,
    )
    assert group.tokenizer == PLAIN
    text = "Soooo :) @Me http://x.y Straße"
    expected = ["Soooo", "Me", "http", "x", "y", "Straße"]
    assert words_of(text, group) == expected == list(naive_text.grams(text, PLAIN))


OPTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "so good... not bad!! really?!": (
        {"punctuation": True, "negation": True},
        ["so", "good", "...", "not", "¬bad", "!!", "really", "?!"],
    ),
    "isn&#39;t &lt;3 &amp;lt;3 &notit; caf&eacute; &#x1F600;": (
        {"entities": True},
        ["isn't", "<3", "lt", "3", "notit", "café", "😀"],
    ),
    "cafe\u0301 café \u212b": ({"compose": True}, ["café", "å"]),
    "\u1112\u1161\u11ab e\u0323\u0301 &eacute;": (
        {"compose": True, "entities": True},
        ["한", "\u1eb9\u0301", "é"],
    ),
    "a,b、c，，d; e": ({"punctuation": True}, ["a", ",", "b", "c", "d", "e"]),
    "3.5 is ok. no？？ yes！": (
        {"punctuation": True},
        ["3", ".", "5", "is", "ok", "no", "??", "yes", "!"],
    ),
    "hi there": ({"ends": True, "ngrams": (1, 2)}, ["^ hi", "hi", "hi there", "there", "there $"]),
    "hi": ({"ends": True, "ngrams": (2, 3)}, ["^ hi", "^ hi $", "hi $"]),
    " ": ({"ends": True, "ngrams": (2, 3)}, []),
    "a b c d": ({"gap": 2}, ["a", "a … c", "a … d", "b", "b … d", "c", "d"]),
    "a not b": ({"gap": 1, "negation": True}, ["a", "a … ¬b", "not", "¬b"]),
    "a b c": (
        {"gap": 1, "ends": True, "ngrams": (1, 2)},
        ["^ a", "a", "a b", "a … c", "b", "b c", "c", "c $"],
    ),
    "so so": ({"characters": (3, 4)}, ["so", "~^so", "~^so$", "~so$"]),
    "Öl!": ({"characters": (2, 2)}, ["öl", "~^ö", "~öl", "~l$"]),
    "not 日本 語": (
        {"characters": (4, 8), "negation": True},
        ["not", "¬日", "¬本", "語", "~^not", "~^not$", "~not$", "~^日本$"],
    ),
    "@me :) #tag": ({"characters": (4, 4)}, ["<user>", ":)", "#tag", "~^#ta", "~#tag", "~tag$"]),
}


@pytest.mark.parametrize("text", OPTIONS)
def test_options(text: str) -> None:
    """Signs, ends and gaps are words and pairs if a group asks for them, and so says the twin."""
    options, expected = OPTIONS[text]
    group = Words(Multinomial(), **options)
    assert words_of(text, group) == list(naive_text.grams(text, group.tokenizer)) == expected


def test_signs_of_any_number_fit() -> None:
    """A text that is a token a byte, with ends and pairs beside it, overruns no array."""
    group = Words(Multinomial(), ngrams=(1, 8), punctuation=True, ends=True, gap=4)
    for n in (1, 2, 3, 255, 256, 257):
        twin = naive_text.grams(".!" * n, group.tokenizer)
        assert read([".!" * n] * 2, group) == [dict(twin)] * 2


@pytest.mark.parametrize("dense", ["a,", "aß", "語", "語,", "ΐ", "\U0001d4b3 "])
def test_characters_of_any_number_fit(dense: str) -> None:
    """A text that is all characters and ends of words overruns no array."""
    group = Words(Multinomial(), ngrams=(1, 2), characters=(2, 8))
    for n in (1, 2, 3, 255, 256, 257):
        text = dense * n
        twin = naive_text.grams(text, group.tokenizer)
        assert read([text, None, text], group) == [dict(twin), {}, dict(twin)]


def test_links_are_links_in_capitals_too() -> None:
    """Whether case is folded or not, a link may be shouted."""
    text = "HTTP://A.B and more, WwW.c and more"
    group = Words(Multinomial(), case_fold=False)
    assert words_of(text, group) == ["<link>", "and", "more"]
    assert list(naive_text.grams(text, group.tokenizer)) == ["<link>", "and", "more"]


@pytest.mark.parametrize("emoticon", EMOTICONS)
def test_every_emoticon_is_one_word(emoticon: str) -> None:
    """Each emoticon of the list is read whole, at the end of a text and before a word."""
    assert words_of(emoticon) == [emoticon]
    assert words_of(f"well {emoticon} then") == ["well", emoticon, "then"]


@pytest.mark.parametrize("word", NEGATORS)
def test_every_negating_word_negates(word: str) -> None:
    """Each negating word of the list marks what follows, in capitals too."""
    group = Words(Multinomial(), negation=True)
    assert words_of(f"{word.upper()} fun", group) == [word, "¬fun"]


@pytest.mark.parametrize("letter", ["x", "é", "语", "ß", "\U0001f600"])
def test_long_words_are_cut_at_the_bound(letter: str) -> None:
    """However long a word is, its text stays within the bound, and the next word is read whole."""
    text = "".join(letter + other for other in LONG) + " next"
    found = words_of(text)
    assert found[-1] == "next"
    assert max(len(word.encode()) for word in found) <= characters.WORD_BYTES_MAX
    assert found == list(naive_text.grams(text, Tokenizer()))


def test_long_pictures_are_cut_between_characters() -> None:
    """An emoji with parts without end is cut at the bound, and what is left is whole text."""
    text = "😀" + "\u200d👍🏽" * 40
    found = words_of(text)
    assert max(len(word.encode()) for word in found) <= characters.WORD_BYTES_MAX
    assert "\ufffd" not in "".join(found)
    assert found == list(naive_text.grams(text, Tokenizer()))


def test_bytes_that_are_not_utf8_separate_words() -> None:
    """A stray byte ends a word and swallows nothing behind it."""
    assert words_of(b"caf\xe9 noir") == ["caf", "noir"]
    assert words_of(b"a\xffb\xe2\x82c\xf0\x9f\x98d\xed\xa0\x80e\xc0\xaff") == list("abcdef")


def test_the_densest_text_fits() -> None:
    """A text with a token in each one and a half bytes overruns no array, whatever the n-grams."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    text = "".join(letter + sign for letter in letters for sign in (":)", "=)", ";)"))
    group = Words(Multinomial(), ngrams=(1, 8))
    for n in (1, 2, 3, 4, 5, 30, 60, len(text)):
        assert (
            read([text[:n]] * 2, group) == [dict(naive_text.grams(text[:n], group.tokenizer))] * 2
        )


@given(texts(), groups())
def test_kernel_reads_as_its_twin(text: str, group: Words) -> None:
    """On any text and for any setting, the kernel's n-grams and counts are the twin's, in order."""
    twin = naive_text.grams(text, group.tokenizer, occurrence=group.counts_occurrences)
    # In front of more bytes a word may be read eight bytes at a time, at the very end it may not.
    for found in read([text, "and more of it"], group)[0], read([text], group)[0]:
        assert list(found.items()) == list(twin.items())


@given(byte_texts(), groups())
def test_kernel_reads_any_bytes(data: bytes, group: Words) -> None:
    """Bytes that are no text do not harm: what is UTF-8 in them is read, the rest separates."""
    twin = naive_text.grams(
        naive_text.text_of(data), group.tokenizer, occurrence=group.counts_occurrences
    )
    for found in read([data, b"and more of it"], group)[0], read([data], group)[0]:
        assert list(found.items()) == list(twin.items())


@given(
    st.lists(
        st.text("aAbBhHtTpPwWxXdDoO01_'’:)=.# \n@é", max_size=9).map(
            lambda part: part.replace("b", "http")
        ),
        max_size=8,
    ),
    groups(),
)
def test_short_words_are_read_as_long_ones(parts: list[str], group: Words) -> None:
    """Around the bounds of plain short words, where emoticons and links begin too: the twin's."""
    text = "".join(parts)
    twin = naive_text.grams(text, group.tokenizer, occurrence=group.counts_occurrences)
    assert list(read([text, "and more of it"], group)[0].items()) == list(twin.items())


@given(texts(), groups())
def test_columns_are_found_by_what_they_show(text: str, group: Words) -> None:
    """The text shown for a word finds that word again, and its fingerprint is the twin's."""
    state = state_of(group)
    n = 1
    state.encode(text_column([text.encode()]), 0, n, np.zeros(n, dtype=np.int32), learn=True)
    columns = np.arange(state.vocabulary.n_words)
    shown = state.vocabulary.words(columns)
    assert state.vocabulary.find(shown, state.reader.key).tolist() == columns.tolist()
    wanted = [naive.fingerprint(word, KEY) for word in shown]
    assert state.vocabulary.table.fingerprints[: len(shown)].tolist() == wanted


def test_marks_without_end_on_one_letter_take_one_pass() -> None:
    """Putting a run of marks in order costs its square, so a long one is composed in pieces."""
    marks = text_column([("a" + "\u0315\u0300" * 250_000).encode()]).texts
    assert len(Tokenizer(compose=True).rewritten(marks).data) > 1_900_000
    text = "e\u0301 \u304b\u3099x" * 1_000 + "\u304b\u3099" * 2_000
    assert composed(text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("lead", range(4))
@pytest.mark.parametrize("written", ["이것은매우긴문장", "각", "한글\u302e", "\u219a", "が"])
def test_long_texts_without_ascii_are_composed_whole(written: str, lead: int) -> None:
    """A piece ends nowhere that parts a letter from what it is composed with, Korean or other."""
    text = "\u6f22" * lead + unicodedata.normalize("NFD", written) * 2_000
    assert composed(text) == unicodedata.normalize("NFC", text)
