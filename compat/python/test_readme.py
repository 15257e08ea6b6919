"""The README's program in Python runs as it stands."""

import subprocess
import sys

from settee.readme import program


def test_the_program_runs(tmp_path, main):
    main.default_collection().upsert("greeting", {})
    file = tmp_path / "greeting.py"
    file.write_text(program("python"))
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "{'hello': 'world'}\n", "")
    assert main.default_collection().get("greeting").content_as[dict] == {"hello": "world"}
