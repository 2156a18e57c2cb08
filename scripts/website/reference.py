"""Writes the pages of the API reference: which public names stand on which page.

The text is that of the docstrings. A public name of `streamnb` that no page has is an error, so the
reference is whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import streamnb
from streamnb import testing


class _Page(NamedTuple):
    """A page of names of `streamnb`."""

    title: str
    names: tuple[str, ...]


_LIBRARY = {
    "model": _Page(
        "The model",
        (
            *("NaiveBayes", "Judgement", "Codes", "TextColumn", "HalfLife", "Folds"),
            *("merge", "subtract"),
        ),
    ),
    "features": _Page("Groups of features", ("Words", "Bag", "Categories", "Flags", "Numbers")),
    "likelihoods": _Page(
        "Likelihoods and priors",
        (
            *("Bernoulli", "Multinomial", "Complement", "Hybrid", "Categorical", "Gaussian"),
            *("Beta", "Dirichlet", "Fixed", "NormalInverseGamma", "VarianceFloor"),
            *("LAPLACE", "MAXIMUM_LIKELIHOOD"),
        ),
    ),
    "inspection": _Page(
        "What a model knows", ("Explanation", "LinearForm", "Parameters")
    ),
    "posteriors": _Page(
        "What posteriors are worth",
        (
            *("Calibrator", "ReliabilityBin", "AnswerRule", "Confidence", "ConformalSets"),
            *("cheapest", "expected_costs", "Quantifier", "AdjustedShares", "adjusted_shares"),
        ),
    ),
    "drift": _Page(
        "Drift",
        ("DriftMartingale", "HalfLives", "WordCounts", "MovedWord", "count_words", "moved_words"),
    ),
    "serving": _Page(
        "Learning and answering at once",
        (
            *("Learner", "EveryExamples", "EveryInterval", "SnapshotBoard", "Snapshot"),
            *("Predictor", "Answer"),
        ),
    ),
    "storage": _Page(
        "Files and other languages",
        (
            *("save", "load", "StoreWarning", "StreamnbError", "InputError"),
            *("export_dict", "export_json", "export_arrow", "to_arrow"),
            *("export_mlflow", "log_mlflow"),
        ),
    ),
}  # fmt: skip

_MODULES = {
    "errors": ("Errors", "streamnb.errors"),
    "river": ("River", "streamnb.river"),
    "sklearn": ("scikit-learn", "streamnb.sklearn"),
    "spark": ("Spark", "streamnb.spark"),
    "testing": ("Laws for your own models", "streamnb.testing"),
    "fixtures": ("Fixtures of pytest", "consumers.testing"),
    "client": ("Client of the HTTP API", "consumers.http.client"),
}

# What they inherit is theirs: both answer by `streamnb.reader.ModelReader`.
_WITH_INHERITED = {"NaiveBayes", "Snapshot"}

# Methods that scikit-learn gives to every estimator.
_OF_SKLEARN = ("set_fit_request", "set_partial_fit_request", "set_score_request")


def reference_pages() -> dict[str, str]:
    """Return the pages in reStructuredText, by their places on the site.

    Raises
    ------
    ValueError
        If a public name of `streamnb` is on no page, or a name on a page is not public.
    """
    named = [name for page in _LIBRARY.values() for name in page.names]
    if sorted(named) != sorted(streamnb.__all__):
        odd = ", ".join(sorted(set(named).symmetric_difference(streamnb.__all__)))
        raise ValueError(
            f"scripts/website/reference.py: its pages and streamnb.__all__ differ in {odd}: "
            "give each public name one page"
        )
    pages = {"reference/index.rst": _index()}
    for name, page in _LIBRARY.items():
        text = _title(page.title) + ".. currentmodule:: streamnb\n\n"
        pages[f"reference/{name}.rst"] = text + "\n".join(
            _directive(each, streamnb) for each in page.names
        )
    for name, (title, module) in _MODULES.items():
        text = f"{_title(title)}.. automodule:: {module}\n"
        if module == "streamnb.testing":  # its names come from other files, constants among them
            text += f"\n.. currentmodule:: {module}\n\n"
            text += "\n".join(_directive(each, testing) for each in testing.__all__)
        else:
            text += "   :members:\n"
        if name == "errors":
            text += "   :show-inheritance:\n"
        if name == "sklearn":
            text += f"   :exclude-members: {', '.join(_OF_SKLEARN)}\n"
        pages[f"reference/{name}.rst"] = text
    return pages


def _index() -> str:
    """Return the page that lists the others."""
    text = _title("API reference") + (
        "Everything public, from its docstrings. Names of the first pages are those of\n"
        "``streamnb``: ``import streamnb as nb``, then ``nb.NaiveBayes``.\n\n"
    )
    lists = (("The library", _LIBRARY), ("Beside it", _MODULES))
    for caption, pages in lists:
        text += f".. toctree::\n   :caption: {caption}\n   :maxdepth: 1\n\n"
        text += "".join(f"   {name}\n" for name in pages) + "\n"
    return text


def _directive(name: str, module: ModuleType) -> str:
    """Return what documents a public name of a module, below a heading of its own."""
    value = getattr(module, name)
    heading = f"{name}\n{'-' * len(name)}\n\n"
    if isinstance(value, type):
        options = ["members"]
        if value.__bases__ != (object,):
            options.append("show-inheritance")
        if name in _WITH_INHERITED:
            options.append("inherited-members")
        return f"{heading}.. autoclass:: {name}\n" + "".join(f"   :{o}:\n" for o in options)
    if callable(value):
        return f"{heading}.. autofunction:: {name}\n"
    if isinstance(value, tuple):  # functions, each of which says what it is for
        told = [f"   - ``{each.__name__}``: {_first_line(each)}\n" for each in value]
        return f"{heading}.. data:: {name}\n\n{''.join(told)}"
    return f"{heading}.. data:: {name}\n   :value: {value!r}\n"


def _first_line(function: Callable[..., object]) -> str:
    """Return what a function's docstring says first."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"
