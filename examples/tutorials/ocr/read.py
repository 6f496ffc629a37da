"""Reads a picture: `read.py ADDRESS PICTURE`. rapidocr cuts and scales; each of its networks is asked of the server."""
import sys
import time

import tritonclient.http as triton
from rapidocr_onnxruntime import RapidOCR


class Remote:
    """Stands where rapidocr has a session of ONNX Runtime."""

    def __init__(self, client, model):
        self.client, self.model = client, model
        self.input = client.get_model_metadata(model)["inputs"][0]["name"]

    def __call__(self, array):
        tensor = triton.InferInput(self.input, list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        response = self.client.infer(self.model, [tensor])
        [output] = response.get_response()["outputs"]
        return [response.as_numpy(output["name"])]


def reader(address):
    ocr, client = RapidOCR(), triton.InferenceServerClient(address)
    ocr.text_det.infer = Remote(client, "detection")
    ocr.text_cls.infer = Remote(client, "orientation")
    ocr.text_rec.session = Remote(client, "recognition")
    return ocr


if __name__ == "__main__":
    address, picture = sys.argv[1:]
    read = reader(address)
    lines, _ = read(picture)
    for _, text, score in lines:
        print(f"{float(score):.1f} {text}")
    start = time.perf_counter()
    for _ in range(10):
        read(picture)
    print(f"{(time.perf_counter() - start) * 100:.0f} ms a picture", file=sys.stderr)
