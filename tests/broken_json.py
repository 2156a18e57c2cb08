"""What Hypothesis draws: JSON as it goes wrong, and as it only looks wrong."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

# Whole pieces of JSON, and pieces of which it is hard to say what they do where they land.
_PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\x00", b"\x1f", b"\x7f",
    b"\xff", b"\xc3\xa9", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf",
    b"\xef\xbb\xbf",
    b"\\u00e9", b"\\ud83d\\ude00", b"\\ud83d", b"\\ude00", b"\\u0000", b"\\n", b"\\/", b"\\x",
    b"null", b"true", b"0", b"00", b"-", b"-0", b".5", b"1e5", b"E+400", b"9" * 20, b"{}", b"[]",
    b',"text":"zz"', b'"text":1,', b'"text":null,', b'"label":4,', b'"label":4.0,', b'"id":[],',
    b'"t\\u0065xt":"z",', b'"user":{},', b'"commit":null,', b'"operation":"delete",', b"[[{}]]",
    b'"amount":1e22,', b'"flag":2,', b'"amount":"1",', b'"other":{},', b'"other":1.0,',
    b'"id":"\\u0031",', b'"text":"caf\\u00e9",', b'"text":"\\ud83d",',
]  # fmt: skip


@st.composite
def broken_json(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> bytes:
    """Draw a value as JSON, to which up to three things have happened."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", "\r\n:  ")]))
    text = json.dumps(draw(values), ensure_ascii=draw(st.booleans()), separators=separators)
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(data)))
        end = begin + draw(st.sampled_from([0, 0, 1, 1, 2, 9]))
        data = data[:begin] + draw(st.sampled_from(_PIECES)) + data[end:]
    return data
