"""How kernels are compiled, in one place.

`inner` marks a function that only other kernels call; `kernel` and `short_kernel` mark an entry
point. It is compiled once, for the signature that its annotations say, by its first call or ahead
of it by `warm_up`. So a program compiles the kernels that its models use, and no others. A `kernel`
releases the interpreter's lock, a `short_kernel` keeps it.

Machine code is kept on disk in a folder named after a hash of **all** kernel sources and of the
compiler's version, because numba's own cache does not notice an edit in a file that a kernel calls
into; with `NUMBA_BOUNDSCHECK=1` it is another folder, as numba does not tell that code apart
either. Kernels may live in other packages too (a transport's decoder is none of the library's
business): theirs is a folder of its own, named after their sources and ours. `STREAMNB_CACHE_DIR`
moves these folders. One that can only be read is used as it is; where there is none and none can be
made, kernels are compiled in memory at each start. What is loaded from there is run, so a folder
that somebody else could have written to is not used.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, update_wrapper
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import llvmlite
import numba
import numpy as np
from numba import types
from numba.core.compiler_lock import global_compiler_lock

P = ParamSpec("P")
R = TypeVar("R")

DISABLED = bool(numba.config.DISABLE_JIT)
# Without fastmath the order of float operations is the order in the source: answers are the same on
# every machine.
_OPTIONS: dict[str, Any] = {"fastmath": False, "error_model": "numpy"}
entry_points: list[EntryPoint[Any, Any]] = []
_PLAIN_TYPES: dict[Any, Any] = {
    None: types.void,
    type(None): types.void,
    bool: types.boolean,
    float: types.float64,
    int: types.int64,
    int | np.int64: types.int64,  # `layout.Int`: one type to the compiler, two to Python
    np.uint32: types.uint32,
    np.uint64: types.uint64,
}
read_only: dict[Path, Path] = {}  # a copied folder, and the one that it is the copy of


def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted({*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode())
    if numba.config.BOUNDSCHECK:  # other machine code of the same sources
        digest.update(b"boundscheck")
    return digest.hexdigest()[:16]


def _is_safe(folder: Path) -> bool:
    """Return whether nobody but the system, ourselves and who installed us can write to a folder.

    If it is our own, others are kept from writing from now on.
    """
    trusted = {0, os.geteuid(), Path(__file__).stat().st_uid}
    for each in (folder, *(sub for sub in folder.iterdir() if sub.is_dir())):
        found = each.stat()
        if found.st_mode & 0o022:
            if found.st_uid != os.geteuid():
                return False
            each.chmod(found.st_mode & 0o755)
        if found.st_uid not in trusted:
            return False
    return True


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _cache_root() -> Path | None:
    """Return where machine code is kept; None for a user who has no home, as in some containers."""
    if chosen := os.environ.get("STREAMNB_CACHE_DIR"):
        return Path(chosen)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "streamnb"
    try:
        return Path.home() / ".cache" / "streamnb"
    except RuntimeError:
        return None


@cache
def cache_folder(sources: Path) -> Path | None:
    """Return where the machine code of the kernels in a folder is kept; None where nowhere."""
    root = _cache_root()
    if root is None:
        return None
    folder = root / f"kernels-{_source_hash(sources)}"
    writable = _writable(folder)
    if not folder.is_dir() or not _is_safe(folder):
        return None
    return folder if writable else _copied(folder)


def _copied(folder: Path) -> Path:
    """Return a copy, for this process alone, of a folder that may be read and not written.

    numba uses no folder that it cannot write to: an image's warmed one would go unused where the
    file system is mounted read-only.
    """
    kept_until_exit = tempfile.TemporaryDirectory(prefix="streamnb-kernels-")
    atexit.register(kept_until_exit.cleanup)
    copy = Path(kept_until_exit.name) / folder.name
    shutil.copytree(folder, copy)
    read_only[copy] = folder
    return copy


def _compile(function: Callable[P, R], *, keep: bool, releases_gil: bool = True) -> Any:
    """Wrap in numba's dispatcher, with our cache folder for this one function alone."""
    folder = cache_folder(Path(function.__code__.co_filename).parent) if keep else None
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")
    try:
        return numba.njit(
            cache=folder is not None,
            _nrt=False,
            forceinline=not keep,
            nogil=releases_gil,
            # Nobody calls an inner function from Python, and nobody any kernel from C. To leave
            # these ways in out saves a third of the time that compiling takes.
            no_cpython_wrapper=not keep,
            no_cfunc_wrapper=True,
            **_OPTIONS,
        )(function)
    finally:
        numba.config.CACHE_DIR = before


@contextmanager
def _load_alone(context: Any) -> Iterator[None]:
    """Have numba load machine code without its library of what can be compiled, in this block.

    It builds that before it looks at the disk, which takes 0.3 s of a program's start, and again
    before it compiles, as it does where the file is of no use: only the first time is left out.
    """

    def leave_out() -> None:
        del context.refresh  # the method of the class is seen again

    context.refresh = leave_out
    try:
        yield
    finally:
        vars(context).pop("refresh", None)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that is called by kernels alone: Python has no way into its compiled form."""
    return function if DISABLED else cast(Callable[P, R], _compile(function, keep=False))


_making = threading.Lock()


class EntryPoint(Generic[P, R]):
    """A kernel that Python calls: compiled for one signature, and called without asking for types.

    numba's own dispatch looks at the type of every argument in every call, which for the tuples of
    arrays that kernels take is 4 µs, ten times what the call itself costs. There is one signature
    and nothing to choose, so the compiled function is called directly: each kernel is the only
    instance of a class of its own, whose `__call__` becomes the compiled function. Whoever calls
    answers for the types; in tests `check_types` sends every call through numba's dispatch.
    """

    checking: ClassVar[bool] = False

    def __init__(self, function: Callable[P, R], *, releases_gil: bool) -> None:
        self._function: Any = function
        self._releases_gil = releases_gil
        self._dispatcher: Any = None

    @property
    def dispatcher(self) -> Any:
        """What numba compiles it by, made when first asked for: few of all kernels are used."""
        if self._dispatcher is None:
            with _making:
                if self._dispatcher is None:
                    self._dispatcher = _compile(
                        self._function, keep=True, releases_gil=self._releases_gil
                    )
        return self._dispatcher

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...  # noqa: D102 -- see below

    else:

        def __call__(self, *args: Any) -> Any:
            """Compile the kernel and run it; keyword arguments are not taken."""
            self.compile()
            return type(self).__call__(*args)

    @property
    def sources(self) -> Path:
        """The folder of the file it is written in."""
        return Path(self._function.__code__.co_filename).parent

    @property
    def name(self) -> str:
        """Its module and its function's name."""
        return f"{self._function.__module__}.{self._function.__name__}"

    @property
    def is_compiled(self) -> bool:
        """Whether its machine code is in memory."""
        return self._dispatcher is not None and bool(self._dispatcher.signatures)

    @property
    def is_kept(self) -> bool:
        """Whether its machine code is on disk, made from the sources at this place."""
        folder = self.dispatcher.stats.cache_path
        # numba names an overload's file MODULE.FUNCTION-LINE.pyVERSION.NUMBER.nbc.
        stem = ".".join(self.name.rsplit(".", 2)[-2:])
        return folder is not None and any(Path(folder).glob(f"{stem}-*.nbc"))

    def compile(self) -> None:
        """Compile it, or load its machine code from disk. Again costs nothing."""
        with global_compiler_lock:
            if not self.is_compiled:
                with _load_alone(self.dispatcher.targetctx) if self.is_kept else nullcontext():
                    self.dispatcher.compile(signature_of(self._function))
                self.dispatcher.disable_compile()
            (compiled,) = self.dispatcher.overloads.values()
            call = self.dispatcher if self.checking else compiled.entry_point
            type(self).__call__ = staticmethod(call)  # type: ignore[method-assign]

    def forget_call(self) -> None:
        """Have the next call choose again how it is made."""
        type(self).__call__ = EntryPoint.__call__  # type: ignore[method-assign]


def compiled_type(hint: Any) -> types.Type:
    """Return numba's type of an annotation.

    `hint`: an annotated array of `kernels.layout`, a named tuple of such, a tuple, a number, or
    None. Raises TypeError if kernels have no such type.
    """
    if hint in _PLAIN_TYPES:
        return _PLAIN_TYPES[hint]
    if get_origin(hint) is Annotated:
        return cast(types.Type, hint.__metadata__[0])
    if get_origin(hint) is tuple:
        return types.Tuple([compiled_type(each) for each in get_args(hint)])
    if isinstance(hint, type) and issubclass(hint, tuple):
        fields = get_type_hints(hint, include_extras=True).values()
        return types.BaseTuple.from_types([compiled_type(each) for each in fields], hint)
    raise TypeError(f"kernels have no type for {hint!r}; see `compiled_type`.")


def signature_of(function: Callable[..., Any]) -> Any:
    """Return the one signature of a kernel, from its annotations."""
    hints = get_type_hints(function, include_extras=True)
    returned = compiled_type(hints.pop("return"))
    return returned(*(compiled_type(hint) for hint in hints.values()))


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Mark an entry point; its one signature is that of its annotations."""
    return _entry_point(function, releases_gil=True)


def short_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Mark an entry point that keeps the interpreter's lock.

    Getting it back costs a wait, up to the switch interval, if other threads want it too: a kernel
    that is done sooner than that keeps it.
    """
    return _entry_point(function, releases_gil=False)


def _entry_point(function: Callable[P, R], *, releases_gil: bool) -> Callable[P, R]:
    if DISABLED:
        # uint64 scalars warn on wrap-around without the compiler; hashes wrap around by design.
        return np.errstate(over="ignore", divide="ignore", invalid="ignore")(function)
    own_class = type(function.__name__, (EntryPoint,), {})
    entry_point: EntryPoint[P, R] = own_class(function, releases_gil=releases_gil)
    entry_points.append(entry_point)
    return update_wrapper(entry_point, function)


def is_warm(entries: Iterable[EntryPoint[Any, Any]] | None = None) -> bool:
    """Return whether kernels' machine code is on disk or in memory; by default of all that are."""
    wanted = entry_points if entries is None else entries
    return all(each.is_compiled or each.is_kept for each in wanted)


def warm_up(entries: Iterable[EntryPoint[Any, Any]] | None = None) -> None:
    """Compile kernels, or load them from disk, before their first use; by default all that are."""
    for each in entry_points if entries is None else entries:
        if not each.is_compiled:
            each.compile()


def compile_as_told() -> None:
    """Compile the kernels whose names come by standard input; repeat each name once it is done."""
    for line in sys.stdin:
        importlib.import_module(line.rpartition(".")[0])
        next(each for each in entry_points if each.name == line.strip()).compile()
        sys.stdout.write(line)
        sys.stdout.flush()


def check_types() -> None:
    """Have numba look at the types of every call from now on: for tests."""
    EntryPoint.checking = True
    for each in entry_points:
        each.forget_call()
