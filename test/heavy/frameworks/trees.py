"""What the scripts of XGBoost and LightGBM have in common: generated data, and configurations of the FIL backend. See case.py."""
import numpy as np

from case import Case, differ, parameters, tensors

ROWS, CANDIDATES, TRAINED = 12, 80, 300
CATEGORIES = 12
#: Rows of one request. Published configurations have thousands.
BATCH = 16


def data(seed, features, missing=True, categories=0):
    """Numbers to train with, a score of each row, and rows that were not among them."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(TRAINED + CANDIDATES, features)).astype(np.float32)
    x[:, 1] = np.round(x[:, 1] * 2) / 2  # Values that are equal to thresholds.
    x[:, :categories] = chance.integers(0, CATEGORIES, (len(x), categories))
    score = x[:, -1] * 2 + x[:, -2] ** 2 + x[:, 0] % 3 + chance.normal(size=len(x)) * 0.1
    if missing:
        x[chance.random(x.shape) < 0.1] = np.nan
    return x[:TRAINED], score[:TRAINED].astype(np.float32), x[TRAINED:]


def case(kind, asked, answers, columns, settings, coarse=False):
    """`answers`: what the server shall answer for each row, from the framework's prediction. Rows in the same leaves are left out."""
    # Sums of 32 bits, in another order.
    tolerance = 1e-5
    # As in Triton, an output of dims [1] has no second dimension.
    rows = (len(asked),) if columns == 1 else (len(asked), columns)
    answers = np.asarray(answers, np.float64).reshape(rows).astype(np.float32)
    questions = []
    for i in range(len(asked)):
        told = {"output__0": answers[i : i + 1]}
        if len(questions) < ROWS and (coarse or all(differ(told, other, tolerance) and differ(other, told, tolerance) for _, other in questions)):
            questions.append(({"input__0": asked[i : i + 1]}, told))
    io = tensors("input", [("input__0", "FP32", [asked.shape[1]])]) + tensors("output", [("output__0", "FP32", [columns])])
    text = f'backend: "fil"\nmax_batch_size: {BATCH}\n{io}dynamic_batching {{ max_queue_delay_microseconds: 2000 }}\n{parameters(model_type=kind, **settings)}'
    if len(questions) < ROWS:
        raise ValueError(f"only {len(questions)} rows are told apart by their answers")
    return Case(questions, text, BATCH, coarse=coarse, tolerance=tolerance, flat=True)


def answer(how, predictions, threshold=0.5):
    """(answers, columns, settings, coarse) of what a framework predicts, for the outputs that the FIL backend has."""
    p = np.asarray(predictions, np.float64)
    if how == "value":
        return p, 1 if p.ndim == 1 else p.shape[1], {"is_classifier": "false"}, False
    if how == "class":
        if p.ndim == 1:
            return p > threshold, 1, {"is_classifier": "true", "threshold": threshold}, True
        return p.argmax(1), 1, {"is_classifier": "true"}, True
    if p.ndim == 1:
        return np.stack([1 - p, p], axis=1), 2, {"is_classifier": "true", "predict_proba": "true"}, False
    return p, p.shape[1], {"is_classifier": "true", "predict_proba": "true"}, False
