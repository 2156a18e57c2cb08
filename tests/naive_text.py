"""The tokeniser's slow, plain twin: each rule over Python's own strings.

Nothing is shared with the kernel but the tables of characters, emoticons and negating words, which
are data; `test_unicode.py` holds the tables against Python's own Unicode.
"""

from __future__ import annotations

import codecs
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.entities import html5
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import streamnb
from streamnb.tokenizer import EMOTICONS, NEGATORS, Tokenizer

CLASSES = (
    "separator",
    "letter",
    "digit",
    "ideograph",
    "emoji",
    "clause",
    "apostrophe",
    "at",
    "hash",
    "joiner",
    "flag",
    "space",
)
WORD_BYTES_MAX = 64
FOLDED_BYTES_MAX = 12


@cache
def _tables() -> dict[str, NDArray[Any]]:
    path = Path(streamnb.__file__).parent / "kernels" / "unicode.npz"
    with np.load(path) as tables:
        return {name: tables[name] for name in tables.files}


@cache
def kind(char: str) -> str:
    """Return the class of a character."""
    block = int(_tables()["index"][ord(char) >> 7])
    return CLASSES[_tables()["classes"][block << 7 | ord(char) & 127]]


@cache
def folded(char: str) -> str:
    """Return the character's case folding, of one to three characters."""
    block = int(_tables()["index"][ord(char) >> 7])
    distance = int(_tables()["folds"][block << 7 | ord(char) & 127])
    if distance < 0x200000:
        return chr(ord(char) + distance)
    return "".join(chr(c) for c in _tables()["expansions"][distance - 0x200000] if c)


def _nul(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\0" * (error.end - error.start), error.end


codecs.register_error("nul", _nul)


def text_of(data: bytes) -> str:
    """Return text from bytes; each byte that is not UTF-8 becomes a character of no meaning."""
    return data.decode("utf-8", "nul")


def _emoticon(rest: str) -> str:
    for emoticon in sorted(EMOTICONS, key=len, reverse=True):
        if rest.startswith(emoticon):
            behind = rest[len(emoticon) :]
            if kind(emoticon[-1]) == "letter":
                behind = behind.lstrip(emoticon[-1])
            wordlike = {"letter", "digit"}
            runs_on = kind(emoticon[-1]) in wordlike and kind(behind[:1] or " ") in wordlike
            return "" if runs_on else emoticon
    return ""


def _link(rest: str) -> int:
    if not re.match(r"(https?://|www\.).", rest, flags=re.ASCII | re.IGNORECASE | re.DOTALL):
        return 0
    ends = (i for i, char in enumerate(rest) if kind(char) == "space" or char in "\n\0")
    return next(ends, len(rest))


def _pictograph(rest: str) -> str:
    first = kind(rest[0])
    if first == "ideograph":
        return rest[0]
    if first == "flag":
        return rest[:2] if len(rest) > 1 and kind(rest[1]) == "flag" else rest[0]
    end = 1
    while end < len(rest):
        joined = rest[end - 1] == "\u200d" and kind(rest[end]) == "emoji" and end > 1
        longer = len(rest[: end + 1].encode())
        if longer > WORD_BYTES_MAX or not (joined or kind(rest[end]) == "joiner"):
            break
        end += 1
    return rest[:end]


def _word(rest: str, options: Tokenizer) -> tuple[int, str]:
    """Return how many characters a word takes, and how it is written."""
    written, at, run, previous, cut = "", 0, 0, "", False
    while at < len(rest):
        char, what = rest[at], kind(rest[at])
        inside = what == "apostrophe" and at > 0 and kind(rest[at + 1 : at + 2] or " ") == "letter"
        if not (what in {"letter", "digit"} or inside or (what == "hash" and at == 0)):
            break
        at += 1
        out = "'" if inside else char
        if options.case_fold and what == "letter":
            out = folded(char)
        same = out if len(out) == 1 else char
        run = run + 1 if same == previous else 1
        previous = same
        if options.squeeze and what == "letter" and run > 2:
            continue
        cut = cut or len(written.encode()) > WORD_BYTES_MAX - FOLDED_BYTES_MAX
        if not cut:
            written += out
    return at, written


def _pieces(text: str, options: Tokenizer) -> Iterator[tuple[str, str, int]]:  # noqa: C901 -- one rule a branch
    """Yield what stands in a text and where: ("word" or "sign", as written), and ("clause", "")."""
    at, word_end = 0, -1
    while at < len(text):
        rest, what = text[at:], kind(text[at])
        if what == "space":
            at += 1
        elif options.emoticons and (emoticon := _emoticon(rest)):
            yield "sign", emoticon, at
            at += len(emoticon)
            while at < len(text) and text[at] == text[at - 1]:
                at += 1
        elif options.fold_links and (length := _link(rest)):
            yield "sign", "<link>", at
            at += length
        elif what in {"emoji", "flag", "ideograph"}:
            sign = _pictograph(rest)
            yield "word" if what == "ideograph" else "sign", sign, at
            at += len(sign)
        elif what in {"letter", "digit", "hash"}:
            length, word = _word(rest, options)
            if word != "#":
                yield "word", word, at
            at = word_end = at + length
        elif what == "at" and options.fold_mentions and word_end != at:
            if name := re.match(r"@\w+", rest, flags=re.ASCII):
                yield "sign", "<user>", at
            at += name.end() if name else 1
        elif what == "clause":
            yield "clause", "", at
            run = re.match(r"[.。…]+|[!！?？]+|[,，、]", rest) if options.punctuation else None
            yield from [("sign", _mark(run[0]), at)] if run else []
            at += run.end() if run else 1
        else:
            at += 1


def _mark(run: str) -> str:
    dots = len(run) + run.count("…")
    if run[0] in ".。…":
        return "." if dots == 1 else "..."
    if run in ",，、":
        return ","
    signs = set(run.replace("！", "!").replace("？", "?"))
    return "?!" if len(signs) == 2 else "".join(signs) * min(len(run), 2)


def tokens(text: str, options: Tokenizer) -> list[str]:
    """Return a text's tokens; those that a negation governs are led by `¬`."""
    found: list[str] = []
    reach = 0
    for what, piece, _ in _pieces(text, options):
        if what == "clause":
            reach = 0
        elif what == "sign" or not options.negation:
            found.append(piece)
        elif piece in NEGATORS or (piece.endswith("n't") and len(piece) > 3):
            reach = 2
            found.append(piece)
        else:
            found.append("¬" + piece if reach else piece)
            reach = max(0, reach - 1)
    return found


def rewritten(text: str, options: Tokenizer) -> str:
    """Return a text without entities and composed, if the options ask for it."""
    if options.entities:
        parts = re.split("(&#?[0-9A-Za-z]{1,32};)", text)
        known = {f"&{name}" for name in html5 if name.endswith(";")}
        text = "".join(html.unescape(p) if p in known or p[:2] == "&#" else p for p in parts)
    return unicodedata.normalize("NFC", text) if options.compose else text


def _character_grams(text: str, options: Tokenizer, shortest: int, longest: int) -> Iterator[str]:
    """Yield the n-grams of characters inside words; ideographs in a row are one word."""
    words: list[str] = []
    run_end = -1
    for what, piece, at in _pieces(text, options):
        if what == "word" and at == run_end and len(piece) == 1 and kind(piece) == "ideograph":
            words[-1] += piece
        elif what == "word":
            words.append(piece)
        if what == "word":
            run_end = at + 1 if len(piece) == 1 and kind(piece) == "ideograph" else -1
    for word in words:
        whole = f"^{word}$"
        for first in range(len(whole)):
            for last in range(first + shortest, min(first + longest, len(whole)) + 1):
                yield f"~{whole[first:last]}"


def grams(text: str | None, options: Tokenizer, *, occurrence: bool = True) -> Counter[str]:
    """Return a text's n-grams with their counts, in order of first occurrence."""
    words = tokens(rewritten(text or "", options), options)
    found = ["^", *words, "$"] if options.ends and words else words
    counted: Counter[str] = Counter()
    shortest, longest = options.ngrams
    for first in range(len(found)):
        is_word = found is words or 0 < first < len(found) - 1
        for last in range(first + shortest, min(first + longest, len(found)) + 1):
            if is_word or last > first + 1:
                counted[" ".join(found[first:last])] += 1
        if is_word:
            at = first if found is words else first - 1
            for last_word in words[at + 2 : at + options.gap + 2]:
                counted[f"{found[first]} … {last_word}"] += 1
    if options.characters:
        text = rewritten(text or "", options)
        counted.update(_character_grams(text, options, *options.characters))
    return counted if occurrence else Counter(dict.fromkeys(counted, 1))
