"""Trains trees of XGBoost, and predicts with XGBoost and with treelite on one thread, called from Python: `python trees_loop.py REPOSITORY`.

Rows of features that are sent lie in `rows.bin` of the repository, FP32, and what XGBoost predicts for each in `predictions.bin`.
"""
import os
import sys

import numpy as np
import treelite
import xgboost

from loops import place, serve

TREES, DEPTH, FEATURES, TRAINED, SENT = 500, 8, 40, 20_000, 4000
ROWS = [1, 8, 64, 1000]


def main(repository):
    random = np.random.default_rng(1)
    x = random.normal(size=(TRAINED, FEATURES)).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    file = place(repository, "trees", "xgboost.json")
    if not os.path.exists(file):
        y = np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 1]) ** 2 + random.normal(size=len(x)) * 0.1
        xgboost.train({"max_depth": DEPTH, "tree_method": "hist", "nthread": 1}, xgboost.DMatrix(x, y), TREES).save_model(file)
    booster = xgboost.Booster({"nthread": 1}, model_file=file)
    tree = treelite.frontend.load_xgboost_model(file)
    sent = x[:SENT]
    sent.tofile(os.path.join(repository, "rows.bin"))
    booster.inplace_predict(sent).astype(np.float32).tofile(os.path.join(repository, "predictions.bin"))

    def calls(predict):
        def of(rows):
            # Other rows in each call, as the server gets them: one row again and again takes the same way through all trees.
            parts = [sent[at : at + rows] for at in range(0, SENT - rows + 1, max(rows, 20))]
            return lambda i: predict(parts[i % len(parts)])

        return {rows: of(rows) for rows in ROWS}

    named = {"XGBoost": calls(booster.inplace_predict), "treelite": calls(lambda part: treelite.gtil.predict(tree, part, nthread=1))}
    serve({"xgboost": xgboost.__version__, "treelite": treelite.__version__}, {f"{name} {rows}": call for name, of in named.items() for rows, call in of.items()})


main(sys.argv[1])
