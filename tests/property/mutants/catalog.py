"""Every mutation that is kept, by rule. Each must fail the rule's tests; `test_mutants` runs them."""

from tests.property.mutants import admission, controlling, ledger, platform, quota, reclaiming
from tests.property.mutants.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *quota.MUTATIONS,
    *ledger.MUTATIONS,
    *admission.MUTATIONS,
    *reclaiming.MUTATIONS,
    *platform.MUTATIONS,
    *controlling.MUTATIONS,
)

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}
