"""The image and the Kubernetes manifests are valid, and agree with Lanner and with each other."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

import lanner
from lanner.daemon.settings import Settings

PACKAGING = Path(__file__).resolve().parent.parent / "packaging"
Manifest: TypeAlias = Any
MANIFESTS = ("configmap.yaml", "service.yaml", "statefulset.yaml")


def manifest(name: str) -> Manifest:
    return yaml.safe_load((PACKAGING / "kubernetes" / name).read_text(encoding="utf-8"))


def test_the_containerfile_has_no_findings() -> None:
    command = [str(Path(sys.executable).parent / "hadolint"), str(PACKAGING / "Containerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifest_is_valid(name: str) -> None:
    path = PACKAGING / "kubernetes" / name
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", "1.31", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_kustomization_names_every_manifest() -> None:
    assert sorted(manifest("kustomization.yaml")["resources"]) == sorted(MANIFESTS)


def test_the_settings_of_the_manifest_are_those_of_lanner() -> None:
    settings = Settings.model_validate(tomllib.loads(manifest("configmap.yaml")["data"]["lanner.toml"]))
    assert settings.bind == "0.0.0.0"
    ports = {one["name"]: one["containerPort"] for one in containers()[0]["ports"]}
    assert ports["transfer"] == settings.transfer.port
    assert ports["rpc"] == settings.rpc.port
    assert ports["remote-read"] == settings.rpc.read_port
    assert str(settings.metrics.bind).endswith(f":{ports['metrics']}")


def test_the_service_leads_to_ports_of_the_pod() -> None:
    service = manifest("service.yaml")["spec"]
    assert service["selector"] == manifest("statefulset.yaml")["spec"]["template"]["metadata"]["labels"]
    ports = {one["name"]: one["containerPort"] for one in containers()[0]["ports"]}
    assert {one["targetPort"]: one["port"] for one in service["ports"]} == ports


def test_the_pod_runs_this_version_without_privileges() -> None:
    pod = manifest("statefulset.yaml")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for one in (*containers(), *pod["initContainers"]):
        assert one["image"] == f"lanner:{lanner.__version__}"
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["securityContext"]["readOnlyRootFilesystem"] is True


def containers() -> Manifest:
    return manifest("statefulset.yaml")["spec"]["template"]["spec"]["containers"]
