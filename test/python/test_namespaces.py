"""A load by a name that two repositories have (R-40), as tritonclient asks for it."""
import pytest

from clients import connect

CONFIG = 'backend: "identity"\ninput [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]\noutput [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_r_40_a_load_by_a_name_that_two_repositories_have_loads_each_of_them(kind, start, tmp_path):
    for repository in ("a", "b"):
        (tmp_path / repository / "m" / "1").mkdir(parents=True)
        (tmp_path / repository / "m" / "config.pbtxt").write_text(CONFIG)
    server = start(tmp_path / "a", f"--model-repository={tmp_path / 'b'}", "--model-namespacing=true", "--model-control-mode=explicit")
    client = connect(kind, server)
    try:
        client.call("load_model", "m")
        found = client.ask("get_model_repository_index")
        assert [(row["name"], row["state"]) for row in (found if kind == "http" else found["models"])] == [("m", "READY"), ("m", "READY")]
    finally:
        client.close()
