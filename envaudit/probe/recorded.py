"""What conda and pip wrote down about the files they installed.

conda keeps them in `paths_data` of conda-meta, pip and uv in the RECORD of a .dist-info folder (PEP
376, PEP 627). A record is believed only about what lies below its own prefix.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from envaudit.probe.context import Context
from envaudit.probe.distributions import Distribution, find_in
from envaudit.probe.hashing import File

_MAX_RECORD_BYTES = 256 << 20
_MAX_NAME_CHARACTERS = 200
# Bytes of a digest. RECORD names its algorithm; PEP 376 knew md5 and sha1, wheels need sha256 or better.
_ALGORITHMS = {"sha256": 32, "sha384": 48, "sha512": 64, "sha224": 28, "sha1": 20, "md5": 16}
_RARE = (("blake2b", 64), ("blake2s", 32), ("sha3_256", 32), ("sha3_384", 48), ("sha3_512", 64))
_ALGORITHMS.update(rare for rare in _RARE if hasattr(hashlib, rare[0]))  # some are built without
_BYTE_CODE = (".pyc", ".pyo")
# Distributions name themselves as installer too, and keep no RECORD beside their own.
_RECORDING = ("pip", "uv")


# What a package says of a file: package, algorithm and digest (empty where it says none), bytes, and
# whether it is a link. There are tens of thousands, which is why they are no objects of a class.
_Claim = Tuple[str, str, str, Optional[int], bool]
# Who is told of the files of which sha256 and size are recorded: path, sha256 and size in turn.
Offer = Callable[[List[str]], None]


class Recorded:
    """All claims of an environment.

    Attributes:
        claims: absolute path to what the first package says of it. A pip package is named `pip:NAME`.
        unoffered: the paths of which not all that is said went to `offer`.
        conda: the prefix that holds conda-meta.
        prefix: the prefix of the interpreter, a virtual environment's own.
        sites: the folders on sys.path below `prefix` and `conda`, each once.
        folders: each folder that a package names something in to those names, of what no claim is made
            (byte code, RECORD itself) too.
        owners: each of those folders to a package that names something in it, the first by name.
        unowned: top-level folders of `sites` that a distribution without a record may have filled.
        outside: how many entries lead out of their prefix.
        unknown: files whose digest is of an algorithm that is not known, by its name.
        undigested: conda packages whose record has the names of files alone.
        errors: records that could not be read.
    """

    def __init__(self, context: Context, offer: Optional[Offer] = None) -> None:
        """Read all records; `offer` hears of each file as soon as its record is read."""
        told = context.interpreter
        self.prefix = str(told.get("prefix") or "")
        candidates = (self.prefix, str(told.get("base_prefix") or ""))
        self.conda = next((p for p in candidates if p and _has_records(context, p)), self.prefix)
        self.claims: Dict[str, _Claim] = {}
        self.unoffered: List[str] = []
        self.folders: Dict[str, Set[str]] = {}
        self.owners: Dict[str, str] = {}
        self.unowned: Set[str] = set()
        self.outside = 0
        self.unknown: Dict[str, int] = {}
        self.undigested = 0
        self.errors: List[str] = []
        self._offer = offer
        self._further: Dict[str, List[_Claim]] = {}
        self.sites = _sites(context, told.get("path") or [], (self.prefix, self.conda))
        self._read_conda(context)
        for folder in self.sites:
            self._read_site(context, folder)

    def file(self, path: str) -> File:
        """A file as any of the packages that have it says: whichever came last has won."""
        claims = self._all_claims(path)
        accepted = [(algorithm, digest) for _, algorithm, digest, _, _ in claims if digest]
        sizes = [size for _, _, _, size, _ in claims if size is not None]
        if len(claims) > 1 and len(accepted) < len(claims):
            return File(path)
        return File(
            path,
            accepted,
            sizes if len(sizes) == len(claims) else (),
            any(is_link for _, _, _, _, is_link in claims),
        )

    def packages(self, path: str) -> Set[str]:
        """Those that have a file."""
        return {claim[0] for claim in self._all_claims(path)}

    def size_bytes(self) -> int:
        """Of all files together, as recorded."""
        return sum(size or 0 for _, _, _, size, _ in self.claims.values())

    def relative(self, path: str) -> str:
        """A path below the prefix it belongs to, in printable words."""
        top = self.prefix if _is_below(path, self.prefix) else self.conda
        return os.fsencode(os.path.relpath(path, top)).decode("utf-8", "backslashreplace")

    def _read_conda(self, context: Context) -> None:
        meta = os.path.join(self.conda, "conda-meta")
        try:
            names = [name for name in context.list_dir(meta) if name.endswith(".json")]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.errors.append(f"{meta}: {error.strerror}")
            return
        top = self.conda.rstrip("/") + "/"
        for name in names:
            path = os.path.join(meta, name)
            try:
                record = json.loads(context.read_bytes(path, _MAX_RECORD_BYTES))
                package = str(record["name"])[:_MAX_NAME_CHARACTERS]
                rows = (record.get("paths_data") or {}).get("paths") or ()
                listed = () if rows else record.get("files") or ()
                # Before paths_data (conda 4.3) there were the names alone. A folder is no claim: what lies
                # in it is as unrecorded as elsewhere.
                entries = [
                    _conda_claim(top, package, row)
                    for row in rows or [{"_path": x} for x in listed]
                    if row.get("path_type") != "directory"
                ]
            except OSError as error:
                self.errors.append(f"{path}: {error.strerror}")
                continue
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self.errors.append(f"{path}: not a record of a package ({type(error).__name__})")
                continue
            self.undigested += bool(listed)
            self._take(package, entries)

    def _read_site(self, context: Context, folder: str) -> None:
        try:
            names = context.list_dir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.errors.append(f"{folder}: {error.strerror}")
            return
        for one in find_in(context, folder, names, self.errors):
            try:
                text = self._record(context, one)
            except OSError as error:
                self.errors.append(f"{error.filename}: {error.strerror}")
                text = None
            if text is None:
                self._note_unowned(context, one)
            else:
                package = f"pip:{one.name}"[:_MAX_NAME_CHARACTERS]
                self._take(package, self._wheel_entries(package, folder, text))

    def _record(self, context: Context, one: Distribution) -> Optional[str]:
        """The text of a RECORD; empty where conda has recorded the files, None where nobody has.

        Raises:
            OSError: it cannot be read, or is gone although its installer writes one.
        """
        installer = (_text_of(context, os.path.join(one.metadata, "INSTALLER")) or "").strip().lower()
        if installer == "conda":
            return ""
        if not installer:
            return "" if self._is_of_conda(one) else None
        path = os.path.join(one.metadata, "RECORD")
        text = _text_of(context, path)
        if not text and installer in _RECORDING and not self._is_of_conda(one):
            raise OSError(0, f"nothing is recorded, although {installer} does so", path)
        return text or None

    def _is_of_conda(self, one: Distribution) -> bool:
        """Whether conda recorded its metadata, and so its files."""
        folder, _, name = one.metadata.rpartition("/")
        inside = self.folders.get(one.metadata, ())
        return name in self.folders.get(folder, ()) or "METADATA" in inside or "PKG-INFO" in inside

    def _wheel_entries(
        self, package: str, folder: str, record: str
    ) -> Iterator[Tuple[str, Optional[_Claim]]]:
        top, folder = self.prefix.rstrip("/") + "/", folder + "/"
        for inside, hashed, size in _rows(record):
            yield _place(top, folder, inside), self._wheel_claim(package, hashed, size)

    def _wheel_claim(self, package: str, hashed: str, size: str) -> Optional[_Claim]:
        algorithm, _, encoded = hashed.partition("=")
        if not encoded:
            return None  # RECORD itself and what is made after the install
        size_bytes = int(size) if size.isdecimal() and len(size) < 20 else None
        algorithm = algorithm.lower()
        length = _ALGORITHMS.get(algorithm)
        if length is None:
            self.unknown[algorithm[:40]] = self.unknown.get(algorithm[:40], 0) + 1
            return package, "", "", size_bytes, False
        try:
            plain = encoded.replace("-", "+").replace("_", "/")
            digest = binascii.a2b_base64(plain + "=" * (-len(plain) % 4)).hex()
        except (binascii.Error, ValueError):
            digest = ""
        if len(digest) != 2 * length:
            digest = encoded.lower()  # old tools wrote hex; what is neither is met by no file
        return package, algorithm, digest, size_bytes, False

    def _take(self, package: str, entries: Iterable[Tuple[str, Optional[_Claim]]]) -> None:
        plain: List[str] = []
        folder, names = "", set()
        for place, claim in entries:
            if not place:
                self.outside += 1
                continue
            above, _, name = place.rpartition("/")
            if above != folder:
                folder, names = above, self._names_in(above, package)
            names.add(name)
            if claim is None or place.endswith(_BYTE_CODE):
                continue
            first = self.claims.setdefault(place, claim)
            if first is not claim:
                self._further.setdefault(place, []).append(claim)
                if first[1:] == claim[1:]:
                    continue  # it is looked at already, for just this
            _, algorithm, digest, size_bytes, _ = claim
            if self._offer and first is claim and algorithm == "sha256" and size_bytes is not None:
                plain += (place, digest, str(size_bytes))
            else:
                self.unoffered.append(place)
        if self._offer:
            self._offer(plain)

    def _names_in(self, folder: str, package: str) -> Set[str]:
        self.owners[folder] = min(package, self.owners.get(folder, package))
        return self.folders.setdefault(folder, set())

    def _all_claims(self, path: str) -> List[_Claim]:
        return [self.claims[path], *self._further.get(path, ())]

    def _note_unowned(self, context: Context, one: Distribution) -> None:
        """Of an egg, a development install or a distribution's own package nobody knows the files."""
        listed = context.peek(os.path.join(one.metadata, "top_level.txt")) or ""
        for name in [one.name, one.name.replace("-", "_"), *listed.split()[:1000]]:
            self.unowned.add(os.path.join(one.folder, name.replace("/", "_")))


def _text_of(context: Context, path: str) -> Optional[str]:
    """None where there is no such file."""
    try:
        return context.read_text(path, _MAX_RECORD_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _has_records(context: Context, prefix: str) -> bool:
    return context.is_dir(os.path.join(prefix, "conda-meta"))


def _sites(context: Context, path: List[str], prefixes: Tuple[str, ...]) -> List[str]:
    """The folders below the prefixes; lib64 is often a link to lib, and then both are the same."""
    found: Dict[str, str] = {}
    for folder in path:
        if any(_is_below(folder, prefix) for prefix in prefixes):
            found.setdefault(os.path.realpath(context.real(folder)), folder.rstrip("/"))
    return list(found.values())


def _is_below(path: str, prefix: str) -> bool:
    return bool(prefix) and path.startswith(prefix.rstrip("/") + "/")


def _place(top: str, folder: str, inside: str) -> str:
    """Where an entry below a folder lies; empty where that is not below `top`, or no file can be called so.

    Both folders end with a slash.
    """
    place = folder + inside
    if ".." in inside or "./" in inside or "//" in inside or inside[:1] in ("", "/"):
        place = os.path.normpath(os.path.join(folder, inside))
    if not place.startswith(top) or "\0" in place:
        return ""
    if not place.isascii():
        try:
            os.fsencode(place)
        except UnicodeEncodeError:
            return ""
    return place


def _conda_claim(top: str, package: str, entry: Dict[str, Any]) -> Tuple[str, _Claim]:
    """Path and claim of an entry of paths_data that is no folder; the path as of `_place`."""
    place = _place(top, top, str(entry["_path"]))
    kind = entry.get("path_type") or "hardlink"
    built, placed = entry.get("sha256"), entry.get("sha256_in_prefix")
    if kind == "softlink":
        return place, (package, "sha256", str(built or "").lower(), None, True)
    # An entry point that conda itself made has a digest of nothing; of what holds the prefix old conda
    # wrote none of what it became.
    if kind != "hardlink" or (entry.get("prefix_placeholder") and not placed):
        return place, (package, "", "", None, False)
    size = entry.get("size_in_bytes")
    # Where the install changed a file, conda writes the size that it had in its archive.
    size_bytes = size if type(size) is int and (not placed or placed == built) else None
    return place, (package, "sha256", str(placed or built or "").lower(), size_bytes, False)


def _rows(record: str) -> Iterator[Tuple[str, str, str]]:
    """Path, hash and size of each row of a RECORD; it is CSV, and hardly ever has a quote."""
    if '"' not in record:
        for line in record.splitlines():
            parts = line.split(",")
            if len(parts) < 3:
                parts += ["", ""]
            if parts[0]:
                yield parts[0], parts[1], parts[2]
        return
    import csv

    try:
        for row in csv.reader(record.splitlines()):
            if row and row[0]:
                padded = [*row, "", ""]
                yield padded[0], padded[1], padded[2]
    except csv.Error:
        return
