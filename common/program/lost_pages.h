// The end of a program whose mapped file lost a page: somebody cut the file short, or the disk
// cannot read it any more. The kernel then raises SIGBUS at whoever touches that page, which would
// end the process without a word. This says which file it was.
#pragma once

#include <string_view>

namespace split {

// From now on a lost page of a MappedFile is one line on stderr, `before` "[file] NAME: ..."
// `after`, and exit code 4. Any other SIGBUS ends the process as it does by itself. The texts are
// constants; calling it again replaces them.
void end_on_lost_pages(std::string_view before, std::string_view after = {});

}  // namespace split
