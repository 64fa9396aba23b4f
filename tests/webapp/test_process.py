"""``python -m webapp`` as a process: addresses, ports, signals, what it imports."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx2
import psutil
import pytest
import websockets.sync.client
from websockets.exceptions import ConnectionClosed

from webapp.serving import CannotListen, bind, url

# A worker that never gets ready: these tests are about the web process.
ENVIRONMENT = {**os.environ, "FIRSTTOKEN_MODEL": "/nonexistent", "FIRSTTOKEN_CALIBRATE": "never"}


def has_ipv6() -> bool:
    """Whether this machine has ::1, which containers often lack."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@contextmanager
def as_from_a_terminal() -> Iterator[None]:
    """A shell starts what runs in its background with SIGINT ignored, and that is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def webapp(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the URL that it printed."""
    with as_from_a_terminal():
        process = subprocess.Popen(
            [sys.executable, "-m", "webapp", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **environment},
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        printed = re.search(r"http://\S+", line)
        assert printed, line + (process.stderr.read() if process.stderr else "")
        wait_until_up(printed[0])
        yield process, printed[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def wait_until_up(base: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(httpx2.TransportError):
            if httpx2.get(f"{base}healthz").status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail("the server did not come up")


@pytest.mark.parametrize(
    ("host", "reachable"),
    [
        ("localhost", ["127.0.0.1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("::", ["127.0.0.1", "::1"]),
        ("::1", ["::1"]),
        ("[::1]", ["::1"]),
    ],
)
def test_hosts(host: str, reachable: list[str]) -> None:
    if ":" in host and not has_ipv6():
        with pytest.raises(CannotListen, match="not an address that this machine can listen on"):
            bind(host, 0)
        return
    sockets = bind(host, 0)
    try:
        ports = {listener.getsockname()[1] for listener in sockets}
        assert len(ports) == 1
        for name in reachable:
            socket.create_connection((name, *ports), timeout=2).close()
    finally:
        for listener in sockets:
            listener.close()


def test_localhost_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_v4(family: int, *rest: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6 here")
        return real_socket(family, *rest)  # pyright: ignore

    real_socket = socket.socket
    monkeypatch.setattr("webapp.serving.socket.socket", only_v4)
    sockets = bind("localhost", 0)
    assert [listener.family for listener in sockets] == [socket.AF_INET]
    for listener in sockets:
        listener.close()


def test_a_taken_port_is_said_clearly() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "webapp", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=ENVIRONMENT,
        )
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is taken" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "no.such.host.invalid"], "not an address or a name"),
        (["--host", "203.0.113.7"], "not an address that this machine can listen on"),
        (["--port", "99999"], "error: port:"),
        (["--root-path", "lab"], "error: root_path:"),
    ],
)
def test_wrong_arguments_are_said_clearly(arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "webapp", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=ENVIRONMENT,
    )
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_urls(host: str, shown: str) -> None:
    assert url(host, 80) == shown


@pytest.mark.serial
@pytest.mark.parametrize(
    ("arguments", "number", "status"),
    [
        (["--root-path", "/lab"], signal.SIGTERM, -signal.SIGTERM),
        (["--host", "::"], signal.SIGINT, 128 + signal.SIGINT),
    ],
)
def test_a_whole_life(arguments: list[str], number: signal.Signals, status: int) -> None:
    if "::" in arguments and not has_ipv6():
        arguments = ["--host", "0.0.0.0"]
    with webapp(*arguments) as (process, base):
        assert base.endswith("/lab/" if "/lab" in arguments else "/")
        assert ("[::1]" in base) == ("::" in arguments)
        ready = httpx2.get(f"{base}readyz")
        assert ready.status_code == 503
        assert ready.json()["state"] in ("starting", "restarting")
        assert ready.json()["reason"]
        address = f"ws{base.removeprefix('http')}ws/generate"
        with websockets.sync.client.connect(address) as connection:
            assert json.loads(connection.recv(timeout=5))["type"] == "hello"
            connection.send('{"type": "generate", "prompt": "a"}')
            assert json.loads(connection.recv(timeout=5))["code"] == "engine_unavailable"
            began = time.monotonic()
            process.send_signal(number)
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        _, stderr = process.communicate(timeout=10)
        assert time.monotonic() - began < 10
        assert process.returncode == status
        assert "Exception in ASGI application" not in stderr
        assert "KeyboardInterrupt" not in stderr


@pytest.mark.serial
def test_sigterm_in_mid_stream() -> None:
    with webapp(FIRSTTOKEN_MODEL="tiny", FIRSTTOKEN_DTYPES="float32") as (process, base):
        deadline = time.monotonic() + 60
        while httpx2.get(f"{base}readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        worker = psutil.Process(process.pid).children()
        address = f"ws{base.removeprefix('http')}ws/generate"
        kinds: list[str] = []
        with websockets.sync.client.connect(address) as connection:
            connection.send('{"type": "generate", "prompt": "a", "max_tokens": 1900, "seed": 1}')
            while "token" not in kinds:
                kinds.append(json.loads(connection.recv(timeout=10))["type"])
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            try:
                while True:
                    event = json.loads(connection.recv(timeout=10))
                    kinds.append(event["type"])
            except ConnectionClosed as closed:
                code = None if closed.rcvd is None else closed.rcvd.code
        assert code == 1012
        assert (kinds[-1], event["code"]) == ("error", "server_stopping")
        process.communicate(timeout=10)
        assert time.monotonic() - began < 10
        assert process.returncode == -signal.SIGTERM
        assert worker
        psutil.wait_procs(worker, timeout=5)
        assert not [child for child in worker if child.is_running()]


def test_the_web_process_never_imports_torch() -> None:
    program = (
        "import sys, webapp.app, webapp.serving, webapp.__main__; "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
