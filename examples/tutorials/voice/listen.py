"""Sends speech.wav to the server at the given address, half a second at a time, prints where speech is, and compares."""

import sys
import time
import wave

import numpy as np
import onnxruntime
import tritonclient.http as triton

RATE, FRAME, CONTEXT = 16_000, 512, 64
FRAMES_PER_REQUEST = 16
# Speech begins above the first probability, and ends where it stays below the second one for 100 ms.
BEGIN, END, PAUSE = 0.5, 0.35, 0.1

with wave.open("speech.wav") as file:
    sound = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
sound = sound[: len(sound) // FRAME * FRAME]
# The network gets each frame behind the last 64 samples of the frame before.
padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
frames = np.stack([padded[i : i + CONTEXT + FRAME] for i in range(0, len(sound), FRAME)])

client = triton.InferenceServerClient(sys.argv[1])
parts = [frames[i : i + FRAMES_PER_REQUEST] for i in range(0, len(frames), FRAMES_PER_REQUEST)]
served, times = [], []
for i, part in enumerate(parts):
    data = triton.InferInput("input", list(part.shape), "FP32").set_data_from_numpy(part)
    begin = time.perf_counter()
    answer = client.infer("voice", [data], sequence_id=7, sequence_start=i == 0, sequence_end=i == len(parts) - 1)
    times.append(time.perf_counter() - begin)
    served.append(answer.as_numpy("speech_probs"))
served = np.concatenate(served)

start, silent = None, 0
for i, probability in enumerate([*served, *[0.0] * RATE]):
    if start is None and probability >= BEGIN:
        start, silent = i, 0
    elif start is not None:
        silent = 0 if probability >= END else silent + 1
        if silent * FRAME > PAUSE * RATE:
            print(f"speech from {start * FRAME / RATE:.2f} to {(i + 1 - silent) * FRAME / RATE:.2f} s")
            start = None

options = onnxruntime.SessionOptions()
options.log_severity_level = 3
own = onnxruntime.InferenceSession("models/voice/1/model.onnx", options)
zeros = np.zeros((1, 1, 128), np.float32)
[expected, _, _] = own.run(None, {"input": frames, "h": zeros, "c": zeros})
[forgetful, _, _] = own.run(None, {"input": parts[4], "h": zeros, "c": zeros})
print("speech_probs", served.dtype, served.shape, "in", len(parts), "requests")
print("as of the whole sound in one run:", bool(np.abs(served - expected).max() < 1e-4))
print("as without a state:", bool(np.abs(served[64:80] - forgetful).max() < 1e-4))
print(f"half a second of sound takes {np.median(times) * 1e3:.1f} ms", file=sys.stderr)
