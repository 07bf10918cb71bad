"""The code's own rules that no linter here checks: function length, a docstring on each file."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 70


def sources() -> list[Path]:
    found = [path for top in ("bridge", "deploy", "slurm-conf") for path in (ROOT / top).rglob("*.py")]
    assert len(found) > 100, "the sources moved: look where they are"
    return found


def test_no_function_is_longer_than_seventy_lines() -> None:
    long = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines")
    assert not long, "\n".join(long)


def test_every_file_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in sources() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent
