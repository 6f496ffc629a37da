"""How long ONNX Runtime takes for the models that `examples/convert.rs` writes, beside XGBoost, LightGBM and treelite's GTIL, each with one thread and
called from Python: microseconds for 1, 8, 64 and 1,000 rows, the least of many.

    pip install xgboost-cpu==3.2.0 lightgbm==4.7.0 treelite==4.8.1 onnxruntime==1.32.0 numpy
    cargo build --release -p nereid-trees --example convert
    python crates/trees/tests/speed.py target/release/examples/convert
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lightgbm
import numpy as np
import onnxruntime
import treelite
import xgboost

ROWS, FEATURES = [1, 8, 64, 1000], 40
convert, directory = sys.argv[1], Path(tempfile.mkdtemp())
random = np.random.default_rng(1)


def data(rows):
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    return x


def least(call):
    call()
    times, end = [], time.perf_counter() + 1
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def measure(name, model_type, file, load, framework):
    subprocess.run([convert, model_type, file, f"{file}.onnx"], check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{file}.onnx", options, providers=["CPUExecutionProvider"])
    tree = load(file)
    for rows in ROWS:
        x = data(rows)
        wide = x.astype(np.float64) if model_type == "lightgbm" else x
        assert np.allclose(session.run(None, {"input__0": x})[0].ravel(), framework(x), atol=1e-4)
        ours = least(lambda: session.run(None, {"input__0": x}))
        theirs = least(lambda: framework(x))
        gtil = least(lambda: treelite.gtil.predict(tree, wide, nthread=1))
        print(f"| {name} | {rows} | {ours:.0f} | {theirs:.0f} | {gtil:.0f} |", flush=True)


x = data(20_000)
y = np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 1]) ** 2 + random.normal(size=len(x)) * 0.1
print("| model | rows | ONNX Runtime, µs | framework, µs | GTIL, µs |\n|---|---|---|---|---|")
for trees, depth in [(50, 6), (500, 8)]:
    booster = xgboost.train({"max_depth": depth, "tree_method": "hist", "nthread": 1}, xgboost.DMatrix(x, y), trees)
    file = str(directory / f"{trees}.json")
    booster.save_model(file)
    measure(f"XGBoost, {trees} trees of depth {depth}", "xgboost_json", file, treelite.frontend.load_xgboost_model, lambda x: booster.inplace_predict(x))
    forest = lightgbm.train({"num_leaves": 2**depth // 2, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, y), trees)
    file = str(directory / f"{trees}.txt")
    forest.save_model(file)
    measure(f"LightGBM, {trees} trees of {2**depth // 2} leaves", "lightgbm", file, treelite.frontend.load_lightgbm_model, lambda x: forest.predict(x, num_threads=1))
