"""`StreamNBClassifier`: scikit-learn's own checks, its own naive Bayes as the oracle, its tools."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import naive_bayes
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

import streamnb as nb
from streamnb.sklearn import StreamNBClassifier

CHECKED = {
    "gaussian": StreamNBClassifier(),
    "shared": StreamNBClassifier(variance="shared"),
    "multinomial": StreamNBClassifier("multinomial"),
    "complement": StreamNBClassifier("complement", norm=True),
    "bernoulli": StreamNBClassifier("bernoulli", fit_prior=False),
    "categorical": StreamNBClassifier("categorical"),
    "numbers": StreamNBClassifier(
        features={"x": nb.Numbers(nb.Gaussian(nb.NormalInverseGamma()))},
        class_prior=nb.Dirichlet(1.0),
    ),
    "bag": StreamNBClassifier(features={"x": nb.Bag(nb.Multinomial())}),
}
# It asks for an environment variable that has to be set before SciPy is imported.
LEFT_OUT = "check_array_api_input"


def name_of(check: Any) -> str:
    """Return a check's name, with what is bound to it."""
    name: str = getattr(check, "func", check).__name__
    return "-".join([name, *map(str, getattr(check, "keywords", {}).values())])


def checks() -> Iterator[Any]:
    """Yield scikit-learn's checks of every kind of estimator."""
    for name, estimator in CHECKED.items():
        for each, check in estimator_checks_generator(estimator):
            if not name_of(check).startswith(LEFT_OUT):
                yield pytest.param(each, check, id=f"{name}-{name_of(check)}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_is_content(estimator: Any, check: Callable[[Any], None]) -> None:
    """Every check that scikit-learn has for a classifier with its tags is passed."""
    check(estimator)


def test_a_column_that_a_class_lacks_is_left_to_the_others() -> None:
    """A class whose values of a column are all missing is found all the same."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 40)
    X = rng.normal(size=(120, 3)) + 4.0 * y[:, np.newaxis]
    gaps = X.copy()
    gaps[y == 0, 0] = np.nan
    for variance in ("own", "shared"):
        said = StreamNBClassifier(variance=variance).fit(gaps, y).predict(X)
        assert (said[y == 0] == 0).mean() > 0.9
        assert (said == y).mean() > 0.9


def test_a_class_that_was_never_seen_is_none() -> None:
    """Of `classes=` it is impossible by its class prior, in GaussianNB as here."""
    X, y = np.array([[1.0], [2.0], [4.0], [7.0]]), ["a", "a", "b", "b"]
    theirs, ours = naive_bayes.GaussianNB(), StreamNBClassifier()
    with np.errstate(divide="ignore"):  # of the logarithm of 0
        for each in (theirs, ours):
            each.partial_fit(X, y, classes=["a", "b", "c"])
        expected, share = theirs.predict_joint_log_proba(X), theirs.predict_proba(X)
    assert np.isneginf(expected[:, 2]).all()
    assert ours.predict_joint_log_proba(X) == pytest.approx(expected)
    assert ours.predict_proba(X) == pytest.approx(share)


# ---- the oracle ----------------------------------------------------------------------------------


def counts(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return counts of seven words, many of them zero."""
    return rng.poisson(rng.gamma(0.5, 2.0, (n, 7)))


ORACLES: dict[str, tuple[dict[str, Any], Any]] = {
    "gaussian": ({"var_smoothing": 0.0}, naive_bayes.GaussianNB(var_smoothing=0.0)),
    "gaussian-floor": ({"family": "gaussian"}, naive_bayes.GaussianNB()),
    "gaussian-priors": (
        {"class_prior": [0.2, 0.5, 0.3], "var_smoothing": 0.0},
        naive_bayes.GaussianNB(priors=[0.2, 0.5, 0.3], var_smoothing=0.0),
    ),
    "multinomial": ({"family": "multinomial"}, naive_bayes.MultinomialNB()),
    "multinomial-alphas": (
        {"family": "multinomial", "alpha": np.linspace(0.1, 2.0, 7), "fit_prior": False},
        naive_bayes.MultinomialNB(alpha=np.linspace(0.1, 2.0, 7), fit_prior=False),
    ),
    "complement": ({"family": "complement"}, naive_bayes.ComplementNB()),
    "complement-norm": (
        {"family": "complement", "alpha": 0.3, "norm": True},
        naive_bayes.ComplementNB(alpha=0.3, norm=True),
    ),
    "complement-priors": (
        {"family": "complement", "class_prior": [0.9, 0.06, 0.04]},
        naive_bayes.ComplementNB(class_prior=[0.9, 0.06, 0.04]),
    ),
    "bernoulli": ({"family": "bernoulli"}, naive_bayes.BernoulliNB()),
    "bernoulli-threshold": (
        {"family": "bernoulli", "alpha": 0.5, "binarize": 2.0, "class_prior": [0.2, 0.5, 0.3]},
        naive_bayes.BernoulliNB(alpha=0.5, binarize=2.0, class_prior=[0.2, 0.5, 0.3]),
    ),
    "categorical": (
        {"family": "categorical", "min_categories": 30},
        naive_bayes.CategoricalNB(min_categories=30),
    ),
    "categorical-alpha": (
        {"family": "categorical", "min_categories": 30, "alpha": 0.2, "fit_prior": False},
        naive_bayes.CategoricalNB(min_categories=30, alpha=0.2, fit_prior=False),
    ),
}


def data(name: str, seed: int, n: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y and weights for a family."""
    rng = np.random.default_rng(seed)
    X = np.minimum(counts(rng, n), 29)
    y = np.array(["ham", "spam", "other"])[rng.integers(0, 3, n)]
    if name.startswith("gaussian"):
        X = rng.normal(X, 0.5) * np.array([1e-3, 1.0, 1e3, 1.0, 1.0, 2.0, 7.0])
    return X, y, rng.gamma(2.0, 1.0, n)


def assert_equal_answers(name: str, ours: Any, theirs: Any, X: Any) -> None:
    """Hold log-posteriors and joint log-likelihoods to 1e-12 of the largest joint."""
    joint = theirs.predict_joint_log_proba(X)
    at_most = 1e-12 * max(1.0, np.abs(joint).max())
    assert np.abs(ours.predict_log_proba(X) - theirs.predict_log_proba(X)).max() <= at_most
    if not name.startswith("complement"):  # scikit-learn leaves its class prior out
        assert np.abs(ours.predict_joint_log_proba(X) - joint).max() <= at_most
    assert (ours.predict(X) == theirs.predict(X)).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ORACLES)
def test_it_answers_as_scikit_learn(name: str, seed: int) -> None:
    """With the same priors it answers as scikit-learn's naive Bayes does, each family."""
    parameters, theirs = ORACLES[name]
    X, y, _ = data(name, seed)
    ours = StreamNBClassifier(**parameters).fit(X, y)
    assert_equal_answers(name, ours, clone(theirs).fit(X, y), X)
    assert ours.classes_.tolist() == ["ham", "other", "spam"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(set(ORACLES) - {"gaussian-floor"}))
def test_it_weighs_as_scikit_learn(name: str, seed: int) -> None:
    """With weights too (scikit-learn takes its variance floor from rows without their weights)."""
    parameters, theirs = ORACLES[name]
    X, y, weights = data(name, seed)
    ours = StreamNBClassifier(**parameters).fit(X, y, sample_weight=weights)
    assert_equal_answers(name, ours, clone(theirs).fit(X, y, sample_weight=weights), X)


@pytest.mark.parametrize("name", sorted(set(ORACLES) - {"gaussian-floor"}))
def test_pieces_learn_as_the_whole(name: str) -> None:
    """`partial_fit` in pieces is `fit` to the last bit, and answers as scikit-learn's does.

    (Its variance floor comes from the last piece alone; ours from all that was learned.)
    """
    parameters, theirs = ORACLES[name]
    X, y, weights = data(name, 5)
    whole = StreamNBClassifier(**parameters).fit(X, y, sample_weight=weights)
    ours, theirs = StreamNBClassifier(**parameters), clone(theirs)
    for piece in (slice(50), slice(50, 51), slice(51, None)):
        for each in (ours, theirs):
            each.partial_fit(X[piece], y[piece], np.unique(y), sample_weight=weights[piece])
    assert np.array_equal(ours.predict_log_proba(X), whole.predict_log_proba(X))
    assert_equal_answers(name, ours, theirs, X)


@pytest.mark.parametrize("family", ["multinomial", "complement", "bernoulli"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_and_dense_are_one(family: str, kind: Any) -> None:
    """A sparse matrix of any kind teaches and asks what the dense one does, and stays as it is."""
    X, y, _ = data(family, 1)
    matrix = kind(X)
    before = matrix.copy()
    dense = StreamNBClassifier(family).fit(X, y)
    thin = StreamNBClassifier(family).fit(matrix, y)
    assert np.array_equal(thin.predict_log_proba(matrix), dense.predict_log_proba(X))
    assert (matrix != before).nnz == 0


def test_a_matrix_with_repeated_entries_is_their_sum_and_stays() -> None:
    """Entries of one place add up, in a copy: the caller's matrix keeps them."""
    repeated = sparse.csr_array(
        (np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2, 2])), (2, 2)
    )
    model = StreamNBClassifier("multinomial").fit(repeated, [0, 1])
    assert model.model_.word_counts(["x0"]).tolist() == [[3.0, 0.0]]
    assert repeated.nnz == 2


# ---- what cannot be used -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"family": "poisson"}, "family must be one of gaussian"),
        ({"alpha": -1.0, "family": "multinomial"}, "at least 0"),
        ({"var_smoothing": -1.0}, "at least 0"),
        ({"variance": "diagonal"}, "variance"),
        ({"class_prior": [0.5, 0.6]}, "add up to 1"),
        ({"class_prior": [1.0]}, "1 probabilities, and there are 2 classes"),
        ({"class_prior": [1.0], "family": "complement"}, "1 probabilities, and there are 2"),
        ({"alpha": [0.5, 0.5], "family": "bernoulli"}, "alpha must be one number for 'bernoulli'"),
        (
            {"alpha": [0.5, 0.5], "family": "categorical"},
            "alpha must be one number for 'categorical'",
        ),
        (
            {"alpha": [[0.5], [0.5]], "family": "categorical", "min_categories": 3},
            "alpha must be one number for 'categorical'",
        ),
    ],
)
def test_what_a_parameter_cannot_be(parameters: dict[str, Any], said: str) -> None:
    """A parameter that makes no sense is refused when it is used, by name."""
    with pytest.raises(ValueError, match=said):
        StreamNBClassifier(**parameters).fit([[1.0], [2.0]], [0, 1])


def test_what_a_call_cannot_be() -> None:
    """Classes that come late or change are refused, and nothing is learned of the call."""
    model = StreamNBClassifier()
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit([[1.0]], [0])
    model.partial_fit([[1.0], [3.0]], ["a", "b"], classes=["a", "b"])
    before = model.model_.to_bytes()
    with pytest.raises(ValueError, match="'c', which is not among the classes"):
        model.partial_fit([[1.0]], ["c"])
    with pytest.raises(ValueError, match="must be those of the first call"):
        model.partial_fit([[1.0]], ["a"], classes=["a", "c"])
    with pytest.raises(ValueError, match="0, or a number from"):
        model.partial_fit([[1.0]], ["a"], sample_weight=[-1.0])
    assert model.model_.to_bytes() == before


def test_a_prior_of_this_library_counts_for_complement_too() -> None:
    """An array is left out, as scikit-learn does; Fixed and Dirichlet are meant."""
    X, y = [[0, 1], [1, 0], [1, 1]], [0, 1, 1]
    plain = StreamNBClassifier("complement").fit(X, y).predict_joint_log_proba(X)
    fixed = nb.Fixed({0: 0.9, 1: 0.1})
    found = StreamNBClassifier("complement", class_prior=fixed).fit(X, y).predict_joint_log_proba(X)
    assert np.allclose(found - plain, np.log([1.8, 0.2]), rtol=0, atol=1e-12)
    groups = {"all": nb.Numbers()}  # with these the family is ignored
    frequent = StreamNBClassifier(features=groups).fit(X, y).predict_proba(X)
    other = StreamNBClassifier("complement", features=groups).fit(X, y).predict_proba(X)
    assert np.array_equal(other, frequent)


def test_missing_numbers_say_nothing() -> None:
    """A nan skips its factor, in learning and in asking."""
    model = StreamNBClassifier().fit(
        [[0.0, 1.0], [1.0, np.nan], [4.0, 3.0], [5.0, 4.0]], list("aabb")
    )
    alone = StreamNBClassifier(var_smoothing=0.0).fit([[0.0], [1.0], [4.0], [5.0]], list("aabb"))
    model.set_params(var_smoothing=0.0).fit(
        [[0.0, 1.0], [1.0, np.nan], [4.0, 3.0], [5.0, 4.0]], list("aabb")
    )
    asked = model.predict_log_proba([[2.0, np.nan]])
    assert np.array_equal(asked, alone.predict_log_proba([[2.0]]))


# ---- an extra ------------------------------------------------------------------------------------


def run(program: str) -> str:
    """Return what a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_the_library_imports_no_engine() -> None:
    """`import streamnb` brings neither River nor scikit-learn, pandas, Polars or Spark with it,
    nor anything of the daemon, of HTTP or of Kafka.
    """
    others = (
        *("river", "sklearn", "pandas", "polars", "pyspark", "py4j", "pyarrow", "mlflow"),
        *("consumers", "kafka", "confluent_kafka", "starlette", "uvicorn", "httptools", "h11"),
        *("websockets", "http.client", "http.server", "urllib.request", "ssl", "asyncio"),
    )
    assert run(f"import sys, streamnb; print([m for m in {others} if m in sys.modules])") == "[]"


@pytest.mark.parametrize("adapter", ["sklearn", "river"])
def test_without_its_package_an_adapter_says_what_to_install(adapter: str) -> None:
    """Where the extra is missing, the import says its name."""
    program = (
        f"import sys; sys.modules['{adapter}'] = None\n"
        f"try:\n    import streamnb.{adapter}\nexcept ImportError as error:\n    print(error)"
    )
    assert f"pip install 'streamnb[{adapter}]'" in run(program)


def test_the_checks_are_silent() -> None:
    """Fitting and asking raise no warning, not even with classes that weights leave empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = StreamNBClassifier().fit([[0.0], [1.0]], ["a", "b"], sample_weight=[1.0, 0.0])
        assert model.predict_proba([[5.0]]).tolist() == [[1.0, 0.0]]


def test_what_is_refused_leaves_an_estimator_as_it_was() -> None:
    """A weight below 0 is found as the model learns: neither a new model nor classes stay."""
    X, y = [[1.0], [2.0]], ["a", "b"]
    new = StreamNBClassifier()
    with pytest.raises(ValueError, match="weights"):
        new.partial_fit(X, y, classes=["a", "b", "c"], sample_weight=[1.0, -1.0])
    assert not hasattr(new, "model_")
    assert not hasattr(new, "classes_")
    assert not hasattr(new, "n_features_in_")
    assert new.partial_fit(X, y, classes=["a", "b"]).classes_.tolist() == ["a", "b"]
    fitted = StreamNBClassifier().fit(X, y)
    before = fitted.predict_log_proba(X)
    with pytest.raises(ValueError, match="weights"):
        fitted.fit(X, ["c", "d"], sample_weight=[1.0, -1.0])
    assert fitted.classes_.tolist() == ["a", "b"]
    assert np.array_equal(fitted.predict_log_proba(X), before)
    wider = pd.DataFrame({"p": [1.0, 2.0], "q": [3.0, 4.0]})
    with pytest.raises(ValueError, match="weights"):
        fitted.fit(wider, y, sample_weight=[1.0, -1.0])
    assert (fitted.n_features_in_, hasattr(fitted, "feature_names_in_")) == (1, False)
    assert np.array_equal(fitted.predict_log_proba(X), before)
    with pytest.raises(ValueError, match="2 features"):
        fitted.predict(wider.to_numpy())
