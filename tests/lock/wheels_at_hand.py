"""Small real wheels, written by hand: a module, a console script, its metadata."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, *, text: str = "") -> tuple[Path, str]:
    """Write a wheel with a module and a script of its name; gives its path and sha256."""
    stem = f"{name.replace('-', '_')}-{version}"
    module = name.replace("-", "_")
    about = f"{stem}.dist-info"
    files = {
        f"{module}.py": f"{text}\ndef main():\n    print('{name} {version}')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
    }
    lines = [f"{path},sha256={_digest(content.encode())},{len(content)}" for path, content in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, content in files.items():
            archive.writestr(inside, content)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
