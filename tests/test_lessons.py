"""The lessons run: every block of code prints what they show, and draws what they speak of."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scripts import lessons
from scripts.lessons import FOLDER, Run

FIGURES = FOLDER / "figures"
LESSONS = lessons.lessons()
NAMES = [lesson.stem for lesson in LESSONS]
# What the lessons have to teach: a sentence, formula or output of each section.
TAUGHT: dict[str, tuple[str, ...]] = {
    "01_counting": ("0.9825 instead of 0.9835", "⟨0.8, 0.3⟩ instead of ⟨0.8, 0.2⟩"),
    "03_estimates": (
        "P(x | θ) = θˣ · (1 − θ)¹⁻ˣ",
        "P(x | θ) = ∏ᵥ θᵥ^xᵥ",
        'model.learn_many({"x": [True, True, False, True]}, one_hot)',
        "**θ = h / (h + t)**",
        "**θᵥ = Nᵥ / N**",
        "γ = (a + b + 1)! / (a! · b!)",
        "**(a + 1) / (a + b + 2)**",
        "MAP: (α + h − 1) / (α + β + h + t − 2)",
        "mean: (α + h) / (α + β + h + t)",
        "B(α) = ∏ Γ(αᵥ) / Γ(Σ αᵥ)",
        "posterior mean: 5/14 3/7 3/14",
        "Beta(α, α · (K − 1))",
    ),
    "06_counts": ("**multinomial coefficient**", "two.sample_many(10_000, seed=5, length=3)"),
    "07_naive": (
        "2ᵐ⁺¹ − 1 free numbers, against 2m + 1",
        "m = 100: 1,267,650,600,228,229,401,496,703,205,376 rows a class",
        "- categorical: k · Σ|v|,",
        "- Bernoulli: k · m,",
        "- Gaussian: k · 2m,",
    ),
    "08_gaussian": (
        "p(x, y | c) = p(x | c) · p(y | c)",
        "fields  naive, 2KD  full, KD + KD²",
        "**K bins**",
    ),
    "09_threshold": ("area 0.8927, pairs in the right order 0.8927",),
    "10_precision": (
        "(confusion == metrics.confusion_matrix(new_y, answer)).all()",
        "**Precision** = TP / (TP + FP)",
        "**Recall** = TP / (TP + FN)",
        "**F1** = 2 · precision · recall / (precision + recall)",
        "10% ill: area under ROC 0.876, under PR 0.532",
        "**k-fold cross-validation**",
    ),
    "11_linear": ("a Gaussian with a shared variance *is* logistic regression",),
}

Curves = dict[str, NDArray[np.float64]]
Done = Callable[[str], tuple[Run, Path]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Return what a lesson did, by its name, and the folder that it did it in.

    Each runs once, when it is first asked for.
    """

    @functools.cache
    def run(name: str) -> tuple[Run, Path]:
        folder = tmp_path_factory.mktemp(name)
        return lessons.run(FOLDER / f"{name}.md", folder), folder

    return run


def axes_of(done: Done, lesson: str, figure: str) -> list[Any]:
    """Return the axes of a lesson's figure."""
    return list(done(lesson)[0].figures[figure].axes)


def curves(axis: Any) -> Curves:
    """Return the heights of the named curves of an axis."""
    found = {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in axis.lines}
    return {name: heights for name, heights in found.items() if not name.startswith("_")}


def text_of(name: str) -> str:
    """Return a lesson's text."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


# ---- what they show --------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_prints_what_it_shows(name: str, done: Done) -> None:
    """Every block runs, in order, from nothing, and prints exactly what stands below it."""
    run, _ = done(name)
    assert run.printed
    for block, printed in run.printed:
        assert printed == block.output, f"{name}.md:{block.line}"


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_draws_what_it_names(name: str, done: Done) -> None:
    """It draws the figures in its text and no other, and the committed ones are those."""
    run, folder = done(name)
    named = re.findall(r"!\[[^\]]+\]\(figures/([a-z_]+)\.svg\)", text_of(name))
    assert sorted(named) == sorted(run.figures)
    for figure in named:
        fresh, kept = (path / f"{figure}.svg" for path in (folder / "figures", FIGURES))
        same_drawing(fresh.read_text(encoding="utf-8"), kept.read_text(encoding="utf-8"))


def same_drawing(fresh: str, kept: str) -> None:
    """Compare two drawings: alike in all but the last digits of where things are."""
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
    # Names of shapes are made from their numbers, to the last digit.
    texts = [re.sub(r"\b[a-zA-Z]?[0-9a-f]{10}\b", "", text) for text in (fresh, kept)]
    assert number.sub("", texts[0]) == number.sub("", texts[1])
    places = [np.array(number.findall(text), dtype=float) for text in texts]
    np.testing.assert_allclose(places[0], places[1], atol=0.05)


def test_no_figure_is_left_over() -> None:
    """Every file in the figures' folder is in a lesson."""
    text = "".join(map(text_of, NAMES))
    assert [p.name for p in FIGURES.iterdir() if f"(figures/{p.name})" not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_has_its_parts(name: str) -> None:
    """It begins with what one will know, ends with something to try, and its code fits a page."""
    text = text_of(name)
    assert re.match(rf"# {int(name[:2])}\. .+\n\nAfterwards you will ", text)
    assert re.search(r"^## To try\n\n(?:- .+\n(?:  .+\n)*){1,3}\Z", text, re.MULTILINE)
    assert text.count("```python\n") == len(lessons.blocks(text))
    assert text.count("```text\n") == sum(bool(block.output) for block in lessons.blocks(text))
    long = [line for block in lessons.blocks(text) for line in block.code.split("\n")]
    assert max(map(len, long)) <= 100


@pytest.mark.parametrize(
    ("name", "phrase"), [(name, each) for name, phrases in TAUGHT.items() for each in phrases]
)
def test_a_lesson_teaches_what_it_has_to(name: str, phrase: str) -> None:
    """A section that is taken out is missed."""
    assert phrase in text_of(name)


def test_the_lessons_are_listed_in_their_order() -> None:
    """Each has its row in the list, numbered as it is, and each link leads somewhere."""
    listed = re.findall(r"^\| \[(\d+)\. [^]]+\]\((\w+)\.md\)", text_of("README"), re.MULTILINE)
    assert [name for _, name in listed] == NAMES
    assert [int(number) for number, _ in listed] == list(range(1, len(NAMES) + 1))
    for name in [*NAMES, "README"]:
        for target in re.findall(r"\]\(([^)#]+)\)", text_of(name)):
            assert (FOLDER / target).exists(), f"{name}: {target}"


def test_a_lesson_that_tells_otherwise_is_found(tmp_path: Path) -> None:
    """A wrong output is seen; an error names the line of an error, and writes it anew."""
    lesson = tmp_path / "lesson.md"
    block = "```python\nprint(1 + 1)\n```\n"
    lesson.write_text(f"# Sums\n\n{block}\n```text\n3\n```\n\n{block}", encoding="utf-8")
    (tmp_path / "first").mkdir()
    run = lessons.run(lesson, tmp_path / "first")
    assert [(b.line, b.output, said) for b, said in run.printed] == [
        (4, "3\n", "2\n"),
        (12, "", "2\n"),
    ]
    mended = lessons.rewritten(lesson.read_text(encoding="utf-8"), run)
    assert mended == "# Sums\n\n" + f"{block}\n```text\n2\n```\n\n{block}\n```text\n2\n```\n"
    lesson.write_text("one\n\n```python\nx = 1\n\nx / 0\n```\n", encoding="utf-8")
    (tmp_path / "second").mkdir()
    with pytest.raises(ZeroDivisionError) as error:
        lessons.run(lesson, tmp_path / "second")
    assert error.traceback[-1].lineno == 5  # it counts from 0


# ---- what they draw --------------------------------------------------------------------------


def test_coin_and_die_are_drawn(done: Done) -> None:
    """Three observers' posteriors are densities, ever narrower; three dice's shares add up to 1."""
    for axis in axes_of(done, "02_coin_and_die", "coin"):
        drawn = list(curves(axis).values())[:3]
        assert [curve.sum() / 200 for curve in drawn] == pytest.approx([1, 1, 1], abs=0.01)
        peaks = [curve.max() for curve in drawn]
        assert peaks[2] > peaks[1]
    for axis in axes_of(done, "02_coin_and_die", "die"):
        assert sum(bar.get_height() for bar in axis.patches) == pytest.approx(1)
        assert len(axis.patches) == 6


def test_the_peak_and_the_mean_are_drawn(done: Done) -> None:
    """The log-likelihood has its peak where a tangent is flat; the posterior's area is 1."""
    left, right = axes_of(done, "03_estimates", "estimates")
    drawn = curves(left)
    assert 0.001 + 0.998 * drawn["log L"].argmax() / 399 == pytest.approx(0.7, abs=0.003)
    assert np.ptp(drawn["slope 0 at 0.7"]) == pytest.approx(0, abs=1e-12)
    assert np.ptp(drawn["slope 8 at 0.5"]) == pytest.approx(8 * 0.24)
    assert curves(right)["posterior"].mean() == pytest.approx(1, abs=0.01)
    places = {line.get_label(): line.get_xdata()[0] for line in right.lines[1:]}
    assert places == pytest.approx({"mode": 0.7, "mean": 2 / 3})


def test_the_sweep_is_drawn(done: Done) -> None:
    """Learned texts fit worse with each step of c; held-out ones best in between."""
    (axis,) = axes_of(done, "04_zeros", "sweep")
    drawn = curves(axis)
    assert all(a <= b for a, b in pairwise(drawn["learned"]))
    assert 3 < drawn["held out"].argmin() < len(drawn["held out"]) - 3
    assert drawn["held out"][0] > np.log(2)


def test_the_three_likelihoods_are_drawn(done: Done) -> None:
    """The multinomial is a line that rises, Bernoulli is flat, the categorical falls back to 0."""
    (axis,) = axes_of(done, "06_counts", "counts")
    drawn = curves(axis)
    steps = np.diff(drawn["multinomial"])
    assert steps.min() > 1
    assert steps == pytest.approx(steps[0], rel=1e-9)
    assert np.ptp(drawn["Bernoulli"][1:]) == pytest.approx(0, abs=1e-12)
    assert drawn["categorical"][11:] == pytest.approx(0, abs=1e-12)
    assert drawn["categorical"][10] > 1


def test_growing_dimension_is_drawn(done: Done) -> None:
    """With more features naive Bayes gains, and the table ends at guessing."""
    accuracy, loss = map(curves, axes_of(done, "07_naive", "dimension"))
    assert accuracy["naive Bayes"][-1] > accuracy["naive Bayes"][0] + 0.2
    assert accuracy["table of P(y | x)"][-1] < 0.55
    assert all(a > b for a, b in pairwise(loss["naive Bayes"]))
    assert loss["table of P(y | x)"][-1] == pytest.approx(np.log(2), abs=0.01)


def test_densities_and_their_product_are_drawn(done: Done) -> None:
    """The curves have area 1, and the plane a hill of contours for each class."""
    x, y, plane = axes_of(done, "08_gaussian", "joint")
    for axis, step in ((x, 10 / 60), (y, 8 / 48)):
        for line in axis.lines:
            assert np.sum(line.get_ydata()) * step == pytest.approx(1, abs=0.01)
    assert len(plane.collections) == 2


def test_boundaries_are_drawn(done: Done) -> None:
    """Four methods on the same 200 points; own variances close around the small cloud."""
    axes = axes_of(done, "08_gaussian", "boundaries")
    assert [axis.get_title().split("\n")[0] for axis in axes] == [
        "own variances",
        "shared variances",
        "15 neighbours",
        "1 neighbour",
    ]
    for axis in axes:
        assert sum(len(line.get_xdata()) for line in axis.lines) == 200
    corners = {"x": [1.2, 5.0, 5.0, -5.0], "y": [0.6, 4.0, -4.0, 4.0]}
    models = done("08_gaussian")[0].names["models"]
    assert models["own"].predict_many(corners) == [1, 0, 0, 0]
    assert models["shared"].predict_many(corners)[:2] == [1, 1]


def test_the_roc_curve_is_drawn(done: Done) -> None:
    """It rises from (0, 0) to (1, 1) above the coin's, and the thresholds' points lie on it."""
    scores, roc = axes_of(done, "09_threshold", "roc")
    line, _, *marks = roc.lines
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.diff(x).min() >= 0
    assert np.diff(y).min() >= 0
    assert len(marks) == 2
    for mark in marks:
        distance = np.hypot(x - mark.get_xdata()[0], y - mark.get_ydata()[0])
        assert distance.min() < 1e-9
    assert sum(bar.get_height() for bar in scores.patches) == 2000


def test_precision_and_recall_are_drawn(done: Done) -> None:
    """ROC is the same for a rare illness and a rarer one; precision falls with the share of ill."""
    grid = np.linspace(0.05, 0.95, 19)
    roc, pr = (
        [np.interp(grid, line.get_xdata(), line.get_ydata()) for line in axis.lines]
        for axis in axes_of(done, "10_precision", "precision")
    )
    assert roc[1] == pytest.approx(roc[0], abs=0.06)
    assert (pr[0] > pr[1] + 0.09).all()


def test_two_bells_and_their_logistic_curve_are_drawn(done: Done) -> None:
    """The curve is the right bell's share of both, everywhere."""
    (axis,) = axes_of(done, "11_linear", "sigmoid")
    drawn = curves(axis)
    share = drawn["p(u | 1)"] / (drawn["p(u | 0)"] + drawn["p(u | 1)"])
    assert drawn["P(1 | u)"] == pytest.approx(share, rel=1e-12)


def test_weights_are_drawn(done: Done) -> None:
    """Twelve weights each: logistic regression's own, and twice them where words have twins."""
    for axis, slope in zip(axes_of(done, "11_linear", "linear"), (1, 2), strict=True):
        dots = axis.lines[0]
        assert len(dots.get_xdata()) == 12
        assert np.polyfit(dots.get_xdata(), dots.get_ydata(), 1)[0] == pytest.approx(slope, abs=0.2)


def test_decisions_are_drawn(done: Done) -> None:
    """Three posteriors that add up to 1, and two rows of decisions."""
    posteriors, rows = axes_of(done, "12_decisions", "decisions")
    assert sum(curves(posteriors).values()) == pytest.approx(np.ones(91))
    assert [len(row.get_offsets()) for row in rows.collections] == [91, 91]


def test_recovery_is_drawn(done: Done) -> None:
    """The more was drawn and learned, the nearer the second model is to the first."""
    (axis,) = axes_of(done, "13_sampling", "recovery")
    distances = curves(axis)["mean distance of P(spam | x)"]
    assert all(a > b for a, b in pairwise(distances))
    assert distances[-1] < distances[0] / 10


def test_forgetting_is_drawn(done: Done) -> None:
    """Until the turn both models are alike; at the end only the one that forgets has recovered."""
    (axis,) = axes_of(done, "14_stream", "forgetting")
    drawn = curves(axis)
    before, end = slice(0, 112), -1  # a point every 25 examples, from the 200th on
    assert drawn["never forgets"][before] == pytest.approx(
        drawn["half-life of 300"][before], abs=0.05
    )
    assert drawn["half-life of 300"][end] > 0.8
    assert drawn["never forgets"][end] < 0.6
