"""Where a message's label comes from: a field of it, or the emoticons of its text.

A labeller works on a batch: values and texts in, labels and texts out. A label of None means that
the message is predicted and not learned. Which labels may become classes is decided as they are
learned, at the end of this file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from consumers.config.message import VARIATIONS, EmoticonLabels, FieldLabels
from consumers.decode.fields import DecodeError
from consumers.errors import ConfigError
from consumers.messages import CLASSES_MAX, KnownClasses, Messages, Reason, first_few
from streamnb import Codes, NaiveBayes
from streamnb.labels import Label, new_labels

_VALUE_SHOWN_MAX = 60
_DETAIL_MAX = 500
_BOOLEANS = {True: "true", False: "false"}


class LabelledBatch(msgspec.Struct):
    """The labels of a batch."""

    labels: list[str | None]
    texts: list[str]  # to learn from, without what gave the label away
    errors: dict[int, DecodeError] = field(default_factory=dict)  # by position in the batch
    n_ambiguous: int = 0  # messages with signs of more than one class, whose label is None


class Labeller:
    """Where labels come from; what it is itself labels nothing.

    Attributes
    ----------
    path : str or None
        The path of the field that it reads.
    reads_text : bool
        Whether it labels by the text, which every message must then have.
    known : mapping of str to str
        The class of each known value, by its JSON text (`4`, `true`, a string without quotes). Any
        other value goes through `label`.
    """

    path: str | None = None
    reads_text = False
    known: Mapping[str, str] = MappingProxyType({})

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)

    def label(self, values: Sequence[Any], texts: list[str]) -> LabelledBatch:
        """Label n messages by their values at `path`, None if absent, and by their texts."""
        return LabelledBatch([None] * len(values), texts)


class NoLabels(Labeller):
    """Labels nothing, so that every message is predicted."""


class FieldLabeller(Labeller):
    """Reads labels from a field: 4 → "positive", by the mapping of `labels.mapping`.

    A key of it is the value's JSON text, so that ``"4"`` answers for 4, 4.0 and "4", and ``"true"``
    for true. A class's own name is a label as well. If the classes are `KnownClasses` that take
    others, a label that is none of them becomes a class.

    >>> labeller = FieldLabeller(FieldLabels(), ("negative", "positive"))
    >>> labeller.label([4, "0", "positive", None], ["a", "b", "c", "d"]).labels
    ['positive', 'negative', 'positive', None]
    """

    def __init__(self, settings: FieldLabels, classes: Sequence[str]) -> None:
        super().__init__(classes)
        self.path = settings.field
        self._model_classes = KnownClasses.of(classes)
        self._mapping = dict(settings.mapping) | {name: name for name in classes}
        self._set_classes(tuple(classes))

    def _set_classes(self, classes: tuple[str, ...]) -> None:
        self.classes = classes
        # Most values are found at once. Those whose class the model lacks are left out, so that
        # `_look_up` adds it, or explains why not.
        self.known = {key: name for key, name in self._mapping.items() if name in self.classes}
        self._values: dict[Any, str] = dict(self.known)
        for key, name in self.known.items():
            if re.fullmatch(r"-?[0-9]{1,18}", key) and str(int(key)) == key:
                self._values[int(key)] = name

    def label(self, values: Sequence[Any], texts: list[str]) -> LabelledBatch:
        """Label a batch by its values; see `Labeller.label`."""
        done = LabelledBatch([None] * len(values), texts)
        known = self._values
        for i, value in enumerate(values):
            if value is None:
                continue
            # True equals 1 in Python, but a label `true` does not mean 1.
            key = _BOOLEANS[value] if value.__class__ is bool else value
            try:
                done.labels[i] = known[key]
            except (KeyError, TypeError):
                found = self._look_up(value)
                if isinstance(found, DecodeError):
                    done.errors[i] = found
                else:
                    done.labels[i] = found
        return done

    def _look_up(self, value: Any) -> str | DecodeError:
        """Return the class of a value by its JSON text, or the error."""
        integral = isinstance(value, float) and value.is_integer()
        text = msgspec.json.encode(int(value) if integral else value).decode()
        shown = text[:_VALUE_SHOWN_MAX]
        if not isinstance(value, str | int | float):
            return DecodeError(
                Reason.WRONG_TYPE,
                f"the label at '{self.path}' is {shown}; a string, number or boolean is needed "
                "(setting labels.field)",
            )
        plain = value if isinstance(value, str) else text
        name = self._mapping.get(plain)
        label = plain if name is None else name
        if name is not None and name in self.classes:
            return name
        known = self._model_classes
        if label in known or (len(self.classes) < CLASSES_MAX and known.takes(label)):
            # The reading thread meets a class before the model does, and keeps an order of its own.
            # Whether the class joins is decided as the model learns it.
            self._mapping.setdefault(label, label)
            self._set_classes((*self.classes, label))
            return label
        classes = first_few(self.classes)
        if name is not None:
            detail = (
                f"labels.mapping makes '{name[:_VALUE_SHOWN_MAX]}' of the label {shown}, which is "
                f"none of the model's classes ({classes}); add it to model.classes or map it to one"
                " of them"
            )
        else:
            detail = (
                f"the label {shown} at '{self.path}' is neither a class ({classes}) nor a key of "
                f"labels.mapping ({first_few(self._mapping)}); add it to labels.mapping"
            )
        return DecodeError(Reason.UNKNOWN_LABEL, detail[:_DETAIL_MAX])


class EmoticonLabeller(Labeller):
    """Labels by emoticons, and removes them from the text (Go, Bhayani and Huang 2009).

    If the signs stayed, the model would learn the emoticons alone. A text with signs of two classes
    gets no label, and loses its signs too. Signs of a class that the model lacks are a
    `ConfigError`.

    >>> labeller = EmoticonLabeller(EmoticonLabels(), ("negative", "positive"))
    >>> labeller.label([None, None], ["what a day :)", "see http://x.org/:)"])
    LabelledBatch(labels=['positive', None], texts=['what a day', 'see http://x.org/:)'], errors={},
    n_ambiguous=0)
    """

    reads_text = True

    def __init__(self, settings: EmoticonLabels, classes: Sequence[str]) -> None:
        super().__init__(classes)
        class_of = _class_of_sign(settings, classes)
        # The longest first, so that ":'(" is not taken for a colon and "'(".
        signs = sorted(class_of, key=len, reverse=True)
        # Of an emoji the first character: what stands behind it varies.
        self._signs = [sign[0] if is_emoji(sign) else sign for sign in signs]
        self._class_of = [class_of[sign] for sign in signs]
        self._pattern = re.compile("|".join([_LINK, *map(_sign_pattern, signs)]))
        # ":(a" may be a list's beginning and labels nothing, but a tokeniser sees the sign in it.
        glued = [sign for sign in signs if not re.search(r"\w$| ", sign)]
        self._glued = re.compile("|".join([_LINK, *(_sign_pattern(sign, "") for sign in glued)]))

    def label(self, values: Sequence[Any], texts: list[str]) -> LabelledBatch:
        """Label a batch by its texts; see `Labeller.label`."""
        done = LabelledBatch([None] * len(values), list(texts))
        for i, text in enumerate(texts):
            # Searching each sign is 20 times as fast as the pattern; most texts have none.
            if not any(sign in text for sign in self._signs):
                continue
            found: set[str] = set()
            rest = self._pattern.sub(partial(self._take, found), text)
            if found:
                done.texts[i] = self._glued.sub(partial(self._take, set()), rest).strip()
                done.labels[i] = found.pop() if len(found) == 1 else None
                done.n_ambiguous += done.labels[i] is None
        return done

    def _take(self, found: set[str], match: re.Match[str]) -> str:
        """Note the class of a sign and remove it; leave a link as it is."""
        if match.lastindex is None:
            return match[0]
        found.add(self._class_of[match.lastindex - 1])
        begin, end = match.span()
        around = match.string[max(0, begin - 1) : begin], match.string[end : end + 1]
        # What stood on both sides must not become one: a sign again ("=:()" would leave "=)"), or
        # a word that nobody wrote.
        return " " if all(around) and not any(map(str.isspace, around)) else ""


# A link is matched from its "://" on and kept. Neither this nor the signs can begin in a way that
# looks ahead without bound, so a text of a million letters or blanks costs a single pass.
_LINK = r"://\S*|\bwww\.\S+"


class SignRemover(Labeller):
    """Labels nothing, and takes the signs out of texts that `EmoticonLabeller` labels by."""

    reads_text = True

    def __init__(self, settings: EmoticonLabels, classes: Sequence[str]) -> None:
        super().__init__(classes)
        self._labeller = EmoticonLabeller(settings, tuple(settings.signs))

    def label(self, values: Sequence[Any], texts: list[str]) -> LabelledBatch:
        """Return no labels, and the texts without signs; see `Labeller.label`."""
        return super().label(values, self._labeller.label(values, texts).texts)


def _sign_pattern(sign: str, end: str = r"(?!\w)") -> str:
    """Return the pattern of one sign: whole, one group, with a blank before and its mouth repeated.

    A sign that begins with a letter or digit ("XD", "8)") does not begin inside a word, and none
    ends inside one (":Dublin"), unless another `end` is asked for.
    """
    if is_emoji(sign):
        return _emoji_pattern(sign)
    start = r"(?<!\w)" if re.match(r"\w", sign) else ""
    return f"[ ]?{start}({re.escape(sign)}){re.escape(sign[-1])}*+{end}"


def is_emoji(sign: str) -> bool:
    """Return whether a sign is one emoji, of one character or several."""
    kinds = [unicodedata.category(each) for each in sign]
    return kinds[0] == "So" and _EMOJI_PARTS.issuperset(kinds)


def _emoji_pattern(sign: str) -> str:
    r"""Return the pattern of an emoji: with or without variation selectors, in any skin colour.

    It may stand right beside a word, and is no part of an emoji that joins several.

    >>> re.sub(_emoji_pattern("👍"), "!", "good👍job 👍🏽 👍")
    'good!job!!'
    """
    parts = [re.escape(each) for each in sign if each not in VARIATIONS]
    body = f"[{VARIATIONS}]?+".join(parts)
    return f"[ ]?(?<!{_JOINER})({body})[{VARIATIONS}]?+[{_SKINS}]?+[{VARIATIONS}]?+(?!{_JOINER})"


_JOINER = "\u200d"
_SKINS = "\U0001f3fb-\U0001f3ff"
_EMOJI_PARTS = frozenset({"So", "Sk", "Mn", "Me", "Cf"})  # pictures, skins, selectors, joiners


def _class_of_sign(settings: EmoticonLabels, classes: Sequence[str]) -> dict[str, str]:
    """Return the class each sign stands for, or raise `ConfigError`."""
    class_of: dict[str, str] = {}
    for name, signs in settings.signs.items():
        if name not in classes:
            raise ConfigError(
                f"labels.signs.{name}: the model has no such class, it has {', '.join(classes)}; "
                "rename the entry or add the class to model.classes"
            )
        class_of |= dict.fromkeys(signs, name)
    return class_of


def keep_classes(model: NaiveBayes) -> tuple[Label, ...]:
    """Declare the classes that joined, so that unlearning their last example leaves them.

    The figures, metrics and stored messages of a run know classes by their place in the model.
    """
    classes = model.classes
    model.state.n_declared_classes = len(classes)
    return classes


def is_over_limit(
    label: Label, n_new: int, model: NaiveBayes, takes_class: Callable[[Label], bool] | None = None
) -> bool:
    """Return whether a label may not become a class, as the model has too many; `n_new` join first.

    It is asked as the label is learned, so that the order of its log decides, in a replay too. In a
    group `takes_class` says whether a class may join the models of all members.
    """
    if not model.new_classes or label in model.classes:
        return False
    is_full = len(model.classes) + n_new >= CLASSES_MAX
    return is_full or (takes_class is not None and not takes_class(label))


def over_limit(label: Label | None) -> str:
    """Return why a label is refused; see `is_over_limit`."""
    return (
        f"the label {str(label)[:60]!r} is none of the model's classes, and no more may join: there"
        f" are {CLASSES_MAX}, those of all members of a group; declare more in model.classes"
    )


def within_limit(
    messages: Messages, model: NaiveBayes, takes_class: Callable[[Label], bool] | None = None
) -> Messages:
    """Return a batch whose labels may all be learned; those over the limit become rejects."""
    unknown = set(messages.classes).difference(model.classes)
    fits = len(model.classes) + len(unknown) <= CLASSES_MAX
    if not (model.new_classes and unknown) or (fits and takes_class is None):
        return messages
    rows = messages.to_learn
    codes = Codes(messages.labels[rows], messages.classes)
    new = [label for _, label in new_labels(codes, model.classes)]
    over = [
        messages.classes.index(str(label))
        for k, label in enumerate(new)
        if is_over_limit(label, k, model, takes_class)
    ]
    if not over:
        return messages
    return messages.reject(rows[np.isin(codes.codes, over)], Reason.UNKNOWN_LABEL, over_limit)


def predicted_classes(log_posteriors: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the index of each row's likeliest class; of classes that tie, the first.

    Between two classes one comparison a row takes a sixth of the time of an argmax over rows.
    """
    if log_posteriors.shape[1] == 2:
        return np.greater(log_posteriors[:, 1], log_posteriors[:, 0]).astype(np.intp)
    likeliest: NDArray[np.intp] = log_posteriors.argmax(axis=1)
    return likeliest
