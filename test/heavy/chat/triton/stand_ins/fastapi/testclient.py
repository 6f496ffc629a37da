"""In the place of FastAPI's client of an application in the same process: one over a connection."""
import httpx


class TestClient(httpx.Client):
    __test__ = False

    def __init__(self, app):
        super().__init__(base_url=app.url_root, timeout=60)
        self.app = app

    def __exit__(self, *args):
        super().__exit__(*args)
        self.app.stop()
