# Tells which lines of its input are keys that Keyfence made, by their checksum: `python3 checksum.py <candidates.txt`.
import sys
from zlib import crc32

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def is_key(text):
    body, checksum = text[:-6], text[-6:]
    rest, digits = crc32(body.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        digits = DIGITS[digit] + digits
    return body != "" and checksum == digits


for line in sys.stdin:
    if is_key(line.rstrip("\n")):
        print(line, end="")
