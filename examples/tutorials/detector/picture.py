"""Makes the picture that is searched: the astronaut of scikit-image in three sizes."""
import os

import skimage
from PIL import Image

astronaut = Image.open(os.path.join(os.path.dirname(skimage.__file__), "data", "astronaut.png"))
picture = Image.new("RGB", (1000, 600), "white")
for side, place in ((512, (20, 40)), (256, (560, 60)), (180, (780, 380))):
    picture.paste(astronaut.resize((side, side)), place)
picture.save("picture.png")
