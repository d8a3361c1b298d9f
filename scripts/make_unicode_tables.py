#!/usr/bin/env python3
"""Writes common/text/unicode_tables.inc: the ranges of letters (L*), numbers (N*) and white space.

Run it from the repository root, and only to move to another Unicode version: the output is committed.
White_Space is not in unicodedata; it is Zs, Zl and Zp with TAB to CR and NEL (PropList.txt).
"""
import argparse
import sys
import unicodedata


def name_of(code):
    category = unicodedata.category(chr(code))
    if category[0] in "LN":
        return category[0]
    if category[0] == "Z" or 0x09 <= code <= 0x0D or code == 0x85:
        return "S"
    return ""


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    ranges = []
    for code in range(0x110000):
        name = name_of(code)
        if name and ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == name:
            ranges[-1][1] = code
        elif name:
            ranges.append([code, code, name])
    lines, line = [], ""
    for first, last, name in ranges:
        item = f"{{0x{first:X}, 0x{last:X}, {name}}},"
        if len(line) + 1 + len(item) > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item
    lines.append(line)
    with open("common/text/unicode_tables.inc", "w") as out:
        out.write(f"// Unicode {unicodedata.unidata_version}, by scripts/make_unicode_tables.py: "
                  f"first, last, class; ascending.\n")
        out.write("\n".join(lines) + "\n")
    print(f"{len(ranges)} ranges", file=sys.stderr)


main()
