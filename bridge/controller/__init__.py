"""The cycle: observe, plan, act."""
