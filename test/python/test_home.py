"""`/`, `/docs` and `/v2/models`: what browsers and other clients get, who may ask, and that nothing of a name becomes markup."""
import gzip
import json
import pathlib
import re
from html.parser import HTMLParser

import pytest

HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PATHS = {"/": "application/json", "/docs": "text/html; charset=utf-8", "/console": "text/html; charset=utf-8", "/app/console.js": "text/javascript; charset=utf-8", "/app/console.css": "text/css; charset=utf-8"}


class Page(HTMLParser):
    """Tags, links and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text, self.handlers = set(), [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [value for name, value in attributes if name in ("href", "src")]
        self.handlers += [name for name, _ in attributes if name.startswith("on") or name == "style"]

    def handle_data(self, data):
        self.text += data


def test_a_browser_gets_a_page_and_other_clients_json(server):
    status, headers, body = server.request("GET", "/")
    assert (status, headers["content-type"], headers["vary"]) == (200, "application/json", "accept-encoding, accept")
    home = json.loads(body)
    assert (home["name"], home["version"], home["ready"]) == ("triton", json.loads(server.get("/v2"))["version"], True)
    own = json.loads((pathlib.Path(__file__).parents[2] / "package.json").read_text())["version"]
    assert home["implementation"] == {"name": "Nereid", "version": own}
    index = json.loads(server.request("POST", "/v2/repository/index")[2])
    assert home["models"] == index and len(index) > 10
    assert home["links"] == {"docs": "/docs", "console": "/console", "openapi": "/v2/openapi.json", "metrics": f"http://127.0.0.1:{server.metrics_port}/metrics"}
    for path in home["links"].values():
        assert server.request("GET", path.replace(f"http://127.0.0.1:{server.metrics_port}", ""), port=server.metrics_port if "metrics" in path else None)[0] == 200
    status, headers, body = server.request("GET", "/", headers=HTML)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = Page(body.decode())
    assert {"/app/console.js", "/app/console.css"} <= set(page.links)
    assert not any(row["name"] in page.text for row in index), "the page holds nothing of the server"


def test_models_are_listed_once_each_by_name(server):
    index = json.loads(server.request("POST", "/v2/repository/index")[2])
    listed = server.json("/v2/models")
    assert listed == {"models": list(dict.fromkeys(row["name"] for row in index))}
    assert len(listed["models"]) < len(index), "of some models there are several versions"


@pytest.mark.parametrize("path", [*PATHS, "/v2/models"])
def test_pages_have_a_policy_and_answer_head(server, path):
    status, headers, body = server.request("GET", path)
    head = server.request("HEAD", path)
    assert (status, head[0], head[2]) == (200, 200, b"")
    assert {k: v for k, v in head[1].items()} == {k: v for k, v in headers.items()}
    assert int(headers["content-length"]) == len(body)
    if path in PATHS:
        assert headers["content-type"] == PATHS[path]
        assert (headers["content-security-policy"], headers["x-content-type-options"]) == (POLICY, "nosniff")
    for method in ("POST", "PUT", "DELETE"):
        assert server.request(method, path, body=b"")[0] == 405
    for more in ("/", "/x", "/../v2"):
        assert server.request("GET", path.rstrip("/") + "/x" + more)[0] == 404


@pytest.mark.parametrize("path", ["/", "/docs", "/console"])
def test_everything_a_page_loads_comes_from_this_server_and_nothing_is_inline(server, path):
    text = server.request("GET", path, headers=HTML)[2].decode()
    page = Page(text)
    assert not page.handlers and "style" not in page.tags
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert all(link.startswith(("/", "data:,")) for link in page.links)


def test_the_pages_are_the_same_on_every_server(start, server, repositories):
    """So they need no key, and no text of a client is in them; the program makes text of what it fetches."""
    other = start(repositories / "small", "--http-restricted-api=model-repository,metadata:admin=s3cret")
    for path in ("/", "/docs", "/console", "/app/console.js", "/app/console.css"):
        assert server.request("GET", path, headers=HTML)[2] == other.request("GET", path, headers=HTML)[2]
    script = server.get("/app/console.js")
    assert b"dangerouslySetInnerHTML=" not in script and b"document.write" not in script and b"eval(" not in script


@pytest.mark.parametrize("host", ["evil.example/path", "a b", '"><script>', "x" * 300, "user@evil.example"])
def test_a_host_that_is_none_is_not_repeated(server, host):
    status, _, body = server.request("GET", "/", headers={"Host": host, **HTML})
    assert status in (200, 400) and (status == 400 or host not in body.decode()), body


def test_the_files_are_compressed_for_clients_that_take_it(server):
    whole = server.get("/app/console.js")
    status, headers, body = server.request("GET", "/app/console.js", headers={"Accept-Encoding": "br, gzip"})
    assert (status, headers["content-encoding"], headers["vary"]) == (200, "gzip", "accept-encoding")
    assert gzip.decompress(body) == whole and len(body) < 150_000


def test_who_may_not_list_the_repository_sees_neither_page_nor_names(start, repositories):
    one = start(repositories / "small", "--http-restricted-api=model-repository:admin=s3cret")
    for path in ("/", "/v2/models"):
        for headers in ({}, {"admin": "wrong"}):
            status, _, body = one.request("GET", path, headers=headers)
            assert status == 403 and b"simple" not in body and json.loads(body)["error"].endswith("'admin'")
        assert one.request("GET", path, headers={"admin": "s3cret"})[0] == 200
    status, _, body = one.request("GET", "/", headers=HTML)
    assert status == 200 and b"simple" not in body
    closed = start(repositories / "small", "--http-restricted-api=metadata,statistics:admin=s3cret")
    assert [closed.request("GET", path)[0] for path in ("/docs", "/app/console.js", "/", "/v2/models", "/v2", "/console/events")] == [200, 200, 200, 200, 403, 403]
