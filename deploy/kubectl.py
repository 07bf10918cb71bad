"""kubectl as this machine has it: every call bounded in time, every failure one sentence."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIELD_MANAGER = "slurm-bridge-deploy"


class DeployError(Exception):
    """A step that cannot go on; the message is for the person at the terminal."""


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against one context ("" is the current one)."""

    context: str = ""

    def run(self, *arguments: str, text: str = "", timeout_s: int = 120) -> str:
        """Return what kubectl prints; its own words are kept in the error."""
        if shutil.which("kubectl") is None:
            raise DeployError("kubectl is not on PATH; install it, version 1.36 or later")
        command = ["kubectl", *(["--context", self.context] if self.context else []), *arguments]
        try:
            done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise DeployError(f"`{' '.join(command)}` gave no answer within {timeout_s} s") from error
        if done.returncode != 0:
            raise DeployError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Return kubectl's JSON output, parsed."""
        return json.loads(self.run(*arguments, "-o", "json"))

    def create(self, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Create objects and return the server's answers; kubectl prints one JSON document after the other."""
        bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        text = self.run("create", "-f", "-", "-o", "json", text=bundle)
        decoder, answers = json.JSONDecoder(), []
        while text := text.lstrip():
            answer, end = decoder.raw_decode(text)
            answers.append(answer)
            text = text[end:]
        return answers

    def raw(self, path: str) -> Any:
        """GET a path of the API server."""
        return json.loads(self.run("get", "--raw", path))

    def apply(self, directory: Path) -> str:
        """Apply a kustomization on the server's side and return one line for each object."""
        return self.run("apply", *_APPLY, "-k", str(directory), timeout_s=300)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the items of a list; a kind that the server does not know has none."""
        try:
            found = self.json("get", *arguments)
        except DeployError as error:
            if "the server doesn't have a resource type" in str(error):
                return []
            raise
        items: list[dict[str, Any]] = found["items"]
        return items


_APPLY = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")
