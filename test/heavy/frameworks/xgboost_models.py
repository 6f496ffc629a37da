"""Models of XGBoost for the suite `frameworks`: every objective, in each format and kind of forest. See case.py and trees.py."""
import os

import numpy as np
import xgboost as xgb

import trees
from case import main

#: Objective → what becomes of the score that rows are made with.
positive = lambda s: np.abs(s) + 0.1  # noqa: E731
above = lambda s: (s > 1.5).astype(np.float32)  # noqa: E731
of_three = lambda s: np.digitize(s, [1, 2.5])  # noqa: E731
itself = lambda s: s  # noqa: E731


def train(seed, objective, label, rounds=12, categories=0, weights=None, targets=None, groups=False, bounds=False, **settings):
    features = 5 + seed % 4
    x, score, asked = trees.data(seed, features, categories=categories)
    kinds = ["c"] * categories + ["q"] * (features - categories)
    typed = {"feature_types": kinds, "enable_categorical": True} if categories else {}
    y = label(score) if targets is None else np.stack([label(score * (1 + i) - i) for i in range(targets)], axis=1)
    d = xgb.DMatrix(x, y, **typed)
    if groups:
        d.set_group([len(x) // 4] * 4)
    if bounds:
        d.set_float_info("label_lower_bound", y)
        # Of some it is only known that they were not over yet.
        d.set_float_info("label_upper_bound", np.where(np.arange(len(y)) % 5 == 0, np.inf, y))
    if weights:
        d.set_weight(np.random.default_rng(seed).random(len(x)) + 0.5)
    booster = xgb.train({"objective": objective, "max_depth": 4, "eta": 0.4, "seed": seed, "nthread": 1, **settings}, d, rounds)
    return booster, asked, booster.predict(xgb.DMatrix(asked, **typed))


def kind(name, objective, label=itself, how="value", **options):
    def make(seed, directory):
        # The binary format of before is not written any more by XGBoost 3.1.
        ending = ["json", "ubj"][seed % 2]
        booster, asked, predicted = train(seed, objective, label, **options)
        booster.save_model(os.path.join(directory, f"xgboost.{ending}"))
        answers, columns, settings, coarse = trees.answer(how, predicted, threshold=0.4 if how == "class" else 0.5)
        if objective in ("multi:softmax", "binary:hinge"):
            # These predict classes themselves.
            answers, columns, settings, coarse = predicted, 1, {"is_classifier": "true"}, True
        return trees.case(f"xgboost_{ending}", asked, answers, columns, settings, coarse)

    make.__name__ = name
    return make


KINDS = [
    kind("squarederror", "reg:squarederror"),
    kind("logistic_probabilities", "binary:logistic", above, "probabilities"),
    kind("softprob", "multi:softprob", of_three, "probabilities", num_class=3),
    kind("dart", "reg:squarederror", booster="dart", rate_drop=0.3),
    kind("categories", "reg:squarederror", categories=2, max_cat_to_onehot=2),
    kind("logistic_class", "binary:logistic", above, "class"),
    kind("softprob_class", "multi:softprob", of_three, "class", num_class=3),
    kind("softmax", "multi:softmax", of_three, "class", num_class=3),
    kind("targets", "reg:squarederror", targets=3),
    kind("forest", "binary:logistic", above, num_parallel_tree=4, subsample=0.6, colsample_bynode=0.7, rounds=3),
    kind("logitraw", "binary:logitraw", above),
    kind("hinge", "binary:hinge", above, "class"),
    kind("reg_logistic", "reg:logistic", lambda s: 1 / (1 + np.exp(-s))),
    kind("poisson", "count:poisson", lambda s: np.round(positive(s))),
    kind("gamma", "reg:gamma", positive),
    kind("tweedie", "reg:tweedie", positive, tweedie_variance_power=1.3),
    kind("squaredlogerror", "reg:squaredlogerror", positive),
    kind("pseudohubererror", "reg:pseudohubererror"),
    kind("absoluteerror", "reg:absoluteerror"),
    kind("quantileerror", "reg:quantileerror", quantile_alpha=0.7),
    kind("cox", "survival:cox", lambda s: np.where(np.arange(len(s)) % 4 == 0, -1, 1) * positive(s)),
    kind("aft_normal", "survival:aft", positive, bounds=True),
    kind("aft_logistic", "survival:aft", positive, bounds=True, aft_loss_distribution="logistic"),
    kind("aft_extreme", "survival:aft", positive, bounds=True, aft_loss_distribution="extreme", aft_loss_distribution_scale=1.5),
    kind("rank_ndcg", "rank:ndcg", of_three, groups=True),
    kind("rank_pairwise", "rank:pairwise", of_three, groups=True),
    kind("rank_map", "rank:map", above, groups=True),
    kind("dart_classes", "multi:softprob", of_three, "probabilities", num_class=3, booster="dart", rate_drop=0.2),
    kind("onehot", "binary:logistic", above, categories=1, max_cat_to_onehot=100),
    kind("weighted", "reg:squarederror", weights=True, base_score=2.5),
    kind("base_score", "binary:logistic", above, "probabilities", base_score=0.2),
    kind("lossguide", "reg:squarederror", grow_policy="lossguide", max_leaves=20, max_depth=0),
    kind("exact", "reg:squarederror", tree_method="exact"),
    kind("random_forest_of_classes", "multi:softprob", of_three, "probabilities", num_class=3, num_parallel_tree=3, subsample=0.6, rounds=2),
    kind("monotone", "reg:squarederror", monotone_constraints="(0,0,1)"),
    kind("leaves_of_targets", "reg:squarederror", targets=3, multi_strategy="multi_output_tree"),
    kind("leaves_of_classes", "binary:logistic", above, targets=2, multi_strategy="multi_output_tree"),
    kind("targets_of_classes", "binary:logistic", above, targets=2),
    kind("deep", "reg:squarederror", max_depth=9, rounds=30),
]  # fmt: skip

if __name__ == "__main__":
    main(KINDS, xgb.__version__)
