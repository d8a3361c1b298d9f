// The parts of Unicode that tokenizers need beyond the classes of pretokenize.h: canonical normal
// forms, lower case and three kinds of characters. The tables are Unicode 14
// (scripts/make_unicode_tables.py). Codes above U+10FFFF stand for themselves: code_points() makes
// them from bytes that are not UTF-8, and utf8_of() gives these bytes back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace split {

using CodePoints = std::vector<char32_t>;

CodePoints code_points(std::string_view text);
std::string utf8_of(const CodePoints& codes);
void append_utf8(char32_t code, std::string& out);

// Canonical decomposition and composition (UAX 15), in time n log n.
CodePoints nfd(const CodePoints& codes);
CodePoints nfc(const CodePoints& codes);
// Canonical composition of a text, which most often is its own form already.
std::string nfc(std::string_view text);

// Appends the lower case of one character, whatever stands around it: U+0130 becomes two.
void append_lower(char32_t code, CodePoints& out);
// Appends the upper case of a character that is its lower case, and of sharp s; others stay.
void append_upper(char32_t code, CodePoints& out);

bool is_nonspacing_mark(char32_t code);  // Mn
bool is_punctuation(char32_t code);      // P*
bool is_other(char32_t code);            // Cc, Cf, Co: control, format, private use

}  // namespace split
