"""The four custom resources as pydantic models, and the generator of crds/."""
