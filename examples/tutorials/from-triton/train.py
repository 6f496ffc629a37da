"""Trains a network of two layers on handwritten digits, and writes its weights beside the model.py that computes them."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

pixels, digits = load_digits(return_X_y=True)
train, test, train_digits, test_digits = train_test_split(pixels.astype(np.float32), digits, random_state=0)
model = MLPClassifier((64,), max_iter=200, random_state=0, early_stopping=True).fit(train, train_digits)
weights = {f"{name}{i}": each.astype(np.float32) for i, pair in enumerate(zip(model.coefs_, model.intercepts_)) for name, each in zip("wb", pair)}
np.savez("models/digits/1/weights.npz", **weights)
np.savez("test.npz", pixels=test, digits=test_digits)
