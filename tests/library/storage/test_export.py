"""The export: another program judges from it alone, and Arrow tables hold the same."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyarrow import ipc

from streamnb import Bag, Bernoulli, HalfLife, Multinomial, NaiveBayes, Snapshot, Words
from streamnb.errors import InputError, StoreError
from streamnb.export import export_arrow, export_dict, export_json, to_arrow
from streamnb.features.protocol import Group
from streamnb.likelihoods.complement import Complement
from tests.library.inspection.mixed_models import (
    CLASSES,
    Stream,
    examples,
    groups,
    learned,
    mixed_model,
    scale_of,
    streams,
)
from tests.library.storage import foreign_reader


def as_text(model: NaiveBayes | Snapshot) -> str:
    """Return the JSON export."""
    file = io.StringIO()
    export_json(model, file)
    return file.getvalue()


def assert_judged_alike(model: NaiveBayes, x: dict[str, Any]) -> None:
    """Hold the foreign reader's answer to the model's, to 1e-12."""
    wanted = list(model.joint_log_likelihood_one(x).values())
    found = foreign_reader.judge(as_text(model), x)
    bound = 1e-12 * scale_of(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == other or abs(one - other) <= bound, (found, wanted)


@given(streams(), examples(), groups(0.0, 0.3, 1.0))
def test_another_program_judges_as_the_model_does(
    stream: Stream, x: dict[str, Any], mixed: dict[str, Group]
) -> None:
    """From the JSON alone, with a reader that shares no line with the library."""
    assert_judged_alike(learned(stream, mixed), x)


def test_another_program_judges_student_s_t_and_complement() -> None:
    """The families that the law above does not draw."""
    x = {"text": "good sun", "bag": {"rain": 1}, "reply": True, "income": "never", "age": 28.5}
    assert_judged_alike(mixed_model(), x)
    stream: Stream = [({"text": "good sun"}, "ham"), ({"text": "bad rain rain"}, "spam")]
    for normalise in (False, True):
        model = learned(stream, {"text": Words(Complement(normalise=normalise))})
        assert_judged_alike(model, {"text": "sun rain rain"})
    bag = Bag(Multinomial(), fields=("good", "sun"))
    model = learned([({"good": 2, "sun": 0}, "ham"), ({"sun": 1}, "spam")], {"bag": bag})
    assert_judged_alike(model, {"good": 1, "sun": 3})
    by_presence = learned(stream, {"text": Words(Multinomial(), counts="presence")})
    assert_judged_alike(by_presence, {"text": "sun rain rain"})


def test_a_model_that_forgets_is_exported_as_it_stands() -> None:
    """Counts are decayed up to now, and estimates are those it judges by."""
    model = NaiveBayes(CLASSES, features={"text": Words(Bernoulli())}, decay=HalfLife(examples=2))
    for text, label in [("good", "ham"), ("bad good", "spam"), ("sun", "ham"), ("bad", "eggs")]:
        model.learn_one({"text": text}, label)
    assert_judged_alike(model, {"text": "good"})
    counts = export_dict(model)["class_prior"]["count"]
    assert counts == pytest.approx([2**-1.5 + 2**-0.5, 0.5, 1.0])


def test_a_snapshot_is_exported_as_its_model_was() -> None:
    """The text is the same, to the letter."""
    model = mixed_model(30)
    assert as_text(Snapshot(model, 1)) == as_text(model)


def test_the_file_is_plain_json_in_utf_8(tmp_path: Path) -> None:
    """No NaN, no Infinity; words are readable; what stood there before is replaced whole."""
    path = tmp_path / "model.json"
    path.write_text("old", encoding="utf-8")
    export_json(learned([({"text": "grün"}, "ham")], {"text": Words(Multinomial())}), path)
    text = path.read_text(encoding="utf-8")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=refuse)["groups"][0]["table"]["word"] == ["grün"]
    assert "grün" in text
    assert [each.name for each in tmp_path.iterdir()] == ["model.json"]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As an error of the store's, with the way out."""
    with pytest.raises(StoreError, match=r"nowhere.*cannot be written"):
        export_json(mixed_model(5), tmp_path / "nowhere" / "model.json")


def test_arrow_tables_hold_what_the_json_holds() -> None:
    """A table of classes and one a group: the same columns and numbers, the rest as metadata."""
    model = mixed_model(40)
    exported, tables = export_dict(model), to_arrow(model)
    assert list(tables) == ["classes", *(f"group:{each['name']}" for each in exported["groups"])]
    assert tables["classes"].column("class").to_pylist() == CLASSES
    assert tables["classes"].column("log_prior").to_pylist() == exported["class_prior"]["log_prior"]
    for group in exported["groups"]:
        table = tables[f"group:{group['name']}"]
        header = json.loads(table.schema.metadata[b"streamnb"])
        assert header == {key: value for key, value in group.items() if key != "table"}
        assert table.to_pydict() == group["table"]


def test_arrow_knows_minus_infinity() -> None:
    """Where JSON has null, Arrow has the number."""
    model = learned([({"text": "good"}, "ham")], {"text": Words(Bernoulli())}, alpha=0.0)
    assert to_arrow(model)["classes"].column("log_prior").to_pylist() == [0.0, -np.inf, -np.inf]
    assert export_dict(model)["class_prior"]["log_prior"] == [0.0, None, None]


def test_a_model_that_knows_nothing_has_tables_all_the_same() -> None:
    """Without a class, a word or both: columns of the right types, and no row."""
    for classes in ((), ("ham", "spam")):
        tables = to_arrow(NaiveBayes(classes, features={"text": Words(Multinomial())}))
        assert tables["classes"].num_rows == len(classes)
        assert tables["group:text"].num_rows == 0
        assert tables["group:text"].schema.field("word").type == pa.string()


def test_arrow_files_are_read_by_any_reader_of_arrow(tmp_path: Path) -> None:
    """One file for the classes and one a group, in their order."""
    model = mixed_model(40)
    paths = export_arrow(model, tmp_path)
    assert [path.name for path in paths] == [
        "classes.arrow",
        *(f"group_{i}.arrow" for i in range(5)),
    ]
    for path, table in zip(paths, to_arrow(model).values(), strict=True):
        with pa.memory_map(str(path)) as source:
            assert ipc.open_file(source).read_all().equals(table)


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install, and what goes without."""
    plain = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return plain(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"streamnb\[arrow\]"):
        to_arrow(mixed_model(5))
