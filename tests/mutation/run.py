"""Change the core of the analysis a little, again and again, and count how often a test notices.

    python -m tests.mutation.run --seed 1 --sample 300

Nothing is written into the tree: one session of pytest collects the tests, and each mutant is a fork of it in which the
functions of the changed module have new code. The tests that run the changed line judge it, those of few modules first,
until one fails. docs/dev/mutation.md has the figures.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import inspect
import itertools
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import hypothesis
import pytest

from tests.mutation.mutants import Mutant, compiled, mutants_of, stratified

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "profkit"
_CORE: Final = "intervals distinct nesting launches phases steps segments idle waits"
_PATHS: Final = (
    *(PACKAGE / "timeline" / f"{n}.py" for n in _CORE.split()),
    *(PACKAGE / "report" / f"{n}.py" for n in ("contradictions", "verdict")),
    *sorted((PACKAGE / "simulation").glob("[!_]*.py")),
    *sorted((PACKAGE / "comparison").glob("[!_]*.py")),
)
MODULES: Final = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in _PATHS}

BRUTE_FORCE: Final = "tests/exactness/test_properties.py::test_every_number_equals_the_brute_force"
_CASES: Final = "tests/exactness/test_cases.py::test_a_case_has_the_numbers_that_it_demands"
_LARGE: Final = ("kernel_places", "options", "timeline", "unrecorded")
_UNITS: Final = [
    p for p in sorted((ROOT / "tests/timeline").glob("test_*.py")) if not p.stem.endswith(_LARGE)
]
_TIMELINE: Final = (
    *(str(path.relative_to(ROOT)) for path in _UNITS),
    BRUTE_FORCE,
    _CASES,
    "tests/exactness/test_operators.py",
)
JUDGES: Final = {
    "timeline": _TIMELINE,
    "report": (*_TIMELINE, "tests/report"),
    "simulation": ("tests/simulation", "tests/advice/test_rules.py", "tests/cli/test_whatif.py"),
    "comparison": ("tests/comparison",),
}
"""What judges the modules of a package; without the tests on large recordings, which cost much."""
JUDGES_S: Final = 10.0
"""How long the tests of one mutant may take together, by their times on the unchanged code."""
ACCOUNTS: Final = Path(__file__).with_name("survivors.tsv")
_NOT_OURS: Final = 97


class _Anew(MetaPathFinder, Loader):
    """A second session that imports everything again, one module from code of ours: for changes outside of functions."""

    def __init__(self, tests: Sequence[str], name: str, code: CodeType) -> None:
        self._tests, self._name, self._code = tests, name, code

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)

    def pytest_configure(self) -> None:
        # Before the hook of pytest, which takes all of profkit, since a plugin is part of it.
        sys.meta_path.insert(0, self)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._tests]

    def run(self) -> int:
        for name in [n for n in sys.modules if n.startswith(("profkit.", "tests."))]:
            del sys.modules[name]
        status = _pytest(["-x", *sorted({name.split("::")[0] for name in self._tests})], self)
        ours = getattr(sys.modules.get(self._name), "__loader__", None) is self
        return status if status or ours else _NOT_OURS


class Bench:
    """One session of pytest, in which every mutant is a fork."""

    def __init__(self, sample: Sequence[Mutant]) -> None:
        self._sample = sample
        self._items: dict[str, pytest.Item] = {}
        self.found: list[tuple[Mutant, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        known = self._watched()
        for module, inside in sorted({(mutant.module, mutant.in_function) for mutant in self._sample}):
            tests = _judges(module, None, known)[:3]
            if _in_child(partial(self._judge, module, None, inside, tests), 60):
                pytest.exit(f"{module}: its tests fail without a change", 1)
        for mutant in self._sample:
            tests = _judges(mutant.module, mutant.lines if mutant.in_function else None, known)
            limit = 3 * sum(known["seconds"][name] for name in tests) + 15
            work = partial(self._judge, mutant.module, mutant, mutant.in_function, tests)
            status = _in_child(work, limit) if tests else 0
            if status in (_NOT_OURS, *list(pytest.ExitCode)[3:]):
                pytest.exit(f"{mutant.module}: {mutant.change} was not judged ({status})", 1)
            late = status in (-signal.SIGXCPU, -signal.SIGKILL)
            self.found.append((mutant, "timeout" if late else "killed" if status else "survived"))
            if not status:
                print(_short(mutant), mutant.source, mutant.change, sep="\t", flush=True)
        return True

    def _judge(self, module: str, mutant: Mutant | None, in_function: bool, tests: Sequence[str]) -> int:
        code = compiled(mutant, MODULES[module])
        if not in_function:
            return _Anew(tests, module, code).run()
        _swap(module, code)
        return self._run(tests)

    def _run(self, tests: Sequence[str]) -> int:
        items = [self._items[name] for name in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                return 1
        return 0

    def _watched(self) -> dict[str, Any]:
        """Which test runs which line: ``lines[module][line]``, and ``seconds`` of each test. Kept between runs."""
        tests = {Path(str(item.path)) for item in self._items.values()}
        sources = {*(ROOT / "profkit").rglob("*.py"), *tests}
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:16]
        kept = Path(tempfile.gettempdir()) / f"profkit-mutation-{digest}.json"
        if not kept.exists() and (status := _in_child(lambda: self._watch(kept), 1_800)):
            pytest.exit(f"the unchanged code fails its tests ({status})", 1)
        found: dict[str, Any] = json.loads(kept.read_text())
        return found

    def _watch(self, kept: Path) -> int:
        import coverage

        measured = coverage.Coverage(data_file=None, include=[str(path) for path in MODULES.values()])
        measured.start()
        seconds = {}
        for name in self._items:
            measured.switch_context(name)
            start = time.process_time()
            if self._run([name]):
                return 1
            seconds[name] = time.process_time() - start
        measured.stop()
        lines = {name: measured.get_data().contexts_by_lineno(str(path)) for name, path in MODULES.items()}
        broad = Counter(n for each in lines.values() for n in set().union(*each.values()))
        kept.write_text(json.dumps({"seconds": seconds, "lines": lines, "modules": broad}))
        return 0


def _pytest(arguments: Sequence[str], plugin: object) -> int:
    # A failing example needs no shrinking, and must not be kept for the next mutant.
    seen = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutation", database=None, derandomize=True, phases=seen)
    hypothesis.settings.load_profile("mutation")
    off = [f"-pno:{name}" for name in ("cacheprovider", "profkit", "xdist")]
    quiet = "-Wignore::pytest.PytestAssertRewriteWarning"  # hypothesis is here already
    return int(pytest.main([*off, quiet, "-sq", "--timeout=0", *arguments], [plugin]))


def _in_child(work: Callable[[], int], cpu_s: float) -> int:
    """The status of some work in a process of its own; negative is the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    status = 1
    try:
        status = work()
    finally:
        os._exit(status)


def _judges(module: str, lines: Sequence[int] | None, known: Mapping[str, Any]) -> list[str]:
    """The tests that run some lines of a module, narrow ones first; None is what runs when it is imported."""
    of_module, seconds, modules = known["lines"][module], known["seconds"], known["modules"]
    names = {
        name for line in (of_module if lines is None else lines) for name in of_module.get(str(line), ())
    }
    if lines is None and not names:
        names = set(seconds)
    names = {name for name in names if name.startswith(JUDGES[_package(module)])}
    # A test of few modules is about this one; all of them together are about the whole.
    order = sorted(names, key=lambda n: (n != BRUTE_FORCE, modules.get(n, 0), seconds[n], n))
    reached = itertools.accumulate(seconds[name] for name in order)
    chosen = [name for name, total in zip(order, reached, strict=True) if total <= JUDGES_S]
    return chosen[1:] + chosen[:1] if BRUTE_FORCE in chosen else chosen


def _swap(module: str, code: CodeType) -> None:
    """Give the functions of a module the code and the defaults of a changed one; whoever holds them sees it."""
    anew: dict[str, Any] = {"__name__": module}
    exec(code, anew)
    fresh = dict(_functions(anew, code.co_filename))
    for name, function in _functions(vars(import_module(module)), code.co_filename):
        other = fresh[name]
        function.__code__, function.__defaults__ = other.__code__, other.__defaults__
        function.__kwdefaults__ = other.__kwdefaults__


def _functions(names: Mapping[str, Any], filename: str) -> Iterator[tuple[str, FunctionType]]:
    for value in list(names.values()):
        inner = getattr(value, "fget", None) or getattr(value, "func", None) or inspect.unwrap(value)
        inner = getattr(inner, "__func__", inner)
        if isinstance(inner, FunctionType) and inner.__code__.co_filename == filename:
            yield inner.__qualname__, inner
        elif isinstance(value, type) and value.__module__ == names.get("__name__"):
            yield from _functions({**vars(value), "__name__": value.__module__}, filename)


def _accounts() -> dict[tuple[str, str, str], str]:
    """Of each survivor that is accounted for: ``equivalent`` or ``alive``."""
    with ACCOUNTS.open() as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {(r["module"], r["line"], r["change"]): r["verdict"] for r in rows}


def _package(module: str) -> str:
    return module.split(".")[1]


def _short(mutant: Mutant) -> str:
    return mutant.module.removeprefix("profkit.")


def main() -> None:
    """Judge a sample of mutants; print whatever survives, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=300, help="about how many mutants, over all modules")
    parser.add_argument("--only", default="", help="modules whose name contains this")
    options = parser.parse_args()
    os.chdir(ROOT)
    everything = [mutant for name, path in MODULES.items() for mutant in mutants_of(name, path)]
    sample = [m for m in stratified(everything, options.sample, options.seed) if options.only in m.module]
    bench, accounts = Bench(sample), _accounts()
    judges = {judge: None for m in sample for judge in JUDGES[_package(m.module)]}
    if status := _pytest(list(judges), bench):
        sys.exit(status)
    score: dict[str, Counter[str]] = {}
    for mutant, outcome in bench.found:
        told = accounts.get((_short(mutant), mutant.source, mutant.change)) == "equivalent"
        row = score.setdefault(_short(mutant), Counter())
        row["equivalent" if outcome == "survived" and told else outcome] += 1
    columns = ("killed", "timeout", "equivalent", "survived")
    print(f"\n{len(sample)} of {len(everything)} mutants\n\n| module | mutants | {' | '.join(columns)} |")
    print("|---|" + "---:|" * 5)
    for name, row in [*score.items(), ("all", sum(score.values(), Counter()))]:
        print(f"| {name} | {row.total()} | " + " | ".join(str(row[column]) for column in columns) + " |")


if __name__ == "__main__":
    main()
