#include <cstdio>

#include "bits.h"

int main() { std::fputs(split::test::bits_of_all_formats().c_str(), stdout); }
