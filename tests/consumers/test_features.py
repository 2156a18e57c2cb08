"""From settings to a model, and from messages to the columns that it reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.message import FieldLabels, MessageSettings
from consumers.config.model import (
    READING,
    CategoriesSettings,
    FieldKind,
    FlagsSettings,
    ModelSettings,
    NumbersSettings,
    WordsSettings,
    holds_floats,
)
from consumers.config.sections import PerSettings
from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.decode.example_input import kinds_in
from consumers.decode.fields import field_specs
from consumers.decode.labels import FieldLabeller, within_limit
from consumers.features import build_model, columns_of, extra_fields, kinds_of
from consumers.messages import CLASSES_MAX, Messages, Partition, Reason
from streamnb import (
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Codes,
    Complement,
    Dirichlet,
    Flags,
    Gaussian,
    Hybrid,
    Multinomial,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
)
from tests.broken_json import broken_json
from tests.consumers import raw_batches as decoding
from tests.consumers.decode.test_json_scanner import messages as messages_of_fields
from tests.consumers.decoded_messages import raw
from tests.consumers.raw_batches import CLASSES, strings

NAMES = ("text", "user", "lang", "place", "n")


def messages() -> Messages:
    """Return three decoded messages."""
    return decoding.messages(
        [
            {"text": "one", "user": "ann", "lang": "en", "place": "here", "n": 3},
            {"text": "two", "user": None, "lang": "de", "label": 4},
            {"text": "three", "user": "cleo", "place": ["a"], "n": None},
        ],
        fields=NAMES,
    )


@pytest.mark.parametrize("n_pieces", [1, 4])
def test_labels_over_the_limit_become_rejects_in_their_order(n_pieces: int) -> None:
    """First come, first learned, however the log is cut; then unknown labels leave the batch."""
    n = CLASSES_MAX + 20
    names = [f"class {k * 7 % n}" for k in range(n)]
    examples = [{"text": name, "label": CLASSES[0] if k % 9 == 0 else name, "n": k}
             for k, name in enumerate(names)]  # fmt: skip
    model = build_model(ModelSettings(new_classes=True))
    wanted = [name for k, name in enumerate(names) if k % 9][: CLASSES_MAX - 2]
    learned, rejected = [], []
    size = n // n_pieces
    labeller = FieldLabeller(FieldLabels(), (*CLASSES, *names))
    for begin in range(0, n, size):
        lines = [json.dumps(line).encode() for line in examples[begin : begin + size]]
        batch = Decoder(MessageSettings(), labeller).decode(raw(Partition("t", 0), lines, begin))
        kept = within_limit(batch, model)
        rejected += [reject.detail for reject in kept.rejects]
        assert {reject.reason for reject in kept.rejects} <= {Reason.UNKNOWN_LABEL}
        rows = kept.to_learn
        assert len(kept) + len(kept.rejects) == len(lines)
        assert kept.shown_texts(rows) == [names[begin + i] for i in kept.at.tolist()]
        learned += [kept.label(i) for i in rows.tolist()]
        labels = Codes(kept.labels[rows], kept.classes)
        model.learn_many(columns_of(kept, rows, ["text"]), labels)
    assert list(model.classes) == [*CLASSES, *wanted]
    assert set(learned) == {*wanted, CLASSES[0]}
    assert len(learned) + len(rejected) == n
    assert "no more may join" in rejected[0]


def test_a_class_that_the_group_has_no_room_for_becomes_a_reject() -> None:
    """The other members' classes count too, though this model does not have them yet."""
    names = ("first", "second")
    labels = (*names, *CLASSES)
    lines = [json.dumps({"text": name, "label": name}).encode() for name in labels]
    labeller = FieldLabeller(FieldLabels(), (*CLASSES, *names))
    batch = Decoder(MessageSettings(), labeller).decode(raw(Partition("t", 0), lines, 0))
    model = build_model(ModelSettings(new_classes=True))
    assert within_limit(batch, model, lambda _label: True) is batch
    kept = within_limit(batch, model, lambda label: label == "second")
    assert [kept.label(i) for i in kept.to_learn.tolist()] == ["second", *CLASSES]
    assert [reject.reason for reject in kept.rejects] == [Reason.UNKNOWN_LABEL]


def columns(rows: list[int], names: Sequence[str]) -> dict[str, list[str | None]]:
    """Return columns of the three messages as strings."""
    found = columns_of(messages(), np.array(rows, np.int64), names)
    return {name: strings(column) for name, column in found.items()}


def test_a_column_is_what_the_messages_say() -> None:
    """Text, user and lang come from their columns, other names from a message's other fields."""
    assert columns([0, 1, 2], ["text", "user", "lang", "place"]) == {
        "text": ["one", "two", "three"],
        "user": ["ann", None, "cleo"],
        "lang": ["en", "de", None],
        "place": ["here", None, None],
    }


def test_what_is_no_text_is_missing() -> None:
    """A number, a list or null in a field says nothing, and an unknown field neither."""
    assert columns([0, 2], ["n", "place", "other"]) == {
        "n": [None, None],
        "place": ["here", None],
        "other": [None, None],
    }


@given(rows=st.lists(st.integers(0, 2), unique=True).map(sorted))
def test_a_column_has_the_chosen_rows(rows: list[int]) -> None:
    """Each column is as long as the rows that were asked for, and holds those."""
    found = columns(rows, ["text", "place"])
    assert found["text"] == [["one", "two", "three"][i] for i in rows]
    assert found["place"] == [["here", None, None][i] for i in rows]


def test_the_model_can_read_any_row() -> None:
    """What `columns_of` gives, the configured model takes, whatever stands in the fields."""
    settings = ModelSettings(features={name: WordsSettings() for name in ("text", "place", "n")})
    found = columns_of(messages(), np.arange(3), tuple(settings.features))
    model = build_model(settings)
    model.learn_many(found, ["positive", "negative", "positive"])
    assert sorted(model.words("place")) == ["^ here", "here", "here $"]
    assert model.words("n") == []


@pytest.mark.parametrize(
    ("own", "is_on"),
    [
        ({}, {"punctuation", "ends", "entities", "compose"}),
        ({"hybrid": False}, {"punctuation", "ends", "entities", "compose"}),
        ({"ngrams": (1, 1)}, {"punctuation", "entities", "compose"}),
        ({"likelihood": "bernoulli"}, set()),
        ({"likelihood": "complement", "compose": True}, {"compose"}),
        ({"punctuation": False, "ends": True, "entities": False}, {"ends", "compose"}),
    ],
)
def test_what_a_new_model_reads(own: dict[str, Any], is_on: set[str]) -> None:
    """With the multinomial, what settings do not name is on; what they name is as they say."""
    settings = WordsSettings.model_validate(own)
    assert settings.reading() == {name: name in is_on for name in READING}
    model = build_model(ModelSettings(features={"text": settings}))
    spec = model.describe()["groups"]["text"]
    assert {name for name in READING if spec.get(name, False)} == is_on


def test_the_model_is_what_the_settings_say() -> None:
    """Every setting of the model arrives in it, under the same name."""
    own: dict[str, Any] = {
        "ngrams": (2, 3), "negation": False, "counts": "presence", "max_words": 77,
        "case_fold": False, "fold_mentions": False, "fold_links": False, "squeeze": False,
        "emoticons": False, "punctuation": True, "ends": True, "gap": 2,
        "entities": True, "compose": True, "characters": (3, 5),
    }  # fmt: skip
    settings = ModelSettings(
        classes=("a", "b", "c"),
        class_prior=0.25,
        features={
            "text": WordsSettings(likelihood="bernoulli", beta=(0.5, 2.0), alpha=9.0, **own),
            "user": WordsSettings(likelihood="multinomial", beta=(9.0, 9.0), alpha=0.125, **own),
            "bio": WordsSettings(likelihood="complement", normalise=True, alpha=0.25, **own),
        },
    )
    model = build_model(settings)
    assert model.classes == ("a", "b", "c")
    assert model.state.class_prior == Dirichlet(0.25)
    specs = {name: group.spec for name, group in model.state.groups.items()}
    assert specs == {
        "text": Words(Bernoulli(Beta(0.5, 2.0)), **own),
        "user": Words(Multinomial(Dirichlet(0.125)), hybrid=Hybrid(), **own),
        "bio": Words(Complement(Dirichlet(0.25), normalise=True), **own),
    }


def test_every_setting_of_a_group_is_passed_on() -> None:
    """No key of a feature group is forgotten on the way to the library."""
    own = set(WordsSettings.model_fields) - {
        "kind",
        "likelihood",
        "beta",
        "beta_by_class",
        "alpha",
        "alpha_by_class",
        "alpha_by_value",
        "normalise",
        "fields",
    }
    of_the_library = {"likelihood", "field"}
    assert own == set(Words.__dataclass_fields__) - of_the_library
    own = set(CategoriesSettings.model_fields) - {"kind", "alpha"}
    own -= {"alpha_by_class", "alpha_by_value"}
    assert own == set(Categories.__dataclass_fields__) - {"likelihood"}
    own = set(FlagsSettings.model_fields) - {"kind", "beta"}
    own -= {"beta_by_class", "beta_by_field"}
    assert own == set(Flags.__dataclass_fields__) - {"likelihood"}
    own = {name.removeprefix("prior_") for name in NumbersSettings.model_fields}
    numbers = {"mean", "kappa", "alpha", "beta"}
    assert own == {"kind", "fields", "variance", "prior", "variance_floor", *numbers}
    assert set(NormalInverseGamma.__dataclass_fields__) == numbers


def test_groups_of_every_kind_are_what_the_settings_say() -> None:
    """Fields, priors and all other keys of categories, flags and numbers arrive in the model."""
    settings = ModelSettings.model_validate(
        {
            "classes": ["approve", "reject"],
            "class_prior": {"reject": 7, "approve": 3},
            "features": {
                "credit": {
                    "kind": "categories", "fields": ["score", "income"], "alpha": 0.5,
                    "values": {"score": ["low", 2, True]}, "max_values": 50,
                },
                "steady": {"kind": "flags", "beta": [2, 3], "absent_is_false": True},
                "own": {"kind": "numbers", "variance": "shared", "variance_floor": 0.25},
                "bayes": {
                    "kind": "numbers", "fields": ["a.b"], "prior": "normal-inverse-gamma",
                    "prior_mean": -1, "prior_kappa": 2, "prior_alpha": 3, "prior_beta": 4,
                },
                "words": {"fields": ["note"], "dictionary": ["car", "roof"], "ngrams": [1, 1]},
            },
        }
    )  # fmt: skip
    model = build_model(settings)
    assert model.state.class_prior == Dirichlet([3.0, 7.0])
    specs = {name: group.spec for name, group in model.state.groups.items()}
    assert specs["credit"] == Categories(
        Categorical(Dirichlet(0.5)),
        fields=("score", "income"),
        values={"score": ["low", "2", "true"]},
        max_values=50,
    )
    assert specs["steady"] == Flags(Bernoulli(Beta(2, 3)), fields=("steady",), absent_is_false=True)
    assert specs["own"] == Numbers(Gaussian(VarianceFloor(0.25), "shared"), fields=("own",))
    assert specs["bayes"] == Numbers(Gaussian(NormalInverseGamma(-1, 2, 3, 4)), fields=("a.b",))
    assert (specs["words"].field, specs["words"].dictionary) == ("note", ("car", "roof"))
    assert settings.fields == ("score", "income", "steady", "own", "a.b", "note")


def test_settings_model_and_decoder_agree_what_a_field_holds() -> None:
    """Each kind is the same by the settings and by the model, and its column is of one type."""
    settings = ModelSettings.model_validate(
        {
            "features": {
                "note": {},
                "place": {"kind": "categories"},
                "price": {"kind": "categories", "bins": 0.25},
                "seen": {"kind": "flags"},
                "age": {"kind": "numbers"},
            }
        }
    )
    kinds = kinds_of(settings)
    assert set(kinds.values()) == set(get_args(FieldKind)), "a group of each kind belongs here"
    assert kinds_in(build_model(settings)) == kinds
    specs = field_specs(kinds, MessageSettings())
    assert {name: spec.type.is_float for name, spec in specs.items()} == {
        name: holds_floats(kind) for name, kind in kinds.items()
    }


@given(st.lists(broken_json(messages_of_fields), max_size=8), st.integers(0, 255))
def test_whatever_is_decoded_can_be_learned(values: list[bytes], labels: int) -> None:
    """What the decoder lets through, the model takes: no message of a stream can end the run."""
    kinds: dict[str, FieldKind] = {
        "amount": "numbers", "flag": "flags", "other": "categories", "note": "words",
        "lang": "categories",
    }  # fmt: skip
    features = {name: {"kind": kind, "fields": [name]} for name, kind in kinds.items()}
    model = build_model(ModelSettings.model_validate({"features": features}))
    found = decoding.messages(values, fields=kinds)
    columns = columns_of(found, np.arange(len(found)), tuple(kinds))
    model.learn_many(columns, [CLASSES[labels >> k & 1] for k in range(len(found))])
    assert model.n_examples == len(found)


def test_class_probabilities_can_be_fixed() -> None:
    """With `fixed` they are what the configuration says, whatever is learned."""
    settings = ModelSettings(
        classes=("yes", "no"),
        class_prior={"fixed": {"no": 0.9, "yes": 0.1}},
        features={"n": NumbersSettings()},
    )
    model = build_model(settings)
    model.learn_one({"n": 1.0}, "yes")
    assert model.class_priors().tolist() == pytest.approx([0.1, 0.9])


def test_columns_of_every_kind_have_the_chosen_rows() -> None:
    """Numbers and flags are floats, categories texts; the model learns them as they are."""
    kinds: dict[str, FieldKind] = {"n": "numbers", "f": "flags", "c": "categories"}
    found = decoding.messages(
        [
            {"n": 1.5, "f": True, "c": "a", "label": 4},
            {"n": None, "c": 2, "label": 0},
            {"n": 3, "f": False, "label": 4},
        ],
        fields=kinds,
    )
    columns = columns_of(found, np.array([0, 2]), tuple(kinds))
    assert isinstance(columns["n"], np.ndarray)
    assert columns["n"].tolist() == [1.5, 3.0]
    assert isinstance(columns["f"], np.ndarray)
    assert columns["f"].tolist() == [1.0, 0.0]
    assert strings(columns["c"]) == ["a", None]
    features = {name: {"kind": kind} for name, kind in kinds.items()}
    model = build_model(ModelSettings.model_validate({"features": features}))
    every = columns_of(found, np.arange(3), tuple(kinds))
    model.learn_many(every, ["positive", "negative", "positive"])
    alone = build_model(ModelSettings.model_validate({"features": features}))
    alone.learn_one({"n": 1.5, "f": True, "c": "a"}, "positive")
    alone.learn_one({"n": None, "c": "2"}, "negative")
    alone.learn_one({"n": 3.0, "f": False}, "positive")
    probe = {"n": 2.0, "f": True, "c": "a"}
    assert model.predict_log_proba_one(probe) == alone.predict_log_proba_one(probe)


@pytest.mark.parametrize("likelihood", ["bernoulli", "multinomial"])
def test_default_settings_make_a_model(likelihood: str) -> None:
    """The defaults are a model that can learn at once."""
    group = WordsSettings.model_validate({"likelihood": likelihood})
    model = build_model(ModelSettings(features={"text": group}))
    model.learn_one({"text": "not good"}, "negative")
    assert model.predict_one({"text": "not good"}) == "negative"


def test_extra_fields_are_those_that_no_column_holds() -> None:
    """Only what a message does not carry as a column of its own must be kept for the model."""
    names = ("text", "user", "lang", "place", "topic")
    model = ModelSettings(features={name: WordsSettings() for name in names})
    kept = MessageSettings(fields=("place", "topic"))
    assert extra_fields(Settings(model=model, message=kept)) == ("place", "topic")
    assert extra_fields(Settings()) == ()
    assert extra_fields(Settings(per=PerSettings(field="tenant"))) == ("tenant",)


# Sentences of everyday life without a space: of each language half are glad and half are not, and
# the last two of a half are judged by what the others taught.
NO_SPACES = {
    "Thai": (
        [
            "วันนี้อากาศดีมาก", "อาหารอร่อยมากชอบที่สุด", "หนังเรื่องนี้สนุกมากเลย", "ร้านนี้บริการดีประทับใจ",
            "มีความสุขมากกับเพื่อนๆ", "กาแฟร้านนี้อร่อยมากชอบ", "เมื่อคืนมีความสุขสนุกมาก",
        ],
        [
            "วันนี้รู้สึกแย่มาก", "อาหารไม่อร่อยเลยเสียใจ", "หนังเรื่องนี้น่าเบื่อจริงๆ", "ร้านนี้บริการแย่ผิดหวัง",
            "เศร้ามากร้องไห้ทั้งคืน", "โรงแรมนี้แย่และน่าเบื่อ", "ผิดหวังกับหนังจนเสียใจ",
        ],
    ),
    "Lao": (
        [
            "ມື້ນີ້ອາກາດດີຫຼາຍ", "ອາຫານແຊບຫຼາຍມັກທີ່ສຸດ", "ຮູບເງົາເລື່ອງນີ້ມ່ວນຫຼາຍ",
            "ຂ້ອຍມີຄວາມສຸກກັບໝູ່", "ກາເຟແຊບຫຼາຍຂ້ອຍມັກ", "ງານບຸນມ່ວນແລະມີຄວາມສຸກ",
        ],
        [
            "ມື້ນີ້ຮູ້ສຶກບໍ່ດີ", "ອາຫານບໍ່ແຊບເລີຍ", "ຮູບເງົາເລື່ອງນີ້ໜ້າເບື່ອ",
            "ຂ້ອຍໂສກເສົ້າແລະຜິດຫວັງ", "ໂຮງແຮມໜ້າເບື່ອຜິດຫວັງ", "ມື້ວານໂສກເສົ້າ",
        ],
    ),
    "Khmer": (
        [
            "ថ្ងៃនេះអាកាសធាតុល្អណាស់", "ម្ហូបឆ្ងាញ់ណាស់ខ្ញុំចូលចិត្ត", "រឿងនេះសប្បាយណាស់",
            "ខ្ញុំរីករាយជាមួយមិត្តភក្តិ", "កាហ្វេឆ្ងាញ់ខ្ញុំចូលចិត្តណាស់", "ពិធីបុណ្យសប្បាយរីករាយ",
        ],
        [
            "ថ្ងៃនេះខ្ញុំពិបាកចិត្ត", "ម្ហូបអាក្រក់មិនល្អទេ", "រឿងនេះគួរឲ្យធុញ",
            "ខ្ញុំខកចិត្តនិងសោកស្តាយ", "សណ្ឋាគារអាក្រក់គួរឲ្យធុញ", "ម្សិលមិញសោកស្តាយពិបាកចិត្ត",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", NO_SPACES)
def test_languages_without_spaces_are_read_by_characters(language: str) -> None:
    """With `characters: [2, 4]` the default model judges sentences that it never saw; without it a
    sentence is one word, and nothing is known of a new one.
    """
    glad, sad = NO_SPACES[language]
    texts = [*glad[:-2], *sad[:-2]]
    labels = ["positive"] * (len(glad) - 2) + ["negative"] * (len(sad) - 2)
    asked = [*glad[-2:], *sad[-2:]]
    said = {}
    for characters in (None, [2, 4]):
        features = {"text": {"characters": characters}}
        settings = {"classes": ["positive", "negative"], "features": features}
        model = build_model(ModelSettings.model_validate(settings))
        for _ in range(6):  # as often as people say much the same
            model.learn_many({"text": texts}, labels)
        said[characters is None] = np.exp(model.predict_log_proba_many({"text": asked}))[:, 0]
    assert said[True] == pytest.approx([0.5] * 4)
    assert ((said[False] > 0.5) == [True, True, False, False]).all()
