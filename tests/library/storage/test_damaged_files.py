"""Damaged, foreign and missing files: always a `StoreError` with a way out, never a wrong model."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st

from streamnb import Bernoulli, NaiveBayes, Words, serialization
from streamnb.errors import InputError, StoreError, StoreVersionError
from streamnb.serialization import FORMAT, from_bytes, to_blocks
from streamnb.storage import StoreWarning, load, notes_of, older_files, read, save

# What each message offers: one of these stands in it.
WAYS_OUT = ("Restore", "restore", "Give a file", "Load it with", "Check the path", "Load it again")


def model_of(n_examples: int) -> NaiveBayes:
    """Return a model that has learned so many examples."""
    model = NaiveBayes(["neg", "pos"], features={"text": Words(Bernoulli())}, hash_key=3)
    model.learn_many({"text": ["good day"] * n_examples}, ["pos"] * n_examples, part="t/0")
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a small model's file."""
    path = tmp_path_factory.mktemp("whole") / "model.nb"
    save(model_of(1), path, positions={"t/0": 1})
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file name that the examples of a law may share."""
    return tmp_path_factory.mktemp("damage") / "model.nb"


def refused(path: Path, data: bytes) -> str:
    """Write bytes, see that they are refused as they should be, and return what was said."""
    path.write_bytes(data)
    with pytest.raises(StoreError) as caught:
        read(path)
    said = str(caught.value)
    assert str(path) in said
    assert any(way in said for way in WAYS_OUT), said
    return said


def test_the_whole_file_is_good(place: Path, whole: bytes) -> None:
    """The file that the others damage loads."""
    place.write_bytes(whole)
    assert load(place).n_examples == 1


def test_every_single_byte_is_watched(place: Path, whole: bytes) -> None:
    """Whichever byte of a file is another one, the file is refused."""
    for at in range(len(whole)):
        for mask in (0x01, 0x20, 0x80):
            refused(place, whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])


@given(data=st.data())
def test_any_other_value_of_a_byte_is_seen(place: Path, whole: bytes, data: st.DataObject) -> None:
    """No value but its own goes unnoticed at any place."""
    at = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    refused(place, whole[:at] + bytes([value]) + whole[at + 1 :])


def test_every_length_is_watched(place: Path, whole: bytes) -> None:
    """A file that was cut off at any length is refused, the empty one too."""
    for size in range(len(whole)):
        refused(place, whole[:size])


@given(
    at=st.integers(0, 10_000),
    cut=st.integers(0, 200),
    put=st.binary(max_size=50),
    here=st.booleans(),
)
def test_a_stretch_that_was_lost_or_put_in_is_seen(
    place: Path, whole: bytes, at: int, cut: int, put: bytes, *, here: bool
) -> None:
    """Bytes taken out, put in or put over anywhere are noticed, behind the end as well."""
    at = min(at, len(whole)) if here else len(whole)
    changed = whole[:at] + put + whole[at + cut :]
    if changed != whole:
        refused(place, changed)


@given(data=st.binary(max_size=300))
@example(b"\x89PNG\r\n\x1a\n" + bytes(64))
@example(b"Just a text, in a file of its own.\n" * 10)
@example((100).to_bytes(8, "little") + b"[" * 100)
@example((200_000).to_bytes(8, "little") + b"[" * 200_000)
@example((2).to_bytes(8, "little") + b"{}")
@example((20).to_bytes(8, "little") + b'{"__metadata__": []}')
@example((22).to_bytes(8, "little") + b'{"__metadata__": null}')
def test_foreign_bytes_are_refused(place: Path, data: bytes) -> None:
    """Whatever a file holds that is no model, it is called that."""
    assert "not a streamnb model" in refused(place, data)


def test_other_safetensors_are_refused(place: Path) -> None:
    """A file of the same container that another program wrote is no model."""
    tensors = {"weights": np.zeros((3, 2))}
    assert "no header of ours" in refused(place, safetensors.numpy.save(tensors))
    named = safetensors.numpy.save(tensors, {"format": "pt"})
    assert "another format" in refused(place, named)


def sealed(meta: dict[str, str], entries: dict[str, object]) -> bytes:
    """Return a container whose digest is right, whatever stands in it."""
    zeros = "0" * 64
    text = json.dumps({"__metadata__": meta | {"digest": zeros}} | entries).encode()
    text += b" " * (-len(text) % 8)
    data = len(text).to_bytes(8, "little") + text
    digest = hashlib.blake2b(data, digest_size=32).hexdigest()
    return data.replace(zeros.encode(), digest.encode(), 1)


def test_another_version_says_so(place: Path) -> None:
    """A file of another format is refused, with its version and what can read it."""
    said = refused(place, sealed({"format": FORMAT, "version": "1", "header": "{}"}, {}))
    assert "version '1'" in said
    assert "reads version 2" in said


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "[]",
        "{}",
        "no JSON",
        "[" * 100_000,
        '{"repeated": null}',
        '{"repeated": ["extras/a"]}',
        '{"repeated": {"extras/a": "extras/b"}}',
        '{"repeated": {"extras/a": []}}',
        '{"classes": 5}',
        '{"classes": ["a", "a"]}',
        '{"classes": ["a"], "class_prior": 1, "groups": [], "hash_key": "0", "sections": []}',
        '{"classes": ["a"], "class_prior": -1, "groups": {}, "hash_key": "0", "sections": []}',
        '{"classes": [], "class_prior": 1, "groups": {"a": {"kind": "words", "likelihood": 0}}}',
    ],
)
def test_a_header_that_describes_no_model_is_refused(place: Path, header: str | None) -> None:
    """A container with our name and a right digest, but no model in it, is an error as well."""
    meta = {"format": FORMAT, "version": "2"} | ({} if header is None else {"header": header})
    assert "does not describe a model" in refused(place, sealed(meta, {}))


def test_a_container_without_its_arrays_is_refused(place: Path, tmp_path: Path) -> None:
    """A header that promises arrays which are not there gives no model."""
    save(model_of(2), tmp_path / "model.nb")
    with safetensors.safe_open(tmp_path / "model.nb", framework="numpy") as file:
        meta = file.metadata()
    del meta["digest"]
    assert "groups/text" in refused(place, sealed(meta, {}))


@pytest.mark.parametrize("size", [1 << 20, 99_999_999, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_a_huge_declared_length_takes_no_memory(place: Path, whole: bytes, size: int) -> None:
    """A length is believed only as far as the file goes."""
    place.write_bytes(size.to_bytes(8, "little") + whole[8:])
    tracemalloc.start()
    try:
        with pytest.raises(StoreError):
            load(place)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500_000


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    """A missing file, a folder, and a file inside a file are errors with their path."""
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "no.nb", tmp_path, tmp_path / "no" / "m.nb", tmp_path / "file" / "m"):
        with pytest.raises(StoreError, match="cannot be read") as caught:
            load(path)
        assert str(path) in str(caught.value)
        assert "Check the path" in str(caught.value)


# ---- the older files -----------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """Return a model of three examples, with those of two and one kept beside it."""
    path = tmp_path / "model.nb"
    for n_examples in range(4):
        save(model_of(n_examples), path, positions={"t/0": n_examples}, keep=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield path


def ages(path: Path) -> list[int]:
    """Return how many examples the kept models have, the newest first."""
    return [load(one).n_examples for one in (path, *older_files(path))]


def spoil(path: Path) -> None:
    """Damage a file in its last array, behind the header."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_as_many_are_kept_as_asked_for(kept: Path) -> None:
    """With `keep=3` the newest is the path, and `.1` and `.2` are those before it."""
    assert [p.name for p in older_files(kept)] == ["model.nb.1", "model.nb.2"]
    assert ages(kept) == [3, 2, 1]
    save(model_of(4), kept, keep=2)
    assert ages(kept) == [4, 3]
    save(model_of(5), kept)
    assert ages(kept) == [5]
    assert [p.name for p in kept.parent.iterdir()] == ["model.nb"]


def test_a_damaged_newest_falls_back_with_a_warning(kept: Path) -> None:
    """The first older file that is whole is taken, and the warning names it and the damaged one."""
    for n_good in (2, 1):
        spoil([kept, kept.with_name("model.nb.1")][2 - n_good])
        with pytest.warns(StoreWarning) as caught:
            stored = read(kept)
        older = kept.with_name(f"model.nb.{3 - n_good}")
        said = str(caught[0].message)
        assert f"{kept}: damaged" in said
        assert f"Going on with {older}." in said
        assert (stored.path, stored.model.n_examples) == (older, n_good)
        assert stored.positions == {"t/0": n_good}


def test_a_missing_newest_falls_back_too(kept: Path) -> None:
    """Where only older files are left, the newest of them is taken."""
    kept.unlink()
    with pytest.warns(StoreWarning, match=r"cannot be read .* Going on with .*model\.nb\.1"):
        assert load(kept).n_examples == 2


def test_a_newest_of_another_version_is_not_passed_over(kept: Path) -> None:
    """The next save would push it out, and with it all that was learned since."""
    header, arrays = from_bytes(kept.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serialization, "VERSION", 99)
        blocks = b"".join(to_blocks(header, arrays))
    kept.unlink()  # linked as the older file
    kept.write_bytes(blocks)
    with pytest.raises(StoreVersionError, match="format version '99'"):
        read(kept)


MAY_BE_WHOLE = [
    errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM, errno.EIO, errno.ETIMEDOUT,
]  # fmt: skip


@pytest.mark.parametrize("number", MAY_BE_WHOLE)
@pytest.mark.parametrize("is_newest", [True, False])
def test_a_file_that_may_be_whole_is_not_passed_over(
    kept: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_newest: bool
) -> None:
    """A right that is missing or a mount that does not answer says nothing of what it holds."""
    opened = os.open
    unread = kept if is_newest else kept.with_name("model.nb.1")
    if not is_newest:
        spoil(kept)

    def refuse(path: Any, *more: Any, **named: Any) -> int:
        if Path(path) == unread:
            raise OSError(number, os.strerror(number))
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match=f"{unread}: .*{os.strerror(number)}"):
        read(kept)


def test_when_all_are_damaged_it_is_an_error(kept: Path) -> None:
    """With no whole file left the newest one's trouble is told, and nothing is made up."""
    for path in (kept, *older_files(kept)):
        spoil(path)
    with pytest.raises(StoreError, match=r"model\.nb: damaged.*Restore it from a copy"):
        load(kept)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("states", {"text": {"n_skipped": float("inf")}}),
        ("n_declared_classes", None),
        ("n_declared_classes", -1),
        ("sections", []),
        ("n_examples", float("nan")),
        ("position", "7"),
        ("position", -1),
        ("part", 3),
        ("part", None),
        ("n_dropped", {"text": float("nan")}),
    ],
)
def test_a_header_of_wrong_values_falls_back_too(kept: Path, key: str, value: object) -> None:
    """A value that no `save` can have written is damage as any other: an older file is taken."""
    save(model_of(3), kept, positions={"t/0": 3})
    save(model_of(2), kept, keep=2)
    header, arrays = from_bytes(kept.read_bytes())
    if key in header:
        header[key] = value
    else:
        header["sections"].append(header["sections"][0] | {"part": "t/1"})
        arrays |= {name.replace("/0/", "/1/"): array for name, array in arrays.items()}
        header["sections"][0][key] = value
    kept.unlink()  # linked as the older file
    kept.write_bytes(b"".join(to_blocks(header, arrays)))
    with pytest.warns(StoreWarning, match=r"does not describe a model.*Going on with .*nb\.1"):
        assert load(kept).n_examples == 3
    with pytest.raises(StoreError, match="do not describe a model"):
        NaiveBayes.from_bytes(kept.read_bytes())


@pytest.mark.parametrize("notes", [{"topic_id": "\ud800"}, {"\udfff": 1}, {"of": [["\udc00"]]}])
def test_half_a_character_among_the_notes_is_damage(kept: Path, notes: dict[str, object]) -> None:
    """Whoever reads notes as JSON or UTF-8 would end at it; none is saved."""
    save(model_of(3), kept)
    header, arrays = from_bytes(kept.read_bytes())
    kept.unlink()
    kept.write_bytes(b"".join(to_blocks(header | {"notes": notes}, arrays)))
    with pytest.raises(StoreError, match="it does not describe a model"):
        load(kept)
    with pytest.raises(StoreError, match="its header cannot be read"):
        notes_of(kept)
    with pytest.raises(InputError, match=r"notes must be values that JSON knows.*surrogates"):
        save(model_of(3), kept, notes=notes)


def test_strangers_beside_the_file_are_left_alone(kept: Path) -> None:
    """Only `NAME.1`, `NAME.2`, ... are taken for older files; a copy by another name stays."""
    strangers = [
        kept.with_name(name)
        for name in ("model.nb.old.1", "model.nb.01", "model.nb.0", "model.nb.²", "xmodel.nb.1")
    ]
    for path in strangers:
        path.write_bytes(b"mine")
    save(model_of(4), kept, keep=3)
    assert ages(kept) == [4, 3, 2]
    assert {path.read_bytes() for path in strangers} == {b"mine"}


@pytest.mark.parametrize("name", ["model[1].nb", "*.nb", "model", "a b?.nb"])
def test_any_name_of_a_file_will_do(tmp_path: Path, name: str) -> None:
    """Signs that are patterns elsewhere are plain letters in a file's name."""
    path = tmp_path / name
    for n_examples in range(4):
        save(model_of(n_examples), path, keep=3)
    assert ages(path) == [3, 2, 1]
