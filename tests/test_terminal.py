"""Text written by others cannot control the reader's terminal."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from antecede.terminal import printable, printable_json

text = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp")),
        st.sampled_from("\x1b\x9b\x07\r\n\x7f\u202e\u2028\ud800"),
    )
)


@given(text)
def test_unprintable_characters_are_escaped(raw: str) -> None:
    shown = printable(raw)
    assert printable(shown) == shown
    for character in shown:
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        )  # fmt: skip
    shown.encode()


@given(text)
def test_printable_text_is_unchanged(raw: str) -> None:
    if all(character.isprintable() for character in raw):
        assert printable(raw) == raw


@given(text)
def test_escaped_json_decodes_to_the_same_value(raw: str) -> None:
    line = printable_json(json.dumps({"body": raw}, ensure_ascii=False))
    assert json.loads(line) == {"body": raw}
    assert printable(line) == line
