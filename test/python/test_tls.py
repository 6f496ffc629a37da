"""TLS in front of both ports, with the clients and tools that people use: tritonclient, curl, openssl."""
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from types import SimpleNamespace

import gevent.ssl
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from server import free_ports, waits_for
from test_access_log import Log

OPENSSL, CURL = shutil.which("openssl"), shutil.which("curl")
pytestmark = pytest.mark.skipif(not (OPENSSL and CURL), reason="openssl and curl are not here: apt-get install openssl curl")

A, B = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)


def openssl(*args):
    subprocess.run([OPENSSL, *map(str, args)], check=True, capture_output=True, timeout=60)


class Authority:
    """A certificate authority in a directory; its certificates are of prime256v1."""

    def __init__(self, directory, name):
        self.directory = directory
        self.name = name
        self.serial = 1
        self.certificate, self.key = directory / f"{name}.pem", directory / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.certificate)  # fmt: skip

    def issue(self, name, use="serverAuth", kind=("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), alternatives="DNS:localhost,IP:127.0.0.1"):
        """`(certificate, key)`, by default for `localhost` and 127.0.0.1."""
        at = self.directory / f"{self.name}-{name}"
        request, extensions = f"{at}.csr", f"{at}.ext"
        with open(extensions, "w") as f:
            f.write(f"subjectAltName={alternatives}\nextendedKeyUsage={use}\nbasicConstraints=CA:FALSE\n")
        openssl("req", "-newkey", *kind, "-nodes", "-subj", f"/CN={name}", "-keyout", f"{at}.key", "-out", request)
        self.serial += 1
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-set_serial", self.serial, "-days", "2",
                "-extfile", extensions, "-out", f"{at}.pem")  # fmt: skip
        return f"{at}.pem", f"{at}.key"


    def issue_plain(self, name, **dates):
        """`(certificate, key)` of X.509 version 1, as `openssl x509 -req` makes it without extensions, for the common name `localhost`."""
        at = self.directory / f"{self.name}-plain-{name}"
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-keyout", f"{at}.key", "-out", f"{at}.csr")
        signing = ["-in", f"{at}.csr", "-out", f"{at}.pem"]
        if dates:
            config, index = f"{at}.conf", f"{at}.index"
            with open(config, "w") as f:
                f.write(f"[ca]\ndefault_ca=d\n[d]\ndatabase={index}\nunique_subject=no\nserial={at}.serial\nnew_certs_dir={self.directory}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
            open(index, "w").close()
            openssl("ca", "-batch", "-notext", "-rand_serial", "-config", config, "-cert", self.certificate, "-keyfile", self.key,
                    "-startdate", dates["start"], "-enddate", dates["end"], *signing)  # fmt: skip
        else:
            self.serial += 1
            openssl("x509", "-req", "-CA", self.certificate, "-CAkey", self.key, "-set_serial", self.serial, "-days", "2", *signing)
        text = subprocess.run([OPENSSL, "x509", "-in", f"{at}.pem", "-noout", "-text"], capture_output=True, check=True, timeout=60).stdout
        if b"Version: 1 " not in text:
            pytest.skip("this openssl makes no certificates of version 1")
        return f"{at}.pem", f"{at}.key"

    def below(self, name, version):
        """An authority of its own that this one signed, of X.509 version 1 or 3."""
        made = Authority.__new__(Authority)
        made.directory, made.name, made.serial = self.directory, f"{self.name}-{name}", 1
        if version == 1:
            made.certificate, made.key = self.issue_plain(name)
            return made
        at = self.directory / made.name
        with open(f"{at}.ext", "w") as f:
            f.write("basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{at}.key", "-out", f"{at}.csr")
        self.serial += 1
        openssl("x509", "-req", "-in", f"{at}.csr", "-CA", self.certificate, "-CAkey", self.key, "-set_serial", self.serial, "-days", "2",
                "-extfile", f"{at}.ext", "-out", f"{at}.pem")  # fmt: skip
        made.certificate, made.key = f"{at}.pem", f"{at}.key"
        return made


def chain(pair, *authorities):
    """The pair with the certificates of these authorities behind its own."""
    with open(f"{pair[0]}.chain", "wb") as f:
        f.writelines(read(one) for one in (pair[0], *(authority.certificate for authority in authorities)))
    return f.name, pair[1]


def tampered(pair):
    """The pair with the last byte of the signature changed."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(read(pair[0]).decode()))
    der[-1] ^= 1
    with open(f"{pair[0]}.tampered", "w") as f:
        f.write(ssl.DER_cert_to_PEM_cert(bytes(der)))
    return f.name, pair[1]


class Pki:
    def __init__(self, directory):
        self.root, self.stranger = Authority(directory, "root"), Authority(directory, "stranger")
        self.server = self.root.issue("server")
        self.client = self.root.issue("client", "clientAuth")
        self.foreign = self.stranger.issue("client", "clientAuth")


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


def flags(service, files, *more):
    return [f"--{service}-use-ssl=true", f"--{service}-server-cert={files[0]}", f"--{service}-server-key={files[1]}", *more]


@pytest.fixture(scope="module")
def tls(pki, repositories, tmp_path_factory):
    """A server with TLS on both ports."""
    from server import Server

    one = Server(repositories / "main", *flags("http", pki.server), *flags("grpc", pki.server), log=tmp_path_factory.mktemp("log") / "tls.log")
    yield one
    assert one.process.poll() is None, one.tail()
    assert one.stop() == 0, one.tail()


@pytest.fixture(scope="module")
def mutual(pki, repositories, tmp_path_factory):
    """A server that wants certificates of clients on both ports."""
    from server import Server

    roots = pki.root.certificate
    one = Server(
        repositories / "main",
        *flags("http", pki.server, f"--http-root-cert={roots}"),
        "--grpc-use-ssl-mutual=true", f"--grpc-server-cert={pki.server[0]}", f"--grpc-server-key={pki.server[1]}", f"--grpc-root-cert={roots}",
        log=tmp_path_factory.mktemp("log") / "mutual.log",
    )  # fmt: skip
    yield one
    assert one.process.poll() is None, one.tail()
    assert one.stop() == 0, one.tail()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def grpc_client(server, pki, client=None, **options):
    more = {} if client is None else {"certificate_chain": str(client[0]), "private_key": str(client[1])}
    return tritonclient.grpc.InferenceServerClient(server.grpc, ssl=True, root_certificates=str(pki.root.certificate), **more, **options)


def http_client(server, pki, client=None):
    options = {"ca_certs": str(pki.root.certificate), "cert_reqs": ssl.CERT_REQUIRED}
    if client is not None:
        options |= {"certfile": client[0], "keyfile": client[1]}
    return tritonclient.http.InferenceServerClient(server.http, ssl=True, ssl_options=options, ssl_context_factory=gevent_context)


def gevent_context():
    # The context that the client would make, for versions of Python without `ssl.wrap_socket`.
    return gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def sums(client, module):
    inputs = []
    for name, array in (("INPUT0", A), ("INPUT1", B)):
        one = module.InferInput(name, array.shape, "INT32")
        one.set_data_from_numpy(array)
        inputs.append(one)
    return client.infer("simple", inputs).as_numpy("OUTPUT0")


def curl(server, pki, path, *more, data=None):
    """`(status, protocol version, body)`."""
    command = [CURL, "-sS", "--cacert", str(pki.root.certificate), "--max-time", "30", "-w", "\n%{http_code} %{http_version}", *more, f"https://localhost:{server.http_port}{path}"]
    done = subprocess.run(command, input=data, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise ConnectionError(done.stderr.decode())
    body, _, last = done.stdout.rpartition(b"\n")
    status, version = last.split()
    return int(status), version.decode(), body


def test_p_162_grpc_over_tls_answers_as_plain_does(tls, pki):
    with grpc_client(tls, pki) as client:
        assert client.is_server_ready()
        np.testing.assert_array_equal(sums(client, tritonclient.grpc), A + B)


def test_grpc_streams_over_tls(tls, pki):
    import queue

    came = queue.Queue()
    with grpc_client(tls, pki) as client:
        client.start_stream(lambda result, error: came.put((result, error)))
        for i in range(50):
            one = tritonclient.grpc.InferInput("INPUT0", A.shape, "INT32"), tritonclient.grpc.InferInput("INPUT1", A.shape, "INT32")
            one[0].set_data_from_numpy(A)
            one[1].set_data_from_numpy(np.full_like(A, i))
            client.async_stream_infer("simple", list(one), request_id=str(i))
        for i in range(50):
            result, error = came.get(timeout=30)
            assert error is None
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), A + i)
        client.stop_stream()


@pytest.mark.parametrize("elements", [1, 5_000, 4_000_000])
def test_tensors_of_any_size_go_through_and_come_back(tls, pki, elements):
    value = np.random.default_rng(1).standard_normal((1, elements), np.float32)
    with grpc_client(tls, pki) as client:
        one = tritonclient.grpc.InferInput("INPUT0", value.shape, "FP32")
        one.set_data_from_numpy(value)
        np.testing.assert_array_equal(client.infer("id_fp32", [one]).as_numpy("OUTPUT0"), value)
    head = json.dumps({
        "inputs": [{"name": "INPUT0", "shape": [1, elements], "datatype": "FP32", "parameters": {"binary_data_size": value.nbytes}}],
        "parameters": {"binary_data_output": True},
    })  # fmt: skip
    more = ["-X", "POST", "-H", f"Inference-Header-Content-Length: {len(head)}", "-H", "Expect:", "--data-binary", "@-"]
    for version, asked in (("1.1", "--http1.1"), ("2", "--http2")):
        status, spoken, body = curl(tls, pki, "/v2/models/id_fp32/infer", *more, asked, data=head.encode() + value.tobytes())
        assert (status, spoken) == (200, version)
        assert body.endswith(value.tobytes())


def test_alpn_chooses_http_2_or_1(tls, pki):
    assert curl(tls, pki, "/v2/health/ready", "--http2")[:2] == (200, "2")
    assert curl(tls, pki, "/v2/health/ready", "--http1.1")[:2] == (200, "1.1")


def test_http_client_over_tls(tls, pki):
    client = http_client(tls, pki)
    assert client.is_server_live()
    np.testing.assert_array_equal(sums(client, tritonclient.http), A + B)
    client.close()


def test_plain_clients_are_told(tls):
    status, _, body = tls.request("GET", "/v2/health/live")
    assert (status, json.loads(body)) == (400, {"error": "this port uses TLS: use https:// instead"})
    with tritonclient.grpc.InferenceServerClient(tls.grpc) as client, pytest.raises(InferenceServerException):
        client.is_server_live(client_timeout=5)


def test_old_versions_are_refused(tls):
    for version in ("-tls1", "-tls1_1"):
        done = subprocess.run([OPENSSL, "s_client", "-connect", tls.http, version], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        assert done.returncode != 0
    for version in ("-tls1_2", "-tls1_3"):
        done = subprocess.run([OPENSSL, "s_client", "-connect", tls.http, version], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        assert done.returncode == 0 and b"Cipher is (NONE)" not in done.stdout, done.stdout


def test_p_162_mutual_tls_lets_in_whom_the_roots_signed(mutual, pki):
    with grpc_client(mutual, pki, pki.client) as client:
        np.testing.assert_array_equal(sums(client, tritonclient.grpc), A + B)
    client = http_client(mutual, pki, pki.client)
    np.testing.assert_array_equal(sums(client, tritonclient.http), A + B)
    client.close()
    one = ["--cert", pki.client[0], "--key", pki.client[1]]
    assert curl(mutual, pki, "/v2/health/ready", *one)[0] == 200


@pytest.mark.parametrize("who", ["nobody", "foreign"])
def test_mutual_tls_refuses_others(mutual, pki, who):
    client = None if who == "nobody" else pki.foreign
    with grpc_client(mutual, pki, client) as one, pytest.raises(InferenceServerException):
        one.is_server_live(client_timeout=5)
    more = [] if client is None else ["--cert", client[0], "--key", client[1]]
    with pytest.raises(ConnectionError):
        curl(mutual, pki, "/v2/health/ready", *more)


def dated(pki, name, days):
    """`(certificate, key)` that ends in so many days, or ended before, and the second of that end."""
    # A minute before, so that days are counted alike in the first second and later.
    end = int(time.time()) + days * 86_400 - 60
    pair = pki.root.issue_plain(name, start="20200101000000Z", end=time.strftime("%Y%m%d%H%M%SZ", time.gmtime(end)))
    return pair, end


def test_certificates_that_end_are_told_at_the_start_and_when_they_are_read_again(start, pki, repositories, tmp_path):
    (soon, soon_end), (late, late_end), (over, over_end) = (dated(pki, f"ends{days}", days) for days in (13, 15, -3))
    served = tmp_path / "served.pem", tmp_path / "served.key"
    roots = tmp_path / "roots.pem"
    # The first of the file that ends: the root has two days.
    roots.write_bytes(read(late[0]) + read(pki.root.certificate))

    def serve(pair):
        for source, target in zip(pair, served, strict=True):
            copy = tmp_path / "copy"
            shutil.copy(source, copy)
            os.replace(copy, target)

    serve(soon)
    server = start(
        repositories / "small", *flags("http", late, f"--http-root-cert={roots}"), *flags("grpc", served)
    )

    def lines(text):
        with open(server.log) as f:
            return [line for line in f if "a certificate in" in line and text in line]

    def ends():
        name = "nereid_tls_certificate_expires_seconds"
        return {series.removeprefix(name): value for series, value in server.metrics().items() if series.startswith(name)}

    def label(listener, file):
        return f'{{file="{file}",listener="{listener}"}}'

    root_end = subprocess.run([OPENSSL, "x509", "-in", pki.root.certificate, "-noout", "-enddate"], capture_output=True, check=True, text=True).stdout
    root_end = ssl.cert_time_to_seconds(root_end.strip().removeprefix("notAfter="))
    others = {label("http", late[0]): late_end, label("http", roots): root_end}
    assert ends() == others | {label("grpc", served[0]): soon_end}
    waits_for(lambda: len(lines("")) == 2, "two warnings at the start")
    assert len(lines(f"{served[0]}, for grpc, expires in 12 d: replace it")) == 1
    assert len(lines(f"{roots}, for http, expires in ")) == 1
    serve(over)
    waits_for(lambda: lines(f"{served[0]}, for grpc, expired 3 d ago: replace it"), "a warning of the expired one")
    assert ends() == others | {label("grpc", served[0]): over_end}
    serve(late)
    waits_for(lambda: ends() == others | {label("grpc", served[0]): late_end}, "the metric of the new one")
    assert not lines("expires in 14 d")


def test_a_server_certificate_of_version_1_is_served(start, pki, repositories):
    pair = pki.root.issue_plain("server")
    server = start(repositories / "small", *flags("http", pair), *flags("grpc", pair))
    assert curl(server, pki, "/v2/health/ready")[:2] == (200, "2")
    with grpc_client(server, pki, channel_args=[("grpc.ssl_target_name_override", "localhost")]) as client:
        np.testing.assert_array_equal(sums(client, tritonclient.grpc), A + B)
    for version in ("-tls1_2", "-tls1_3"):
        command = [OPENSSL, "s_client", "-connect", server.http, "-CAfile", pki.root.certificate, "-verify_return_error", version]
        done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        assert done.returncode == 0 and b"Verify return code: 0 (ok)" in done.stdout, done.stdout
    assert server.stop() == 0


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("way", ["the root", "an authority of version 3"])
def test_mutual_tls_lets_in_clients_of_version_1(mutual, pki, way, version):
    if way == "the root":
        one = pki.root.issue_plain("good")
    else:
        middle = pki.root.below("middle", 3)
        one = chain(middle.issue_plain("good"), middle)
    assert curl(mutual, pki, "/v2/health/ready", "--cert", one[0], "--key", one[1], f"--tlsv{version}", "--tls-max", version)[0] == 200
    with grpc_client(mutual, pki, one) as client:
        np.testing.assert_array_equal(sums(client, tritonclient.grpc), A + B)


def with_old_authority(pki, plain):
    old = pki.root.below("old", 1)
    return chain(old.issue_plain("below") if plain else old.issue("below", "clientAuth"), old)


@pytest.mark.parametrize("make", [
    pytest.param(lambda pki: pki.stranger.issue_plain("client"), id="another root"),
    pytest.param(lambda pki: pki.root.below("unsent", 3).issue_plain("client"), id="without its authority"),
    pytest.param(lambda pki: with_old_authority(pki, True), id="below an authority of version 1"),
    pytest.param(lambda pki: with_old_authority(pki, False), id="of version 3, below an authority of version 1"),
    pytest.param(lambda pki: pki.root.issue_plain("expired", start="20200101000000Z", end="20210101000000Z"), id="expired"),
    pytest.param(lambda pki: pki.root.issue_plain("early", start="20900101000000Z", end="20910101000000Z"), id="not yet valid"),
    pytest.param(lambda pki: tampered(pki.root.issue_plain("tampered")), id="another signature"),
    pytest.param(lambda pki: (pki.root.issue_plain("stolen")[0], pki.root.issue_plain("own")[1]), id="another key"),
])  # fmt: skip
def test_mutual_tls_refuses_clients_of_version_1_as_those_of_version_3(mutual, pki, make):
    one = make(pki)
    for version in ("1.2", "1.3"):
        with pytest.raises(ConnectionError):
            curl(mutual, pki, "/v2/health/ready", "--cert", one[0], "--key", one[1], f"--tlsv{version}", "--tls-max", version)
    # The next client is served as ever.
    assert curl(mutual, pki, "/v2/health/ready", "--cert", pki.client[0], "--key", pki.client[1])[0] == 200


def served(server):
    """Serial number of the certificate that a new connection is shown."""
    shown = ssl.get_server_certificate(("127.0.0.1", server.http_port))
    done = subprocess.run([OPENSSL, "x509", "-noout", "-serial"], input=shown.encode(), capture_output=True, check=True, timeout=30)
    return done.stdout.decode().strip()


def replace(pair, at):
    """Replaces the files as Kubernetes does: it moves a link to a new directory in one step."""
    for made, name in zip(pair, ("tls.crt", "tls.key")):
        shutil.copy(made, at / f".{name}")
        os.replace(at / f".{name}", at / name)


def test_a_new_certificate_is_served_and_connections_go_on(start, pki, repositories, tmp_path):
    replace(pki.root.issue("first"), tmp_path)
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    server = start(repositories / "small", *flags("http", files), *flags("grpc", files))
    first = served(server)
    with grpc_client(server, pki) as client:
        assert client.is_server_live()
        replace(pki.root.issue("second"), tmp_path)
        waits_for(lambda: served(server) != first, "the new certificate")
        second = served(server)
        # One that cannot be used changes nothing, and is told.
        (tmp_path / "tls.crt").write_text("nothing")
        server.logged("the current certificate stays in use")
        assert served(server) == second
        np.testing.assert_array_equal(sums(client, tritonclient.grpc), A + B)
    assert server.stop() == 0


def subject_shown(server, *more):
    done = subprocess.run([OPENSSL, "s_client", "-connect", server.http, *more], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    return next(line for line in done.stdout.decode().splitlines() if line.startswith("subject=")).replace(" ", "")


def test_of_several_certificates_a_client_is_shown_the_one_it_names(start, pki, repositories):
    names = ["DNS:localhost,IP:127.0.0.1", "DNS:one.example", "DNS:two.example,DNS:*.many.example"]
    pairs = [pki.root.issue(f"sni-{i}", alternatives=of) for i, of in enumerate(names)]
    # One of them twice, with a key of another kind: a client of old may know only that.
    pairs.append(pki.root.issue("sni-rsa", kind=("rsa:2048",), alternatives="DNS:one.example"))
    files = [",".join(column) for column in zip(*pairs)]
    server = start(repositories / "small", *flags("http", files), *flags("grpc", files))
    shown = lambda name, *more: subject_shown(server, *(["-noservername"] if name is None else ["-servername", name]), *more)
    assert shown(None) == shown("localhost") == shown("unknown.example") == "subject=CN=sni-0"
    assert shown("one.example") == "subject=CN=sni-1"
    assert shown("one.example", "-sigalgs", "RSA-PSS+SHA256") == "subject=CN=sni-rsa"
    assert shown("two.example") == shown("a.many.example") == shown("TWO.example", "-tls1_2") == "subject=CN=sni-2"
    with grpc_client(server, pki) as client:
        np.testing.assert_array_equal(sums(client, tritonclient.grpc), A + B)
    assert server.stop() == 0


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_client_that_comes_again_resumes(tls, tmp_path, version):
    ticket = tmp_path / "ticket"
    connect = [OPENSSL, "s_client", "-connect", tls.http, version, "-ign_eof"]
    ask = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    first, second = (subprocess.run([*connect, *more], input=ask, capture_output=True, timeout=30).stdout.decode() for more in (["-sess_out", ticket], ["-sess_in", ticket]))
    assert "\nNew, TLSv1" in first and "HTTP/1.1 200" in first
    assert "\nReused, TLSv1" in second and "HTTP/1.1 200" in second


@pytest.mark.nightly("rsa:4096")
@pytest.mark.parametrize("kind", [("rsa:2048",), ("rsa:4096",), ("ed25519",), ("ec", "-pkeyopt", "ec_paramgen_curve:secp384r1")], ids=lambda kind: kind[-1])
def test_keys_of_every_kind_are_served(start, pki, repositories, kind):
    pair = pki.root.issue(f"kind-{kind[-1]}".replace(":", "-"), kind=kind)
    server = start(repositories / "small", *flags("http", pair), *flags("grpc", pair))
    assert curl(server, pki, "/v2/health/ready")[:2] == (200, "2")
    assert server.stop() == 0


def broken(at):
    """A certificate that is none, in PEM."""
    (at / "broken.pem").write_text(ssl.DER_cert_to_PEM_cert(b"no certificate"))
    return at / "broken.pem"


@pytest.mark.parametrize("make, text", [
    (lambda pki, at: flags("http", (f"{pki.server[0]},{pki.client[0]}", pki.server[1])), "TLS needs as many keys as certificates"),
    (lambda pki, at: ["--http-use-ssl=true"], "A server with TLS needs the file of its certificate"),
    (lambda pki, at: ["--grpc-use-ssl=true", f"--grpc-server-cert={pki.server[0]}"], "needs the file of its key"),
    (lambda pki, at: ["--grpc-use-ssl-mutual=true", *flags("grpc", pki.server)[1:]], "needs the file of the roots"),
    (lambda pki, at: flags("http", (at / "no.pem", pki.server[1])), "no.pem can not be read"),
    (lambda pki, at: flags("http", (pki.server[1], pki.server[1])), "there is no certificate in PEM in"),
    (lambda pki, at: flags("grpc", (pki.server[0], pki.client[1])), "the key belongs to another certificate"),
    (lambda pki, at: flags("grpc", (pki.root.issue_plain("mismatched")[0], pki.client[1])), "the key belongs to another certificate"),
    (lambda pki, at: flags("grpc", (broken(at), pki.server[1])), "broken.pem cannot be used: invalid peer certificate: BadEncoding"),
    (lambda pki, at: flags("http", ("/dev/zero", pki.server[1])), "/dev/zero is not a file of at most"),
])  # fmt: skip
def test_a_server_that_cannot_speak_tls_does_not_start(start, pki, repositories, tmp_path, make, text):
    server = start(repositories / "small", *make(pki, tmp_path), wait=False)
    assert server.wait() != 0
    assert text in server.output()


def read_to_the_end(one):
    try:
        while one.recv(4096):
            pass
    except ConnectionResetError:
        pass


def test_handshakes_that_come_to_nothing_are_counted_and_nobody_waits_for_them(tls, pki):
    def failed(reason):
        return tls.metrics().get(f'nereid_tls_handshakes_failed_total{{reason="{reason}"}}', 0)

    before = failed("not_tls"), failed("timeout")
    with socket.create_connection(("127.0.0.1", tls.grpc_port)) as one:
        one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        one.settimeout(10)
        read_to_the_end(one)
    waits_for(lambda: failed("not_tls") > before[0], "it is counted")
    silent = [socket.create_connection(("127.0.0.1", tls.http_port)) for _ in range(200)]
    half = socket.create_connection(("127.0.0.1", tls.http_port))
    half.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
    with grpc_client(tls, pki) as client:
        began = time.monotonic()
        assert client.is_server_live()
        assert time.monotonic() - began < 5
    waits_for(lambda: failed("timeout") >= before[1] + 201, "all of them are counted", 30)
    half.settimeout(5)
    read_to_the_end(half)
    for one in silent:
        one.close()
    half.close()


@pytest.mark.parametrize("who", ["anybody", "clients"])
def test_the_control_address_speaks_the_tls_of_the_http_port(start, pki, repositories, who):
    """Over HTTP/1, HTTP/2 and gRPC; with --http-root-cert it asks for certificates of clients."""
    port = free_ports(1)[0]
    control = SimpleNamespace(http_port=port, http=f"localhost:{port}", grpc=f"localhost:{port}")
    more = [f"--http-root-cert={pki.root.certificate}"] if who == "clients" else []
    # gRPC's own port stays plain: what counts is that of HTTP.
    server = start(repositories / "small", *flags("http", pki.server, *more), f"--control-address=127.0.0.1:{port}", "--model-control-mode=explicit", "--load-model=simple")
    client = pki.client if who == "clients" else None
    shown = ["--cert", pki.client[0], "--key", pki.client[1]] if client else []
    for version, number in (("--http1.1", "1.1"), ("--http2", "2")):
        status, spoken, body = curl(control, pki, "/v2/repository/index", version, *shown, "-X", "POST")
        assert (status, spoken) == (200, number) and "simple" in {one["name"] for one in json.loads(body)}
        assert curl(control, pki, "/v2/logging", version, *shown, data=None)[0] == 200
        assert curl(control, pki, "/v2/models/simple/infer", version, *shown, "-X", "POST")[0] == 403, "inferences are answered elsewhere"
        assert curl(server, pki, "/v2/repository/index", version, *shown, "-X", "POST")[0] == 403, "management is not"
    with grpc_client(control, pki, client) as rpc, http_client(control, pki, client) as http:
        assert "simple" in {one.name for one in rpc.get_model_repository_index().models}
        rpc.load_model("simple")
        assert rpc.update_log_settings({"log_verbose_level": 0}) is not None
        assert "simple" in {one["name"] for one in http.get_model_repository_index()}
        with pytest.raises(InferenceServerException) as told:
            sums(rpc, tritonclient.grpc)
        assert told.value.status() == "StatusCode.PERMISSION_DENIED"
    # Without TLS nothing is answered but that.
    plain = subprocess.run([CURL, "-s", "-m", "10", f"http://127.0.0.1:{port}/v2/health/live"], capture_output=True, text=True, timeout=20)
    assert "this port uses TLS" in plain.stdout
    with tritonclient.grpc.InferenceServerClient(control.grpc) as rpc, pytest.raises(InferenceServerException):
        rpc.is_server_live(client_timeout=10)
    if client is None:
        return
    for wrong in (None, pki.foreign):
        given = ["--cert", wrong[0], "--key", wrong[1]] if wrong else []
        for version in ("--http1.1", "--http2"):
            with pytest.raises(ConnectionError):
                curl(control, pki, "/v2/repository/index", version, *given, "-X", "POST")
        with grpc_client(control, pki, wrong) as rpc, pytest.raises(InferenceServerException):
            rpc.get_model_repository_index(client_timeout=10)


def test_requests_over_tls_have_lines_in_the_access_log(start, pki, repositories, tmp_path):
    server = start(repositories / "small", *flags("http", pki.server), *flags("grpc", pki.server), f"--access-log={tmp_path}/access.log")
    log = Log(tmp_path / "access.log")
    body = json.dumps({"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]}).encode()
    for version, protocol in (("--http2", "h2"), ("--http1.1", "http/1.1")):
        for _ in range(2):
            status, _, answer = curl(server, pki, "/v2/models/simple/infer", version, "--data-binary", "@-", data=body)
            line = log.until(lambda line: line.get("model") == "simple")
            assert (status, line["status"], line["protocol"]) == (200, 200, protocol)
            assert (line["bytes_in"], line["bytes_out"]) == (len(body), len(answer)), "those of bodies, as without TLS"
            assert line["peer"].startswith("127.0.0.1:"), line
    with grpc_client(server, pki) as client:
        assert (sums(client, tritonclient.grpc) == A + B).all()
    line = log.until(lambda line: line.get("model") == "simple")
    assert (line["protocol"], line["grpc_status"]) == ("grpc", 0)
