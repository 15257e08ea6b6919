"""Keys that all have one hash under XXH3 without a seed, and belong to one vBucket.

XXH3 multiplies the halves of each 16 bytes of a key of 17 to 32, after mixing constants into them. `CANCELS` is one such
constant: the product is zero, whatever the other half is. The server puts one zero byte, the collection, in front of a key.
"""

import itertools
import zlib

PREFIX = b"one hash, twins"
CANCELS = bytes([0xDE, 0xD4, 0x6D, 0xE9, 0x83, 0x90, 0x97, 0xDB])


def _class_of(crc):
    return crc >> 16 & 0x3FF


def colliding(vb, count):
    """So many keys of a vBucket of 1,024."""
    # CRC-32 is linear: what the last bytes add to it does not depend on those before.
    base = zlib.crc32(bytes(4))
    tails = {}
    for number in range(1 << 16):
        tail = number.to_bytes(4, "little")
        tails.setdefault(_class_of(zlib.crc32(tail) ^ base), []).append(tail)
    keys = []
    for number in itertools.count():
        head = PREFIX + CANCELS + number.to_bytes(4, "little")
        keys += [head + tail for tail in tails.get(_class_of(zlib.crc32(head + bytes(4))) ^ vb, [])]
        if len(keys) >= count:
            return keys[:count]


def ordinary(vb, count):
    """As many keys of the same length and vBucket, which nobody chose to collide."""
    keys = (f"{number:031}".encode() for number in itertools.count())
    return list(itertools.islice((key for key in keys if _class_of(zlib.crc32(key)) == vb), count))
