"""Health, metadata, configuration, index, statistics; and that statistics and metrics say the same."""
import json
import time

import numpy as np
import pytest

from clients import SIXTEEN, failure

EXTENSIONS = [
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
    "model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
    "statistics", "trace", "logging",
]


def test_the_server_is_live_and_ready(client):
    """P-014 P-015 P-121"""
    assert client.call("is_server_live") is True
    assert client.call("is_server_ready") is True


def test_model_readiness_does_not_raise(client):
    """P-017 P-122"""
    assert client.call("is_model_ready", "simple") is True
    assert client.call("is_model_ready", "versions", "1") is True
    assert client.call("is_model_ready", "versions", "9") is False
    assert client.call("is_model_ready", "nope") is False


def test_server_metadata_lists_the_extensions_in_order(client):
    """P-018 P-123"""
    got = client.ask("get_server_metadata")
    assert got["name"] == "triton"
    assert got["extensions"] == EXTENSIONS
    assert got["version"].split(".")[0] == "2"


def test_model_metadata_has_the_batch_dimension(client):
    """P-020 P-021 P-124"""
    got = client.ask("get_model_metadata", "simple")
    shapes = {t["name"]: [int(d) for d in t["shape"]] for t in got["inputs"] + got["outputs"]}
    assert shapes == {name: [-1, 16] for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")}
    assert got["versions"] == ["1"]
    assert sorted(client.ask("get_model_metadata", "versions")["versions"]) == ["1", "2"]


def test_a_model_without_config_is_completed(client):
    """R-15 C-02"""
    got = client.ask("get_model_config", "simple_auto")
    config = got if client.is_http else got["config"]
    assert config["max_batch_size"] == 4
    assert [i["name"] for i in config["input"]] == ["INPUT0", "INPUT1"]
    assert {i["data_type"] for i in config["input"] + config["output"]} == {"TYPE_INT32"}
    assert config["platform"] == "onnxruntime_onnx"


def test_the_index_lists_every_model(client):
    """P-035 P-036 P-127 R-38"""
    got = client.ask("get_model_repository_index")
    rows = got if client.is_http else got["models"]
    states = {(row["name"], row.get("version")): row.get("state") for row in rows}
    assert states[("simple", "1")] == "READY"
    assert states[("versions", "1")] == "READY" and states[("versions", "2")] == "READY"
    assert set(states.values()) == {"READY"}


def statistics(server, model):
    (one,) = server.json(f"/v2/models/{model}/stats")["model_stats"]
    return one


def test_statistics_count_requests_rows_and_executions(server, client):
    """P-027..P-033 P-126 O-26..O-30 S-43"""
    before = statistics(server, "simple")
    two = np.zeros((2, 16), np.int32)
    for arrays in ({"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}, {"INPUT0": two, "INPUT1": two}):
        client.infer("simple", arrays)
    failure(lambda: client.infer("simple", {"INPUT0": SIXTEEN}))
    after = statistics(server, "simple")

    def grown(*path):
        a, b = before, after
        for key in path:
            a, b = a[key], b[key]
        return b - a

    assert grown("inference_count") == 3
    assert grown("execution_count") == 2
    for name in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert grown("inference_stats", name, "count") == 2, name
    assert grown("inference_stats", "fail", "count") == 0
    assert abs(after["last_inference"] - time.time() * 1000) < 60_000
    sizes = [row["batch_size"] for row in after["batch_stats"]]
    assert sizes == sorted(sizes) and {1, 2} <= set(sizes)


def test_identity_without_batching_counts_batches_of_size_0(server, client):
    """S-43: backends report sizes themselves, and Triton's identity reports 0"""
    client.infer("echo", {"INPUT0": np.ones(3, np.float32)})
    assert [row["batch_size"] for row in statistics(server, "echo")["batch_stats"]] == [0]
    assert {row["batch_size"] for row in statistics(server, "simple")["batch_stats"]} >= {1}


def test_grpc_statistics_are_those_of_http(server, transport):
    got = transport.ask("get_inference_statistics", "simple")["model_stats"][0]
    want = statistics(server, "simple")
    assert int(got["inference_count"]) == want["inference_count"]
    assert int(got["inference_stats"]["success"]["ns"]) == want["inference_stats"]["success"]["ns"]


FAMILIES = {
    "nv_inference_request_success": ("success", "count"),
    "nv_inference_request_duration_us": ("success", "ns"),
    "nv_inference_queue_duration_us": ("queue", "ns"),
    "nv_inference_compute_input_duration_us": ("compute_input", "ns"),
    "nv_inference_compute_infer_duration_us": ("compute_infer", "ns"),
    "nv_inference_compute_output_duration_us": ("compute_output", "ns"),
}


def test_metrics_and_statistics_agree_to_the_last_count(server, transport):
    """O-4 O-5 O-28 P-187 P-188"""
    for _ in range(5):
        transport.infer("simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN})
    metrics = server.metrics()
    want = statistics(server, "simple")
    label = '{model="simple",version="1"}'
    assert metrics[f"nv_inference_count{label}"] == want["inference_count"]
    assert metrics[f"nv_inference_exec_count{label}"] == want["execution_count"]
    for family, (name, unit) in FAMILIES.items():
        value = want["inference_stats"][name][unit]
        assert metrics[family + label] == (value if unit == "count" else value // 1000), family


def test_failures_are_counted_by_reason(server):
    """O-4 O-29 P-189 S-46"""
    from clients import connect

    def series(reason):
        matches = [
            (name, value) for name, value in server.metrics().items()
            if name.startswith("nv_inference_request_failure{") and 'model="failing"' in name and f'reason="{reason}"' in name
        ]
        assert len(matches) == 1, matches
        return matches[0][1]

    before = {reason: series(reason) for reason in ("BACKEND", "CANCELED", "OTHER", "REJECTED")}
    client = connect("http", server)
    bad = {"INPUT0": np.arange(2, dtype=np.int32), "INPUT1": np.arange(3, dtype=np.int32)}
    failure(lambda: client.infer("failing", bad))
    client.close()
    after = {reason: series(reason) for reason in before}
    assert {r: after[r] - before[r] for r in before} == {"BACKEND": 1, "CANCELED": 0, "OTHER": 0, "REJECTED": 0}


def test_the_metrics_endpoint(server):
    """O-1 O-2 O-3 O-8"""
    status, headers, body = server.request("GET", "/metrics", port=server.metrics_port)
    assert status == 200
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    text = body.decode()
    assert "# HELP nv_inference_request_success " in text
    assert "# TYPE nv_inference_request_success counter" in text
    assert "nv_pinned_memory_pool_total_bytes" in text
    assert server.request("POST", "/metrics", b"", port=server.metrics_port)[0] == 405


def test_pending_requests_return_to_zero(server):
    """O-6 P-190"""
    values = [v for name, v in server.metrics().items() if name.startswith("nv_inference_pending_request_count")]
    assert values and set(values) == {0.0}


def test_log_settings_can_be_read(client):
    """P-056 P-132"""
    got = client.ask("get_log_settings")
    settings = got if client.is_http else {k: list(v.values())[0] if v else None for k, v in got["settings"].items()}
    assert settings["log_info"] is True
    assert settings["log_format"] == "default"


@pytest.mark.parametrize("path", ["/v2/models/simple/config", "/v2/models/versions/versions/1/config"])
def test_the_configuration_is_bare_json(server, path):
    """P-022 P-023 P-024 C-31"""
    config = server.json(path)
    assert config["name"] in ("simple", "versions")
    assert isinstance(config["max_batch_size"], int)
    assert config["version_policy"] in ({"latest": {"num_versions": 1}}, {"all": {}})
    assert config["instance_group"][0]["kind"] == "KIND_CPU"


def test_int64_dims_are_numbers(server):
    assert json.dumps(server.json("/v2/models/id_fp32/config")["input"][0]["dims"]) == "[-1]"
