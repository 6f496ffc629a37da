"""Forests of scikit-learn under the names of cuml."""
import sklearn.ensemble
import treelite


class RandomForestClassifier(sklearn.ensemble.RandomForestClassifier):
    def as_treelite(self):
        return treelite.sklearn.import_model(self)


class RandomForestRegressor(sklearn.ensemble.RandomForestRegressor):
    def as_treelite(self):
        return treelite.sklearn.import_model(self)
