"""What a person typed into the search box: read, asked of FTS5, and marked in what it found.

`parse` reads it into a small structure of our own:

- words: all must be there, in any order: `obama speech`; a word also finds the tag `#obama`;
- `"phrases"`: words side by side; one that is not closed yet ends where the query ends;
- `-not`: a message with that word, `-"phrase"`, `-#tag` or `-@name` is left out;
- `#tag`, `@name`: just these;
- beginnings: `obam*`, from two letters on. The last word, of two letters or more, is taken for a
  beginning as long as no blank or other character follows: it is being typed.
- emoji and Chinese or Japanese characters are found wherever they stand;
- `name:value`: messages whose field has this value, as `grade:B`, `"my grade":"very good"`,
  `lang:en`, `label:positive`; of numbers also `income:>50000`, `confidence:<0.7`, with `<=` and
  `>=`, and `income:1..5`; `-grade:B` leaves them out. Names are `lang`, `label`, `confidence` and
  the fields of the model but `text`; with any other name it is words.

Case and accents make no difference. All other characters separate words.

`expression` makes FTS5's expression of it: our operators and quoted strings, without a quote
within them. In quotes FTS5 knows no syntax, so nothing that is typed ever reaches it as such: it
cuts what stands there into words as it does texts.

The **signs** of a text are what its words do not say: tags, names, emoji, and the characters of CJK
writing. FTS5 cuts a text into words by Unicode's letters and digits. So it takes `#obama` for the
word `obama`, knows no emoji, and takes a Chinese or Japanese sentence, which has no blanks, for a
single word. Each message therefore has a second column, its signs, as words of our own making: they
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

import math
import operator
import re
import string
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from consumers.errors import ConsumerError

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
_ASCII_SIGN = re.compile(r"(?<![\w&])(?:#(\w+)|@(\w+))")  # all that an ASCII text can have of them
CJK_RUN = re.compile(f"[{_CJK}]+")
_JOINER = re.compile(f"[{_JOINERS}]")


class TokenKind(Enum):
    """What a piece of a query looks for."""

    WORDS = "words"
    TAG = "\ue000"
    NAME = "\ue001"
    EMOJI = "emoji"
    CJK = "cjk"


_TAG, _NAME = TokenKind.TAG.value, TokenKind.NAME.value


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
    if text.isascii():  # which nearly all are
        if "#" not in text and "@" not in text:
            return ""
        values = _ASCII_SIGN.findall(text)
        signs = [f"{_TAG}{tag}" if tag else f"{_NAME}{name}" for tag, name in values]
        return " ".join(signs).replace("_", _UNDERSCORE)
    found: list[str] = []
    for match in SIGN.finditer(text):
        kind = TokenKind[str(match.lastgroup)]
        value = match[kind.name]
        if kind in {TokenKind.TAG, TokenKind.NAME}:
            found.append(phrase(kind, value))
            for run in CJK_RUN.findall(value):  # a word finds the tag of that name as well
                found += [_GAP, phrase(TokenKind.CJK, run)]
        else:
            found += [_GAP, phrase(kind, value)]
    return " ".join(found)


# ---- what was typed ------------------------------------------------------------------------------

LENGTH_MAX = 200  # characters
TERMS_MAX = 16
PREFIX_MIN = 2  # letters
# What highlight() puts around what it found. Unicode promises that they never stand in a text;
# if they do nevertheless, they are taken out before it is kept.
OPEN, CLOSE = "\ufdd0", "\ufdd1"
MARKS = re.compile(f"[{OPEN}{CLOSE}]")

_PIECE = re.compile(r'(?P<no>-?)(?:"(?P<quoted>[^"]*)(?P<close>"?)|(?P<plain>[^\s"]+))')
_WORD_AT_END = re.compile("(?:[^\\W_]|[\u0300-\u036f])+$")
# What no phrase may hold: quotes, which end one; controls, among them NUL; halves of characters.
_UNFIT = re.compile('["\x00-\x1f\x7f\ud800-\udfff]')


class QueryError(ConsumerError):
    """What was typed cannot be searched for; the message says why in a sentence."""


class UnknownClassError(QueryError):
    """A condition asks for a class that there is not."""

    def __init__(self, text: str, label: str) -> None:
        super().__init__(text)
        self.label = label


class SlowQueryError(QueryError):
    """A search took longer than it may."""


class TimeLimit:
    """How long a search may take, by a clock in seconds."""

    def __init__(self, clock: Callable[[], float], limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._until_s = clock() + limit_s

    def check(self) -> None:
        """Raise a `SlowQueryError` if the time is over."""
        if self._clock() >= self._until_s:
            raise SlowQueryError(
                f"The search took longer than {self._limit_s:g} s; ask for something rarer, or"
                " leave out beginnings of words."
            )


class StoreBusyError(QueryError):
    """The store is still being read, as after a start, or out of reach, or busy; ask again."""


class Atom(msgspec.Struct, frozen=True):
    """One thing to look for."""

    kind: TokenKind
    value: str  # words side by side; a tag or name without its sign; emoji; CJK characters
    prefix: bool = False  # whether the last word, the tag or the name may go on


class Term(msgspec.Struct, frozen=True):
    """Things that must be there together, or, `negated`, must not be."""

    atoms: tuple[Atom, ...]
    negated: bool = False


CONDITIONS_MAX = 8
BUILT_IN = ("lang", "label", "confidence")
_NUMERIC = {"numbers", "confidence"}  # kinds of fields and built-in names, by what values are
_TEXTS = {"words", "categories", "lang", "label"}
_CONDITION = re.compile(
    r'(?<!\S)(?P<no>-?)(?:(?P<name>[^\s":<>=]+)|"(?P<own>[^"]+)"):(?P<op><=|>=|[<>=])?'
    r'(?:"(?P<quoted>[^"]*)"?|(?P<plain>[^\s"<>=][^\s"]*))|"[^"]*"?'
)
_ALMOST = (  # what was meant for one, with the names that there are in place of %s
    r'(?<!\S)-?(?:"(?P<own>[^"]+)"|(?P<name>%s))(?P<op>:[<>=]*|\s*[<>=]+)'
    r'\s*(?P<value>"[^"]*"?|[^\s"]*)|"[^"]*"?'
)
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]+')
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_FLAGS = {"true": 1.0, "false": 0.0}


class FieldCondition(msgspec.Struct, frozen=True):
    """What a value of a message must be, or, `negated`, must not be.

    `name` is `lang`, `label`, `confidence` or a field of the model. A value that is missing meets
    no condition that is not negated. Texts of a field are equal whatever the case of their ASCII
    letters.
    """

    name: str
    op: str  # "=", "<", "<=", ">" or ">="
    value: str
    negated: bool = False

    @property
    def is_built_in(self) -> bool:
        """Whether it is about what every message has, and not about a field of the model."""
        return self.name in BUILT_IN

    @property
    def compare(self) -> Callable[[Any, Any], Any]:
        """The function that compares a value with that of the condition."""
        return _COMPARED[self.op]

    @property
    def number(self) -> float | None:
        """The value as a number; None if it is none."""
        try:
            number = _FLAGS.get(self.value.lower(), float(self.value or "nan"))
        except ValueError:
            return _FLAGS.get(self.value.lower())
        return number if math.isfinite(number) else None

    @property
    def is_met_by(self) -> Callable[[Any], bool]:
        """The function that says whether a value meets it; None: the message has none."""
        compare, number, negated = self.compare, self.number, self.negated
        as_compared: Callable[[str], str] = str if self.is_built_in else ascii_lower
        wanted = as_compared(self.value) if self.op == "=" else None

        def is_met(found: Any) -> bool:
            if isinstance(found, str):
                return (wanted is not None and as_compared(found) == wanted) != negated
            met = found is not None and number is not None and compare(found, number)
            return bool(met) != negated

        return is_met

    def sql(self) -> str:
        """Return SQL that says the same of a field, over a row of a chunk's table."""
        value, met = field_value(self.name), list[str]()
        if self.op == "=":
            is_same = f"{value} = {literal(self.value)} COLLATE NOCASE"
            met.append(f"(typeof({value}) = 'text' AND {is_same})")
        if self.number is not None:
            met.append(f"(typeof({value}) <> 'text' AND {value} {self.op} {self.number!r})")
        return f"{'NOT ' if self.negated else ''}ifnull({' OR '.join(met)}, 0)"


def ascii_lower(text: str) -> str:
    """Return a text with its ASCII letters small, and no other, as SQLite's NOCASE compares it."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def is_plain_name(name: str) -> bool:
    """Return whether a field's name stands in JSON, and in a path of SQL's, as it is."""
    return _PLAIN_NAME.fullmatch(name) is not None


def field_value(name: str) -> str:
    """Return SQL for the value of one of the model's fields, NULL if the message has none."""
    if is_plain_name(name):
        path = literal(f'$."{name}"')
        return f"json_extract(example, {path})"
    return f"(SELECT value FROM json_each(example) WHERE key = {literal(name)})"  # noqa: S608 -- quoted


def literal(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _conditions(text: str, kinds: Mapping[str, str]) -> tuple[list[FieldCondition], str]:
    """Return the conditions of a query, and the query with blanks in their place."""
    found: list[FieldCondition] = []
    rest, unknown = text, list[str]()
    known = {name.replace('"', ""): name for name in kinds} | {name: name for name in BUILT_IN}
    for match in _CONDITION.finditer(text):
        typed, op = match["name"] or match["own"], match["op"] or "="
        if typed is None:
            continue
        value = match["quoted"] if match["plain"] is None else match["plain"]
        one = FieldCondition(known.get(typed, typed), op, value, negated=bool(match["no"]))
        if typed in known:
            begin, end = match.span()
            kind = typed if one.is_built_in else kinds[one.name]
            found += _checked(one, kind, begin + 1, is_quoted=match["plain"] is None)
            rest = rest[:begin] + " " * (end - begin) + rest[end:]
        elif op != "=" and one.number is not None:
            unknown.append(typed)
    _refuse_almost(rest, known, kinds)
    if unknown:
        names = ", ".join(map(written_name, [*BUILT_IN, *kinds]))
        raise QueryError(f"There is no field {_short(unknown[0])} to compare; there are {names}.")
    if len(found) > CONDITIONS_MAX:
        bound = f"{CONDITIONS_MAX} are read at most"
        raise QueryError(f"The query has {len(found)} conditions; {bound}.")
    return found, rest


def _checked(one: FieldCondition, kind: str, at: int, *, is_quoted: bool) -> list[FieldCondition]:
    """Return what a condition `at` a place asks for: itself, or the two ends of a range."""
    name, number, is_same = written_name(one.name), one.number, one.op == "="
    (low, dots, high), wrong = one.value.partition(".."), ""
    if kind in _TEXTS and not is_same:
        wrong = f"{name} is no number; write {name}:{one.value}"
    elif kind in _NUMERIC and is_same and dots:
        ends = [FieldCondition(one.name, ">=", low), FieldCondition(one.name, "<=", high)]
        first, last = (each.number for each in ends)
        if one.negated:
            wrong = f"a range cannot be left out; ask for {name}:<{low}, or for {name}:>{high}"
        elif first is not None and last is not None and first <= last:
            return ends
        else:
            wrong = f"{_short(one.value)} is no range; write {name}:0.5..2, for instance"
    elif kind == "flags" and number not in _FLAGS.values():
        wrong = f"{_short(one.value)} is no flag; write {name}:true or {name}:false"
    elif number is None and (not is_same or kind in _NUMERIC):
        wrong = f"{_short(one.value)} is no number; write {name}:>0.5, for instance"
    elif kind in _TEXTS - {"label"} and "," in one.value and not is_quoted:
        wrong = f'{one.value} is a list; ask for each value, or write {name}:"{one.value}"'
    if wrong:
        raise QueryError(f"At character {at}: {wrong}.")
    return [one]


def _refuse_almost(text: str, known: Mapping[str, str], kinds: Mapping[str, str]) -> None:
    """Raise a `QueryError` if there is a condition in a wrong form, in what no condition is."""
    names = map(re.escape, sorted(known, key=len, reverse=True))
    for match in re.finditer(_ALMOST % "|".join(names), text):
        name = known.get(match["name"] or match["own"] or "")
        op, value = match["op"] or "", (match["value"] or "").rstrip("*")
        # A value may be still to come; and texts have `lang: en` and, without fields, `grade = B`.
        is_meant = op[:1] == ":" != op or (value and kinds and name in {*kinds, "confidence"})
        if name is None or not is_meant:
            continue
        is_number, sign = FieldCondition(name, "=", value).number is not None, op.strip(": =")[:1]
        sign += "=" if sign and "=" in op else ""
        if kinds.get(name) == "flags":
            value = "true"
        elif kinds.get(name, name) not in _TEXTS:
            value = f"{sign}{value}" if is_number else f"{sign or '>'}0.5"
        what, right = _short(match[0].rstrip()), f"{written_name(name)}:{value or 'value'}"
        wrong = f"{what} cannot be read; write {right}, or put words in quotes"
        raise QueryError(f"At character {match.start() + 1}: {wrong}.")


def written_name(name: str) -> str:
    """Return the name of a field as a condition has it: in quotes if it must be, and with none."""
    plain = name.replace('"', "")
    return plain if re.fullmatch(r'[^\s":<>=-][^\s":<>=]*', plain) else f'"{plain}"'


class Query(msgspec.Struct, frozen=True):
    """A query that can be searched for; hashable, so it can be the key of a live query."""

    text: str = ""  # as it was typed, without blanks at its ends
    terms: tuple[Term, ...] = ()
    conditions: tuple[FieldCondition, ...] = ()
    prefix_last: bool = False  # its last word is taken for a beginning: it is being typed

    @property
    def is_everything(self) -> bool:
        """Whether it asks for all messages: nothing was typed."""
        return not self.terms and not self.conditions

    def admits(self, values: Mapping[str, Any]) -> bool:
        """Return whether all conditions are met by values, by their names."""
        return all(each.is_met_by(values.get(each.name)) for each in self.conditions)


def parse(text: str, fields: Collection[str] = ()) -> Query:
    """Read a query; raise `QueryError` if there is nothing in it to look for, or too much.

    `fields` are those of the model that conditions may name; by their kinds values are checked.

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
    kinds = fields if isinstance(fields, Mapping) else dict.fromkeys(fields, "")
    conditions, fit = _conditions(fit, kinds)
    for piece in _PIECE.finditer(fit):
        at_end = piece.end() == len(fit) and not piece["close"] and not piece["no"]
        atoms = _atoms(piece["plain"] or piece["quoted"] or "", piece["plain"] is not None, at_end)
        if atoms:
            terms.append(Term(tuple(atoms), negated=bool(piece["no"])))
            typed = at_end and atoms[-1].prefix and not fit.endswith("*")
    if shown and not terms and not conditions:
        raise QueryError(
            f"There is no word in {_short(shown)} to look for; type letters, digits or emoji."
        )
    if len(terms) > TERMS_MAX:
        raise QueryError(f"The query has {len(terms)} words; {TERMS_MAX} are read at most.")
    return Query(shown, tuple(terms), tuple(conditions), prefix_last=typed)


def parse_with_classes(
    text: str, kinds: Mapping[str, str], classes: Sequence[str], shown: Mapping[str, str]
) -> Query:
    """Read a query whose conditions may name fields and classes of the model, as `with_classes`."""
    own = {name: kind for name, kind in kinds.items() if name != "text"}
    return with_classes(parse(text, own), classes, shown)


def with_classes(query: Query, classes: Sequence[str], shown: Mapping[str, str]) -> Query:
    """Return a query whose labels are classes; they may be named as they are `shown`, by class.

    `UnknownClassError`: one is no class.
    """

    def label(name: str) -> str:
        if name in classes:
            return name
        for each in classes:
            names = each, shown.get(each, each)
            if name.casefold() in {own.replace('"', "").casefold() for own in names}:
                return each
        known = [f"{each} ({shown[each]})" if each in shown else each for each in classes]
        text = f"There is no class {_short(name)}; there are {', '.join(known)}."
        raise UnknownClassError(text, name)

    found = tuple(
        msgspec.structs.replace(each, value=label(each.value)) if each.name == "label" else each
        for each in query.conditions
    )
    return msgspec.structs.replace(query, conditions=found)


def _atoms(text: str, is_plain: bool, at_end: bool) -> list[Atom]:
    """Return what a piece of a query looks for, none if it has no letter and no sign."""
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
    """Return whether a word is a beginning; refuse one that is too short for it."""
    # A letter is one, however many marks stand on it: to FTS5 it is the letter alone.
    n_letters = sum(not unicodedata.combining(c) for c in unicodedata.normalize("NFD", word))
    if starred and n_letters < PREFIX_MIN:
        raise QueryError(
            f"{_short(word + '*')} would find nearly everything: type at least {PREFIX_MIN} letters"
            " before the *."
        )
    return (starred or at_end) and n_letters >= PREFIX_MIN


def _is_letter(character: str) -> bool:
    """Return whether FTS5 would take a character for part of a word."""
    return character.isalnum() or "\ue000" <= character <= "\uf8ff"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def single_word(query: Query) -> str | None:
    """Return the word that a query asks for, of some classes maybe; None if it asks for more.

    >>> single_word(parse("Obama ")), single_word(parse("obam")), single_word(parse("#obama "))
    ('Obama', None, None)
    """
    if len(query.terms) != 1 or any(each.name != "label" for each in query.conditions):
        return None
    (term,) = query.terms
    atom = term.atoms[0]
    is_word = atom.kind is TokenKind.WORDS and not atom.prefix
    return atom.value if is_word and len(term.atoms) == 1 and not term.negated else None


def without_marks(text: str) -> str:
    """Return a text without the characters that mark what was found."""
    if text.isascii():
        return text
    return MARKS.sub("", text)


def expression(query: Query, lang_code: int | None = None) -> str:
    """Return what FTS5 is asked for: the query, in the language of a number if there is one.

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
    together = " AND ".join(map(_atom, term.atoms))
    return together if len(term.atoms) == 1 else f"({together})"


def _atom(atom: Atom) -> str:
    is_words = atom.kind is TokenKind.WORDS
    column = "text" if is_words else "signs"
    words = atom.value if is_words else phrase(atom.kind, atom.value)
    return f'{column} : "{words}"' + (" *" if atom.prefix else "")


def folded(text: str) -> str:
    """Return a text as FTS5 compares it: small letters, without accents."""
    apart = unicodedata.normalize("NFD", text.lower())
    return "".join([c for c in apart if not unicodedata.combining(c)])
