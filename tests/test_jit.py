"""The cache of compiled kernels is keyed by everything that is compiled into them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antecede import jit, protocols
from antecede.sim.kernels import hcg

CACHE_FOLDERS = """
import antecede.{module} as kernel
from antecede.jit import CompiledFunction, cache_folder
from pathlib import Path
print(cache_folder(Path(kernel.__file__)))
own = next(function for function in vars(kernel).values()
           if isinstance(function, CompiledFunction) and function.__module__ == kernel.__name__)
print(Path(own.compiled.stats.cache_path))
"""

COMPILE = """
import numpy as np
from antecede.compiled import splitmix64
splitmix64.mix(np.uint64(1))
print(sum(splitmix64.mix.compiled.stats.cache_hits.values()), splitmix64.__file__)
"""


def test_the_cache_key_covers_every_module_that_a_kernel_imports() -> None:
    kernel = Path(hcg.__file__).parent / "event.py"
    constants = Path(protocols.__file__).parent / "limits.py"
    found = jit.sources(kernel)
    assert {kernel, constants, kernel.parent / "clocks.py"} <= found
    assert all("antecede" in source.parts for source in found)


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_changing_a_protocol_constant_triggers_recompilation(tmp_path: Path, variable: str) -> None:
    """`MAX_REMEMBERED` in protocols/limits.py sizes an array of the kernel: stale code wrote past its end."""
    package = Path(protocols.__file__).parent.parent
    copy = tmp_path / "antecede"
    subprocess.run(["cp", "-r", str(package), str(copy)], check=True)

    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment[variable] = str(tmp_path / "cache")

    def folder(module: str) -> str:
        code = CACHE_FOLDERS.format(module=module)
        result = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        expected, used = result.stdout.split()
        assert used == expected
        assert Path(used).parent == tmp_path / "cache" / "antecede"
        return used

    before = folder("sim.kernels.hcg.event"), folder("causality.width")
    limits = copy / "protocols" / "limits.py"
    text = limits.read_text()
    assert "MAX_REMEMBERED = 1000" in text
    limits.write_text(text.replace("MAX_REMEMBERED = 1000", "MAX_REMEMBERED = 4"))
    assert folder("sim.kernels.hcg.event") != before[0]
    assert folder("causality.width") == before[1]


def test_the_same_sources_in_another_folder_reuse_the_kernel_cache(tmp_path: Path) -> None:
    package = Path(protocols.__file__).parent.parent
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for place, hits in (("here", "0"), ("there", "1")):
        subprocess.run(["cp", "-r", "--parents", "antecede", tmp_path], cwd=package.parent, check=True)
        (tmp_path / place).mkdir()
        (tmp_path / "antecede").rename(tmp_path / place / "antecede")
        found = subprocess.run(
            [sys.executable, "-c", COMPILE],
            cwd=tmp_path / place,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.split() == [hits, str(tmp_path / place / "antecede/compiled/splitmix64.py")]
