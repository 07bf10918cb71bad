"""Workloads to plan: order and fit. Pure."""
