"""Web pages of other sites: what a browser would ask, with curl."""
import shutil

import pytest

from test_control import BODY, curl

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here: apt-get install curl")

LISTED, OTHER = "https://app.example", "https://evil.example"
PREFLIGHT = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: POST"]


def ask(server, path, *args, origin=None):
    """(status, fields of CORS by name, Vary)"""
    headers = ["-H", f"Origin: {origin}"] if origin else []
    status, text = curl(path, "-D", "-", "-o", "/dev/null", *headers, *args, base=f"http://{server.http}")
    fields = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            # No answer has a header twice: browsers join the values, and refuse two origins.
            assert name.lower() not in fields, text
            fields[name.lower()] = value.strip()
    return status, {name.removeprefix("access-control-"): value for name, value in fields.items() if name.startswith("access-control-")}, fields.get("vary")


@pytest.fixture(scope="module")
def server(repositories, tmp_path_factory):
    from server import Server

    flags = [f"--http-cors-origin={LISTED},http://localhost:5173"]
    one = Server(repositories / "small", *flags, log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    one.stop()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_listed_pages_may_ask_with_credentials_and_others_may_not(server, version):
    asked = ["-H", "Access-Control-Request-Headers: authorization,inference-header-content-length"]
    for path in ("/v2/models/simple/infer", "/v2", "/v2/models/stats", "/v2/repository/index", "/v2/logging"):
        status, fields, vary = ask(server, path, version, *PREFLIGHT, *asked, origin=LISTED)
        assert (status, vary) == (200, "Origin") and fields["allow-origin"] == LISTED and fields["allow-credentials"] == "true", path
        assert fields["allow-methods"] == "GET, POST" and fields["allow-headers"] == "authorization,inference-header-content-length"
        assert ask(server, path, version, *PREFLIGHT, *asked, origin=OTHER) == (405, {}, "Origin"), path
    status, fields, vary = ask(server, "/v2/models/simple/infer", version, "-d", BODY, origin="http://localhost:5173")
    assert (status, vary, fields["allow-origin"]) == (200, "Origin", "http://localhost:5173")
    assert "Inference-Header-Content-Length" in fields["expose-headers"]
    # Errors are read by pages, too.
    status, fields, _ = ask(server, "/v2/models/nope", version, origin=LISTED)
    assert (status, fields["allow-origin"]) == (404, LISTED)
    assert ask(server, "/v2", version, origin=OTHER) == (200, {}, "Origin")
    assert ask(server, "/v2", version) == (200, {}, "Origin")
    # What has a `Vary` of its own.
    status, fields, vary = ask(server, "/", version, origin=LISTED)
    assert (status, fields["allow-origin"], vary) == (200, LISTED, "accept-encoding, accept, Origin")
    assert ask(server, "/v2/nowhere", version, *PREFLIGHT, origin=LISTED)[0] == 404


def test_pages_of_other_sites_change_nothing_from_this_machine(server):
    change = ["-d", '{"log_verbose_level":0}', "-H", "Content-Type: text/plain"]
    assert ask(server, "/v2/logging", *change)[0] == 200
    assert ask(server, "/v2/logging", *change, origin=LISTED)[0] == 200
    for origin in (OTHER, "null", "https://app.example.evil.example", "x" * 8000):
        assert ask(server, "/v2/logging", *change, origin=origin)[0] == 403, origin[:40]


def test_any_origin_and_none(repositories, start):
    every = start(repositories / "small", "--http-cors-origin=*")
    for version in ("--http1.1", "--http2-prior-knowledge"):
        for path, *asked in (["/v2"], ["/v2/models/simple/infer", "-d", BODY], ["/v2/models/simple/infer", *PREFLIGHT]):
            status, fields, vary = ask(every, path, version, *asked, origin=OTHER)
            assert (status, fields["allow-origin"], vary) == (200, "*", None) and "allow-credentials" not in fields, asked
            assert "Inference-Header-Content-Length" in fields["expose-headers"]
    none = start(repositories / "small")
    assert ask(none, "/v2", origin=OTHER) == (200, {}, None)
    assert ask(none, "/v2", *PREFLIGHT, origin=OTHER) == (405, {}, None)
    assert ask(none, "/v2/logging", "-d", "{}", origin=OTHER)[0] == 403


def test_what_is_no_origin_is_refused_at_start(repositories, start):
    server = start(repositories / "small", "--http-cors-origin=https://app.example/", wait=False)
    assert server.wait() == 1
    assert "'https://app.example/' is not an origin" in server.output()
