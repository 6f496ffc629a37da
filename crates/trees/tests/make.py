"""Writes the models of tests/models, and beside each what its framework predicts: a line for each row, features and then predictions.

    pip install xgboost-cpu==3.2.0 lightgbm==4.7.0 treelite==4.8.1 scikit-learn==1.9.1 numpy
    python crates/trees/tests/make.py

XGBoost's binary format needs an older version, in an environment of its own:

    pip install xgboost-cpu==2.1.4 numpy
    python crates/trees/tests/make.py binary
"""

import json
import sys
from pathlib import Path

import numpy as np
import xgboost as xgb

TO = Path(__file__).parent / "models"
ROWS, FEATURES, CATEGORIES = 400, 5, 40
random = np.random.default_rng(7)


def data(categories=0):
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    x[:, 1] = np.round(x[:, 1] * 2) / 2  # values that are equal to thresholds
    for column in range(categories):
        x[:, column] = random.integers(0, CATEGORIES, ROWS)
    x[random.random(x.shape) < 0.1] = np.nan
    score = np.nan_to_num(x[:, 2]) * 2 + np.nan_to_num(x[:, 3]) ** 2 + (np.nan_to_num(x[:, 0]) % 3)
    return x, score.astype(np.float32)


def questions(x, thresholds=()):
    asked = x[:24].copy()
    asked[0] = 0
    asked[1] = np.nan
    asked[2] = -1e-36
    asked[3] = 1e30
    for i, value in enumerate(thresholds[:12]):
        asked[4 + i, i % FEATURES] = value
    return asked


def rows(name, asked, answers):
    answers = np.asarray(answers, dtype=np.float64).reshape(len(asked), -1)
    with open(TO / f"{name}.rows", "w") as to:
        for features, answer in zip(asked, answers):
            to.write(" ".join(repr(float(v)) for v in features) + " = " + " ".join(repr(float(v)) for v in answer) + "\n")


def labels(objective, score):
    if objective.startswith(("binary", "multi")) or objective == "reg:logistic":
        return np.digitize(score, [1, 2.5]) if objective.startswith("multi") else score > 1.5
    if objective.startswith("survival"):
        return np.abs(score) + 0.1
    return np.abs(score) + 0.01 if objective in ("count:poisson", "reg:gamma", "reg:tweedie", "reg:squaredlogerror") else score


def xgboost(name, formats, objective, categories=0, rounds=4, y=None, **settings):
    x, score = data(categories)
    y = labels(objective, score) if y is None else y(score)
    kinds = ["c"] * categories + ["q"] * (FEATURES - categories)
    d = xgb.DMatrix(x, feature_types=kinds if categories else None, enable_categorical=categories > 0)
    if objective == "survival:aft":
        d.set_float_info("label_lower_bound", y)
        d.set_float_info("label_upper_bound", y)
    else:
        d.set_label(y)
    if objective.startswith("rank"):
        d.set_group([ROWS // 4] * 4)
        d.set_label(np.digitize(score, [1, 2.5]))
    settings = {"objective": objective, "max_depth": 3, "seed": 1, "nthread": 1, **settings}
    if objective.startswith("multi"):
        settings["num_class"] = 3
    booster = xgb.train(settings, d, rounds)
    for ending in formats:
        booster.save_model(TO / f"{name}.{ending}")
    booster_json = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    trees = booster_json.get("gbtree", booster_json)["model"]["trees"]
    splits = [s for t in trees for s, left in zip(t["split_conditions"], t["left_children"]) if left != -1]
    asked = questions(x, [] if categories else splits)
    if categories:
        asked[3, :categories] = CATEGORIES + 5
        asked[2, :categories] = 1
    m = xgb.DMatrix(asked, feature_types=kinds if categories else None, enable_categorical=categories > 0)
    rows(name, asked, booster.predict(m))
    return booster, asked


def lightgbm(name, objective, categories=0, rounds=4, y=None, **settings):
    import lightgbm as lgb

    x, score = data(categories)
    zeros = random.random(x.shape) < 0.2
    x[zeros] = 0
    y = (y or (lambda s: s))(score)
    settings = {"objective": objective, "num_leaves": 8, "verbose": -1, "seed": 1, "num_threads": 1, "min_data_in_leaf": 5, **settings}
    settings |= {"min_data_per_group": 5, "cat_smooth": 1, "deterministic": True}
    columns = list(range(categories))
    booster = lgb.train(settings, lgb.Dataset(x.astype(np.float64), y, categorical_feature=columns), rounds)
    text = booster.model_to_string()
    (TO / f"{name}.txt").write_text(text[: text.index("feature_importances")])
    thresholds = [float(t) for line in text.splitlines() if line.startswith("threshold=") for t in line[10:].split()]
    asked = questions(x, [np.float32(t) for t in thresholds])
    if categories:
        edges = [-0.5, 2.7, CATEGORIES + 5, -1, 1e9, np.inf, np.nan, -3]
        asked[4 : 4 + len(edges), :categories] = np.array(edges, dtype=np.float32)[:, None]
    rows(name, asked, booster.predict(asked.astype(np.float64), num_threads=1))


def vectors(name):
    """Each leaf has a value for each target or class."""
    whole = {"rounds": 2, "multi_strategy": "multi_output_tree", "max_depth": 2}
    xgboost(name, ["json", "ubj"], "reg:squarederror", y=lambda s: np.stack([s, -s * s], axis=1), **whole)
    xgboost(f"{name}_logistic", ["json"], "binary:logistic", y=lambda s: np.stack([s > 1, s > 2, s < 0], axis=1), **whole)


def scikit(name, kind, y, **settings):
    from sklearn import ensemble
    import treelite

    x, score = data()
    x = np.nan_to_num(x)
    classifies = kind.endswith("Classifier")
    model = getattr(ensemble, kind)(max_depth=3, random_state=1, **settings).fit(x, y(score))
    treelite.sklearn.import_model(model).serialize(str(TO / f"{name}.tl"))
    asked = questions(x)
    asked[1] = 1
    rows(name, asked, model.predict_proba(asked) if classifies else model.predict(asked))


def treelite(name, load, file):
    import treelite

    model = load(str(TO / file))
    model.serialize(str(TO / f"{name}.tl"))
    asked = np.array([[float(v) for v in line.split(" = ")[0].split()] for line in open(TO / f"{Path(file).stem}.rows")])
    asked[np.isinf(asked)] = 1e30
    asked = asked.astype(np.float32)
    rows(name, asked, treelite.gtil.predict(model, asked.astype(np.float64 if file.endswith("txt") else np.float32), nthread=1))


def current():
    xgboost("squared", ["json", "ubj"], "reg:squarederror", base_score=2.5)
    xgboost("logistic", ["json", "ubj"], "binary:logistic", base_score=0.3)
    xgboost("fitted", ["json"], "binary:logistic")  # a base score that XGBoost computed
    xgboost("softprob", ["json", "ubj"], "multi:softprob")
    xgboost("softmax", ["json"], "multi:softmax", rounds=2)
    xgboost("dart", ["json", "ubj"], "reg:squarederror", booster="dart", rate_drop=0.5, rounds=6)
    xgboost("forest", ["json"], "binary:logistic", num_parallel_tree=3, subsample=0.5, rounds=2)
    xgboost("categories", ["json", "ubj"], "reg:squarederror", categories=2, max_cat_to_onehot=2, max_depth=4)
    xgboost("onehot", ["json"], "reg:squarederror", categories=1, max_cat_to_onehot=100)
    xgboost("targets", ["json"], "reg:squarederror", y=lambda s: np.stack([s, -s, s * s], axis=1), rounds=2)
    for objective in ["binary:logitraw", "binary:hinge", "reg:logistic", "count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft", "reg:absoluteerror", "reg:pseudohubererror", "reg:squaredlogerror", "rank:ndcg"]:
        xgboost(objective.replace(":", "_"), ["json"], objective, rounds=2, max_depth=2, base_score=0.4)
    vectors("vector")
    xgboost("linear", ["json"], "reg:squarederror", rounds=1, booster="gbtree")
    x, score = data()
    d = xgb.DMatrix(np.nan_to_num(x), score)
    xgb.train({"booster": "gblinear", "nthread": 1}, d, 1).save_model(TO / "linear.json")
    (TO / "linear.rows").unlink()

    positive = lambda s: np.abs(s) + 0.01  # noqa: E731
    classes = lambda s: np.digitize(s, [1, 2.5])  # noqa: E731
    lightgbm("lgb_regression", "regression")
    lightgbm("lgb_sqrt", "regression", reg_sqrt=True)
    lightgbm("lgb_binary", "binary", y=lambda s: s > 1.5, sigmoid=0.7)
    lightgbm("lgb_multiclass", "multiclass", y=classes, num_class=3)
    lightgbm("lgb_ova", "multiclassova", y=classes, num_class=3)
    lightgbm("lgb_xentropy", "cross_entropy", y=lambda s: 1 / (1 + np.exp(-s)), rounds=2)
    lightgbm("lgb_xentlambda", "cross_entropy_lambda", y=lambda s: 1 / (1 + np.exp(-s)), rounds=2)
    lightgbm("lgb_poisson", "poisson", y=positive, rounds=2)
    lightgbm("lgb_forest", "binary", y=lambda s: s > 1.5, boosting="rf", bagging_freq=1, bagging_fraction=0.5)
    lightgbm("lgb_dart", "regression", boosting="dart", drop_rate=0.5)
    lightgbm("lgb_categories", "regression", categories=2, max_cat_to_onehot=1)
    lightgbm("lgb_onehot", "regression", categories=1, max_cat_to_onehot=100)
    lightgbm("lgb_zero", "regression", zero_as_missing=True, rounds=6)
    lightgbm("lgb_no_missing", "regression", use_missing=False)
    lightgbm("lgb_linear", "regression", linear_tree=True, rounds=1)
    (TO / "lgb_linear.rows").unlink()

    import treelite as tl

    load = tl.frontend.load_xgboost_model
    treelite("tl_logistic", load, "logistic.json")
    treelite("tl_softprob", load, "softprob.json")
    treelite("tl_categories", load, "categories.json")
    treelite("tl_forest", tl.frontend.load_lightgbm_model, "lgb_forest.txt")
    treelite("tl_doubles", tl.frontend.load_lightgbm_model, "lgb_regression.txt")
    treelite("tl_vector", load, "vector.json")
    treelite("tl_targets", load, "targets.json")
    scikit_all()


def scikit_all():
    classes = lambda s: np.digitize(s, [1, 2.5])  # noqa: E731
    scikit("sk_classes", "RandomForestClassifier", classes, n_estimators=4)
    scikit("sk_binary", "RandomForestClassifier", lambda s: s > 1.5, n_estimators=3)
    scikit("sk_extra", "ExtraTreesClassifier", classes, n_estimators=4)
    scikit("sk_regression", "RandomForestRegressor", lambda s: s, n_estimators=3)
    scikit("sk_targets", "ExtraTreesRegressor", lambda s: np.stack([s, -s, s * s], axis=1), n_estimators=3)
    scikit("sk_boosted", "GradientBoostingClassifier", classes, n_estimators=3)
    scikit("sk_histogram", "HistGradientBoostingRegressor", lambda s: s, max_iter=4)


def binary():
    for name, objective, settings in [
        ("bin_squared", "reg:squarederror", {"base_score": 2.5}),
        ("bin_logistic", "binary:logistic", {"base_score": 0.3}),
        ("bin_softprob", "multi:softprob", {}),
        ("bin_dart", "count:poisson", {"booster": "dart", "rate_drop": 0.5, "rounds": 6}),
    ]:
        booster, _ = xgboost(name, [], objective, **settings)
        (TO / f"{name}.model").write_bytes(booster.save_raw("deprecated"))
    vectors("vector_before")  # `base_weights` has the leaves before version 3.2


TO.mkdir(exist_ok=True)
binary() if sys.argv[1:] == ["binary"] else current()
