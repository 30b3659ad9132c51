"""The house rules that a machine can check.

These are the order of the folders, lint, types, and no trace of this machine in a file.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import generate_sync
from spec_interfaces import unused_code
from tests import statuses
from tests.vulture_whitelist import MEMBERS, WHITELIST

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
    "http",
    "daemon",
    "cli",
]
# Files beside the folders, each with the last folder it may import from. The package itself offers
# what client offers.
FILES = {
    "__init__": "client",
    "aio": "client",
    "errors": "model",
    "native": "model",
    "telemetry": "client",
    "__main__": "cli",
}
# Compiled modules, which import nothing of the package. Only `native` imports them.
EXTENSIONS = {"_native": "native"}


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
            if EXTENSIONS.get(target) == own:
                continue
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
        "daemon/__init__.py": '"""Daemon."""\nfrom lanner.engine import Engine\n',
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
        ("store/a.py", "from lanner import _native", "store imports lanner._native"),
        ("engine/a.py", "from lanner import Message", "engine imports lanner.Message"),
        ("engine/a.py", "import lanner", "engine imports lanner"),
        ("engine/a.py", "import lanner.daemon", "engine imports lanner.daemon"),
        ("spark/a.py", "import lanner.daemon", "spark imports lanner.daemon"),
        ("daemon/a.py", "import lanner.cli", "daemon imports lanner.cli"),
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


# Folders that may use batch numbers. Other code makes a change and waits for it (host/change.py).
BATCH_FOLDERS = ("store", "engine", "host")
BATCH_FILES = {
    # Transfer compares batch numbers with the batch that is synced, and waits for none.
    "transfer/awaiting_durability.py",
    "transfer/deliveries.py",
    "transfer/incoming_sequence.py",
    # Send and receive are written out: every call on their way costs about as much as the queue
    # does.
    "client/_async/embedded_queue.py",
    "client/_sync/embedded_queue.py",
}


def waits_by_hand(package: Path) -> list[str]:
    """Return calls that should be a change.

    These are `pending_batch()`, `store.sync(...)` and `committer.durable(...)`.
    """
    found = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        if where.parts[0] in BATCH_FOLDERS or where.as_posix() in BATCH_FILES:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = ast.unparse(node.func.value)
                name = node.func.attr
                if (
                    (name == "pending_batch")
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
        ("services/a.py", "batch = engine.store.pending_batch()", "engine.store.pending_batch"),
        ("cli/a.py", "self._store.sync(batch)", "self._store.sync"),
        ("activex/a.py", "await self._committer.durable(batch)", "self._committer.durable"),
        ("transfer/a.py", "store.pending_batch()", "store.pending_batch"),
    ],
)
def test_a_wait_by_hand_is_found(tree: Path, file: str, line: str, complaint: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text(f"async def f():\n    {line}\n", encoding="utf-8")
    assert waits_by_hand(tree) == [f"{file}:2: {complaint}"]


@pytest.mark.parametrize("file", ["store/a.py", "engine/a.py", "host/a.py", "transfer/awaiting_durability.py"])
def test_batch_numbers_are_accepted_in_the_folders_that_may_use_them(tree: Path, file: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text("store.sync(store.pending_batch())\n", encoding="utf-8")
    assert waits_by_hand(tree) == []


def packets_read_by_offset(package: Path) -> list[str]:
    """Return where code outside `wire` takes a packet or an identifier apart.

    Only `wire` knows where fields are.
    """
    found = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        if where.parts[0] == "wire":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript):
                of = node.value
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".unpack_from"):
                of = node.args[0]
            else:
                continue
            name = ast.unparse(of).rpartition(".")[2]
            if name == "packet" or (
                name.endswith("identifier") and isinstance(getattr(node, "slice", None), ast.Slice)
            ):
                found.append(f"{where.as_posix()}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_only_wire_takes_packets_apart() -> None:
    assert packets_read_by_offset(PACKAGE) == []


@pytest.mark.parametrize(
    "expression",
    [
        "packet[16:32]",
        "message.packet[61]",
        "position.record.packet[0]",
        "_U16.unpack_from(packet, 4)",
        "message.correlation_identifier[:16]",
    ],
)
def test_a_packet_read_by_offset_is_found(tree: Path, expression: str) -> None:
    (tree / "engine").mkdir(exist_ok=True)
    (tree / "engine/a.py").write_text(f"found = {expression}\n", encoding="utf-8")
    (tree / "wire").mkdir(exist_ok=True)
    (tree / "wire/a.py").write_text(f"found = {expression}\n", encoding="utf-8")
    assert packets_read_by_offset(tree) == [f"engine/a.py:1: {expression}"]


# Folders that mypyc may compile: it needs the types of fields when a class is made.
COMPILED = ("model", "wire", "store", "engine", "host", "transfer")


def fields_without_types(package: Path) -> list[str]:
    """Return the fields of dataclasses whose types are imported for the type checker only."""
    found = []
    for path in sorted(one for folder in COMPILED for one in (package / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        checked_only = {
            (alias.asname or alias.name).partition(".")[0]
            for block in tree.body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign):
                        names = {one.id for one in ast.walk(line.annotation) if isinstance(one, ast.Name)}
                        if names & checked_only:
                            found.append(f"{path.relative_to(package).as_posix()}: {ast.unparse(line.target)}")
    return found


def test_fields_of_dataclasses_have_types_at_run_time() -> None:
    assert fields_without_types(PACKAGE) == []


def test_a_field_whose_type_is_for_the_checker_only_is_found(tree: Path) -> None:
    (tree / "engine").mkdir(exist_ok=True)
    (tree / "engine/a.py").write_text(
        "if TYPE_CHECKING:\n    from uuid import UUID\n\n\n@dataclass\nclass A:\n    b: UUID | None\n    c: int\n",
        encoding="utf-8",
    )
    assert fields_without_types(tree) == ["engine/a.py: b"]


# Where the values of status codes stand; every other test uses the names.
STATUS_FILES = {"statuses.py", "engine/test_data_model.py", "data/body_values.py", "rpc/test_server.py"}


def retyped_statuses(tests: Path) -> list[str]:
    """List the numbers in tests that are documented status codes of message queuing."""
    known = {value for name, value in vars(statuses).items() if name.startswith("MQ_")}
    found = []
    for path in sorted(tests.rglob("*.py")):
        where = path.relative_to(tests).as_posix()
        if where in STATUS_FILES:
            continue
        found += [
            f"{where}:{node.lineno}: {node.value:#010x}"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in known
        ]
    return found


def test_status_codes_have_names_in_tests() -> None:
    assert retyped_statuses(ROOT / "tests") == []


def test_a_retyped_status_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("assert status == 0xC00E_0003\nassert size == 0x1234\n", encoding="utf-8")
    assert retyped_statuses(tmp_path) == ["test_a.py:1: 0xc00e0003"]


def methods_of(*folders: Path) -> set[str]:
    """Return the names of all methods under folders.

    A name that some class declares as a hook is none.
    """
    methods, hooks = set(), set()
    for path in itertools.chain(*(folder.rglob("*.py") for folder in folders)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods |= {
                    member.name
                    for member in node.body
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
                    if "property" not in {ast.unparse(decorator) for decorator in member.decorator_list}
                }
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Attribute)
                and "Callable" in ast.unparse(node.annotation)
            ):
                hooks.add(node.target.attr)
    return methods - hooks


def is_class_or_module(node: ast.expr, imported_names: set[str]) -> bool:
    """Return whether an expression in a test is a class or a module, judged by its name.

    Everything else is an object.
    """
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr() | ast.Call(func=ast.Name(id="type")):
            return True
        case ast.Name(id=name):
            return name in imported_names or name[:1].isupper() or name.endswith("module")
        case ast.Attribute(value=value, attr=name):
            return name[:1].isupper() or name.endswith("module") or is_class_or_module(value, imported_names)
    return False


def patches_in(tree: ast.Module, methods: set[str]) -> Iterator[int]:
    """Yield the lines where a test replaces a method or a private function.

    These are methods set on an object, and functions in place of a private attribute.
    """
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported_names = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    own_methods = {node.name for node in defined if any(node in each.body for each in classes)}
    # The name of a fixture is a parameter elsewhere.
    functions = {node.name for node in defined if not node.decorator_list} - own_methods

    def is_function(node: ast.expr) -> bool:
        match node:
            case ast.Lambda():
                return True
            case ast.Name(id=name):
                return name in functions
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return name in own_methods
            case ast.Call():
                return ast.unparse(node.func) in ("partial", "functools.partial")
        return False

    for node in ast.walk(tree):
        match node:
            # The first form is pytest's, which takes back what it has set; the second is the
            # built-in function.
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[of, *_]):
                if not is_class_or_module(of, imported_names):
                    yield node.lineno
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(), value]):
                if not isinstance(value, ast.Constant):
                    yield node.lineno
            case ast.Assign(targets=[ast.Attribute(value=of, attr=name)], value=value):
                is_own = isinstance(of, ast.Name) and of.id in ("self", "cls")
                is_hidden = name.startswith("_") or name in methods
                if is_hidden and is_function(value) and not is_own and not is_class_or_module(of, imported_names):
                    yield node.lineno


METHOD_ASSIGNED = re.compile(r"type: ignore\[[^\]]*method-assign")


def patched_objects(tests: Path, methods: set[str]) -> list[str]:
    """List the places where a test changes an object instead of passing a fake in."""
    found = []
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = {*patches_in(ast.parse(text), methods)}
        # What mypy says of an assignment to a method.
        lines |= {number for number, line in enumerate(text.splitlines(), 1) if METHOD_ASSIGNED.search(line)}
        found += [f"{path.relative_to(tests).as_posix()}:{line}" for line in sorted(lines)]
    return found


def test_tests_pass_fakes_in() -> None:
    assert patched_objects(ROOT / "tests", methods_of(PACKAGE, ROOT / "tests")) == []


def test_methods_are_no_hooks(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class Route:\n  def send(self): ...\n  def wake(self): ...\n  @property\n  def state(self): ...\n"
        "class Timer:\n  def __init__(self): self.wake: Callable[[], None] | None = None\n",
        encoding="utf-8",
    )
    assert methods_of(tmp_path) == {"send", "__init__"}


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("monkeypatch.setattr(engine, 'on_timer', fails)", True),
        ("monkeypatch.setattr(h.engine, 'on_timer', fails)", True),
        ("patch.setattr(runtime_of(qm).engine, 'on_timer', fails)", True),
        ("patch.setattr(\n    site.queue_client._committer, 'durable', lambda batch: never)", True),
        ("monkeypatch.setattr(directory, name, watched)", True),
        ("monkeypatch.setattr(alpha.route(name).table, 'next_unsent', fails)", True),
        ("monkeypatch.setattr(store._environment, 'env', Broken())", True),
        ("setattr(engine, 'on_timer', fails)", True),
        ("route.set_state = lambda state: states.append(state)", True),
        ("exporter._clock = lambda: later", True),
        ("def set_state(): ...\nroute.set_state = set_state", True),
        ("class World:\n  def set_state(self): ...\n  def __init__(self): self.route.set_state = self.set_state", True),
        ("route.set_state = partial(noted, 1)", True),
        ("site.queues.committer.durable = x  # type: {}[method-assign, assignment]", True),
        ("link.session = overlay(link.session, send=watch)", False),
        ("h.directory.answers['read'] = lambda *_: failure", False),
        ("clocks.wall = lambda: 1.0", False),
        ("h.before_start = lambda engine: setattr(engine.directory, 'connected', False)", False),
        ("setattr(queue, field, value)", False),
        ("class Fake:\n  def __init__(self): self._clock = lambda: 1.0", False),
        ("from lanner.store import maintenance\nmonkeypatch.setattr(maintenance, '_SLICE_SECONDS', 0.0001)", False),
        ("monkeypatch.setattr(world.module, 'pause', pause)", False),
        ("monkeypatch.setattr(Connector, 'link_to', watch)", False),
        ("monkeypatch.setattr(type(h.store), 'refuses_sends', True)", False),
        ("monkeypatch.setattr('lanner.host.reads.PURGE_SLICE', 4)", False),
        ("committer = Committer(overlay(store, sync=sync), loop)", False),
    ],
)
def test_a_patched_object_is_found(tmp_path: Path, line: str, is_found: bool) -> None:
    (tmp_path / "test_a.py").write_text(line.format("ignore"), encoding="utf-8")
    assert len(patched_objects(tmp_path, {"set_state"})) == is_found


def whitelisted(entries: Iterable[Mapping[str, list[str]]]) -> set[tuple[str, str]]:
    return {(module, name) for group in entries for module, names in group.items() for name in names}


def test_no_code_is_unused() -> None:
    patterns = whitelisted([MEMBERS, *WHITELIST.values()])
    unmatched = whitelisted(WHITELIST.values())
    unused = []
    for module, finding, line in unused_code(PACKAGE):
        matching = {each for each in patterns if fnmatchcase(module, each[0]) and fnmatchcase(finding, each[1])}
        unmatched -= matching
        if not matching:
            unused.append(f"{module}:{line}: {finding}")
    assert unused == [], "remove it, or say in tests/vulture_whitelist.py why it stays"
    assert unmatched == set(), "remove it from tests/vulture_whitelist.py"


def test_unused_code_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def unused() -> None: ...\ndef used() -> None: ...\nused()\n", encoding="utf-8")
    assert unused_code(tmp_path) == [("a.py", "function unused", 1)]


# Names on disk, which stay as they are so that existing stores open.
NAMES_ON_DISK = ('"journal.0"', '"journal.1"', 'b"journal"')
# Names of attributes that a library has given.
NAMES_OF_LIBRARIES = ("context.num_tickets",)


def table_rows(document: str, heading: str) -> list[list[str]]:
    """Return the rows of the Markdown table that begins with a heading row."""
    lines = document.splitlines()
    rows = []
    for line in lines[lines.index(heading) + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def classes_of(package: Path) -> dict[str, list[str]]:
    """Return the dotted modules that define each class.

    The blocking client repeats the names of the async one.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if "_sync" not in parts:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(".".join(parts))
    return found


def wrong_terms(package: Path, document: str) -> list[str]:
    """Return the errors of the glossary.

    These are entries that name nothing, and classes that share a name with one of its classes.
    """
    rows = table_rows(document, "| Term | Meaning | Where |")
    terms = [row[0] for row in rows]
    wrong = [f"{term} comes before {after}" for after, term in itertools.pairwise(terms) if term <= after]
    classes = classes_of(package)
    named: dict[str, list[str]] = {}
    for term, _, where in rows:
        for name in re.findall(r"`([\w.]+)`", where):
            module, _, last = name.rpartition(".")
            if (package / name.replace(".", "/")).with_suffix(".py").is_file() or (
                package / name.replace(".", "/")
            ).is_dir():
                continue
            # A class is named with its module, or with the package that has the module.
            homes = [home for home in classes.get(last, []) if home == module or home.startswith(f"{module}.")]
            if homes:
                named.setdefault(last, []).extend(homes)
            else:
                wrong.append(f"{term}: there is no {name}")
    for name, homes in named.items():
        wrong += [f"{name} is also a class of {other}" for other in classes[name] if other not in homes]
    return wrong


def forbidden_words(package: Path, document: str) -> list[str]:
    """List the places in code that use a word which the glossary forbids there."""
    found = []
    for word, folders, _ in table_rows(document, "| Word | Not in | Write instead |"):
        stem = re.compile(re.escape(word.removesuffix("e")), re.IGNORECASE)
        for folder in [""] if folders == "everywhere" else re.findall(r"`(\w+)`", folders):
            for path in sorted((package / folder).rglob("*.py")):
                text = path.read_text(encoding="utf-8")
                for name in (*NAMES_ON_DISK, *NAMES_OF_LIBRARIES):
                    text = text.replace(name, "")
                where = path.relative_to(package).as_posix()
                found += [
                    f"{where}:{number}: {word}" for number, line in enumerate(text.splitlines(), 1) if stem.search(line)
                ]
    return found


ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_the_glossary_names_what_exists_and_each_class_once() -> None:
    assert wrong_terms(PACKAGE, ARCHITECTURE.read_text(encoding="utf-8")) == []


def test_words_that_the_glossary_forbids_do_not_occur() -> None:
    assert forbidden_words(PACKAGE, ARCHITECTURE.read_text(encoding="utf-8")) == []


def unnamed_modules(package: Path, document: str, folders: Iterable[str]) -> list[str]:
    """List the modules of folders that a document does not name: alone, or with their folder."""
    return [
        f"{folder}/{path.stem}"
        for folder in folders
        for path in sorted((package / folder).glob("[a-z]*.py"))
        if not re.search(rf"`(?:[\w/]*/)?{path.stem}(?:\.py)?`", document)
    ]


def wrong_paths(package: Path, document: str) -> list[str]:
    """List the modules of the table of first steps that are not there."""
    named = re.findall(r"`([\w/]+\.py)`", str(table_rows(document, "| To | Open first | Then |")))
    return [path for path in named if not (package / path).is_file()]


def test_the_architecture_names_the_modules_of_its_folders() -> None:
    assert unnamed_modules(PACKAGE, ARCHITECTURE.read_text(encoding="utf-8"), ["engine", "host", "transfer"]) == []


def test_the_first_steps_lead_to_modules() -> None:
    assert wrong_paths(PACKAGE, ARCHITECTURE.read_text(encoding="utf-8")) == []


def missing_places(guide: str) -> list[str]:
    """List the files and folders that CONTRIBUTING.md names and that do not exist."""
    named = re.findall(r"`([\w./-]+(?:/[\w.-]+|\.(?:py|md|toml)))`", guide)
    return [name for name in named if not (ROOT / name).exists() and not (PACKAGE / name).exists()]


def test_the_guide_for_contributors_names_files_that_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert missing_places(guide) == []
    for subject in ("An event", "A packet", "An RPC method", "A setting", "A command", "A job"):
        assert f"### {subject}" in guide


def test_a_missing_place_in_the_guide_is_found() -> None:
    assert missing_places("`engine/queues.py` `tests/cli` `wire/none.py` `docs/none.md` `make lint`") == [
        "wire/none.py",
        "docs/none.md",
    ]


def test_modules_that_are_not_named_or_not_there_are_found(tree: Path) -> None:
    (tree / "engine" / "timers.py").touch()
    (tree / "engine" / "queues.py").touch()
    document = "| To | Open first | Then |\n|---|---|---|\n| a | `engine/queues.py` | `engine/clocks.py` |\n"
    assert unnamed_modules(tree, document, ["engine"]) == ["engine/timers"]
    assert unnamed_modules(tree, document + "`timers`", ["engine"]) == []
    assert wrong_paths(tree, document) == ["engine/clocks.py"]


GLOSSARY = """
| Term | Meaning | Where |
|---|---|---|
| queue | a queue | `model.Queue`, `client` |
| timer | a timer | {timer} |

| Word | Not in | Write instead |
|---|---|---|
| settle | `model`, `engine` | checkpoint |
"""


@pytest.mark.parametrize(
    "where", ["`engine._timers`", "`engine._timers.Timer`", "`engine.Timer`, `model.queues.Timer`"]
)
def test_a_right_glossary_is_accepted(tree: Path, where: str) -> None:
    (tree / "model" / "queues.py").write_text("class Queue: ...\n" + "class Timer: ...\n" * where.count("queues"))
    (tree / "engine" / "_timers.py").write_text("class Timer: ...\n")
    (tree / "client" / "_sync").mkdir()
    (tree / "client" / "_sync" / "queue.py").write_text("class Queue: ...\n# settled\n")
    document = GLOSSARY.format(timer=where)
    assert (wrong_terms(tree, document), forbidden_words(tree, document)) == ([], [])


def test_a_wrong_glossary_is_found(tree: Path) -> None:
    (tree / "model" / "queues.py").write_text('class Queue: ...\nNAME = "journal.0"\n')
    (tree / "engine" / "queues.py").write_text("class Queue: ...\nx = 1  # what is Settled here\n")
    document = GLOSSARY.format(timer="`engine.Timer`, `model.timers`")
    assert wrong_terms(tree, document) == [
        "timer: there is no engine.Timer",
        "timer: there is no model.timers",
        "Queue is also a class of engine.queues",
    ]
    assert forbidden_words(tree, document) == ["engine/queues.py:2: settle"]
    everywhere = document.replace("`model`, `engine`", "everywhere")
    (tree / "daemon/a.py").write_text("settle = 1\n")
    assert forbidden_words(tree, everywhere) == ["daemon/a.py:1: settle", "engine/queues.py:2: settle"]
    assert wrong_terms(tree, document.replace("| timer |", "| clock |"))[0] == "clock comes before queue"


FOREIGN = {
    "a registry host": re.compile(r"\bpypi[.]org\b|\bpythonhosted[.]org\b|--(extra-)?index[-]url\s*[=\s]\s*\S*://"),
    "a machine path": re.compile(r"(?<![\w.$}~/-])/(?:home|root|work|Users)/\w"),
}


def foreign_words() -> dict[str, str]:
    """Return the words of this machine.

    These are the folders of the work tree and the user, and the package registry.
    """
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
