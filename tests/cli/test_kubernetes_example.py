"""docs/ci/kubernetes: manifests that an API server takes, and a gate that this version has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

FILE = Path(__file__).resolve().parents[2] / "docs" / "ci" / "kubernetes" / "job.yaml"
DOCUMENTS = list(yaml.safe_load_all(FILE.read_text()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document["kind"]))
def test_manifest_of_the_example_is_what_the_api_takes(document: dict[str, Any]) -> None:
    """Against the newest schema that the validator has; a key that is none is refused."""
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_gate_of_the_example_is_the_prolog_as_init_container() -> None:
    """A pod whose gate ends with 1 does not start its training."""
    (job,) = [document for document in DOCUMENTS if document["kind"] == "Job"]
    pod = job["spec"]["template"]["spec"]
    (gate,) = pod["initContainers"]
    assert ["gate", "--prolog"] == gate["command"][-2:]
    assert "Indexed" == job["spec"]["completionMode"]
    assert "Never" == pod["restartPolicy"]
