"""Tokens of an OpenID Connect issuer, signed by openssl with keys that it made; the set from a file and from a URL."""
import base64
import http.server
import json
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from server import OTHER, Server, waits_for

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(bool(OTHER) or not OPENSSL, reason="openssl is not here, or another server is asked")

ISSUER, AUDIENCE = "https://issuer.example", "nereid"
RULES = [
    {"name": "people", "claim": "groups", "value": "ml", "scopes": [{"verbs": ["inference", "metadata"], "models": ["simple"]}]},
    {"name": "jobs", "value": "infer", "scopes": [{"verbs": ["all:read"]}], "quota": {"concurrency": 4}},
]


def openssl(*args, data=None):
    return subprocess.run([OPENSSL, *map(str, args)], check=True, capture_output=True, input=data, timeout=60).stdout


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    KINDS = {
        "RS256": ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
        "PS256": ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
        "ES256": ("EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        "EdDSA": ("ED25519",),
    }

    def __init__(self, directory, algorithm, kid):
        self.algorithm, self.kid, self.file = algorithm, kid, directory / f"{kid}.key"
        openssl("genpkey", "-algorithm", *self.KINDS[algorithm], "-out", self.file)
        public = openssl("pkey", "-in", self.file, "-pubout", "-outform", "DER")
        if algorithm in ("RS256", "PS256"):
            modulus = openssl("rsa", "-in", self.file, "-noout", "-modulus").decode().strip().partition("=")[2]
            self.jwk = {"kty": "RSA", "n": b64(bytes.fromhex(modulus)), "e": "AQAB", "alg": algorithm}
        elif algorithm == "ES256":
            self.jwk = {"kty": "EC", "crv": "P-256", "x": b64(public[-64:-32]), "y": b64(public[-32:])}
        else:
            self.jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64(public[-32:])}
        self.jwk["kid"] = kid

    def sign(self, message):
        path = self.file.with_suffix(".message")
        path.write_bytes(message)
        if self.algorithm == "EdDSA":
            return openssl("pkeyutl", "-sign", "-inkey", self.file, "-rawin", "-in", path)
        pss = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32"] if self.algorithm == "PS256" else []
        signature = openssl("dgst", "-sha256", "-sign", self.file, *pss, path)
        if self.algorithm != "ES256":
            return signature
        # From DER to the two numbers side by side.
        numbers, at = b"", 2
        for _ in range(2):
            length = signature[at + 1]
            numbers += signature[at + 2 : at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
            at += 2 + length
        return numbers

    def token(self, header=(), **more):
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 600, "groups": ["ml"], **more}
        claims = {name: value for name, value in claims.items() if value is not None}
        message = ".".join(b64(json.dumps(part).encode()) for part in ({"alg": self.algorithm, "kid": self.kid, **dict(header)}, claims))
        return f"{message}.{b64(self.sign(message.encode()))}"


def key_set(*signers):
    return json.dumps({"keys": [one.jwk for one in signers]})


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("issuer")
    return {algorithm: Signer(directory, algorithm, algorithm.lower()) for algorithm in Signer.KINDS}


def flags(directory, keys):
    (directory / "keys.json").write_text(json.dumps({"oidc": {"rules": RULES}}))
    return [f"--keys-file={directory / 'keys.json'}", f"--oidc-issuer={ISSUER}", f"--oidc-audience={AUDIENCE}", f"--oidc-keys={keys}"]


@pytest.fixture(scope="module")
def server(issuer, tmp_path_factory, repositories):
    directory = tmp_path_factory.mktemp("oidc")
    (directory / "jwks.json").write_text(key_set(*issuer.values()))
    one = Server(repositories / "main", *flags(directory, directory / "jwks.json"), log=directory / "oidc.log")
    one.directory = directory
    yield one
    assert one.stop() == 0, one.tail()


def answers(server, token, model="simple"):
    """Results over HTTP and gRPC: None for success, or the reason of the rejection."""
    texts = []
    for module, address in ((tritonclient.http, server.http), (tritonclient.grpc, server.grpc)):
        with module.InferenceServerClient(address) as client:
            try:
                client.get_model_metadata(model, headers={"authorization": f"Bearer {token}"})
                texts.append(None)
            except InferenceServerException as e:
                texts.append(e.message())
    return texts


def metadata(server, token, model="simple"):
    """None, or why over HTTP and over gRPC, which agree."""
    texts = answers(server, token, model)
    assert texts[0] == texts[1], texts
    return texts[0]


def is_taken(server, token):
    """While keys change, the one may already take what the other does not."""
    return answers(server, token) == [None, None]


@pytest.mark.parametrize("algorithm", list(Signer.KINDS))
def test_tokens_of_the_issuer_may_what_their_rule_says(server, issuer, algorithm):
    token = issuer[algorithm].token()
    # The second time from memory.
    assert metadata(server, token) is None and metadata(server, token) is None
    assert "The key 'people' has no scope for metadata of model 'identity_fp32'" in metadata(server, token, "identity_fp32")
    # The claim of --oidc-scopes, for a rule that names none.
    assert metadata(server, issuer[algorithm].token(groups=None, scope="read infer")) is None
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        inputs = [tritonclient.grpc.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        for one in inputs:
            one.set_data_from_numpy(np.ones((1, 16), np.int32))
        result = client.infer("simple", inputs, headers={"authorization": f"Bearer {token}"})
        assert (result.as_numpy("OUTPUT0") == 2).all()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://other.example"}, "has another issuer"),
        ({"aud": "another"}, "has another audience"),
        ({"aud": None}, "does not name its issuer and its audience"),
        ({"exp": int(time.time()) - 3600}, "has expired"),
        ({"exp": None}, "has no expiry time"),
        ({"exp": "99999999999"}, "has a time that is not a number"),
        ({"nbf": int(time.time()) + 3600}, "is not valid yet"),
        ({"groups": ["hr"]}, "matches no rule of the keys file"),
    ],
)
def test_claims_that_are_wrong_are_told_and_not_repeated(server, issuer, claims, why):
    assert metadata(server, issuer["ES256"].token(**claims)) == f"The token {why}"


def test_who_signed_counts(server, issuer, tmp_path):
    stranger = Signer(tmp_path, "RS256", "rs256")
    assert metadata(server, stranger.token()) == "The token is not signed by its issuer"
    other = Signer(tmp_path, "ES256", "other")
    assert metadata(server, other.token()) == "The token is signed with an unknown key"
    message = issuer["RS256"].token({"alg": "none"}).rpartition(".")[0]
    assert "The token" in metadata(server, f"{message}.")
    # A key that says what it is for is for nothing else.
    assert "The token" in metadata(server, issuer["RS256"].token({"alg": "PS256"}))


def test_a_set_in_a_file_is_read_again(server, issuer, tmp_path):
    fresh = Signer(tmp_path, "EdDSA", "fresh")
    old = issuer["EdDSA"].token(jti="old")
    assert metadata(server, old) is None
    (server.directory / "jwks.json").write_text(key_set(fresh, *(one for name, one in issuer.items() if name != "EdDSA")))
    waits_for(lambda: is_taken(server, fresh.token()), "the new key is taken")
    assert "an unknown key" in metadata(server, old), "what was verified with a key goes with it"
    (server.directory / "jwks.json").write_text(key_set(*issuer.values()))
    waits_for(lambda: is_taken(server, old), "the old key is back")


@pytest.fixture
def publish():
    """Makes an issuer that publishes what `content` is."""
    ended = []

    def make(content):
        class Handler(http.server.BaseHTTPRequestHandler):
            count = 0

            def do_GET(self):
                type(self).count += 1
                self.send_response(200 if self.content else 404)
                self.send_header("Content-Length", str(len(self.content)))
                self.end_headers()
                self.wfile.write(self.content)

            def log_message(self, *_):
                pass

        Handler.content = content
        listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        ended.append((listener, thread))
        Handler.url = f"http://127.0.0.1:{listener.server_port}/jwks"
        return Handler

    yield make
    for listener, thread in ended:
        listener.shutdown()
        thread.join()
        listener.server_close()


def test_a_set_is_fetched_and_again_when_a_key_is_not_known(publish, issuer, tmp_path, repositories, start):
    one, two = issuer["RS256"], issuer["ES256"]
    # Two servers, since each waits ten seconds from one fetch to the next: for one the set grows, for the other it is gone.
    sets = [publish(key_set(one).encode()) for _ in range(2)]
    grows, is_gone = (start(repositories / "small", *flags(tmp_path, published.url)) for published in sets)
    assert metadata(grows, one.token()) is None and metadata(is_gone, one.token()) is None
    sets[0].content, sets[1].content = key_set(one, two).encode(), b""
    token = two.token()
    assert "an unknown key" in metadata(grows, token)
    assert "an unknown key" in metadata(is_gone, token)
    waits_for(lambda: is_taken(grows, token), "the set is fetched for a new name")
    assert sets[0].count == 2
    is_gone.logged("can not be fetched", "status 404")
    for _ in range(2):
        count = sets[1].count
        is_gone.process.send_signal(signal.SIGHUP)
        waits_for(lambda count=count: sets[1].count > count, "the next fetch")
    with open(is_gone.log) as log:
        assert log.read().count("can not be fetched") == 1, "the same failure is logged once"
    assert metadata(is_gone, one.token()) is None, "the keys stay"


def test_sighup_fetches_the_set_at_once(publish, issuer, tmp_path, repositories, start):
    one, two = issuer["RS256"], issuer["ES256"]
    published = publish(key_set(one, two).encode())
    server = start(repositories / "small", *flags(tmp_path, published.url))
    assert is_taken(server, two.token())
    # The issuer took a key back: for up to five minutes nothing else would ask.
    published.content = key_set(one).encode()
    server.signal(signal.SIGHUP)
    server.logged("Signal (1) received", published.url)
    waits_for(lambda: "an unknown key" in (answers(server, two.token())[0] or ""), "the key is gone")
    assert is_taken(server, one.token())


def test_a_set_that_is_too_large_is_not_read(publish, issuer, tmp_path, repositories, start):
    server = start(repositories / "small", *flags(tmp_path, publish(b" " * (300 << 10)).url))
    server.logged("more than 262144 bytes")
    assert "an unknown key" in metadata(server, issuer["RS256"].token())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--oidc-issuer=https://a"], "Tokens of an issuer need --oidc-issuer, --oidc-audience and --oidc-keys."),
        (["--oidc-issuer=a", "--oidc-audience=b", "--oidc-keys=c"], "Tokens of an issuer need a keys file"),
        (["--keys-file=k", "--oidc-issuer=a", "--oidc-audience=b", "--oidc-keys=http://issuer.example/jwks"], "by https only"),
    ],
)
def test_flags_that_do_not_go_together_are_told(tmp_path, repositories, given, text):
    server = Server(repositories / "small", *given, log=tmp_path / "flags.log", wait=False)
    assert server.wait() == 1 and text in server.output(), server.output()
