"""Random logs through files as people have them: the audit equals brute force, in every count and every list.

`benchmarks/audit/logs_in_files.py` does the same with 20,000 logs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from file_probe import compare


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_logs_in_files_are_judged_as_by_brute_force(tmp_path: Path, first: int) -> None:
    seen = Counter[str]()
    for seed in range(first, first + 50):
        (tmp_path / str(seed)).mkdir()
        seen += compare(seed, tmp_path / str(seed))
    assert min(seen[name] for name in ("clean", "missing", "duplicates", "causal_violations")) > 3
