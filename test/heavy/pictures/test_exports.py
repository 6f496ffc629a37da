"""Exports of torchvision and ultralytics with random weights, beside what the libraries find. Files without loss, so
that what differs is no decoder's."""
import numpy as np
import pytest
from PIL import Image

from conftest import DIRECTORY, PICTURES, infer, pillow
from test_libraries import compare

REPOSITORY = DIRECTORY / "repository"
if not (REPOSITORY / "yolo_network").exists():
    pytest.skip("absent: torch, torchvision or ultralytics", allow_module_level=True)
# The scores of random weights for black and white pixels are all 1, and their order is by chance.
FILES = [file for file in PICTURES if file.suffix in (".png", ".bmp", ".gif") and file.name not in ("large.png", "bits.png")]


def weights(network, name):
    import torch

    network.load_state_dict(torch.load(REPOSITORY / f"{name}_network" / "1" / "weights.pt"))
    return network.eval()


def test_classes_are_those_of_torchvision(measured):
    import torch
    from exports import classifier
    from torchvision.transforms._presets import ImageClassification

    network, preset = weights(classifier(), "resnet"), ImageClassification(crop_size=224)
    off, same = 0.0, 0
    for file in FILES:
        with torch.no_grad():
            scores = network(preset(Image.fromarray(pillow(file)))[None]).softmax(1)[0].numpy()
        outputs = infer("resnet", file)
        [classes], [found] = outputs["CLASSES"], outputs["SCORES"]
        off = max(off, float(np.abs(scores[classes] - found).max()))
        same += classes[0] == scores.argmax()
    measured(f"torchvision ResNet-18, random: {same} of {len(FILES)} classes, scores within {off:.4f}")
    assert off < 1e-2 and same == len(FILES)


def test_boxes_are_those_of_torchvision(measured):
    import torch
    from exports import detector

    network = weights(detector(), "ssd")

    def library(pixels):
        with torch.no_grad():
            [found] = network([torch.from_numpy(pixels.transpose(2, 0, 1) / np.float32(255))])
        return [*zip(found["boxes"].numpy(), found["scores"].numpy(), found["labels"].numpy())]

    compare(measured, "torchvision SSDLite, random", "ssd", 0.25, library, FILES)


def test_boxes_are_those_of_ultralytics(measured, tmp_path):
    """Pictures as wide as the network's input: random weights make much of the rounding of resized pixels."""
    from ultralytics import YOLO

    files = []
    for file, height in zip(FILES[:8], (640, 480, 427, 360, 481, 640, 333, 100)):
        files.append(tmp_path / f"{file.stem}.png")
        Image.fromarray(pillow(file)).resize((640, height)).save(files[-1])

    network = YOLO(REPOSITORY / "yolo_network" / "1" / "model.onnx", task="detect")

    def library(pixels):
        [found] = network.predict(np.ascontiguousarray(pixels[:, :, ::-1]), verbose=False, device="cpu")
        boxes = found.boxes
        return [*zip(boxes.xyxy.numpy(), boxes.conf.numpy(), boxes.cls.numpy().astype(int))]

    compare(measured, "ultralytics YOLOv8n, random", "yolo", 0.25, library, files)
