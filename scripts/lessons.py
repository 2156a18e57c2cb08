"""Run the lessons of `docs/lessons/`: Markdown whose code is executed, block after block.

A lesson's ```python blocks run in order in one fresh namespace, in an empty folder with a `figures`
folder in it. What a block prints must be what the ```text block right after it shows; a block that
nothing follows prints nothing. A block that saves `figures/NAME.svg` leaves one figure open.

    python -m scripts.lessons                        # run all, and say where one tells otherwise
    python -m scripts.lessons --write [LESSON ...]   # write new outputs and figures

After `--write`, read what has changed: it shows what the code does, not what the text claims.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "lessons"

_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)

# The same figure has the same bytes wherever the same Matplotlib draws it. Text stays text: that
# keeps files small, and lets a reader search them.
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.figsize": (7.0, 3.2),
    "font.size": 9.0,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "streamnb",
}


class Block(NamedTuple):
    """A block of code, and what the lesson says it prints.

    Attributes
    ----------
    code, output : str
    start, end : int
        Where the block with its output stands in the lesson, in characters.
    line : int
        The line that the code begins on, from 1.
    """

    code: str
    output: str
    start: int
    end: int
    line: int


@dataclass
class Run:
    """What a lesson did.

    Attributes
    ----------
    printed : list of (Block, str)
        Each block with what it printed.
    figures : dict of str to matplotlib Figure
        By the name of the file they were saved to, without its suffix.
    names : dict of str to value
        The lesson's namespace after its last block.
    """

    printed: list[tuple[Block, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)


def lessons() -> list[Path]:
    """Return all lessons in their order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.md"))


def blocks(text: str) -> list[Block]:
    """Return a lesson's blocks of code in their order."""
    return [
        Block(
            match["code"],
            match["output"] or "",
            match.start(),
            match.end(),
            text.count("\n", 0, match.start("code")) + 1,
        )
        for match in _BLOCK.finditer(text)
    ]


def run(lesson: Path, folder: Path) -> Run:
    """Run a lesson in an empty folder, where its files and figures stay.

    Raises
    ------
    Exception
        Whatever its code raises; the traceback names the lesson's own lines.
    """
    (folder / "figures").mkdir()
    done = Run(names={"__name__": "lesson"})
    with _drawing() as plt, contextlib.chdir(folder):
        for block in blocks(lesson.read_text(encoding="utf-8")):
            code = compile("\n" * (block.line - 1) + block.code, str(lesson), "exec")
            before = {path.stem for path in Path("figures").iterdir()}
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, done.names)  # noqa: S102 -- a lesson is code of our own
            done.printed.append((block, out.getvalue()))
            for name in {path.stem for path in Path("figures").iterdir()} - before:
                done.figures[name] = plt.gcf()
            plt.close("all")
    return done


@contextlib.contextmanager
def _drawing() -> Iterator[Any]:
    """Draw without a screen, in our style, and with no date in the file."""
    import matplotlib as mpl  # noqa: PLC0415 -- an extra: to read lessons nobody needs it

    mpl.use("Agg")
    from matplotlib import figure as module  # noqa: PLC0415
    from matplotlib import pyplot as plt  # noqa: PLC0415

    kind: Any = module.Figure
    save = kind.savefig

    def dateless(figure: Any, path: str) -> None:
        save(figure, path, metadata={"Date": None})

    kind.savefig = dateless
    try:
        with plt.rc_context(_STYLE):
            yield plt
    finally:
        kind.savefig = save
        plt.close("all")


def rewritten(text: str, done: Run) -> str:
    """Return a lesson's text with what its blocks printed."""
    parts, at = [], 0
    for block, printed in done.printed:
        shown = f"\n```text\n{printed}```\n" if printed else ""
        parts += [text[at : block.start], f"```python\n{block.code}```\n", shown]
        at = block.end
    return "".join([*parts, text[at:]])


def main(arguments: list[str]) -> int:
    """Run the lessons that are named, or all; return 1 where one shows what is not so."""
    write = "--write" in arguments
    named = [Path(each).stem for each in arguments if each != "--write"]
    warnings.simplefilter("error")
    n_wrong = 0
    for lesson in lessons():
        if named and lesson.stem not in named:
            continue
        with tempfile.TemporaryDirectory() as name:
            done = run(lesson, Path(name))
            text = lesson.read_text(encoding="utf-8")
            if write:
                lesson.write_text(rewritten(text, done), encoding="utf-8")
                shutil.copytree(Path(name) / "figures", FOLDER / "figures", dirs_exist_ok=True)
        wrong = [] if write else [(b, said) for b, said in done.printed if said != b.output]
        for block, said in wrong:
            print(f"{lesson}:{block.line}: it prints\n{said}")
        n_wrong += len(wrong)
        print(f"{lesson.stem}: {len(done.printed)} blocks, {len(done.figures)} figures")
    return min(n_wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
