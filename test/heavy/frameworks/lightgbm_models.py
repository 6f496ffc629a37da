"""Models of LightGBM for the suite `frameworks`: every objective, and each way of boosting. See case.py and trees.py."""
import os

import lightgbm as lgb
import numpy as np

import trees
from case import main

positive = lambda s: np.abs(s) + 0.1  # noqa: E731
above = lambda s: s > 1.5  # noqa: E731
of_three = lambda s: np.digitize(s, [1, 2.5])  # noqa: E731
share = lambda s: 1 / (1 + np.exp(-s))  # noqa: E731
itself = lambda s: s  # noqa: E731


def kind(name, objective, label=itself, how="value", rounds=12, categories=0, groups=False, zeros=False, monotone=False, **settings):
    def make(seed, directory):
        features = 5 + seed % 4
        x, score, asked = trees.data(seed, features, categories=categories)
        if zeros:
            x[np.random.default_rng(seed).random(x.shape) < 0.2] = 0
            asked[::3, -1] = 0
        options = {"objective": objective, "num_leaves": 12, "min_data_in_leaf": 5, "learning_rate": 0.3, "verbose": -1, "seed": seed, "num_threads": 1, "deterministic": True}
        if monotone:
            options["monotone_constraints"] = [0] * (features - 1) + [1]
        group = [len(x) // 4] * 4 if groups else None
        trained = lgb.Dataset(x.astype(np.float64), label(score), group=group, categorical_feature=list(range(categories)))
        booster = lgb.train({**options, "min_data_per_group": 5, "cat_smooth": 1, **settings}, trained, rounds)
        booster.save_model(os.path.join(directory, "model.txt"))
        predicted = booster.predict(asked.astype(np.float64), num_threads=1)
        return trees.case("lightgbm", asked, *trees.answer(how, predicted, threshold=0.6 if how == "class" else 0.5))

    make.__name__ = name
    return make


KINDS = [
    kind("regression", "regression"),
    kind("binary_probabilities", "binary", above, "probabilities"),
    kind("multiclass", "multiclass", of_three, "probabilities", num_class=3),
    kind("forest", "binary", above, boosting="rf", bagging_freq=1, bagging_fraction=0.6, feature_fraction=0.8),
    kind("categories", "regression", categories=2, max_cat_to_onehot=1),
    kind("binary_class", "binary", above, "class"),
    kind("multiclass_class", "multiclass", of_three, "class", num_class=3),
    kind("one_against_all", "multiclassova", of_three, "probabilities", num_class=3),
    kind("dart", "regression", boosting="dart", drop_rate=0.4),
    kind("goss", "regression", data_sample_strategy="goss"),
    kind("regression_l1", "regression_l1"),
    kind("huber", "huber", alpha=0.8),
    kind("fair", "fair"),
    kind("poisson", "poisson", lambda s: np.round(positive(s))),
    kind("quantile", "quantile", alpha=0.7),
    kind("mape", "mape", positive),
    kind("gamma", "gamma", positive),
    kind("tweedie", "tweedie", positive, tweedie_variance_power=1.3),
    kind("cross_entropy", "cross_entropy", share),
    kind("cross_entropy_lambda", "cross_entropy_lambda", share),
    kind("lambdarank", "lambdarank", of_three, groups=True),
    kind("rank_xendcg", "rank_xendcg", of_three, groups=True),
    kind("square_root", "regression", positive, reg_sqrt=True),
    kind("sigmoid", "binary", above, "probabilities", sigmoid=0.6),
    kind("onehot", "binary", above, categories=1, max_cat_to_onehot=100),
    kind("zero_as_missing", "regression", zeros=True, zero_as_missing=True),
    kind("without_missing", "regression", use_missing=False),
    kind("extra_trees", "regression", extra_trees=True),
    kind("dart_of_classes", "multiclass", of_three, "probabilities", num_class=3, boosting="dart", drop_rate=0.3),
    kind("forest_of_classes", "multiclass", of_three, "probabilities", num_class=3, boosting="rf", bagging_freq=1, bagging_fraction=0.6),
    kind("unbalanced", "binary", above, "probabilities", is_unbalance=True),
    kind("one_against_all_class", "multiclassova", of_three, "class", num_class=3),
    kind("one_column", "binary", above, "value"),
    kind("monotone", "regression", monotone=True),
    kind("deep", "regression", num_leaves=64, min_data_in_leaf=1, rounds=40),
]  # fmt: skip

if __name__ == "__main__":
    main(KINDS, lgb.__version__)
