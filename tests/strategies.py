"""What Hypothesis draws: texts of every kind, groups of features, streams of examples, cuts."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, Words

# Words that repeat, so that there is something to learn, beside all that the tokeniser knows.
_PIECES = [
    *["a", "b", "c", "d", "e", "good", "bad", "rain", "not", "don't", "never", "NO", "lovely"],
    *["soooo", "AAA", "über", "Straße", "İstanbul", "ΣΊΣΥΦΟΣ", "ŉ", "ﬃ", "é", "_x_", "100", "3.14"],
    *[":)", ":(", ":)))", "<3", "xD", "xDDD", "D8", ":3", "T_T", "</3", "@me", "@", "a@b"],
    *[
        "#tag",
        "##",
        "#a#b",
        "http://x.y/z",
        "www.a",
        "WWW.b",
        "httpx://no",
        ".",
        ",",
        "!",
        "?",
        "…",
    ],
    *["日本", "カナ", "ひら", "한국", "مرحبا", "हिन्दी", "😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "🇩", "1️⃣"],
    *["it's", "’tis", "rock’n’roll"],
]
_JOINTS = ["", " ", " ", " ", "\n", "\t", "\0", "'", "’", "\u200d", "\ufe0f", "\u00ad"]


@st.composite
def _composed(draw: st.DrawFn) -> str:
    pieces = st.lists(st.tuples(st.sampled_from(_PIECES), st.sampled_from(_JOINTS)), max_size=12)
    return "".join(piece + joint for piece, joint in draw(pieces))


def texts() -> st.SearchStrategy[str]:
    """Draw text that has a UTF-8 form: from known pieces, or any at all."""
    return st.one_of(_composed(), _composed(), st.text(st.characters(codec="utf-8"), max_size=40))


def byte_texts() -> st.SearchStrategy[bytes]:
    """Draw bytes: any at all, or text with a hole cut or a byte put in."""

    def broken(parts: tuple[bytes, int, bytes]) -> bytes:
        data, at, inserted = parts
        return data[:at] + inserted + data[at + 1 :]

    mended = st.tuples(_composed().map(str.encode), st.integers(0, 60), st.binary(max_size=3))
    return st.one_of(st.binary(max_size=40), mended.map(broken))


def likelihoods() -> st.SearchStrategy[Bernoulli | Multinomial]:
    """Draw a family with its prior, maximum likelihood included."""
    pseudo_counts = st.sampled_from([0.0, 1e-9, 0.3, 1.0, 2.5])
    return st.one_of(
        st.builds(Bernoulli, st.builds(Beta, pseudo_counts, pseudo_counts)),
        st.builds(Multinomial, st.builds(Dirichlet, pseudo_counts)),
    )


@st.composite
def groups(draw: st.DrawFn, *, max_words: tuple[int, ...] = (1, 3, 6, 9, 14, 1000)) -> Words:
    """Draw a group of words; its bound is mostly so small that words leave."""
    ngrams = draw(st.sampled_from([(1, 1), (1, 1), (1, 2), (2, 3)]))
    return Words(
        draw(likelihoods()),
        ngrams=ngrams,
        negation=draw(st.booleans()),
        punctuation=draw(st.booleans()),
        ends=ngrams[1] > 1 and draw(st.booleans()),
        gap=draw(st.sampled_from([0, 0, 1, 3])),
        entities=draw(st.booleans()),
        compose=draw(st.booleans()),
        characters=draw(st.sampled_from([None, None, (2, 3), (3, 5)])),
        counts=draw(st.sampled_from([None, "presence"])),
        max_words=draw(st.sampled_from(max_words)),
    )


@dataclass(frozen=True)
class Example:
    """One example of a stream."""

    text: str | None
    label: str
    part: str = ""


@st.composite
def streams(
    draw: st.DrawFn, *, parts: tuple[str, ...] = ("",), min_size: int = 1, max_size: int = 40
) -> list[Example]:
    """Draw a stream over few words; some texts are missing, some empty, and classes come late."""
    words = st.lists(st.sampled_from([*"abcdefghijklmnop", "not", ":)"]), max_size=5)
    drawn = words.map(" ".join)
    example = st.builds(
        Example,
        text=st.one_of(drawn, drawn, drawn, st.none(), _composed()),
        label=st.sampled_from(["ham", "spam", "eggs"]),
        part=st.sampled_from(parts),
    )
    return draw(st.lists(example, min_size=min_size, max_size=max_size))


def cuts(n_max: int = 40) -> st.SearchStrategy[list[int]]:
    """Draw where a stream is cut into batches; a cut may come twice, which makes an empty batch."""
    return st.lists(st.integers(0, n_max), max_size=6).map(sorted)
