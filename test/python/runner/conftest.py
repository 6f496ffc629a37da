"""Fixtures of the tests of the Python runtime. They need pytest and numpy only: every interpreter that is found runs them."""
import pytest
from runner_host import Host


@pytest.fixture
def host(tmp_path):
    """Makes hosts, each with its runner; they end with the test."""
    made = []

    def make(code, **options):
        # A directory of its own each: their models have one name.
        made.append(Host(tmp_path / str(len(made)), code, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
