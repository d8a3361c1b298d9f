// The end of a program whose mapped file lost a page: the file was truncated, or the disk cannot
// read it any more. The kernel then sends SIGBUS to the thread that touches the page, which would
// end the process without a message. This one names the file.
#pragma once

#include <string_view>

namespace split {

// From now on a lost page of a MappedFile prints one line on stderr, `before` "[file] NAME: ..."
// `after`, with exit code 4. Any other SIGBUS ends the process as usual. The texts are constants;
// calling it again replaces them.
void end_on_lost_pages(std::string_view before, std::string_view after = {});

}  // namespace split
