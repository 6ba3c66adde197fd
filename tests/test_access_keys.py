"""Keys of services: the same are found in a short text and at any place of a long one."""

import pytest

from profkit import access_keys
from profkit.access_keys import tokens_in

DRAWN = b"Zq7Xw2Lk9Vb4Nm1Tc8Rj5Hd3Gf6Ps0YaQeUi"
HEX = b"9f3a0c7e1b5d2846" * 2
TOKENS = {
    b"dapi": HEX,
    b"SG.": DRAWN[:22] + b"." + DRAWN,
    b"AKIA": b"Q7XW2LK9VB4NM1TC",
    b"ASIA": b"Q7XW2LK9VB4NM1TC",
    b"AIza": DRAWN[:35],
    b"eyJhbGci": b".".join([DRAWN[:20]] * 3),
}
PIECE = access_keys._PIECE
PLACES = (0, 1, 2, 50_000, *(PIECE + d for d in range(-9, 4)))


def token(begin):
    return begin + TOKENS.get(begin, DRAWN)


@pytest.mark.parametrize("begin", access_keys._KEYS, ids=bytes.decode)
def test_a_key_is_found_wherever_it_stands(begin):
    key = token(begin)
    for at in PLACES:
        text = b" " * at + key
        assert list(tokens_in(text)) == [key], at


def test_every_key_of_a_long_text_is_found_and_nothing_else():
    keys = {token(begin) for begin in access_keys._KEYS}
    text = (b"hf_ skip sk-learn AIzaAKIA xoxb-x " * 300).join([b" ", *(b" %b " % key for key in keys)])
    assert len(text) > PIECE
    assert set(tokens_in(text)) == keys == set(tokens_in(b" ".join(keys)))


def test_only_so_many_places_are_looked_at():
    begin = next(iter(access_keys._KEYS))
    for gap in (b" ", b" " * 9):  # a short text and a long one, all at even places
        early = (begin + gap) * (access_keys._MOST_LOOKED_AT - 1) + token(begin)
        assert list(tokens_in(early)) == [token(begin)]
        assert list(tokens_in(begin + gap + early)) == []
