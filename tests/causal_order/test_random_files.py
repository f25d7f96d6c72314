"""Random files of every kind, ordered as the definition says; `random_files.py` tries any number of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from random_files import check_table, make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_files_are_ordered_by_the_definition_and_nothing_is_altered(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        table = make_table(random.Random(seed), tmp_path / f"in{seed}")
        check_table(table, tmp_path / f"out{seed}")


@pytest.mark.parametrize("seed", [3, 4, 5, 8])
def test_spark_orders_random_files_by_the_definition(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check_table(make_table(random.Random(seed), tmp_path / "in"), tmp_path / "out", "spark")
