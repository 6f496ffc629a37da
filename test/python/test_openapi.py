"""GET /v2/openapi.json: what a well-kept validator says of it, and whether the server does what it says."""
import hashlib
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from tritonclient.grpc import InferenceServerClient

from server import Server

SIXTEEN = list(range(16))

BODIES = {
    "modelInfer": {"inputs": [{"name": name, "shape": [1, 16], "datatype": "INT32", "data": SIXTEEN} for name in ("INPUT0", "INPUT1")]},
    "modelGenerate": {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN},
    "modelGenerateStream": {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN},
    "updateTraceSettings": {"trace_rate": "7"},
    "updateModelTraceSettings": {"trace_rate": "7"},
    "updateLogSettings": {"log_verbose_level": 0},
    "registerSystemRegion": {"key": "/nowhere", "byte_size": 64},
    "registerCudaRegion": {"raw_handle": {"b64": "AA=="}, "device_id": 0, "byte_size": 64},
}
"""Bodies of operations that want one, for the model `simple`."""

REFUSED = {
    "registerSystemRegion", "registerCudaRegion", "systemRegion", "cudaRegion", "loadModel", "unloadModel", "unregisterSystemRegion",
    "unregisterSystemRegions", "unregisterCudaRegion", "unregisterCudaRegions", "embeddings", "cohereEmbed", "rerank", "rerankOrTei",
    "cohereRerank", "score", "classify", "textModel", "teiEmbed", "teiPredict", "teiTokenize", "teiInfo",
    "chatCompletions", "completions", "responses", "textModelLoad", "textModelUnload",
}
"""Operations that this server rejects: it has no such region, no GPU, no explicit mode, no text model, none that chats. The response has the documented form of errors."""


def ask(server, method, path, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.http}{path}", data=data if method == "GET" or data else b"", method=method, headers=headers or {})
    if method == "GET":
        request.data = None
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def document(server, query=""):
    status, headers, body = ask(server, "GET", f"/v2/openapi.json{query}")
    assert status == 200, body
    assert headers["content-type"] == "application/json"
    return json.loads(body)


def check(whole, schema, value):
    """The value against a schema of the document."""
    Draft202012Validator({**schema, "components": whole["components"]}).validate(value)


def operations(whole):
    for path, item in whole["paths"].items():
        for method in ("get", "post"):
            if method in item:
                yield method.upper(), path, item[method]


@pytest.mark.parametrize("query", ["", "?model=simple", "?model=simple&version=1", "?version=2&model=versions", "?model=id_string"])
def test_a_validator_takes_the_document(server, query):
    OpenAPIV31SpecValidator(document(server, query)).validate()


def test_every_documented_route_is_there_and_answers_as_documented(server):
    whole = document(server)
    assert len(whole["paths"]) > 30
    for method, path, operation in operations(whole):
        name = operation["operationId"].removesuffix("OfVersion")
        filled = path.replace("{model}", "simple").replace("{version}", "1").replace("{region}", "r")
        # Health has its body for those who ask for JSON.
        accept = {"Accept": "application/json"} if name in ("serverLive", "serverReady") else None
        status, headers, body = ask(server, method, filled, BODIES.get(name), accept)
        where = f"{method} {filled}: {status} {body[:200]}"
        if status != 200:
            assert name in REFUSED, where
            failed = whole["components"]["responses"][operation["responses"]["default"]["$ref"].rsplit("/", 1)[1]]
            check(whole, failed["content"]["application/json"]["schema"], json.loads(body))
            said = body.decode()
            assert status not in (404, 405) or "Unable to find" in said or "no model has the role" in said, where
            continue
        content = operation["responses"]["200"].get("content")
        assert (content is None) == (body == b""), where
        if name == "modelGenerateStream":
            events = [json.loads(line.removeprefix("data: ")) for line in body.decode().split("\n\n") if line]
            assert len(events) == 1
            check(whole, content["text/event-stream"]["schema"], events[0])
        elif name in ("docs", "console"):
            assert headers["content-type"] == "text/html; charset=utf-8" and b"/v2/openapi.json" in body
        elif content is not None:
            check(whole, content["application/json"]["schema"], json.loads(body))


def walk(value):
    """All objects of a document."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(one)


@pytest.mark.parametrize("query", ["", "?model=simple", "?model=simple&version=1", "?model=id_string"])
def test_the_document_keeps_redoclys_recommended_rules(server, query):
    """Checks the rules of `@redocly/cli lint` 2.64: info-license, operation-4xx-response, security-defined, no-unused-components and others."""
    keeps_the_rules(document(server, query))


def keeps_the_rules(whole):
    assert whole["info"]["title"] and whole["info"]["version"]
    assert set(whole["info"]["license"]) == {"name", "identifier"}
    assert isinstance(whole["security"], list)
    described = {tag["name"]: tag["description"] for tag in whole["tags"]}
    assert all(described.values()) and len(described) == len(whole["tags"])
    seen = [operation for _, _, operation in operations(whole)]
    ids = [operation["operationId"] for operation in seen]
    assert len(set(ids)) == len(ids)
    for operation in seen:
        assert operation["summary"] and all(tag in described for tag in operation["tags"]), operation
        assert any(status.startswith("4") for status in operation["responses"]), operation
    assert {tag for operation in seen for tag in operation["tags"]} == set(described)
    refs = {one["$ref"] for one in walk(whole) if isinstance(one.get("$ref"), str)}
    named = {f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in whole["components"][kind]}
    assert refs == named, refs ^ named
    assert all(len(one["oneOf"]) > 1 for one in walk(whole) if isinstance(one.get("oneOf"), list))


def test_methods_that_are_not_documented_are_refused(server):
    whole = document(server)
    for path, item in whole["paths"].items():
        filled = path.replace("{model}", "simple").replace("{version}", "1").replace("{region}", "r")
        for method in {"GET", "POST", "PUT", "DELETE"} - {m.upper() for m in item}:
            assert ask(server, method, filled, {})[0] == 405, f"{method} {path}"


def test_the_document_of_a_model_accepts_and_rejects_the_same_requests(server):
    whole = document(server, "?model=simple")
    assert set(whole["paths"]) == {
        "/v2/models/simple" + tail for tail in ("", "/config", "/generate", "/generate_stream", "/infer", "/ready", "/stats", "/trace/setting", "/why")
    }
    schema = {"$ref": "#/components/schemas/InferRequest"}
    good = BODIES["modelInfer"]
    check(whole, schema, good)
    nested = json.loads(json.dumps(good))
    nested["inputs"][0]["data"] = [SIXTEEN]
    for body in (good, nested):
        status, _, answer = ask(server, "POST", "/v2/models/simple/infer", body)
        assert status == 200, answer
        check(whole, schema, body)
        check(whole, {"$ref": "#/components/schemas/InferResponse"}, json.loads(answer))

    def changed(**how):
        body = json.loads(json.dumps(good))
        body["inputs"][0].update(how)
        return body

    one_missing = {"inputs": good["inputs"][:1]}
    bad = [changed(name="INPUT7"), changed(shape=[1, 15]), changed(shape=[16]), changed(datatype="FP32"), changed(data=["a"] * 16), one_missing, {}]
    validator = Draft202012Validator({**schema, "components": whole["components"]})
    for body in bad:
        assert not validator.is_valid(body), body
        assert ask(server, "POST", "/v2/models/simple/infer", body)[0] != 200, body


def test_every_model_has_a_document(server):
    with InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        models = {model.name for model in client.get_model_repository_index().models if model.state == "READY"}
    assert len(models) > 10
    # The validation of one takes 50 ms.
    for model in sorted(models)[:: 1 if os.environ.get("NEREID_NIGHTLY") else 5]:
        OpenAPIV31SpecValidator(document(server, f"?model={urllib.parse.quote(model)}")).validate()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?model=nope", "unknown model"),
        ("?model=simple&version=9", "version 9"),
        ("?model=simple&version=x", "version"),
        ("?version=1", "\\?model=NAME&version=1"),
        ("?model=" + "x" * 5000, "unknown model"),
        ("?model=%00%0a%22%5c", "unknown model"),
    ],
)
def test_a_document_that_cannot_be_is_an_error_that_says_why(server, query, says):
    status, _, body = ask(server, "GET", f"/v2/openapi.json{query}")
    assert status in (400, 404), body
    assert re.search(says, json.loads(body)["error"]), body


def test_queries_are_read_over_http2_as_well(server):
    def curl(*more):
        url = f"http://{server.http}/v2/openapi.json?model=simple#part"
        return json.loads(subprocess.run(["curl", "-sS", *more, url], check=True, capture_output=True, timeout=20).stdout)

    assert curl("--http2-prior-knowledge") == curl() == document(server, "?model=simple")


KEY = "k" * 43
SECRET = {"X-Secret": "s3cret"}


@pytest.fixture(scope="module", params=[["health"], ["health", "metadata"]], ids=" ".join)
def guarded(request, tmp_path_factory, repositories):
    """A server with a key, who shows none may ask for some verbs, and a header for two groups of calls."""
    directory = tmp_path_factory.mktemp("guarded")
    keys = {"anonymous": {"scopes": [{"verbs": request.param}]}, "keys": [{"name": "all", "sha256": [hashlib.sha256(KEY.encode()).hexdigest()], "scopes": [{"verbs": ["all"]}]}]}
    (directory / "keys.json").write_text(json.dumps(keys))
    flags = [f"--keys-file={directory / 'keys.json'}", "--http-restricted-api=inference,model-config:X-Secret=s3cret", "--allow-client-shm=true"]
    one = Server(repositories / "main", *flags, log=directory / "server.log")
    yield one
    assert one.stop() == 0, one.tail()


def test_a_server_with_keys_and_restricted_apis_says_what_each_request_has_to_show(guarded):
    """With each combination of what the document knows: refused where it says so, and nowhere else."""
    status, _, body = ask(guarded, "GET", "/v2/openapi.json", headers={"X-API-Key": KEY})
    assert status == 200, body
    assert b"s3cret" not in body
    whole = json.loads(body)
    OpenAPIV31SpecValidator(whole).validate()
    keeps_the_rules(whole)
    assert whole["security"] == [{"Bearer": []}, {"ApiKey": []}]
    schemes = {name: (scheme["type"], scheme.get("scheme") or scheme["name"]) for name, scheme in whole["components"]["securitySchemes"].items()}
    assert schemes == {"Bearer": ("http", "bearer"), "ApiKey": ("apiKey", "X-API-Key"), "Restricted1": ("apiKey", "X-Secret")}
    shown = {"Bearer": {"Authorization": f"Bearer {KEY}"}, "ApiKey": {"X-API-Key": KEY}, "Restricted1": SECRET}
    seen = set()
    for method, path, operation in operations(whole):
        name = operation["operationId"].removesuffix("OfVersion")
        filled = path.replace("{model}", "simple").replace("{version}", "1").replace("{region}", "r")
        for names in [(), ("Bearer",), ("ApiKey",), ("Restricted1",), ("Bearer", "Restricted1"), ("ApiKey", "Restricted1")]:
            enough = any(set(all_of) <= set(names) for all_of in operation["security"])
            status, _, answer = ask(guarded, method, filled, BODIES.get(name), {k: v for one in names for k, v in shown[one].items()})
            assert (status not in (401, 403)) == enough, f"{method} {filled} with {names}: {status} {answer[:200]}"
            seen.add((names, enough))
    # Each was refused somewhere, and taken somewhere.
    assert len(seen) == 10


def test_a_server_without_keys_and_restrictions_says_nothing_of_security(server):
    whole = document(server)
    assert "securitySchemes" not in whole["components"]
    assert whole["security"] == [{}]
    assert not any("security" in operation for _, _, operation in operations(whole))
