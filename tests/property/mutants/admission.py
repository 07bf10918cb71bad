"""Mutations of order, fit, keeping and explanations."""

from tests.property.mutants.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = ()
