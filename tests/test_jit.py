"""The cache of compiled kernels is keyed by everything that is compiled into them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from antecede import jit, protocols
from antecede.sim.kernels import hcg

CHANGED = """
from antecede.jit import cache_folder, sources
from pathlib import Path
import antecede.{module} as kernel
print(cache_folder(Path(kernel.__file__)))
"""


def test_sources_are_every_antecede_module_that_a_kernel_imports() -> None:
    kernel = Path(hcg.__file__).parent / "event.py"
    constants = Path(protocols.__file__).parent / "limits.py"
    found = jit.sources(kernel)
    assert {kernel, constants, kernel.parent / "clocks.py"} <= found
    assert all("antecede" in source.parts for source in found)


def test_a_changed_constant_of_a_protocol_means_new_machine_code(tmp_path: Path) -> None:
    """`MAX_REMEMBERED` in protocols/limits.py sizes an array of the kernel: stale code wrote past its end."""
    package = Path(protocols.__file__).parent.parent
    copy = tmp_path / "antecede"
    subprocess.run(["cp", "-r", str(package), str(copy)], check=True)

    def folder(module: str) -> str:
        code = CHANGED.format(module=module)
        return subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    before = folder("sim.kernels.hcg.event"), folder("causality.width")
    limits = copy / "protocols" / "limits.py"
    text = limits.read_text()
    assert "MAX_REMEMBERED = 1000" in text
    limits.write_text(text.replace("MAX_REMEMBERED = 1000", "MAX_REMEMBERED = 4"))
    assert folder("sim.kernels.hcg.event") != before[0]
    assert folder("causality.width") == before[1]
