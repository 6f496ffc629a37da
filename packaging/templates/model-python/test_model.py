import os
import unittest

import numpy as np
from nereid_runner.harness import Model

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "1", "model.py")


class Test(unittest.TestCase):
    def test_values_are_doubled(self):
        with Model(PATH) as model:
            outputs = model.infer(INPUT0=np.array([1, 2, 3], np.float32))
            self.assertEqual(outputs["OUTPUT0"].tolist(), [2, 4, 6])


if __name__ == "__main__":
    unittest.main()
