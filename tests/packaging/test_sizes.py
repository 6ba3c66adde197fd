"""How large rooms and files may be (docs/dev/architecture.md)."""

from collections import Counter

from tests.packaging.conftest import ROOT

LINES = {
    path.relative_to(ROOT / "profkit"): len(path.read_text("utf-8").splitlines())
    for path in (ROOT / "profkit").rglob("*.py")
}


def test_no_room_has_more_than_a_fifth_of_the_code():
    rooms = Counter()
    for path, lines in LINES.items():
        rooms[path.parts[0]] += lines
    assert {room: lines for room, lines in rooms.items() if lines > sum(LINES.values()) / 5} == {}
    assert len(rooms) > 15


def test_no_file_has_more_than_400_lines():
    assert {str(path): lines for path, lines in LINES.items() if lines > 400} == {}
