"""`/`, `/docs` and `/v2/models`: what browsers and other clients get, who may ask, and that nothing of a name becomes markup."""
import json
import pathlib
import re
import shutil
import subprocess
import urllib.parse
from html.parser import HTMLParser

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from server import NODE

HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PATHS = {"/": "application/json", "/docs": "text/html; charset=utf-8", "/docs/page.js": "text/javascript; charset=utf-8", "/docs/page.css": "text/css; charset=utf-8"}
BAD = "bad' \"><img src=x onerror=alert(1)><script>alert(1)</script>&amp;"
CONFIG = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]})


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
    assert (status, headers["content-type"], headers["vary"]) == (200, "application/json", "accept")
    home = json.loads(body)
    assert (home["name"], home["version"], home["ready"]) == ("triton", json.loads(server.get("/v2"))["version"], True)
    own = json.loads((pathlib.Path(__file__).parents[2] / "package.json").read_text())["version"]
    assert home["implementation"] == {"name": "Nereid", "version": own}
    index = json.loads(server.request("POST", "/v2/repository/index")[2])
    assert home["models"] == index and len(index) > 10
    assert home["links"] == {"docs": "/docs", "openapi": "/v2/openapi.json", "metrics": f"http://127.0.0.1:{server.metrics_port}/metrics"}
    for path in home["links"].values():
        assert server.request("GET", path.replace(f"http://127.0.0.1:{server.metrics_port}", ""), port=server.metrics_port if "metrics" in path else None)[0] == 200
    status, headers, body = server.request("GET", "/", headers=HTML)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = Page(body.decode())
    assert f"Nereid {own}" in page.text
    assert all(row["name"] in page.text and row.get("state", "") in page.text for row in index)
    assert {"/docs", "/v2/openapi.json", "/docs/page.css", "/docs?model=simple", home["links"]["metrics"]} <= set(page.links)


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


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_everything_a_page_loads_comes_from_this_server_and_nothing_is_inline(server, path):
    text = server.request("GET", path, headers=HTML)[2].decode()
    page = Page(text)
    assert not page.handlers and "style" not in page.tags
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert all(link.startswith("/") for link in page.links if "/metrics" not in link)


def test_names_and_reasons_of_clients_are_text(start, repositories, tmp_path):
    name = BAD.replace("/", "")
    repository = shutil.copytree(repositories / "small", tmp_path / "models")
    for made in (name, "fails"):
        (repository / made / "1").mkdir(parents=True)
    one = start(repository, "--model-control-mode=explicit")
    with tritonclient.grpc.InferenceServerClient(one.grpc) as client:
        client.load_model(name, config=CONFIG, files={"file:1/anything": b"anything"})
        # A load that fails leaves its reason in the index, and the text of the client in that.
        with pytest.raises(InferenceServerException):
            client.load_model("fails", config=CONFIG.replace('"identity"', json.dumps(BAD)), files={"file:1/anything": b"anything"})
    index = json.loads(one.request("POST", "/v2/repository/index")[2])
    assert name in [row["name"] for row in index] and any("onerror" in row.get("reason", "") for row in index), index
    page = Page(one.request("GET", "/", headers=HTML)[2].decode())
    assert page.tags <= {"html", "head", "meta", "title", "link", "body", "h1", "h2", "small", "p", "strong", "ul", "li", "a", "table", "tr", "th", "td", "code"}, page.tags
    assert not page.handlers
    assert all(row["name"] in page.text and row.get("reason", "") in page.text for row in index)
    link = next(link for link in page.links if "onerror" in link)
    assert urllib.parse.parse_qs(link.partition("?")[2])["model"] == [name] and one.request("GET", link)[0] == 200
    assert name in json.loads(one.get("/v2/models"))["models"]


@pytest.mark.parametrize("host", ["evil.example/path", "a b", '"><script>', "x" * 300, "user@evil.example"])
def test_a_host_that_is_none_is_not_repeated(server, host):
    status, _, body = server.request("GET", "/", headers={"Host": host, **HTML})
    assert status in (200, 400) and (status == 400 or host not in body.decode()), body


def test_the_script_shows_the_description_and_makes_text_of_text(server, tmp_path):
    """In Node, with as much of a document of a browser as the script uses."""
    (tmp_path / "page.js").write_bytes(server.get("/docs/page.js"))
    (tmp_path / "run.mjs").write_text(BROWSER)
    for query, names in (("", ["GET", "/v2/models/{model}/infer", "InferRequest"]), ("?model=simple", ["/v2/models/simple/infer", "INPUT0"]), ("?model=nope", ["nope", "is not found"])):
        done = subprocess.run([NODE, "run.mjs", server.http, query], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert all(name in shown["text"] for name in names), shown["text"][:500]
        assert "script" not in shown["tags"]


BROWSER = r"""
import { readFileSync } from 'node:fs'
const [, , host, search] = process.argv
const tags = new Set()
class Element {
  constructor(name) { this.children = []; tags.add(name) }
  setAttribute(name) { if (/^on|style/.test(name)) throw new Error(name) }
  append(...children) { this.children.push(...children) }
  replaceChildren(...children) { this.children = children }
  get textContent() { return this.children.map((one) => (typeof one === 'string' ? one : one instanceof Element ? one.textContent : `[not text: ${typeof one}]`)).join('') }
  // What parses markup.
  set innerHTML(_) { throw new Error('innerHTML') }
}
const page = new Element('main')
globalThis.document = { createElement: (name) => new Element(name), getElementById: () => page, title: '' }
globalThis.location = { search, hash: '' }
globalThis.addEventListener = () => {}
const { fetch } = globalThis
globalThis.fetch = (path) => fetch(new URL(path, `http://${host}`))
new Function(readFileSync('page.js', 'utf8'))()
const from = Date.now()
while (page.children.length === 0 && Date.now() - from < 20_000) await new Promise((done) => setTimeout(done, 5))
const text = page.textContent
if (text.includes('[not text')) throw new Error(text)
console.log(JSON.stringify({ text, tags: [...tags] }))
"""


def test_who_may_not_list_the_repository_sees_neither_page_nor_names(start, repositories):
    one = start(repositories / "small", "--http-restricted-api=model-repository:admin=s3cret")
    for path in ("/", "/v2/models"):
        for headers in ({}, HTML, {"admin": "wrong"}):
            status, _, body = one.request("GET", path, headers=headers)
            assert status == 403 and b"simple" not in body and json.loads(body)["error"].endswith("'admin'")
        assert one.request("GET", path, headers={"admin": "s3cret"})[0] == 200
    assert one.request("GET", "/docs")[0] == 200
    closed = start(repositories / "small", "--http-restricted-api=metadata:admin=s3cret")
    assert [closed.request("GET", path)[0] for path in ("/docs", "/docs/page.js", "/", "/v2/models")] == [403, 403, 200, 200]
