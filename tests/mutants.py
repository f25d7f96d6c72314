"""Mutation tests: does a test fail if one statement, or one part of a condition, of a protocol is removed?

    ./dev python tests/mutants.py mbcp          # or several names, or nothing for all; --jobs 2

Each mutant lacks one statement, or has it after the next one, or lacks a condition or one operand of it, or
has one comparison at its edge (< for <=). It is judged by `antecede verify` and, if that finds nothing, by
the tests of its protocol. Those that survive are printed. Minutes to an hour: a study, not part of the tests.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parent.parent
ALL = "tests/protocols/test_protocols.py"
FILES: dict[str, tuple[list[str], list[str], list[str]]] = {
    # name: (protocols to verify, files, tests besides the common ones)
    "flat": (["timestamp", "mbcp", "timestamp-diff", "depseq", "vcube"],
        ["flat", "timestamp", "mbcp", "depseq"],
             ["tests/sim/test_verify.py", "tests/stories/test_001_mbcp.py", "tests/test_repository.py"]),
    "base": (["mbcp", "freescale"], ["base"], ["tests/sim/test_verify.py"]),
    "multigroup": (["multigroup"], ["multigroup"],
                   ["tests/protocols/test_multigroup.py", "tests/stories/test_001_multigroup.py"]),
    "freescale": (["freescale"],
                  ["freescale/protocol", "freescale/layout", "freescale/packets", "freescale/internal",
                   "freescale/external", "freescale/super_peer"],
                  ["tests/protocols/test_freescale.py", "tests/stories/test_000_freescale.py"]),
    "flooding": (["flooding"], ["flooding"], ["tests/protocols/test_flooding_and_vcube.py"]),
    "vcube": (["vcube", "vcube-agg"], ["vcube"],
              ["tests/protocols/test_flooding_and_vcube.py", "tests/stories/test_004_vcube.py"]),
    "pc": (["pc"], ["pc"],
           ["tests/protocols/test_pc_members.py", "tests/protocols/test_pc_newcomers.py",
            "tests/protocols/test_pc.py"]),
    "hcg": (["hcg", "basic"], ["hcg/protocol", "hcg/layout", "hcg/packets", "hcg/clocks", "hcg/precedence"],
            ["tests/protocols/test_hcg_clocks.py", "tests/protocols/test_hcg_packets.py",
             "tests/protocols/test_hcg.py"]),
}  # fmt: skip

_EDGES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


_DELETE, _MOVE = range(2)
_UPDATES = (ast.Assign, ast.AugAssign, ast.Expr, ast.Delete)
"""Statements that may be in another place."""


def mutants(source: str, functions: Container[str] | None = None) -> Iterator[tuple[int, str, str]]:
    """Line, what was changed, and the whole changed source; of all functions or of some."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.FunctionDef) and _is_worth_mutating(node):
            if functions is not None and node.name not in functions:
                continue
            for place, inner in enumerate(ast.walk(node)):
                for change in _changes(inner):
                    changed = copy.deepcopy(tree)
                    function = next(n for i, n in enumerate(ast.walk(changed)) if i == number)
                    target = next(n for i, n in enumerate(ast.walk(function)) if i == place)
                    before = ast.unparse(inner).splitlines()[0]
                    what = _apply(function, target, change)
                    if not what:
                        continue
                    yield getattr(inner, "lineno", 0), f"{what}: {before}", ast.unparse(changed)


def _is_worth_mutating(function: ast.FunctionDef) -> bool:
    """Whether a function is worth mutating: not one that only describes or displays."""
    return function.name not in {"__repr__", "paper_bytes", "default", "random"}


def _changes(node: ast.AST) -> list[int]:
    if isinstance(node, ast.BoolOp):
        return list(range(len(node.values)))
    if isinstance(node, ast.Compare):
        return [place for place, operator in enumerate(node.ops) if type(operator) in _EDGES]
    plain = (ast.Assign, ast.AugAssign, ast.Expr, ast.Delete, ast.Return, ast.Raise, ast.Continue, ast.Break)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return [0]
    if not isinstance(node, plain) or docstring:
        return []
    return [_DELETE, _MOVE] if isinstance(node, _UPDATES) else [_DELETE]


def _apply(function: ast.AST, target: ast.AST, change: int) -> str:
    if isinstance(target, ast.BoolOp):
        dropped = target.values.pop(change)
        return f"without `{ast.unparse(dropped)}`"
    if isinstance(target, ast.If):
        target.test = ast.copy_location(ast.Constant(True), target.test)
        return "always"
    if isinstance(target, ast.Compare):
        target.ops[change] = _EDGES[type(target.ops[change])]()
        return "edge"
    for parent in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(parent, field, None)
            if isinstance(statements, list) and target in statements:
                place = statements.index(target)
                if change == _DELETE:
                    statements[place] = ast.copy_location(ast.Pass(), target)
                    return "deleted"
                if place + 1 < len(statements):
                    statements[place : place + 2] = statements[place : place + 2][::-1]
                    return "after the next"
    return ""


def survives(copy_of: Path, name: str) -> bool:
    protocols, _, tests = FILES[name]
    env = {**os.environ, "PYTHONPATH": str(copy_of), "PYTHONDONTWRITEBYTECODE": "1"}
    env["HYPOTHESIS_PROFILE"] = "ci"
    for protocol in protocols:
        command = ["-m", "antecede", "verify", protocol, "--runs", "60", "--seed", "3", "--jobs", "1"]
        if _run(command, env):
            return False
    chosen = ["-k", " or ".join(protocols)]
    quick = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    return not (_run([*quick, "tests/protocols", *tests], env) or _run([*quick, ALL, *chosen], env))


def _run(command: list[str], env: dict[str, str]) -> bool:
    """Whether it fails, or hangs."""
    try:
        done = subprocess.run(
            [sys.executable, *command], env=env, cwd=ROOT, capture_output=True, timeout=90, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(FILES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    folders: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        for job in range(chosen.jobs):
            folders.put(Path(folder) / str(job))
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / "src", Path(folder) / str(job), ignore=ignore)

        def judge(name: str, file: str, source: str) -> bool:
            where = folders.get()
            path = where / "antecede" / "protocols" / f"{file}.py"
            original = path.read_text()
            try:
                path.write_text(source)
                return survives(where, name)
            finally:
                path.write_text(original)
                folders.put(where)

        for name in chosen.names or FILES:
            for file in FILES[name][1]:
                source = (ROOT / "src/antecede/protocols" / f"{file}.py").read_text()
                each = list(mutants(source))
                judged = [pool.submit(judge, name, file, changed) for _, _, changed in each]
                alive = 0
                for (line, what, _), future in zip(each, judged, strict=True):
                    if future.result():
                        alive += 1
                        print(f"  {file}.py:{line}: {what}", flush=True)
                print(f"{file}: {len(each)} mutants, {alive} survive", flush=True)


if __name__ == "__main__":
    main()
