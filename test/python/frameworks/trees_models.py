"""Small models of XGBoost and LightGBM for test_trees.py. `trees_models.py FAMILY DIRECTORY` trains those of a family.

It writes a repository to DIRECTORY/models and, for each model, DIRECTORY/NAME.npz with rows and the predictions of the
framework for them. Values are missing in a tenth of all places. The tests import KINDS, and need no framework for it.
"""
import os
import sys
from dataclasses import dataclass, field

import numpy as np

TRAINED, ASKED, FEATURES, CATEGORIES = 400, 256, 6, 8
BATCH = 64
#: A probability above it is the class 1.
THRESHOLD = 0.4


@dataclass
class Kind:
    """`label` names a function of this module; `answer` is `value`, `probabilities` or `class`."""

    objective: str
    label: str = "same"
    answer: str = "value"
    rounds: int = 10
    #: The first features, which are categories.
    categories: int = 0
    #: Rows have queries.
    ranks: bool = False
    settings: dict = field(default_factory=dict)


FOREST = {"num_parallel_tree": 4, "subsample": 0.6, "colsample_bynode": 0.7}
BAGGED = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "feature_fraction": 0.8}
KINDS = {
    "xgboost": {
        "regression": Kind("reg:squarederror"),
        "absolute": Kind("reg:absoluteerror"),
        "quantile": Kind("reg:quantileerror", settings={"quantile_alpha": 0.7}),
        "expectile": Kind("reg:expectileerror", settings={"expectile_alpha": 0.7}),
        "poisson": Kind("count:poisson", "counts"),
        "binary": Kind("binary:logistic", "above", "probabilities"),
        "binary_class": Kind("binary:logistic", "above", "class"),
        "classes": Kind("multi:softprob", "of_three", "probabilities", settings={"num_class": 3}),
        "classes_class": Kind("multi:softprob", "of_three", "class", settings={"num_class": 3}),
        "ranking": Kind("rank:ndcg", "of_three", ranks=True),
        "dart": Kind("reg:squarederror", settings={"booster": "dart", "rate_drop": 0.3}),
        "forest": Kind("binary:logistic", "above", "probabilities", rounds=2, settings=FOREST),
        "categories": Kind("reg:squarederror", categories=2, settings={"max_cat_to_onehot": 2}),
        "onehot": Kind("binary:logistic", "above", "probabilities", categories=1, settings={"max_cat_to_onehot": 99}),
    },
    "lightgbm": {
        "regression": Kind("regression"),
        "absolute": Kind("regression_l1"),
        "quantile": Kind("quantile", settings={"alpha": 0.7}),
        "poisson": Kind("poisson", "counts"),
        "binary": Kind("binary", "above", "probabilities"),
        "binary_class": Kind("binary", "above", "class"),
        "classes": Kind("multiclass", "of_three", "probabilities", settings={"num_class": 3}),
        "classes_class": Kind("multiclass", "of_three", "class", settings={"num_class": 3}),
        "one_against_all": Kind("multiclassova", "of_three", "probabilities", settings={"num_class": 3}),
        "ranking": Kind("lambdarank", "of_three", ranks=True),
        "dart": Kind("regression", settings={"boosting": "dart", "drop_rate": 0.4}),
        "forest": Kind("binary", "above", "probabilities", settings=BAGGED),
        "categories": Kind("regression", categories=2, settings={"max_cat_to_onehot": 1}),
        "zero_is_missing": Kind("regression", settings={"zero_as_missing": True}),
    },
}


def same(score):
    return score


def counts(score):
    return np.round(np.abs(score))


def above(score):
    return (score > 1.5).astype(np.float32)


def of_three(score):
    return np.digitize(score, [1, 2.5])


def data(seed, categories):
    """Rows, and a score of each."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(TRAINED + ASKED, FEATURES)).astype(np.float32)
    x[:, 2] = np.round(x[:, 2])  # Values that are thresholds, and zeros.
    x[:, :categories] = chance.integers(0, CATEGORIES, (len(x), categories))
    score = x[:, -1] * 2 + x[:, -2] ** 2 + x[:, 0] % 3
    x[chance.random(x.shape) < 0.1] = np.nan
    x[TRAINED] = np.nan
    return x, score.astype(np.float32)


def xgboost(kind, x, y, directory, seed):
    import xgboost as xgb

    types = ["c"] * kind.categories + ["q"] * (FEATURES - kind.categories)
    typed = {"feature_types": types, "enable_categorical": True} if kind.categories else {}
    trained = xgb.DMatrix(x[:TRAINED], y[:TRAINED], **typed)
    if kind.ranks:
        trained.set_group([TRAINED // 4] * 4)
    settings = {"objective": kind.objective, "max_depth": 4, "eta": 0.4, "seed": seed, "nthread": 1, **kind.settings}
    try:
        booster = xgb.train(settings, trained, kind.rounds)
    except xgb.core.XGBoostError as error:
        if "Unknown objective function" in str(error):
            return None
        raise
    ending = ["json", "ubj"][seed % 2]
    booster.save_model(os.path.join(directory, f"xgboost.{ending}"))
    return f"xgboost_{ending}", booster.predict(xgb.DMatrix(x[TRAINED:], **typed))


def lightgbm(kind, x, y, directory, seed):
    import lightgbm as lgb

    settings = {
        "objective": kind.objective, "num_leaves": 12, "min_data_in_leaf": 5, "min_data_per_group": 5, "cat_smooth": 1,
        "learning_rate": 0.3, "verbose": -1, "seed": seed, "num_threads": 1, "deterministic": True, **kind.settings,
    }  # fmt: skip
    trained = lgb.Dataset(
        x[:TRAINED].astype(np.float64), y[:TRAINED], group=[TRAINED // 4] * 4 if kind.ranks else None,
        categorical_feature=list(range(kind.categories)),
    )  # fmt: skip
    booster = lgb.train(settings, trained, kind.rounds)
    booster.save_model(os.path.join(directory, "model.txt"))
    return "lightgbm", booster.predict(x[TRAINED:].astype(np.float64), num_threads=1)


def expected(answer, predictions):
    """Output of the FIL backend, and the rows whose class does not depend on the last digit."""
    p = np.asarray(predictions, np.float64)
    everywhere = np.ones(len(p), bool)
    if answer == "class" and p.ndim == 1:
        return p > THRESHOLD, abs(p - THRESHOLD) > 1e-4
    if answer == "class":
        best = np.sort(p, axis=1)
        return p.argmax(1), best[:, -1] - best[:, -2] > 1e-4
    if answer == "probabilities" and p.ndim == 1:
        return np.stack([1 - p, p], axis=1), everywhere
    return p, everywhere


def write(family, directory):
    for seed, (name, kind) in enumerate(KINDS[family].items()):
        version = os.path.join(directory, "models", name, "1")
        os.makedirs(version)
        x, score = data(seed, kind.categories)
        made = globals()[family](kind, x, globals()[kind.label](score), version, seed)
        if made is None:
            os.rmdir(version)
            os.rmdir(os.path.dirname(version))
            continue
        form, predictions = made
        y, is_certain = expected(kind.answer, predictions)
        np.savez(os.path.join(directory, f"{name}.npz"), x=x[TRAINED:][is_certain], y=y[is_certain].astype(np.float32))
        classifies = kind.answer != "value"
        settings = {"model_type": form, "is_classifier": str(classifies).lower(), "threshold": THRESHOLD}
        if kind.answer == "probabilities":
            settings["predict_proba"] = "true"
        line = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}'
        lines = [line.format(key, value) for key, value in settings.items()]
        head = ['backend: "fil"', f"max_batch_size: {BATCH}", "dynamic_batching { max_queue_delay_microseconds: 5000 }"]
        with open(os.path.join(directory, "models", name, "config.pbtxt"), "w") as file:
            file.write("\n".join([*head, *lines, ""]))


if __name__ == "__main__":
    write(*sys.argv[1:])
