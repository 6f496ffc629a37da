"""Sends each test row to a version of the model at the given address: 20 % of the users to version 2, always the same ones."""

import sys
import zlib

import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1])
data = np.load("test.npz")
right = {"1": [], "2": []}
for user, (pixels, digit) in enumerate(zip(data["pixels"], data["digits"])):
    version = "2" if zlib.crc32(f"user {user}".encode()) % 100 < 20 else "1"
    row = triton.InferInput("X", [1, 64], "FP32").set_data_from_numpy(pixels[None])
    answer = client.infer("digits", [row], model_version=version)
    right[version].append(answer.as_numpy("label").item() == digit)
for version, each in right.items():
    print(f"version {version}: {np.mean(each):.1%} of {len(each)} are right")
