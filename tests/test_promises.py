"""The tests that `promises.py` names exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from promises import PROMISES, ROOT


@pytest.mark.parametrize("test", [test for promise in PROMISES for test in promise.tests])
def test_a_promise_names_a_test_that_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert (ROOT / file).exists()
    assert not name or f"def {name}(" in Path(ROOT / file).read_text()
