"""Asks the server at the given address for the test rows, and XGBoost for the same rows."""

import sys

import numpy as np
import tritonclient.http as triton
import xgboost

data = np.load("test.npz")
rows = triton.InferInput("input__0", list(data["rows"].shape), "FP32").set_data_from_numpy(data["rows"])
served = triton.InferenceServerClient(sys.argv[1]).infer("cancer", [rows]).as_numpy("output__0")

own = xgboost.Booster(model_file="models/cancer/1/xgboost.ubj").predict(xgboost.DMatrix(data["rows"]))
print("output__0", served.dtype, served.shape)
print(f"right: {np.mean(served.argmax(axis=1) == data['classes']):.1%}")
print("differs from XGBoost by less than 1e-6:", bool(np.abs(served[:, 1] - own).max() < 1e-6))
