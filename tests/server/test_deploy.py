"""The image, the compose file, the proxy and the Kubernetes example say what the service takes, and take away what it needs not."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click import Context
from typer.main import get_command

from labelwise.cli import verbs
from labelwise.server.middleware import OPEN, STATE
from labelwise.server.running import GRACE

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
POD = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]


@pytest.mark.parametrize("words", [json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.M)[-1]), COMPOSE["services"]["one"]["command"], CONTAINER["args"]])  # fmt: skip
def test_the_command_is_one(words: list[str]) -> None:
    assert words[:2] == ["serve", "/model"]
    command = get_command(verbs.app).commands["serve"]  # type: ignore[attr-defined]
    params = command.get_params(Context(command))
    assert {word for word in words if word.startswith("--")} <= {option for each in params for option in each.opts}
    variables = {each.envvar for each in params if each.envvar}
    assert {"LABELWISE_STATE", "LABELWISE_TOKEN"} == variables


def test_nothing_runs_as_root_or_may_write() -> None:
    assert "USER 10001:10001" in DOCKERFILE[DOCKERFILE.rindex("FROM") :]
    for name in ("one", "two", "proxy"):
        service: dict[str, Any] = COMPOSE["services"][name]
        assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(volume.endswith(":ro") for volume in service["volumes"])
    security = CONTAINER["securityContext"]
    assert (POD["securityContext"]["runAsNonRoot"], POD["securityContext"]["runAsUser"]) == (True, 10001)
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert COMPOSE["services"]["database"]["image"].startswith("postgres:")


def test_probes_are_routes_that_ask_for_no_token_and_a_stop_has_time() -> None:
    probes = {CONTAINER[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert probes == {"/health", "/ready"}
    assert probes <= set(OPEN) & set(STATE)
    assert "/ready" in re.findall(r"HEALTHCHECK.*\n.*8000(/\w+)", DOCKERFILE)
    assert int(COMPOSE["services"]["one"]["stop_grace_period"][:-1]) > GRACE
    assert POD["terminationGracePeriodSeconds"] > GRACE + 5


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_its_settings(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text().replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(re.sub(r"server (one|two):", "server 127.0.0.1:", text))
    nginx = shutil.which("nginx") or ""
    done = subprocess.run([nginx, "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
