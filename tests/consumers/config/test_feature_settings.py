"""Settings of feature groups of every kind, and of what is known of the classes beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consumers.config.model import (
    CategoriesSettings,
    ChallengerSettings,
    ModelSettings,
    WordsSettings,
)
from consumers.config.sections import LARGEST, LEAST
from consumers.config.settings import load, to_yaml
from consumers.features import build_model
from streamnb import Beta, Dirichlet
from tests.consumers.config.test_settings import mistakes, write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: {features: {n: {kind: number}}}", "kind is words, categories, flags or numbers"),
        (
            "model: {features: {n: {kind: numbers, ngrams: [1, 2]}}}",
            "model.features.n.ngrams: is no known key with kind: numbers, only with kind: words",
        ),
        (
            "model: {features: {n: {kind: numbers, prior_kapa: 1}}}",
            "did you mean model.features.n.prior_kappa?",
        ),
        (
            "model: {features: {n: {kind: numbers, variance: each}}}",
            "model.features.n.variance: must be 'own' or 'shared'; found 'each'",
        ),
        ("model: {features: {n: {kind: flags, beta: 1}}}", "model.features.n.beta: must be a list"),
        ("model: {features: {n: {kind: flags, fields: [a, a]}}}", "fields: must be distinct"),
        ("model: {features: {n: {fields: [a, b]}}}", "each field of words is a group of its own"),
        ("model: {features: {lang: {kind: flags}}}", "reads 'lang' as flags; it can be words or"),
        (
            "model: {features: {a: {kind: flags}, b: {kind: numbers, fields: [a]}}}",
            "model.features.b: reads 'a', which 'a' reads already",
        ),
        (
            "message: {text: a}\nmodel: {features: {text: {}, a: {kind: categories}}}",
            "model.features.a: reads 'a', which 'text' reads already",
        ),
        ("model: {features: {label: {kind: categories}}}", "it would learn the label itself"),
        (
            "model: {features: {c: {kind: categories, values: {x: [1]}}}}",
            "model.features.c.values.x: is none of the group's fields",
        ),
        (
            "model: {features: {c: {kind: categories, values: {c: [1, '1']}}}}",
            "model.features.c.values: must be distinct",
        ),
        (
            "model: {features: {c: {kind: categories, values: {c: []}}}}",
            "must hold at least one value of 'c'",
        ),
        *(
            (
                f"model: {{features: {{f: {{kind: categories, {given}}}}}}}",
                f"model.features.f{told}",
            )
            for given, told in (
                ("bins: 0.001", ".bins: must be null, a step from 0.01"),
                ("bins: [2, 1]", ".bins: must be null, a step from 0.01"),
                ("bins: 1, values: {f: [a]}", ": bins have values of their own"),
            )
        ),
        (
            (
                "model: {features: {f: {kind: categories}}}\n"
                "challengers: {c: {features: {f: {kind: categories, bins: 1}}}}"
            ),
            "reads 'f' as numbers, and model.features does not",
        ),
        (
            "model: {features: {text: {alpha_by_class: {negative: 1}}}}",
            "model.features.text.alpha_by_class: must name every class of model.classes",
        ),
        (
            (
                "model: {new_classes: true, features: {f: {kind: flags,"
                " beta_by_class: {negative: [1, 1], positive: [1, 2]}}}}"
            ),
            "model.features.f.beta_by_class: must be null with new_classes",
        ),
        (
            "model: {features: {text: {alpha_by_class: {negative: 1, positive: -1}}}}",
            "model.features.text.alpha_by_class.positive: must be 0, or a number between",
        ),
        (
            "model: {features: {text: {beta_by_class: {negative: [1, 1], positive: [1, 2]}}}}",
            "beta_by_class is no prior of the multinomial likelihood",
        ),
        (
            "model: {features: {text: {likelihood: bernoulli, alpha_by_value: {a: 1}}}}",
            "alpha_by_value is no prior of the bernoulli likelihood",
        ),
        (
            "model: {features: {text: {likelihood: complement, alpha_by_value: {a: 1}}}}",
            "alpha_by_value is for the multinomial likelihood",
        ),
        (
            "model: {features: {text: {alpha_by_value: {a: 1}}}}",
            "alpha_by_value needs the dictionary",
        ),
        (
            "model: {features: {text: {dictionary: [b], alpha_by_value: {a: 1}}}}",
            "alpha_by_value names a, which is not in the dictionary",
        ),
        (
            (
                "model: {features: {text: {likelihood: complement,"
                " alpha_by_class: {negative: 0, positive: 1}}}}"
            ),
            "alpha must be above 0 with the complement likelihood",
        ),
        (
            "model: {features: {c: {kind: categories, alpha_by_value: {a: 1}}}}",
            "alpha_by_value needs values",
        ),
        (
            (
                "model: {features: {c: {kind: categories, fields: [a, b], values: {a: [x]},"
                " alpha_by_value: {x: 1}}}}"
            ),
            "alpha_by_value is for a group of one field",
        ),
        (
            (
                "model: {features: {c: {kind: categories, values: {c: [x]}, alpha_by_value: {x: 1},"
                " alpha_by_class: {negative: 1, positive: 2}}}}"
            ),
            "alpha_by_class and alpha_by_value must not both be given",
        ),
        (
            "model: {features: {f: {kind: flags, fields: [a], beta_by_field: {b: [1, 1]}}}}",
            "beta_by_field names b, which is not in fields",
        ),
        ("model: {features: {text: {dictionary: []}}}", "must hold at least one word"),
        (
            "model: {features: {text: {likelihood: complement, hybrid: true}}}",
            "hybrid corrects the multinomial likelihood: with the complement one it must be false",
        ),
        (
            "model: {features: {n: {kind: numbers, prior_mean: -1e61}}}",
            "model.features.n.prior_mean: must be a number between -1e+60 and 1e+60; found '-1e61'",
        ),
        (
            "model: {features: {n: {kind: numbers, prior_kappa: 1e-61}}}",
            "model.features.n.prior_kappa: must be a number between 1e-60 and 1e+60; found '1e-61'",
        ),
        (
            "model: {features: {n: {kind: numbers, variance_floor: 1e61}}}",
            "model.features.n.variance_floor: must be a number between 0 and 1e+60",
        ),
        (
            "model: {features: {f: {kind: flags, beta: [1, 1e61]}}}",
            "model.features.f.beta.1: must be 0, or a number between 1e-60 and 1e+60; found '1e61'",
        ),
        (
            "model: {features: {text: {alpha: -1}}}",
            "model.features.text.alpha: must be 0, or a number between 1e-60 and 1e+60; found '-1'",
        ),
        ("model: {class_prior: 1e61}", "model.class_prior: must be 0, or a number between 1e-60"),
        ("model: {class_prior: {positive: 1e-61, negative: 1}}", "and 1e+60 for positive"),
        ("model: {class_prior: -1}", "model.class_prior: must be a number of at least 0"),
        ("model: {features: {text: {ngrams: [true, 2]}}}", "text.ngrams: must be a number"),
        ("model: {features: {text: {characters: [2, true]}}}", "text.characters: must be a number"),
        ("model: {class_prior: true}", "model.class_prior: must be a number of at least 0"),
        (
            "model: {class_prior: {positive: 1, negatve: 1}}",
            "model.class_prior.negatve: is not in model.classes: 'negative', 'positive'; found '1'",
        ),
        ("model: {class_prior: {positive: 1}}", "'negative' has none"),
        ("model: {coverage: 1}", "model.coverage: must be"),
        (
            "model: {costs: {negative: {psitive: 2}}}",
            "model.costs.negative.psitive: is not in model.classes: 'negative', 'positive'",
        ),
        ("model: {costs: {neutral: {positive: 2}}}", "model.costs.neutral: is not in"),
        ("model: {costs: {negative: {positive: -2}}}", "must be a number between 0 and 1e+60"),
        (
            "model: {new_classes: true, costs: {negative: {positive: 2}}}",
            "model.costs: must be null with new_classes",
        ),
        (
            "model: {class_prior: {fixed: {positive: 0.5, negative: 0.6}}}",
            "must hold probabilities that add up to 1, not to 1.1",
        ),
        ("model: {class_prior: {fixed: {positive: 1}}}", "model.class_prior.fixed: must have a"),
        (
            "model: {classes: ['0', '1']}\nlabels: {mapping: {0: '1'}}",
            "labels.mapping.0: is a class, which its name stands for",
        ),
    ],
)
def test_a_mistake_says_what_is_allowed(tmp_path: Path, text: str, expected: str) -> None:
    """Whatever is wrong, the message names the place and the way out."""
    assert expected in mistakes(tmp_path, text)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0.5", 0.5),
        ("{negative: 3, positive: 7}", {"negative": 3.0, "positive": 7.0}),
        ("{fixed: {negative: 0.3, positive: 0.7}}", {"fixed": {"negative": 0.3, "positive": 0.7}}),
        ("'${ALPHA}'", 2.5),
    ],
)
def test_a_class_prior_has_three_forms(tmp_path: Path, written: str, meant: object) -> None:
    """One number, one for each class, or fixed probabilities; what is printed is read again."""
    settings = load(write(tmp_path, f"model: {{class_prior: {written}}}"), {"ALPHA": "2.5"})
    assert settings.model.class_prior == meant
    assert load(write(tmp_path, to_yaml(settings)), {}) == settings


def test_groups_of_all_kinds_are_printed_and_read_again(tmp_path: Path) -> None:
    """`check-config` prints a configuration of every kind of group that means the same."""
    text = """\
model:
  features:
    a: {kind: categories, fields: [x, y.z], values: {x: [1, true, 2.5, hi]}}
    b: {kind: flags}
    c: {kind: numbers, prior: normal-inverse-gamma, prior_mean: -1.5}
    text:
    d: {fields: [title], dictionary: [one, two]}
    e: {kind: categories, bins: 0.5}
    f: {kind: categories, bins: [18, 65.5]}
"""
    settings = load(write(tmp_path, text), {})
    assert settings.model.fields == ("x", "y.z", "b", "c", "text", "title", "e", "f")
    group, *binned = (
        g for g in settings.model.features.values() if isinstance(g, CategoriesSettings)
    )
    assert [each.bins for each in binned] == [0.5, (18.0, 65.5)]
    assert group.values == {"x": ("1", "true", "2.5", "hi")}
    assert load(write(tmp_path, to_yaml(settings)), {}) == settings


@pytest.mark.parametrize("size", [LEAST, LARGEST])
@pytest.mark.parametrize(
    "group",
    [
        {"kind": "flags", "beta": ["SIZE", "SIZE"]},
        {"kind": "categories", "alpha": "SIZE"},
        {"kind": "words", "alpha": "SIZE"},
        {"kind": "words", "likelihood": "bernoulli", "beta": ["SIZE", "SIZE"]},
        {"kind": "words", "likelihood": "complement", "alpha": "SIZE"},
        {"kind": "numbers", "variance_floor": "SIZE"},
        {"kind": "numbers", "prior": "normal-inverse-gamma", "prior_mean": "SIZE",
         "prior_kappa": "SIZE", "prior_alpha": "SIZE", "prior_beta": "SIZE"},
    ],
    ids=str,
)  # fmt: skip
def test_the_library_takes_every_prior_that_is_allowed(group: dict[str, Any], size: float) -> None:
    """Settings that are checked make a model, and no answer of it is nan, at the bounds too."""
    named = {**group, "fields": ["f"]}
    features = json.loads(json.dumps({"g": named}).replace('"SIZE"', repr(size)))
    given = ModelSettings.model_validate({"class_prior": size, "features": features})
    model = build_model(given)
    value = {"words": "a b", "categories": "a", "flags": True, "numbers": 2.0}[group["kind"]]
    for example in ({"f": value}, {}):
        answers = [model.predict_proba_one(example)]
        model.learn_one({"f": value}, "positive")
        answers.append(model.predict_proba_one(example))
        assert np.isfinite([list(answer.values()) for answer in answers]).all()


def test_priors_by_class_value_and_field_reach_the_model() -> None:
    """They are the library's grids, whatever the order in which they are written."""
    by_class = {"positive": 2, "negative": 0.5}
    settings = ModelSettings.model_validate(
        {
            "features": {
                "text": {"alpha_by_class": by_class, "hybrid": False, "ends": False},
                "user": {
                    "likelihood": "bernoulli",
                    "beta_by_class": {"positive": [3, 4], "negative": [1, 2]},
                },
                "lang": {"dictionary": ["en", "de"], "alpha_by_value": {"de": 5}, "alpha": 0.1},
                "c": {
                    "kind": "categories",
                    "values": {"c": ["low", "high"]},
                    "alpha_by_value": {"high": 3},
                },
                "f": {"kind": "flags", "fields": ["a", "b"], "beta_by_field": {"b": [1, 9]}},
            }
        }
    )
    model = build_model(settings)
    specs = {name: group.spec for name, group in model.state.groups.items()}
    assert specs["text"].likelihood.prior == Dirichlet([[0.5, 2.0]])
    assert specs["user"].likelihood.prior == Beta([[1.0, 3.0]], [[2.0, 4.0]])
    assert specs["lang"].likelihood.prior == Dirichlet([0.1, 5.0])
    assert specs["c"].likelihood.prior == Dirichlet([1.0, 3.0])
    assert specs["f"].likelihood.prior == Beta([1.0, 1.0], [1.0, 9.0])
    model.learn_many({"text": ["a", "b"], "f": [True, False]}, ["negative", "positive"])
    negative = model.predict_proba_one({"text": "a"})["negative"]
    of_a = np.array([(1 + 0.5) / (1 + 0.5 * 2), 2 / (1 + 2 * 2)])
    assert negative == pytest.approx(of_a[0] / of_a.sum())


def test_the_class_prior_alone_may_forget() -> None:
    """`prior_half_life` is the model's; a challenger has it too, its own, or with 0 none."""
    settings = ModelSettings(prior_half_life=700)
    assert build_model(settings).state.prior_half_life == 700.0
    for said, expected in ((None, 700.0), (50.0, 50.0), (0.0, None)):
        challenger = ChallengerSettings(prior_half_life=said).beside(settings)
        assert build_model(challenger).state.prior_half_life == expected
    assert build_model(ModelSettings()).state.prior_half_life is None


@pytest.mark.parametrize(
    ("own", "hybrid"),
    [
        ("likelihood: multinomial", False),
        ("ngrams: [1, 3]", False),
        ("likelihood: bernoulli", False),
        ("likelihood: multinomial, hybrid: true", True),
    ],
)
def test_a_challenger_of_the_same_likelihood_keeps_what_the_hybrid_is(
    tmp_path: Path, own: str, hybrid: bool
) -> None:
    """Also where it names the likelihood that the model has by default."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "model: {features: {text: {hybrid: false}}}\n"
        f"challengers: {{a: {{features: {{text: {{{own}}}}}}}}}\n",
        encoding="utf-8",
    )
    group = load(path, {}).models["a"].features["text"]
    assert isinstance(group, WordsSettings)
    assert group.hybrid is hybrid
