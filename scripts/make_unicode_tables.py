"""Write `streamnb/kernels/unicode.npz`: what the tokeniser knows of each Unicode character.

Character classes and case folding must be the same on every machine, whatever Python it has, or one
model would read two ways. So they are fixed here, from the Unicode database of the Python that runs
this script (the version is kept in the file).

    python scripts/make_unicode_tables.py streamnb/kernels/unicode.npz
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np

BLOCK = 128
N_CODE_POINTS = 0x110000
SEPARATOR, LETTER, DIGIT, IDEOGRAPH, EMOJI, CLAUSE, APOSTROPHE, AT, HASH, JOINER, FLAG, SPACE = (
    range(12)
)
_CLAUSE_ENDS = set(".,;:!?\n…。、！？，；：")
_EMOJI_RANGES = (
    (0x1F000, 0x1F0FF),
    (0x1F18E, 0x1F19A),
    (0x1F201, 0x1F265),
    (0x1F300, 0x1FAFF),
    (0x2600, 0x27BF),
    (0x231A, 0x231B),
    (0x23E9, 0x23FA),
    (0x2B1B, 0x2B1C),
    (0x2B50, 0x2B55),
    (0x2934, 0x2935),
)
_IDEOGRAPH_NAMES = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA LETTER")


def character_class(code_point: int) -> int:  # noqa: PLR0911 -- one line a class
    """Return the tokeniser's class of one character."""
    if 0xD800 <= code_point <= 0xDFFF:
        return SEPARATOR
    char = chr(code_point)
    if char in "'’":
        return APOSTROPHE
    if char in "@#":
        return AT if char == "@" else HASH
    if char in _CLAUSE_ENDS:
        return CLAUSE
    if code_point in {0xFE0F, 0x200D, 0x20E3} or 0x1F3FB <= code_point <= 0x1F3FF:
        return JOINER
    if 0x1F1E6 <= code_point <= 0x1F1FF:
        return FLAG
    category = unicodedata.category(char)
    if category == "So" and any(low <= code_point <= high for low, high in _EMOJI_RANGES):
        return EMOJI
    if char == "_" or category[0] in "LM":
        return IDEOGRAPH if unicodedata.name(char, "").startswith(_IDEOGRAPH_NAMES) else LETTER
    if category[0] == "N":
        return DIGIT
    return SPACE if char.isspace() else SEPARATOR


def not_surely_composed() -> np.ndarray:
    """Return, for each character, whether a text may not be in NFC because it holds it."""
    found = np.zeros(N_CODE_POINTS, dtype=np.uint8)
    for code_point in range(0x300, N_CODE_POINTS):
        char = chr(code_point)
        first, *others = unicodedata.decomposition(char).split() or [""]
        if others and not first.startswith("<"):
            found[[int(part, 16) for part in others]] = 1  # it may join the character before it
        if unicodedata.combining(char) or not unicodedata.is_normalized("NFC", char):
            found[code_point] = 1
    found[0x1161:0x1176] = found[0x11A8:0x11C3] = 1  # Hangul vowels and finals join by a rule
    return found


def build() -> dict[str, np.ndarray]:
    """Return the two-stage tables: block numbers, then each distinct block's classes and folds."""
    index = np.zeros(N_CODE_POINTS // BLOCK, dtype=np.uint16)
    seen: dict[bytes, int] = {}
    classes: list[np.ndarray] = []
    folds: list[np.ndarray] = []
    expansions: list[list[int]] = []
    for block in range(len(index)):
        kinds = np.zeros(BLOCK, dtype=np.uint8)
        fold = np.zeros(
            BLOCK, dtype=np.int32
        )  # difference to the folded character, so that blocks repeat
        for i in range(BLOCK):
            code_point = block * BLOCK + i
            kinds[i] = character_class(code_point)
            folded = chr(code_point).casefold()
            if len(folded) == 1:
                fold[i] = ord(folded) - code_point
            else:
                expansions.append([ord(c) for c in folded] + [0] * (3 - len(folded)))
                fold[i] = 0x200000 + len(expansions) - 1
        key = kinds.tobytes() + fold.tobytes()
        if key not in seen:
            seen[key] = len(classes)
            classes.append(kinds)
            folds.append(fold)
        index[block] = seen[key]
    marks, mark_index = np.unique(
        not_surely_composed().reshape(-1, BLOCK), axis=0, return_inverse=True
    )
    return {
        "mark_index": mark_index.astype(np.uint8),
        "marks": marks.reshape(-1),
        "index": index,
        "classes": np.concatenate(classes),
        "folds": np.concatenate(folds),
        "expansions": np.array(expansions, dtype=np.int32),
        "version": np.array(unicodedata.unidata_version),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    tables = build()
    np.savez_compressed(target, **tables)
    sys.stdout.write(f"{target}: Unicode {tables['version']}, {target.stat().st_size} bytes\n")
