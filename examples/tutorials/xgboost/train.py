"""Trains a classifier and writes the model repository `models` with it, and the rows that training did not see."""

from pathlib import Path

import numpy as np
import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

CONFIG = """backend: "fil"
max_batch_size: 4096
parameters [
  { key: "model_type" value { string_value: "xgboost_ubj" } },
  { key: "is_classifier" value { string_value: "true" } },
  { key: "predict_proba" value { string_value: "true" } }
]
dynamic_batching { }
"""

features, classes = load_breast_cancer(return_X_y=True)
train, test, train_classes, test_classes = train_test_split(features.astype(np.float32), classes, random_state=0, stratify=classes)
model = xgboost.XGBClassifier(n_estimators=200, max_depth=4, learning_rate=0.1, n_jobs=1, random_state=0).fit(train, train_classes)

directory = Path("models/cancer")
(directory / "1").mkdir(parents=True, exist_ok=True)
(directory / "config.pbtxt").write_text(CONFIG)
model.get_booster().save_model(directory / "1/xgboost.ubj")
np.savez("test.npz", rows=test, classes=test_classes)
print(f"{len(train)} rows of {train.shape[1]} features to train, {len(test)} to test")
