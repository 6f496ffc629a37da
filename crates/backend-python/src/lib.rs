//! Python models: `model.py` files run unchanged (spec: backends-python.md, ids B-PY, B-PYR, B-PYB).
