"""Loaded with `pytest -p` before anything of the product is imported: breaks it as BRIDGE_MUTATION names."""

import os

from hypothesis import HealthCheck, Phase, settings

from tests.property.mutants import catalog, mutation

# The same examples on every run, more than usual, and the first failure is enough.
settings.register_profile(
    "mutants",
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
mutation.install(catalog.BY_NAME[os.environ["BRIDGE_MUTATION"]])
