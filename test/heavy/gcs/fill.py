"""Fills Google Cloud Storage with Google's own client: reads a request of JSON per line, and answers each with a line.

    STORAGE_EMULATOR_HOST=http://HOST:PORT fill.py

Requests: {"do": "create" | "delete", "bucket"} and {"do": "put", "bucket", "name", "base64"}.
"""

import base64
import json
import sys

from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

client = storage.Client(project="nereid", credentials=AnonymousCredentials())


def run(asked):
    bucket = client.bucket(asked["bucket"])
    if asked["do"] == "create":
        bucket.create()
    elif asked["do"] == "delete":
        # With everything in it.
        bucket.delete(force=True)
    else:
        bucket.blob(asked["name"]).upload_from_string(base64.b64decode(asked["base64"]), "application/octet-stream")


for line in sys.stdin:
    try:
        run(json.loads(line))
        print("{}", flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
