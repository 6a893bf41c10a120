"""The mount table against a model of mounting: what a mount hides is gone, what is nearest holds."""

from __future__ import annotations

from typing import Dict, List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from envaudit.probe.mounts import Mount, MountTable

_FOLDERS = st.lists(st.sampled_from("ab"), max_size=4).map(lambda parts: "/" + "/".join(parts))


def mount(number: int, parent: int, point: str) -> Mount:
    """A mount of which only its place matters."""
    return Mount(point, "s", "/", "ext4", ("rw",), False, number, parent)


def above(point: str, path: str) -> bool:
    """Whether a mount point is a path's folder or the path itself."""
    return point == "/" or path == point or path.startswith(point + "/")


def nearest(visible: Dict[str, Mount], path: str) -> Mount:
    """Of the mounts that can be seen, the one whose point is the longest above a path."""
    return visible[max((point for point in visible if above(point, path)), key=len)]


def mounted(points: List[str]) -> Tuple[List[Mount], Dict[str, Mount]]:
    """All mounts after mounting at these points in turn, and those of them that can still be seen."""
    visible = {"/": mount(1, 0, "/")}
    table = [visible["/"]]
    for number, point in enumerate(points, start=2):
        new = mount(number, nearest(visible, point).id, point)
        visible = {seen: one for seen, one in visible.items() if not above(point, seen)}
        if point == "/":
            visible = {}
        visible[point] = new
        table.append(new)
    return table, visible


@given(st.lists(_FOLDERS, max_size=8), _FOLDERS)
def test_path_is_held_by_the_nearest_mount_that_can_be_seen(points: List[str], path: str) -> None:
    """Stacked, hidden and nested mounts in any order."""
    table, visible = mounted(points)
    assert nearest(visible, path) == MountTable(table).holding(path)


@given(st.lists(_FOLDERS, max_size=6), _FOLDERS, st.randoms())
def test_order_of_the_table_does_not_matter(points: List[str], path: str, random: object) -> None:
    """Newer kernels list mounts by number, older ones by place: what tells is each mount's parent."""
    table, _ = mounted(points)
    expected = MountTable(table).holding(path)
    random.shuffle(table)  # type: ignore[attr-defined]
    assert expected == MountTable(table).holding(path)
