"""What the pages say is what happens: their examples are run as they stand there, page by page, but for the ports.

Curl, P-217; events, P-107; an ensemble, S-26; regions of shared memory, M-31; Python models, B-PY-33.
"""
import json
import os
import shutil
import subprocess

import pytest

from examples import Example, examples, pages
from reader import Reader
from server import NODE, ROOT

EXAMPLES = [example for page in pages() for example in examples(page) if example.does]
"""Below the repository, so that the package finds itself by name."""
COMPILED = os.path.join(ROOT, "target", "docs-examples")
state = {"page": None, "reader": None, "failed": None}


@pytest.fixture(scope="session")
def typescript():
    """Compiles and checks the TypeScript of all pages at once, and says where the JavaScript of one is."""
    shutil.rmtree(COMPILED, ignore_errors=True)
    os.makedirs(COMPILED)

    def path(example, ending):
        return os.path.join(COMPILED, f"{example.page.replace('/', '-').replace('.', '-')}-{example.line}.{ending}")

    for example in EXAMPLES:
        if example.language == "ts":
            with open(path(example, "ts"), "w", encoding="utf-8") as f:
                # Without an export or import it would be a script, whose names are everybody's.
                f.write(f"{example.text}\nexport {{}}\n")
    options = {"rootDir": ".", "outDir": ".", "declaration": False, "noUnusedLocals": False, "lib": ["es2023", "esnext.disposable"], "erasableSyntaxOnly": False}
    with open(os.path.join(COMPILED, "tsconfig.json"), "w", encoding="utf-8") as f:
        json.dump({"extends": "../../tsconfig.json", "compilerOptions": options, "include": ["*.ts"], "exclude": []}, f)
    done = subprocess.run([NODE, os.path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", COMPILED], capture_output=True, text=True)

    def of(example, here):
        problems = [line for line in done.stdout.split("\n") if os.path.basename(path(example, "ts")) in line]
        assert not problems, "\n".join(problems)
        compiled = path(example, "js")
        assert os.path.exists(compiled), done.stdout
        with open(compiled, encoding="utf-8") as f:
            text = here(f.read())
        with open(compiled, "w", encoding="utf-8") as f:
            f.write(text)
        return compiled

    return of


def leave():
    if state["reader"] is not None:
        state["reader"].stop()
    state.update(page=None, reader=None, failed=None)


@pytest.fixture(scope="module", autouse=True)
def last_page():
    yield
    leave()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_example(example, typescript, tmp_path_factory):
    if state["page"] != example.page:
        leave()
        state.update(page=example.page, reader=Reader(tmp_path_factory.mktemp("page"), typescript))
    if "curl " in example.text and example.language == "sh" and shutil.which("curl") is None:
        state["failed"] = "curl, which is not installed,"
    # What follows a failure on its page would fail for that reason.
    if state["failed"] is not None:
        pytest.skip(f"{state['failed']} failed before it")
    try:
        state["reader"].read(example)
    except BaseException:
        state["failed"] = example.name
        raise


def check(text, *expected):
    assert [(e.language, e.markers, e.prints) for e in examples("page", text)] == list(expected)


def test_blocks_are_found_with_what_is_said_about_them():
    check("```sh\na\n```\n\nprints\n\n```\nb\n```\n", ("sh", {}, False), ("", {}, True))
    check("<!-- not run: it is long -->\n\n```sh\na\n```\n```sh\nb\n```", ("sh", {"not run": "it is long"}, False), ("sh", {}, False))
    check("<!-- file: a/b -->\nwords\n\n```pbtxt\n```", ("pbtxt", {}, False))
    check("It prints a lot.\n\nMore:\n\n```\na\n```", ("", {}, False))


def said(text, expected, language=""):
    reader = Reader.__new__(Reader)
    reader.server, reader.said = None, text
    try:
        reader.compare(Example("page", 1, language, expected, {}, "prints"))
    except AssertionError:
        return False
    return True


def test_a_page_that_says_something_else_than_what_is_printed_fails():
    assert said("one\ntwo\n", "one\ntwo")
    assert said("zero\none\ntwo\n", "one\n")
    assert said("took 12 ms\n", "took … ms")
    assert said('{"a": 1, "b": 2}', '{"b":2,"a":1}', "json")
    assert not said("one\ntwo\n", "one\nthree")
    assert not said("onetwo\n", "one")
    assert not said('{"a": 1}', '{"a": 2}', "json")
