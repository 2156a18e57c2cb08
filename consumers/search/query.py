"""What a person typed into the search box, read into a small structure of our own.

- words: all must be there, in any order: `obama speech`; a word also finds the tag `#obama`;
- `"phrases"`: words side by side; one that is not closed yet ends where the query ends;
- `-not`: a message with that word, `-"phrase"`, `-#tag` or `-@name` is left out;
- `#tag`, `@name`: just these;
- beginnings: `obam*`, from two letters on. The last word, of two letters or more, is taken for a
  beginning as long as no blank or other character follows: it is being typed.
- emoji and Chinese or Japanese characters are found wherever they stand.

Case and accents make no difference. All other characters separate words: nothing that is typed ever
reaches FTS5 as its syntax, see `matching`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from consumers.errors import ConsumerError
from consumers.search.index_tokens import SIGN, TokenKind

LENGTH_MAX = 200  # characters
TERMS_MAX = 16
PREFIX_MIN = 2  # letters

_PIECE = re.compile(r'(?P<no>-?)(?:"(?P<quoted>[^"]*)(?P<close>"?)|(?P<plain>[^\s"]+))')
_WORD_AT_END = re.compile("(?:[^\\W_]|[\u0300-\u036f])+$")
# What no phrase may hold: quotes, which end one; controls, among them NUL; halves of characters.
_UNFIT = re.compile('["\x00-\x1f\x7f\ud800-\udfff]')


class QueryError(ConsumerError):
    """What was typed cannot be searched for; the message says why in a sentence."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One thing to look for.

    Attributes
    ----------
    kind : TokenKind
    value : str
        Words that stand side by side; a tag or name without its sign; emoji; CJK characters.
    prefix : bool
        Whether the last word, the tag or the name may go on.
    """

    kind: TokenKind
    value: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """Things that must be there together, or, `negated`, must not be."""

    atoms: tuple[Atom, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be searched for; hashable, so it can be the key of a live query.

    Attributes
    ----------
    text : str
        As it was typed, without blanks at its ends.
    terms : tuple of Term
    prefix_last : bool
        Whether its last word is taken for a beginning, because it is being typed.
    """

    text: str = ""
    terms: tuple[Term, ...] = ()
    prefix_last: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether it asks for all messages: nothing was typed."""
        return not self.terms


def parse(text: str) -> Query:
    """Read a query.

    Raises
    ------
    QueryError
        Where there is nothing in it to look for, or too much.

    Examples
    --------
    >>> parse("obam").terms
    (Term(atoms=(Atom(kind=<TokenKind.WORDS: 'words'>, value='obam', prefix=True),),
          negated=False),)
    >>> parse('  ').is_everything
    True
    """
    shown = text.strip()
    if len(shown) > LENGTH_MAX:
        raise QueryError(
            f"The query has {len(shown)} characters; {LENGTH_MAX} are read at most. Shorten it."
        )
    terms: list[Term] = []
    typed = False
    fit = _UNFIT.sub(lambda match: match[0] if match[0] == '"' else " ", text)
    for piece in _PIECE.finditer(fit):
        at_end = piece.end() == len(fit) and not piece["close"] and not piece["no"]
        atoms = _atoms(piece["plain"] or piece["quoted"] or "", piece["plain"] is not None, at_end)
        if atoms:
            terms.append(Term(tuple(atoms), negated=bool(piece["no"])))
            typed = at_end and atoms[-1].prefix and not fit.endswith("*")
    if shown and not terms:
        raise QueryError(
            f"There is no word in {_short(shown)} to look for; type letters, digits or emoji."
        )
    if len(terms) > TERMS_MAX:
        raise QueryError(f"The query has {len(terms)} words; {TERMS_MAX} are read at most.")
    return Query(shown, tuple(terms), prefix_last=typed)


def _atoms(text: str, is_plain: bool, at_end: bool) -> list[Atom]:
    """Return what a piece of a query looks for, none where it has no letter and no sign."""
    starred = is_plain and text.endswith("*")
    text = text.rstrip("*") if starred else text
    atoms: list[Atom] = []
    words: list[str] = []
    at = 0
    for match in SIGN.finditer(text):
        kind = TokenKind[str(match.lastgroup)]
        if kind in {TokenKind.TAG, TokenKind.NAME}:
            if not is_plain or match.start():  # within quotes and words a # only separates
                continue
            goes_on = match.end() == len(text) and _may_go_on(match[kind.name], starred, at_end)
            atoms.append(Atom(kind, match[kind.name], prefix=goes_on))
        else:
            atoms.append(Atom(kind, match[0]))
        words.append(text[at : match.start()])
        at = match.end()
    words.append(text[at:])
    rest = " ".join(words)
    if any(map(_is_letter, rest)):
        last = _WORD_AT_END.search(words[-1])
        goes_on = last is not None and _may_go_on(last[0], starred, at_end)
        atoms.append(Atom(TokenKind.WORDS, " ".join(rest.split()), prefix=goes_on))
    return atoms


def _may_go_on(word: str, starred: bool, at_end: bool) -> bool:
    """Tell whether a word is a beginning; refuse one that is too short for it."""
    # A letter is one, however many marks stand on it: to FTS5 it is the letter alone.
    n_letters = sum(not unicodedata.combining(c) for c in unicodedata.normalize("NFD", word))
    if starred and n_letters < PREFIX_MIN:
        raise QueryError(
            f"{_short(word + '*')} would find nearly everything: type at least {PREFIX_MIN} letters"
            " before the *."
        )
    return (starred or at_end) and n_letters >= PREFIX_MIN


def _is_letter(character: str) -> bool:
    """Tell whether FTS5 would take a character for part of a word."""
    return character.isalnum() or "\ue000" <= character <= "\uf8ff"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
