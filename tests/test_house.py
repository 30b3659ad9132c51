"""The house rules that a machine can check: the order of the folders, lint, types, nothing of this machine in a file."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import generate_sync

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "lanner"

# A folder imports only from itself and from folders above it in this list.
FOLDERS = [
    "model",
    "wire",
    "store",
    "security",
    "directory",
    "engine",
    "host",
    "transfer",
    "rpc",
    "services",
    "com",
    "activex",
    "client",
    "spark",
    "cli",
]
# Files beside the folders, each with the last folder it may import from. The package itself offers what
# client offers. The daemon brings up everything below the command line, and `lanner serve` starts it.
FILES = {"__init__": "client", "aio": "client", "errors": "model", "daemon": "spark", "__main__": "cli"}


def rank(name: str) -> float:
    """Give the place of a folder, or of a file beside the folders, in the order of imports."""
    return FOLDERS.index(name) if name in FOLDERS else FOLDERS.index(FILES[name]) + 0.5


def imported(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import in a module, at the top and inside functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                base = package[: len(package) - node.level + 1] if node.level else []
                stem = [*base, *([node.module] if node.module else [])]
                yield from ((node.lineno, ".".join([*stem, alias.name])) for alias in node.names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def wrong_imports(package: Path) -> list[str]:
    """List the imports under a package folder that go against the order."""
    wrong = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        where = path.relative_to(package.parent)
        own = parts[0]
        if own not in (FOLDERS if len(parts) > 1 else FILES):
            wrong.append(f"{where}: {own} has no place in the order of folders")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for line, name in imported(tree, [package.name, *parts[:-1]]):
            top, _, rest = name.partition(".")
            if top != package.name:
                continue
            target = rest.partition(".")[0]
            if target not in FOLDERS and target not in FILES:
                # A name of the package itself, such as lanner.Message.
                target = "__init__"
            if target != own and rank(target) >= rank(own):
                wrong.append(f"{where}:{line}: {own} imports {name}")
    return wrong


def packages_without_docstring(package: Path) -> list[str]:
    return [
        str(path.relative_to(package.parent))
        for path in sorted(package.rglob("__init__.py"))
        if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]


def test_folders_import_only_from_folders_above_them() -> None:
    assert wrong_imports(PACKAGE) == []


def test_every_package_says_what_it_is_for() -> None:
    assert packages_without_docstring(PACKAGE) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a small package that follows every rule."""
    files = {
        "__init__.py": '"""A package."""\nfrom lanner.client import Queue\n',
        "model/__init__.py": '"""Nouns."""\nimport enum\n',
        "engine/__init__.py": '"""Verbs."""\nfrom lanner.model import Queue\nfrom ._timers import Timer\n',
        "engine/_timers.py": '"""Timers."""\nfrom ..model import Queue\n',
        "client/__init__.py": '"""Client."""\nimport lanner.engine as engine\n',
        "cli/__init__.py": '"""Command."""\nfrom lanner import Queue, daemon\n',
        "daemon.py": '"""Daemon."""\nfrom lanner.engine import Engine\n',
    }
    package = tmp_path / "lanner"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_a_tree_in_order_is_accepted(tree: Path) -> None:
    assert wrong_imports(tree) == []
    assert packages_without_docstring(tree) == []


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("model/a.py", "import lanner.engine", "model imports lanner.engine"),
        ("model/a.py", "from lanner.engine import Engine", "model imports lanner.engine.Engine"),
        ("model/a.py", "from lanner import engine", "model imports lanner.engine"),
        ("model/a.py", "from ..engine import Engine", "model imports lanner.engine.Engine"),
        ("model/a.py", "from .. import engine", "model imports lanner.engine"),
        ("model/b/a.py", "from ...engine import Engine", "model imports lanner.engine.Engine"),
        ("model/a.py", "def f(): import lanner.engine", "model imports lanner.engine"),
        ("model/a.py", "importlib.import_module('lanner.engine')", "model imports lanner.engine"),
        ("engine/a.py", "from lanner import Message", "engine imports lanner.Message"),
        ("engine/a.py", "import lanner", "engine imports lanner"),
        ("engine/a.py", "import lanner.daemon", "engine imports lanner.daemon"),
        ("spark/a.py", "import lanner.daemon", "spark imports lanner.daemon"),
        ("daemon.py", "import lanner.cli", "daemon imports lanner.cli"),
        ("__init__.py", "import lanner.spark", "__init__ imports lanner.spark"),
    ],
)
def test_a_wrong_import_is_found(tree: Path, file: str, line: str, complaint: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text(f"{line}\n", encoding="utf-8")
    assert wrong_imports(tree) == [f"lanner/{file}:1: {complaint}"]


@pytest.mark.parametrize("file", ["broker/a.py", "queue.py"])
def test_a_folder_or_file_without_a_place_is_found(tree: Path, file: str) -> None:
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).touch()
    name = Path(file).parts[0].removesuffix(".py")
    assert wrong_imports(tree) == [f"lanner/{file}: {name} has no place in the order of folders"]


def test_a_package_without_docstring_is_found(tree: Path) -> None:
    (tree / "engine" / "__init__.py").write_text("import enum\n", encoding="utf-8")
    assert packages_without_docstring(tree) == ["lanner/engine/__init__.py"]


# Written so that this file does not match itself.
# Where tickets are at home; everything else makes a change and waits for it (host/change.py).
TICKET_FOLDERS = ("store", "engine", "host")
TICKET_FILES = {
    # Transfer compares tickets with the batch that is synced, and waits for none.
    "transfer/incoming_sequence.py",
    "transfer/leaving.py",
    "transfer/transfer.py",
    # Send and receive are written out: every call on their way costs about as much as the queue does.
    "client/_async/embedded_queue.py",
    "client/_sync/embedded_queue.py",
}


def waits_by_hand(package: Path) -> list[str]:
    """Return the calls of `ticket()`, `store.sync(...)` and `committer.durable(...)` that should be a change."""
    found = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        if where.parts[0] in TICKET_FOLDERS or where.as_posix() in TICKET_FILES:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = ast.unparse(node.func.value)
                name = node.func.attr
                if (
                    (name == "ticket" and not node.args)
                    or (name == "sync" and of.endswith("store"))
                    or (name == "durable" and of.endswith("committer"))
                ):
                    found.append(f"{where.as_posix()}:{node.lineno}: {of}.{name}")
    return found


def test_changes_are_waited_for_in_one_way() -> None:
    assert waits_by_hand(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("services/a.py", "ticket = engine.store.ticket()", "engine.store.ticket"),
        ("cli/a.py", "self._store.sync(ticket)", "self._store.sync"),
        ("activex/a.py", "await self._committer.durable(ticket)", "self._committer.durable"),
        ("transfer/a.py", "store.ticket()", "store.ticket"),
    ],
)
def test_a_wait_by_hand_is_found(tree: Path, file: str, line: str, complaint: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text(f"async def f():\n    {line}\n", encoding="utf-8")
    assert waits_by_hand(tree) == [f"{file}:2: {complaint}"]


@pytest.mark.parametrize("file", ["store/a.py", "engine/a.py", "host/a.py", "transfer/leaving.py"])
def test_tickets_are_accepted_where_they_are_at_home(tree: Path, file: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text("store.sync(store.ticket())\n", encoding="utf-8")
    assert waits_by_hand(tree) == []


FOREIGN = {
    "a registry host": re.compile(r"\bpypi[.]org\b|\bpythonhosted[.]org\b|--(extra-)?index[-]url\s*[=\s]\s*\S*://"),
    "a machine path": re.compile(r"(?<![\w.$}~/-])/(?:home|root|work|Users)/\w"),
}


def foreign_words() -> dict[str, str]:
    """Give the words of this very machine: the folders of the work tree and the user, and its package registry."""
    words = {"the work tree": f"{ROOT}/", "the home folder": f"{Path.home()}/"}
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    for url in (asked.stdout, os.environ.get("PIP_INDEX_URL", "")):
        host = re.match(r"\w+://(?:[^/@]*@)?([^/:\s]+)", url)
        # A loopback address is anybody's.
        if host and not re.match(r"localhost$|127[.]", host[1]):
            words[f"the package registry {host[1]}"] = host[1]
    return {what: word for what, word in words.items() if len(word) > len("//")}


def foreign(text: str, words: dict[str, str]) -> list[str]:
    """Say what in a text belongs to one machine only."""
    return [what for what, pattern in FOREIGN.items() if pattern.search(text)] + [
        what for what, word in words.items() if word in text
    ]


def project_files() -> list[Path]:
    """List the files that are, or would be, committed."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    words = foreign_words()
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            # Captured bytes.
            continue
        found += [f"{path.relative_to(ROOT)}: {what}" for what in foreign(text, words)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /home" + "/someone/src", ["a machine path"]),
        ("--index-url " + "https://example.invalid/simple", ["a registry host"]),
        ("https://" + "pypi." + "org/simple", ["a registry host"]),
        ("tests/data/home/x, $HOME/lanner/x, ./lanner/x, /var/lib/lanner", []),
        ("kept under <tree>/x", ["the tree"]),
    ],
)
def test_foreign_words_are_found(text: str, expected: list[str]) -> None:
    assert foreign(text, {"the tree": "<tree>/"}) == expected


def test_the_blocking_client_is_made_from_the_async_one() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_sync.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


@pytest.mark.parametrize("damage", ["changed", "missing", "left over"])
def test_a_stale_blocking_client_is_found_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    source, target = tmp_path / "_async", tmp_path / "_sync"
    for name in ("SOURCE", "TARGET", "ROOT"):
        monkeypatch.setattr(generate_sync, name, {"SOURCE": source, "TARGET": target}.get(name, tmp_path))
    source.mkdir()
    target.mkdir()
    (source / "queue.py").write_text("async def receive(timeout: float) -> None:\n    await sleep(timeout)\n")
    assert generate_sync.main([]) == 0
    made = (target / "queue.py").read_text()
    assert made.endswith("def receive(timeout: float) -> None:\n    sleep(timeout)\n")
    assert generate_sync.main(["--check"]) == 0
    stale = target / ("old.py" if damage == "left over" else "queue.py")
    if damage == "missing":
        stale.unlink()
    else:
        stale.write_text("pass\n")
    assert generate_sync.main(["--check"]) == 1
    assert f"{stale.relative_to(tmp_path)} is stale: run `make sync`" in capsys.readouterr().out
    assert generate_sync.main([]) == 0
    assert {path.name: path.read_text() for path in target.iterdir()} == {"queue.py": made}


CODE = [name for name in ("src", "demo", "tests", "tools", "bench") if (ROOT / name).is_dir()]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy", *CODE]],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_lint_and_types(command: list[str]) -> None:
    environment = {**os.environ, "NO_COLOR": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
