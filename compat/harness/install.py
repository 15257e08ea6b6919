"""Puts the clients of a suite in place and says how the suite is run.

Each function takes the suite's directory and returns the command line. What was installed before is kept as
long as the file that names the versions is unchanged; nothing outside the repository and the package managers'
own caches is touched.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from contextlib import contextmanager

from settee import ROOT


class InstallError(Exception):
    """A client could not be installed; says what to do."""


def _run(command, directory, advice):
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise InstallError(f"{' '.join(map(str, command))} failed. {advice}")


def _changed(stamp, source):
    """What to write into the stamp when it does not record this very source; None when it does."""
    wanted = hashlib.sha256(source.read_bytes()).hexdigest()
    have = stamp.read_text() if stamp.exists() else ""
    return None if have == wanted else wanted


def _tool(name, package):
    if shutil.which(name) is None:
        raise InstallError(f"{name} is missing; on Debian: apt-get install {package}")


@contextmanager
def _alone(home):
    """Suites that are run beside each other share what is installed: one of them installs it, the others wait."""
    home.parent.mkdir(exist_ok=True)
    with open(home.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _interpreter(name, requirements):
    """A Python of our own that has what a file of requirements names."""
    home = ROOT / ".cache" / name
    stamp = home / "settee-stamp"
    python = home / "bin" / "python"
    with _alone(home):
        wanted = _changed(stamp, requirements)
        if wanted or not python.exists():
            shutil.rmtree(home, ignore_errors=True)
            _run([sys.executable, "-m", "venv", home], ROOT, "On Debian: apt-get install python3-venv")
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "-r", requirements], ROOT, "Is the Python package index reachable?")
            stamp.write_text(wanted)
    return str(python)


def interpreter():
    """The Python that has the clients of compat/python/requirements.txt."""
    return _interpreter("compat-python", ROOT / "compat" / "python" / "requirements.txt")


def python(_directory):
    return [interpreter(), "-m", "pytest", "-q", "--durations=5", "-p", "no:cacheprovider"]


def crash(directory):
    _run([sys.executable, "-m", "unittest", "test_model"], directory, "The judge of the rounds is wrong itself.")
    return [interpreter(), str(directory / "rounds.py")]


def songs(directory):
    return [sys.executable, str(directory / "run.py")]


def load(directory):
    return [sys.executable, str(directory / "run.py")]


def views(directory):
    return [sys.executable, str(directory / "run.py")]


def chaos(directory):
    _tool("go", "golang")
    _run(["go", "test", "./..."], directory.parent / "linearizability", "The judge of the histories is wrong itself.")
    return [sys.executable, str(directory / "run.py")]


def _npm(directory):
    _tool("npm", "nodejs npm")
    stamp = directory / "node_modules" / ".settee-stamp"
    wanted = _changed(stamp, directory / "package-lock.json")
    if wanted:
        _run(["npm", "ci", "--no-audit", "--no-fund"], directory, "Is the npm registry reachable?")
        stamp.write_text(wanted)


def console(directory):
    """The browser is Debian's: Playwright is not let download another."""
    _tool("chromium", "chromium")
    _npm(directory)
    python = _interpreter("compat-console", directory / "requirements.txt")
    return [python, "-m", "unittest", "--verbose", "--failfast", "test_console"]


def prometheus(directory):
    """Debian's: its package has promtool, too."""
    _tool("prometheus", "prometheus")
    return [sys.executable, str(directory / "run.py")]


def node(directory):
    _npm(directory)
    return ["npm", "test", "--silent", "--"]


def go(directory):
    _tool("go", "golang")
    _run(["go", "vet", "./..."], directory, "Is the Go module proxy reachable?")
    return ["go", "test", "-count=1", "-v", "-timeout", "300s", "./..."]


def _steady_python():
    return [interpreter(), str(ROOT / "compat" / "python" / "steady.py")]


def _steady_node():
    directory = ROOT / "compat" / "node"
    _npm(directory)
    return ["node", str(directory / "steady.mjs")]


def _steady_go():
    _tool("go", "golang")
    program = ROOT / ".cache" / "compat-go-steady"
    program.parent.mkdir(exist_ok=True)
    _run(["go", "build", "-o", str(program), "./steady"], ROOT / "compat" / "go", "Is the Go module proxy reachable?")
    return [str(program)]


def _steady_java():
    _tool("mvn", "maven default-jdk-headless")
    directory = ROOT / "compat" / "java"
    build = ["mvn", "-B", "-ntp", "-q", "test-compile", "dependency:build-classpath"]
    _run(build, directory, "Is the Maven repository reachable?")
    classpath = (directory / "target" / "classpath").read_text().strip()
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [*java, "-cp", f"{directory / 'target' / 'test-classes'}:{classpath}", "settee.Steady"]


STEADY = {"python": _steady_python, "node": _steady_node, "go": _steady_go, "java": _steady_java}


def steady_commands(names):
    """How the steady clients of these SDKs are run, or of all."""
    unknown = set(names) - set(STEADY)
    if unknown:
        raise InstallError(f"no steady client for {', '.join(unknown)}; there are {', '.join(STEADY)}")
    return {name: STEADY[name]() for name in names or STEADY}


def steady(directory):
    return [sys.executable, str(directory / "run.py")]


def suite_gocb(directory):
    _tool("go", "golang")
    return [sys.executable, str(directory / "gocb.py")]


def suite_python(directory):
    python = _interpreter("compat-suite-python", directory / "python-client-requirements.txt")
    return [sys.executable, str(directory / "python_client.py"), f"--python={python}"]


def maven(_directory):
    _tool("mvn", "maven default-jdk-headless")
    return ["mvn", "-B", "-ntp", "test"]


def dcp_java(directory):
    _tool("mvn", "maven default-jdk-headless")
    build = ["mvn", "-B", "-ntp", "-q", "compile", "dependency:build-classpath"]
    _run(build, directory, "Is the Maven repository reachable?")
    return [sys.executable, str(directory / "run.py")]


def dcp(directory):
    return [sys.executable, str(directory / "suite.py")]


def unittests(_directory):
    return [sys.executable, "-m", "unittest", "-v"]


def hostile(directory):
    return [sys.executable, str(directory / "suite.py")]
