"""A rule whose mutation passes is not tested: each rule is broken in the product's source, and its tests must fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.mutants import catalog
from tests.property.mutants.mutation import ROOT, Mutation

LONGEST_S = 240
RULES = tuple(f"Q{number}" for number in range(1, 23))
FAILED = 1  # pytest's exit code when tests ran and some failed, and with -x also when a collection did
OUTPUT = 3000  # characters of the run's end that a failure shows


def _tests(mutation: Mutation) -> list[str]:
    """Return the rule's files, and what else the mutation names; at the first failure the run is over."""
    folder = Path(__file__).parents[1] / "rules"
    files = sorted(folder.glob(f"test_q{int(mutation.rule[1:]):02}_*.py"))
    return [*(str(path.relative_to(ROOT)) for path in files), *mutation.tests]


@pytest.mark.parametrize("mutation", catalog.MUTATIONS, ids=lambda mutation: str(mutation.name))
def test_each_mutation_still_fits_the_source_it_breaks(mutation: Mutation) -> None:
    source = mutation.path.read_text(encoding="utf-8")
    compile(mutation.applied(source), str(mutation.path), "exec", dont_inherit=True)
    assert mutation.rule in RULES
    assert _tests(mutation)


def test_each_rule_has_a_mutation() -> None:
    assert sorted({mutation.rule for mutation in catalog.MUTATIONS}, key=lambda rule: int(rule[1:])) == list(RULES)


@pytest.mark.mutants
@pytest.mark.timeout(LONGEST_S + 30)
@pytest.mark.parametrize("mutation", catalog.MUTATIONS, ids=lambda mutation: str(mutation.name))
def test_the_rules_tests_fail_when_the_rule_is_broken(mutation: Mutation) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.property.mutants.plugin"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", *_tests(mutation)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"BRIDGE_MUTATION": mutation.name, "HYPOTHESIS_PROFILE": "mutants", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    shown = (run.stdout + run.stderr)[-OUTPUT:]
    assert run.returncode == FAILED, f"{mutation.rule}, {mutation.why}: pytest ended with {run.returncode}\n{shown}"
    assert "\nFAILED " in run.stdout, f"{mutation.rule}: no test failed, the run did\n{shown}"
    assert "\nERROR " not in run.stdout, f"{mutation.rule}: the run failed beside its tests\n{shown}"
