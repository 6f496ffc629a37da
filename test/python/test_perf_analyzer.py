"""perf_analyzer, unmodified, in each of its modes. What counts is that it measures and finds no error."""
import csv
import json
import os
import resource
import shutil
import subprocess

import pytest

import perf
from server import NODE, ROOT, Server


@pytest.fixture(scope="session")
def analyze(server, tmp_path_factory):
    try:
        path, env = perf.binary()
    except perf.Unavailable as e:
        pytest.skip(f"perf_analyzer: {e}")

    def go(*options, protocol="http", model="simple", at=server):
        table = tmp_path_factory.mktemp("perf") / "latency.csv"
        command = [
            path, "-m", model, "-i", protocol, "-u", at.http if protocol == "http" else at.grpc,
            # Windows of a time: by count, each takes a second. It ends with the first three windows that are alike.
            "--measurement-interval", "200", "--max-trials", "10", "--stability-percentage", "999", "-f", str(table), *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "rror" not in done.stderr, said
        with open(table) as f:
            rows = list(csv.DictReader(f))
        assert rows, said
        for row in rows:
            assert float(row["Inferences/Second"]) > 0, said
        return rows, said

    return go


@pytest.mark.nightly("sync-grpc", "async-http")
@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_closed_loop(analyze, protocol, mode):
    """P-204..P-207 O-35"""
    rows, said = analyze("--concurrency-range", "1:4:3", f"--{mode}", protocol=protocol)
    assert len(rows) == 2
    # The server-side breakdown comes from statistics, which must add up.
    assert "Server Compute Infer" in rows[0] and float(rows[0]["Server Compute Infer"]) >= 0
    assert "warning" not in said.lower() or "Server" not in said.lower().split("warning")[1][:200]


def test_streaming(analyze):
    """P-208"""
    analyze("--streaming", "--async", "--concurrency-range", "4", protocol="grpc")


def repeated(tmp_path, *counts):
    """Requests for so many responses each, without a pause."""
    vector = lambda values: {"content": values, "shape": [len(values)]}
    one = lambda n: {"IN": vector(list(range(n))), "DELAY": vector([0] * n), "WAIT": vector([0])}
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [one(n) for n in counts]}))
    return "--input-data", str(data)


def test_streaming_of_a_decoupled_model(analyze, tmp_path):
    """P-208 P-150: a request is over with its final response, which here comes alone."""
    rows, said = analyze("--streaming", "--async", "--concurrency-range", "4", *repeated(tmp_path, 1, 3, 7), protocol="grpc", model="repeat")
    assert float(rows[0]["Response Throughput"]) > 2 * float(rows[0]["Inferences/Second"]), said


@pytest.mark.nightly("http-simple_dyna", "http-ensemble", "grpc-simple_sequence")
@pytest.mark.parametrize("model", ["simple_sequence", "simple_dyna_sequence", "ensemble_sequence"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_sequences(analyze, steps, protocol, model):
    """P-209"""
    # Without a stream, requests of one sequence come over several connections, in any order, unless each waits for the one before.
    mode = ("--streaming", "--async") if protocol == "grpc" else ("--async", "--serial-sequences")
    analyze(*mode, "--concurrency-range", "4", "--sequence-length", "20", protocol=protocol, model=model, at=steps)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_ensemble(analyze, steps, protocol):
    """P-212: its composing models are found by its configuration, and their statistics are shown"""
    _, said = analyze("--concurrency-range", "2", "--sequence-length", "10", protocol=protocol, model="ensemble_sequence", at=steps)
    assert all(name in said for name in ("simple_sequence", "simple_dyna_sequence")), said


def test_streaming_of_an_ensemble_with_a_decoupled_step(analyze, steps, tmp_path):
    """P-208 P-212"""
    data = repeated(tmp_path, 1, 3, 7)
    rows, said = analyze("--streaming", "--async", "--concurrency-range", "4", *data, protocol="grpc", model="ensemble_repeat", at=steps)
    assert float(rows[0]["Response Throughput"]) > 2 * float(rows[0]["Inferences/Second"]), said


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_system_shared_memory(analyze, server, protocol):
    """P-210 M-41"""
    analyze("--shared-memory", "system", "--concurrency-range", "2", protocol=protocol)
    assert server.json("/v2/systemsharedmemory/status") == []


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_request_rate(analyze, protocol):
    analyze("--request-rate-range", "200", "--async", protocol=protocol)


def test_strings_and_batches(analyze):
    analyze("-b", "4", "--string-data", "7", model="simple_string")


def test_windows_by_count(analyze):
    analyze("--measurement-mode", "count_windows", "--measurement-request-count", "50")


def test_variable_shapes(analyze):
    analyze("--shape", "X:32", model="variable")


def test_a_server_that_it_embeds(repositories, tmp_path):
    """It opens libtritonserver.so, which starts the server."""
    try:
        path, env = perf.binary()
    except perf.Unavailable as e:
        pytest.skip(f"perf_analyzer: {e}")
    library = tmp_path / "lib" / "libtritonserver.so"
    library.parent.mkdir()
    library.symlink_to(os.path.join(ROOT, "native/libtritonserver.so"))
    shutil.copytree(repositories / "main" / "simple", tmp_path / "models" / "simple")
    table = tmp_path / "latency.csv"
    done = subprocess.run(
        [
            path, "--service-kind=triton_c_api", f"--triton-server-directory={tmp_path}", f"--model-repository={tmp_path / 'models'}",
            "-m", "simple", "--concurrency-range", "2", "--measurement-interval", "200", "--max-trials", "10",
            "--stability-percentage", "999", "-f", str(table),
        ],
        capture_output=True, text=True, env=env, timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with open(table) as f:
        rows = list(csv.DictReader(f))
    assert float(rows[0]["Inferences/Second"]) > 0, done.stdout


def bench(*options):
    """The JSON of `nereid bench`."""
    done = subprocess.run([NODE, os.path.join(ROOT, "dist/cli/main.js"), "bench", *options, "--json"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["rows"]


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A server whose model takes 20 ms for each request, one by one: the figures are the server's, whatever the machine does."""
    models = tmp_path_factory.mktemp("slow")
    (models / "slow" / "1").mkdir(parents=True)
    tensor = '[ { name: "%s0" data_type: TYPE_FP32 dims: [ 4 ] } ]'
    (models / "slow" / "config.pbtxt").write_text(
        f'backend: "identity"\ninput {tensor % "INPUT"}\noutput {tensor % "OUTPUT"}\ninstance_group [ {{ count: 1 kind: KIND_CPU }} ]\n'
        'parameters { key: "execute_delay_ms" value { string_value: "20" } }\n'
    )
    one = Server(models, log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.stop() == 0, one.tail()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_nereid_bench_measures_the_same(analyze, slow, protocol):
    """Rate and latency within 3 %, by the same command line; its table has the same columns."""
    options = ["--concurrency-range", "4", "-p", "1000"]
    table = os.path.join(os.path.dirname(slow.log), "ours.csv")
    url = slow.http if protocol == "http" else slow.grpc
    names = ("Inferences/Second", "p50 latency", "Server Compute Infer")
    pairs = []
    # What else runs on the machine may delay the server in one of the runs.
    while len(pairs) < 5 and not any(pairs[-1:]):
        (theirs,), _ = analyze(*options, protocol=protocol, model="slow", at=slow)
        bench("-m", "slow", "-i", protocol, "-u", url, *options, "-s", "999", "-f", table)
        with open(table) as f:
            (ours,) = list(csv.DictReader(f))
        assert list(ours) == list(theirs)
        pairs.append(all(float(ours[name]) == pytest.approx(float(theirs[name]), rel=0.03) for name in names))
    assert pairs[-1], (ours, theirs)


def counted(server):
    return server.json("/v2/models/simple/stats")["model_stats"][0]["inference_stats"]["success"]["count"]


@pytest.mark.nightly("grpc", "http-rate")
@pytest.mark.parametrize("load, part", [(["--concurrency-range", "8"], 1 / 4), (["--request-rate-range", "1000"], 2 / 3)], ids=["concurrency", "rate"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_nereid_bench_takes_less_cpu(analyze, server, protocol, load, part):
    """CPU of the program that sends the requests, by request. At a rate, each request wakes it by itself."""
    before, used = counted(server), resource.getrusage(resource.RUSAGE_CHILDREN)
    analyze(*load, "--measurement-interval", "600", protocol=protocol)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    theirs = (after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) / (counted(server) - before)
    url = server.http if protocol == "http" else server.grpc
    (row,) = bench("-m", "simple", "-i", protocol, "-u", url, *load, "--seconds=2", "--warmup=0", "-s", "999")
    ours = row["result"]["cpu_us"] / 1e6 / row["result"]["requests"]
    assert ours <= theirs * part, f"{ours * 1e6:.1f} us of CPU for a request, perf_analyzer {theirs * 1e6:.1f} us"
