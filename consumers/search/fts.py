"""Queries as FTS5's own expressions, and which pieces of a text a query marks.

An expression consists of our operators and of quoted strings, without a quote within them. In
quotes FTS5 knows no syntax: it cuts what stands there into words as it does texts.
"""

from __future__ import annotations

import itertools
import re
import unicodedata

from consumers.search.index_tokens import ANY_LANG, SIGN, TokenKind, lang_sign, phrase, plain_emoji
from consumers.search.query import Atom, Query, Term

# What highlight() puts around what it found. Unicode promises that they never stand in a text;
# where they do nevertheless, they are taken out before it is kept.
OPEN, CLOSE = "\ufdd0", "\ufdd1"
_MARKS = re.compile(f"[{OPEN}{CLOSE}]")

Span = tuple[int, int]


def without_marks(text: str) -> str:
    """Return a text without the characters that mark what was found."""
    if text.isascii():
        return text
    return _MARKS.sub("", text)


def expression(query: Query, lang_code: int | None = None) -> str:
    r"""Return what FTS5 is asked for.

    Parameters
    ----------
    query : Query
    lang_code : int, optional
        The number of the language that messages must be of.

    Examples
    --------
    >>> from consumers.search.query import parse
    >>> expression(parse('"AND text:(" -near '))
    '(text : "AND text:(") NOT (text : "near")'
    """
    wanted = [_together(term) for term in query.terms if not term.negated]
    unwanted = [_together(term) for term in query.terms if term.negated]
    if lang_code is not None:
        wanted.append(f'signs : "{lang_sign(lang_code)}"')
    if not wanted:
        wanted = [f'signs : "{ANY_LANG}" *']
    positive = " AND ".join(wanted)
    return f"({positive}) NOT ({' OR '.join(unwanted)})" if unwanted else positive


def _together(term: Term) -> str:
    return (
        " AND ".join(map(_atom, term.atoms))
        if len(term.atoms) == 1
        else (f"({' AND '.join(map(_atom, term.atoms))})")
    )


def _atom(atom: Atom) -> str:
    column, words = "signs", atom.value
    if atom.kind is TokenKind.WORDS:
        column = "text"
    else:
        words = phrase(atom.kind, atom.value)
    return f'{column} : "{words}"' + (" *" if atom.prefix else "")


def pieces(highlighted: str, query: Query) -> tuple[str, ...]:
    """Return a text in pieces, of which every second one is of the query's words.

    Parameters
    ----------
    highlighted : str
        The text, the words that FTS5 found between `OPEN` and `CLOSE`.
    query : Query
        For its tags, names, emoji and CJK characters, which FTS5 finds in another column.
    """
    spans: list[Span] = []
    plain: list[str] = []
    at = 0
    for k, piece in enumerate(_MARKS.split(highlighted)):
        if k % 2:
            spans.append((at, at + len(piece)))
        plain.append(piece)
        at += len(piece)
    text = "".join(plain)
    signs = [
        atom
        for term in query.terms
        if not term.negated
        for atom in term.atoms
        if atom.kind is not TokenKind.WORDS
    ]
    if signs:
        spans = _joined(spans + [span for atom in signs for span in _spans(text, atom)])
    cut = [0, *(bound for span in spans for bound in span), len(text)]
    return tuple(text[begin:end] for begin, end in itertools.pairwise(cut))


def _spans(text: str, atom: Atom) -> list[Span]:
    """Return where a sign stands in a text."""
    if atom.kind is TokenKind.CJK:
        return [match.span() for match in re.finditer(re.escape(atom.value), text)]
    if atom.kind is TokenKind.EMOJI:
        between = "[\ufe0f\u200d\U0001f3fb-\U0001f3ff]*"
        pattern = between.join(map(re.escape, plain_emoji(atom.value))) + between
        return [match.span() for match in re.finditer(pattern, text)]
    wanted = folded(atom.value)
    found = []
    for match in SIGN.finditer(text):
        if match.lastgroup == atom.kind.name:
            name = folded(match[atom.kind.name])
            if name == wanted or (atom.prefix and name.startswith(wanted)):
                found.append(match.span())
    return found


def _joined(spans: list[Span]) -> list[Span]:
    """Return spans in order, those that overlap made one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def folded(text: str) -> str:
    """Return a text as FTS5 compares it: small letters, without accents."""
    apart = unicodedata.normalize("NFD", text.lower())
    return "".join([c for c in apart if not unicodedata.combining(c)])
