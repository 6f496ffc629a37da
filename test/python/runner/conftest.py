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


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Like `host`, but tests of a module with equal parameters share a runner, because a start takes longer than most tests."""
    made = {}

    def make(code, **options):
        key = (code, *sorted(options.items()))
        if key not in made:
            made[key] = Host(tmp_path_factory.mktemp("shared"), code, **options)
        return made[key]

    yield make
    for one in made.values():
        one.close()
