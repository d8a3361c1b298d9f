#!/usr/bin/env python3
"""Writes the tables of common/text that come from the Unicode Character Database.

unicode_tables.inc: the ranges of letters (L*), marks (M*), numbers (N*) and white space.
unicode_marks.inc: the ranges of Mn, of punctuation (P*) and of other characters (Cc, Cf, Co).
unicode_classes.inc: the ranges of combining classes above 0.
unicode_lower.inc: lower case, as ranges whose every `step`th code moves by `delta`.
unicode_parts.inc: canonical decompositions, and whether they compose again.
unigram/graphemes.inc: the ranges of grapheme cluster classes but Mn (which all extend, within these ranges too), Hangul and
  regional indicators; perl knows these.

Run it from the repository root, and only to move to another Unicode version: the output is committed.
White_Space is not in unicodedata; it is Zs, Zl and Zp with TAB to CR and NEL (PropList.txt).
"""
import argparse
import subprocess
import sys
import unicodedata

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def name_of(code):
    category = unicodedata.category(chr(code))
    if category[0] in "LMN":
        return category[0]
    if category[0] == "Z" or 0x09 <= code <= 0x0D or code == 0x85:
        return "S"
    return ""


def mark_of(code):
    category = unicodedata.category(chr(code))
    if category == "Mn":
        return "M"
    if category[0] == "P":
        return "P"
    return "C" if category in ("Cc", "Cf", "Co") else ""


def class_of(code):
    return str(unicodedata.combining(chr(code)) or "")


def ranges_of(name_of_code):
    """None is a name that codes within a range may have, too."""
    ranges, end = [], -2
    for code in CODES:
        name = name_of_code(code)
        if name and end == code - 1 and ranges[-1][2] == name:
            ranges[-1][1] = code
        elif name:
            ranges.append([code, code, name])
        if name or (name is None and end == code - 1):
            end = code
    return [f"{{0x{first:X}, 0x{last:X}, {name}}}," for first, last, name in ranges]


def lower_case():
    """One character each, but for U+0130, which is two."""
    ranges = []
    for code in CODES:
        lower = chr(code).lower()
        if len(lower) != 1 or ord(lower) == code:
            continue
        delta = ord(lower) - code
        last = ranges[-1] if ranges else None
        if last and last[3] == delta and (code - last[1] == last[2] or (last[0] == last[1] and code - last[1] <= 2)):
            last[2] = code - last[1]
            last[1] = code
        else:
            ranges.append([code, code, 1, delta])
    return [f"{{0x{first:X}, 0x{last:X}, {step}, {delta}}}," for first, last, step, delta in ranges]


def decompositions():
    items = []
    for code in CODES:
        parts = unicodedata.decomposition(chr(code))
        if not parts or parts[0] == "<":
            continue
        first, *rest = [int(part, 16) for part in parts.split()]
        second = rest[0] if rest else 0
        composes = second and unicodedata.normalize("NFC", chr(code)) == chr(code)
        items.append(f"{{0x{code:X}, 0x{first:X}, 0x{second:X}, {1 if composes else 0}}},")
    return items


def graphemes():
    script = r"""
        my @classes = (C => 'GCB=Control', B => 'GCB=Prepend', S => 'GCB=SpacingMark', E => 'GCB=Extend',
                       P => 'Extended_Pictographic');
        for my $code (0 .. 0x10ffff) {
            next if $code >= 0xd800 && $code < 0xe000 || chr($code) =~ /\p{Mn}/;
            for (my $i = 0; $i < @classes; $i += 2) {
                next unless chr($code) =~ /\p{$classes[$i + 1]}/;
                print "$code $classes[$i]\n";
                last;
            }
        }"""
    found = subprocess.run(["perl", "-e", script], check=True, capture_output=True, text=True).stdout
    class_of_code = dict(line.split() for line in found.splitlines())
    return ranges_of(lambda code: None if unicodedata.category(chr(code)) == "Mn" else class_of_code.get(str(code), ""))


def write(name, what, items):
    lines, line = [], ""
    for item in items:
        if len(line) + 1 + len(item) > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item
    lines.append(line)
    with open(f"common/text/{name}.inc", "w") as out:
        out.write(f"// Unicode {unicodedata.unidata_version}, by scripts/make_unicode_tables.py: "
                  f"{what}; ascending.\n")
        out.write("\n".join(lines) + "\n")
    print(f"{name}: {len(items)} rows", file=sys.stderr)


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write("unicode_tables", "first, last, class", ranges_of(name_of))
    write("unicode_marks", "first, last, kind", ranges_of(mark_of))
    write("unicode_classes", "first, last, class", ranges_of(class_of))
    write("unicode_lower", "first, last, step, delta", lower_case())
    write("unicode_parts", "code, its two parts, composes", decompositions())
    write("unigram/graphemes", "first, last, class", graphemes())


main()
