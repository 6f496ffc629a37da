"""Permitted changes by origin: this machine, and an address of the network, which a network namespace provides."""
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
FAR = "only clients on the machine of the server"


def has_namespaces():
    try:
        done = subprocess.run(["unshare", "-rn", "ip", "link", "set", "lo", "up"], capture_output=True, timeout=10)
        return done.returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_namespaces(), reason="`unshare -rn ip link set lo up` does not work here: network namespaces and ip(8) are needed")


def ask(repositories, tmp_path, *flags):
    command = ["unshare", "-rn", "--kill-child", sys.executable, os.path.join(HERE, "far.py"), str(repositories / "small"), str(tmp_path / "server.log"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(found, *names):
    for name in names:
        status, text = found[name]
        assert status in (403, "PERMISSION_DENIED") and FAR in text and "--allow-remote-settings" in text, (name, found[name])


def granted(found, *names):
    for name in names:
        assert found[name][0] in (200, "OK"), (name, found[name])


def test_without_a_flag_nothing_from_the_network_changes_the_server(repositories, tmp_path):
    found = ask(repositories, tmp_path)
    granted(found, "near http logging", "near http trace", "near grpc logging", "near grpc trace")
    refused(found, "far http logging", "far http trace", "far grpc logging", "far grpc trace")
    # A forwarding header can only reduce trust in a connection.
    refused(found, "near http forwarded", "far http forwarded")
    granted(found, "far grpc read logging", "far grpc read trace", "far http index")
    for where in ("near", "far"):
        # Each is asked for by a flag of its own.
        assert found[f"{where} http load"][0] == 503 and "--model-control-mode=explicit" not in found[f"{where} http logging"][1]
        assert found[f"{where} http region"][0] == 501 and "--allow-client-shm=true" in found[f"{where} http region"][1]


def test_allow_remote_settings_lets_settings_be_changed_from_anywhere(repositories, tmp_path):
    found = ask(repositories, tmp_path, "--allow-remote-settings=true")
    for where in ("near", "far"):
        granted(found, *(f"{where} {kind} {name}" for kind in ("http", "grpc") for name in ("logging", "trace")))
    granted(found, "near http forwarded", "far http forwarded")


def test_a_secret_for_settings_is_enough_from_anywhere(repositories, tmp_path):
    found = ask(repositories, tmp_path, "--grpc-restricted-protocol=logging:secret=sesame")
    granted(found, "near grpc secret", "far grpc secret", "near grpc trace")
    assert found["far grpc logging"][0] == found["near grpc logging"][0] == "UNAVAILABLE"
    refused(found, "far grpc trace")
