"""`nereid.padding`: texts of different lengths in one batch, through NVIDIA's clients, beside the same network that runs each alone."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm

from clients import connect

NOISE = 1e-5
# So many requests wait for each other at first: what runs together then is the same every time.
GATHERED = 12


@pytest.fixture
def padding(repositories, start):
    return start(repositories / "padding", "--allow-client-shm=true", env={"TRITONSERVER_DELAY_SCHEDULER": str(GATHERED)})


def text(length, seed, rows=1):
    ids = np.random.default_rng(seed).integers(0, 16, (rows, length))
    return {"IDS": ids.astype(np.int64), "MASK": np.ones((rows, length), np.int64)}


def executions(server):
    one = connect("http", server)
    stats = one.call("get_inference_statistics", "padded")["model_stats"][0]
    one.close()
    return stats["inference_count"], stats["execution_count"]


def each(server, kinds, texts):
    """All texts at once, each through a client of its own; (HIDDEN, POOLED) of each."""

    def ask(of):
        kind, arrays = of
        one = connect(kind, server)
        try:
            result = one.infer("padded", arrays)
            return result.as_numpy("HIDDEN"), result.as_numpy("POOLED")
        finally:
            one.close()

    with ThreadPoolExecutor(len(texts)) as pool:
        return list(pool.map(ask, [(kinds[i % len(kinds)], arrays) for i, arrays in enumerate(texts)]))


def check(server, texts, answers):
    one = connect("http", server)
    for arrays, (hidden, pooled) in zip(texts, answers):
        rows, length = arrays["IDS"].shape
        assert (hidden.shape, pooled.shape) == ((rows, length, 4), (rows, 4)), "the answer has the length of its request"
        alone = one.infer("alone", arrays)
        assert np.abs(hidden - alone.as_numpy("HIDDEN")).max() < NOISE
        assert np.abs(pooled - alone.as_numpy("POOLED")).max() < NOISE
    one.close()


def test_texts_of_many_lengths_share_batches_and_are_answered_as_if_alone(padding):
    lengths = [3, 4, 4, 5, 6, 3, 5, 4, 40, 41, 44, 4]
    texts = [text(length, seed, rows=1 + seed % 2) for seed, length in enumerate(lengths)]
    answers = each(padding, ["http", "grpc"], texts)
    rows, runs = executions(padding)
    assert rows == sum(arrays["IDS"].shape[0] for arrays in texts)
    assert 2 <= runs <= 5, f"{runs} runs for {GATHERED} requests: near lengths together, far ones not"
    check(padding, texts, answers)
    # And when they come as they like.
    mixed = [text(1 + seed * 7919 % 60, seed) for seed in range(48)]
    check(padding, mixed, each(padding, ["http", "grpc", "http.aio", "grpc.aio"], mixed))


def test_a_text_alone_is_answered_bit_for_bit(padding):
    first = [text(7, seed) for seed in range(GATHERED)]
    each(padding, ["http"], first)
    both = connect("grpc", padding)
    for length in (1, 2, 17, 100):
        arrays = text(length, length)
        alone, padded = (both.infer(model, arrays) for model in ("alone", "padded"))
        for name in ("HIDDEN", "POOLED"):
            assert alone.as_numpy(name).tobytes() == padded.as_numpy(name).tobytes()
    both.close()


def test_a_region_needs_room_for_the_text_s_own_length(padding):
    texts = [text(5 if seed % 2 else 6, seed) for seed in range(GATHERED)]
    one = connect("grpc", padding)
    regions = []
    try:
        sizes = [arrays["IDS"].size * 4 * 4 for arrays in texts]
        for i, (arrays, size) in enumerate(zip(texts, sizes)):
            name = f"nereid_test_padding_{i}"
            handle = shm.create_shared_memory_region(name, f"/{name}", 4096 + size, create_only=True)
            regions.append((name, handle))
            shm.set_shared_memory_region(handle, [arrays["IDS"]])
            one.call("register_system_shared_memory", name, f"/{name}", 4096 + size)

        def ask(i):
            name = regions[i][0]
            client = connect("grpc", padding)
            ids = client.types.InferInput("IDS", list(texts[i]["IDS"].shape), "INT64")
            ids.set_shared_memory(name, texts[i]["IDS"].nbytes)
            hidden = client.types.InferRequestedOutput("HIDDEN")
            hidden.set_shared_memory(name, sizes[i], 4096)
            result = client.call("infer", "padded", [ids, client.input("MASK", texts[i]["MASK"])], outputs=[hidden, client.output("POOLED")])
            shape = next(list(o.shape) for o in result.get_response().outputs if o.name == "HIDDEN")
            pooled = result.as_numpy("POOLED")
            client.close()
            return shape, pooled

        with ThreadPoolExecutor(GATHERED) as pool:
            answers = list(pool.map(ask, range(GATHERED)))
        assert executions(padding)[1] < GATHERED
        got = []
        for (shape, pooled), (_, handle), size in zip(answers, regions, sizes):
            got.append((shm.get_contents_as_numpy(handle, np.float32, shape, offset=4096), pooled))
            assert np.prod(shape) * 4 == size
        check(padding, texts, got)
    finally:
        one.call("unregister_system_shared_memory")
        one.close()
        for _, handle in regions:
            shm.destroy_shared_memory_region(handle)
