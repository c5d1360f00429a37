"""What an image is made of, as CycloneDX 1.6 in JSON: Debian's packages, Python packages and jars."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from release.command import output_of
from release.version import ReleaseError

_JAR: Final = re.compile(r"^(?P<name>.+?)-(?P<version>\d[^/]*)\.jar$")
_LISTING: Final = r"""
dpkg-query -W -f 'deb\t${Package}\t${Version}\t${Architecture}\n'
python - <<'END'
from importlib.metadata import distributions
for one in distributions():
    print('pypi', one.name, one.version, (one.metadata['License-Expression'] or '').replace('\t', ' '), sep='\t')
END
find / -xdev -name '*.jar' -path '*/jars/*' 2>/dev/null | sed 's|.*/|jar\t|'
"""


def listing(docker: Path, tag: str) -> str:
    """Return the packages of an image, one per line: kind, name, version, more. Raises ReleaseError."""
    return output_of([docker, "run", "--rm", "--network=none", "--entrypoint=", tag, "sh", "-c", _LISTING])


def document(listed: str, *, name: str, version: str, digest: str) -> dict[str, Any]:
    """Return the CycloneDX document of an image. Raises ReleaseError for an image without packages."""
    components = [component for line in listed.splitlines() if (component := _component(line.split("\t"))) is not None]
    kinds = {component["purl"].split("/")[0] for component in components}
    if not {"pkg:deb", "pkg:pypi"} <= kinds:
        raise ReleaseError(f"the listing of {name} has {len(components)} components, of {sorted(kinds)}")
    unique = {component["bom-ref"]: component for component in components}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{name}@{digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": f"{name}@{digest}",
                "name": name,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
            }
        },
        "components": [unique[reference] for reference in sorted(unique)],
    }


def _component(words: list[str]) -> dict[str, Any] | None:
    match words:
        case ["deb", name, version, architecture]:
            purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}"
            return _library(name, version, purl)
        case ["pypi", name, version, licence]:
            normal = re.sub(r"[-_.]+", "-", name).lower()
            found = _library(name, version, f"pkg:pypi/{normal}@{quote(version, safe='')}")
            return found | ({"licenses": [{"expression": licence}]} if licence else {})
        case ["jar", file] if jar := _JAR.match(file):
            # The group is not in a jar's name.
            purl = f"pkg:generic/{jar['name']}@{quote(jar['version'], safe='')}?type=jar"
            return _library(jar["name"], jar["version"], purl)
    return None


def _library(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def write(found: dict[str, Any], path: Path) -> None:
    """Write a document."""
    path.write_text(json.dumps(found, indent=1) + "\n")
