"""In the place of Triton's own conftest.py: its tests send to a served model instead of an application in their process."""
import os

import httpx
import pytest


@pytest.fixture(scope="class")
def fastapi_client_class_scope():
    with httpx.Client(base_url=os.environ["NEREID_TEXT_URL"]) as client:
        yield client
