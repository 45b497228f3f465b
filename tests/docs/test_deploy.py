"""The recipes of docs/guides/deploy.md run: the service, the image's commands, the manifest, cron."""

import http.client
import itertools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "deploy.md").read_text("utf-8")
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.slow

#: Names the worker that answered, in a header.
_COUNTED = """
import os
from app import app as service

async def app(scope, receive, send):
    async def named(message):
        if message["type"] == "http.response.start":
            message["headers"].append((b"x-worker", str(os.getpid()).encode()))
        await send(message)
    await service(scope, receive, named)
"""


def block(language: str) -> str:
    """Return the only block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def dockerfile() -> dict[str, list[str]]:
    """Return the arguments of each instruction of the Dockerfile."""
    found: dict[str, list[str]] = {}
    for line in block("dockerfile").splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)
    return found


def request(
    port: int, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, str, Any]:
    """Return status, worker and document of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("x-worker", ""), json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def service(folder: Path, store: str, command: list[str]) -> Iterator[int]:
    """Run the service of the page until the end of the block; yield its port."""
    (folder / "app.py").write_text(block("py"), "utf-8")
    (folder / "counted.py").write_text(_COUNTED, "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    words = [str(port) if word == "8000" else word for word in command]
    environ = {**os.environ, "HANSARD_STORE": store}
    with subprocess.Popen(words, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        try:
            workers = int(command[command.index("--workers") + 1])
            started = (line for line in run.stderr if "startup complete" in line)
            assert len(list(itertools.islice(started, workers))) == workers
            yield port
        finally:
            run.send_signal(signal.SIGTERM)
            rest = run.stderr.read()
    assert "Traceback" not in rest


@pytest.fixture(params=["directory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the place of a store."""
    if request.param == "directory":
        yield str(tmp_path / "store")
        return
    from tests.postgres.server import Server

    with Server(18) as server:
        yield server.database()


def test_two_workers_append_to_one_session(store: str, tmp_path: Path) -> None:
    """Requests that are sent twice, to two workers at once, store each message once, in one order."""
    pytest.importorskip("fastapi")
    (line,) = re.findall(r"^\$ (uvicorn .*)", block("console"), re.MULTILINE)
    command = [str(BIN / "uvicorn"), "counted:app", *line.split()[2:], "--port", "8000"]
    workers: set[str] = set()
    numbers = itertools.count()
    path = "/sessions/support/42/messages"

    with service(tmp_path, store, command) as port:

        def send(number: int) -> None:
            for _ in "again":
                status, worker, _ = request(
                    port,
                    "POST",
                    path,
                    {"role": "user", "content": str(number)},
                    **{"Idempotency-Key": f"k{number}", "Content-Type": "application/json"},
                )
                assert status == 200
                workers.add(worker)

        with ThreadPoolExecutor(8) as pool:
            # The kernel chooses the worker of each connection.
            while len(workers) < 2:
                list(pool.map(send, itertools.islice(numbers, 40)))
        sent = {str(number) for number in range(next(numbers))}
        status, _, found = request(port, "GET", path)
        assert status == 200
        assert sorted(message["content"] for message in found) == sorted(sent)
        kind = {"Content-Type": "application/json"}
        status, _, conflict = request(port, "POST", f"{path}?expected_seq=1", {"n": 1}, **kind)
        assert (status, f"is at seq {len(sent)}" in conflict["detail"]) == (409, True)
        assert request(port, "GET", "/sessions/a%00b/messages")[0] == 422
        assert request(port, "GET", "/health")[2] == {"status": "ok"}
    with hansard.open(store, read_only=True) as opened:
        session = opened.session("support/42")
        assert session.seq == len(sent)
        assert session.verify().ok


@pytest.mark.timeout(300)
def test_the_commands_of_the_image_run(tmp_path: Path) -> None:
    """The Dockerfile's `pip install` gives an environment in which its CMD serves its HEALTHCHECK."""
    found = dockerfile()
    words = "CMD COPY ENV EXPOSE FROM HEALTHCHECK RUN USER VOLUME WORKDIR"
    assert " ".join(sorted(found)) == words
    assert found["FROM"][0].startswith("python:3.")
    (variable,) = found["ENV"]
    assert variable.startswith(f"HANSARD_STORE={found['VOLUME'][0]}/")
    install, account = found["RUN"]
    assert f" {found['VOLUME'][0]}" in account
    assert f" {found['USER'][0]} " in account
    assert found["COPY"] == ["hansard /src/hansard", f"app.py {found['WORKDIR'][0]}/"]

    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip, *arguments = shlex.split(install.replace("/src/hansard", str(ROOT)))
    assert pip == "pip"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, *arguments],
        check=True,
        capture_output=True,
    )
    program, *options = json.loads(found["CMD"][0])
    command = [str(python.parent / program), *options]
    assert options[options.index("--port") + 1] == found["EXPOSE"][0]
    python_word, *check = json.loads(found["HEALTHCHECK"][0].removeprefix("CMD "))
    with service(tmp_path, str(tmp_path / "data" / "store"), command) as port:
        check = [word.replace(":8000/", f":{port}/") for word in check]
        subprocess.run([python.parent / python_word, *check], check=True)
        for call in re.findall(r"^    docker exec agent (hansard .*)", PAGE, re.MULTILINE):
            environ = {"HANSARD_STORE": str(tmp_path / "data" / "store")}
            subprocess.run([python.parent / "hansard", *call.split()[1:]], env=environ, check=True)


def shell(line: str, store: str) -> None:
    """Run a line as cron and Kubernetes do: by sh, with a short environment."""
    environ = {"HANSARD_STORE": store, "PATH": f"{BIN}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", line], env=environ, cwd="/", check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifest_fits_together_and_its_maintenance_runs() -> None:
    """Selectors, ports, probes and names of the manifest fit; its commands run on PostgreSQL."""
    yaml = pytest.importorskip("yaml")
    from hansard.backend.postgres.url import parse_url
    from tests.postgres.server import Server

    manifest = {part["kind"]: part for part in yaml.safe_load_all(block("yaml"))}
    versions = {kind: part["apiVersion"] for kind, part in manifest.items()}
    assert versions == {
        "Secret": "v1",
        "Deployment": "apps/v1",
        "Service": "v1",
        "CronJob": "batch/v1",
    }
    secret, deployment, exposed, job = manifest.values()
    assert parse_url(secret["stringData"]["HANSARD_STORE"]).schema == "hansard"

    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == exposed["spec"]["selector"]
    (container,) = template["spec"]["containers"]
    (port,) = [part["containerPort"] for part in container["ports"]]
    probe = container["readinessProbe"]["httpGet"]
    assert [str(port)] == [str(probe["port"])] == dockerfile()["EXPOSE"]
    assert exposed["spec"]["ports"][0]["targetPort"] == port
    assert f'@app.get("{probe["path"]}")' in block("py")

    assert re.fullmatch(r"(\S+ ){4}\S+", job["spec"]["schedule"])
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (maintenance,) = pod["containers"]
    for part in (container, maintenance):
        assert part["image"] == container["image"]
        assert part["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    for part in (template["spec"], pod):
        user = part["securityContext"]["runAsUser"]
        assert f"--uid {user} " in dockerfile()["RUN"][1]

    sh, option, line = maintenance["command"]
    assert (sh, option) == ("sh", "-c")
    with Server(18) as server:
        url = server.database()
        with hansard.open(url) as store:
            store.session("a").add_message({"role": "user", "content": "hello"})
            store.set_retention(purge_trash=timedelta(days=7))
        shell(line, url)


def test_the_lines_for_cron_run(tmp_path: Path) -> None:
    """The policy is set, and each line of the crontab, with its times removed, exits with 0."""
    place = "/var/lib/agent/store"
    store = str(tmp_path / "store")
    with hansard.open(store) as opened:
        opened.session("a").add_message({"role": "user", "content": "hello"})
    (policy,) = re.findall(r"^    (hansard .*--set-policy)$", PAGE, re.MULTILINE)
    shell(policy.replace(place, store), store)
    lines = block("crontab").splitlines()
    settings = dict(line.split("=", 1) for line in lines[:2])
    assert settings["HANSARD_STORE"] == place
    assert settings["PATH"].endswith(":/usr/bin:/bin")
    for line in lines[2:]:
        matched = re.fullmatch(r"\d+ \d+ \* \* [*\d]  (.+)", line)
        assert matched
        assert "%" not in line  # which cron takes for a newline
        shell(matched[1], store)
