"""Writes crds/*.yaml from the models: `python -m bridge.crd.generate [--check] [DIRECTORY]`."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bridge import wellknown
from bridge.crd import flavor, nodeset, schema, slurmcluster, team
from bridge.crd.model import Definition

DEFINITIONS: tuple[Definition, ...] = (
    flavor.DEFINITION,
    team.DEFINITION,
    slurmcluster.DEFINITION,
    nodeset.DEFINITION,
)
_HEADER = "# Generated from the models in bridge/crd by `python -m bridge.crd.generate`. Do not edit.\n"


def manifest(definition: Definition) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one kind."""
    subresources: dict[str, Any] = {"status": {}}
    if definition.scale is not None:
        wanted, actual = definition.scale
        subresources["scale"] = {"specReplicasPath": wanted, "statusReplicasPath": actual}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition.crd_name},
        "spec": {
            "group": wellknown.GROUP,
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": definition.kind.lower(),
                "shortNames": [definition.short],
                "categories": ["slurmbridge"],
            },
            "scope": "Namespaced" if definition.namespaced else "Cluster",
            "versions": [
                {
                    "name": wellknown.VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {
                            "name": column.name,
                            "type": column.type,
                            "jsonPath": column.path,
                            "priority": 1 if column.wide else 0,
                        }
                        for column in definition.columns
                    ],
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema.of_definition(definition)},
                }
            ],
        },
    }


def files() -> Mapping[str, str]:
    """Return the text of every file of crds/, by file name."""
    return {
        f"{definition.plural}.yaml": _HEADER
        + yaml.safe_dump(manifest(definition), sort_keys=False, width=110, allow_unicode=True)
        for definition in DEFINITIONS
    }


def stale(directory: Path) -> list[str]:
    """Return the names of files that are missing, outdated or of no kind."""
    wanted = files()
    present = {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml"}
    outdated = [name for name in wanted if name not in present or (directory / name).read_text() != wanted[name]]
    return sorted([*outdated, *(present - wanted.keys())])


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with --check only say which ones differ."""
    parser = argparse.ArgumentParser(prog="python -m bridge.crd.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when one is out of date")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("crds"))
    options = parser.parse_args(arguments)
    if options.check:
        old = stale(options.directory)
        if old:
            sys.stderr.write(f"out of date: {', '.join(old)}; run python -m bridge.crd.generate\n")
        return 1 if old else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (options.directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
