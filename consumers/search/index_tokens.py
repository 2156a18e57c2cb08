"""What the words of a text do not say: tags, names, emoji, and the characters of CJK writing.

FTS5 cuts a text into words by Unicode's letters and digits. So it takes `#obama` for the word
`obama`, knows no emoji, and takes a Chinese or Japanese sentence, which has no blanks, for a single
word. Each message therefore has a second column, its **signs**, as words of our own making: they
begin with a character of Unicode's private area, which FTS5 counts among the letters.

- a tag or name is one word, its underscores kept, so that `#obama` finds neither `obama` nor
  `#obama_care`;
- each emoji is one word. Those that stand side by side are neighbours, so that a family or a flag
  of several characters is found as the phrase that it is; skin tones and joiners are left out;
- each Han, hiragana or katakana character is one word, so that a word is found as the phrase of its
  characters, anywhere in a sentence.

Words of Korean, which has blanks, are found whole or by their beginnings, as those of Thai are,
which has none: as far as FTS5 can cut them.
"""

from __future__ import annotations

import re
from enum import Enum

_UNDERSCORE = "\ue002"
_EMOJI_WORD = "\ue003"
_GAP = "\ue004"  # keeps what does not stand side by side from being neighbours
_LANG = "\ue005\ue005"  # two characters, for which FTS5 keeps a list of all that begin so

_LETTERS = "[\\w\u0300-\u036f]"
_EMOJI_RANGES = (
    (0x2300, 0x23FF), (0x2600, 0x2775), (0x2794, 0x27BF), (0x2B05, 0x2B07), (0x2B1B, 0x2B1C),
    (0x2B50, 0x2B50), (0x2B55, 0x2B55), (0x1F000, 0x1F0FF), (0x1F18E, 0x1F1FF), (0x1F200, 0x1F265),
    (0x1F300, 0x1F3FA), (0x1F400, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F7E0, 0x1F7EB),
    (0x1F900, 0x1FAFF),
)  # fmt: skip
_EMOJI = "".join([f"{chr(first)}-{chr(last)}" for first, last in _EMOJI_RANGES])
_TONES = (0x1F3FB, 0x1F3FF)
_JOINERS = f"\ufe0f\u200d{chr(_TONES[0])}-{chr(_TONES[1])}"
_CJK = (
    "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
# SQLite's tables are of an old Unicode, whose unknown characters FTS5 takes for letters: the newer
# half of all emoji among them. It is told that they separate words. From the last to the first, as
# it sorts them in, again and again, from the front.
SEPARATORS = "".join(
    [
        chr(c)
        for first, last in sorted([*_EMOJI_RANGES, _TONES], reverse=True)
        for c in range(last, first - 1, -1)
    ]
)
_BEFORE = r"(?<![\w&])"
SIGN = re.compile(
    f"{_BEFORE}[#＃](?P<TAG>{_LETTERS}+)|{_BEFORE}[@＠](?P<NAME>{_LETTERS}+)"
    f"|(?P<EMOJI>[{_EMOJI}][{_EMOJI}{_JOINERS}]*)|(?P<CJK>[{_CJK}]+)"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
_JOINER = re.compile(f"[{_JOINERS}]")


class TokenKind(Enum):
    """What a piece of a query looks for."""

    WORDS = "words"
    TAG = "\ue000"
    NAME = "\ue001"
    EMOJI = "emoji"
    CJK = "cjk"


def phrase(kind: TokenKind, value: str) -> str:
    """Return the words of our making that stand for a sign, of any kind but words, as a phrase.

    Its value is the tag or name without its first character, or a run of emoji or CJK characters.
    """
    if kind is TokenKind.EMOJI:
        return " ".join([f"{_EMOJI_WORD}{ord(c):x}" for c in plain_emoji(value)])
    if kind is TokenKind.CJK:
        return " ".join(value)
    return str(kind.value) + value.replace("_", _UNDERSCORE)


def plain_emoji(run: str) -> str:
    """Return a run of emoji without what only varies or joins them."""
    return _JOINER.sub("", run)


def lang_sign(code: int) -> str:
    """Return the sign of a language by its number; each message has one, 0 if it is unknown."""
    return f"{_LANG}{code:x}"


ANY_LANG = _LANG  # what the sign of every message begins with


def with_lang(signs: str, code: int) -> str:
    """Return the signs of a message: that of its language, and those of its text."""
    return f"{lang_sign(code)} {signs}" if signs else lang_sign(code)


def signs_of(text: str) -> str:
    r"""Return all signs of a text, separated by blanks.

    Examples
    --------
    >>> signs_of("#Obama and @the_other")
    '\ue000Obama \ue001the\ue002other'
    """
    if text.isascii() and "#" not in text and "@" not in text:  # which nearly all are
        return ""
    found: list[str] = []
    for match in SIGN.finditer(text):
        kind = TokenKind[str(match.lastgroup)]
        value = match[kind.name]
        if kind in {TokenKind.TAG, TokenKind.NAME}:
            found.append(phrase(kind, value))
            for run in _CJK_RUN.findall(value):  # a word finds the tag of that name as well
                found += [_GAP, phrase(TokenKind.CJK, run)]
        else:
            found += [_GAP, phrase(kind, value)]
    return " ".join(found)
