// One flipped bit in a cached blob, wherever it is: the edge sees it, fetches the blob again and
// says what it would have said. Nothing bad is ever loaded.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "support/edge_world.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;

class EdgeFlips : public testing::TestWithParam<int> {};

void flip(const fs::path& file, size_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(stream.get() ^ 1 << bit % 8);
  stream.seekp(static_cast<std::streamoff>(bit / 8));
  stream.put(byte);
}

constexpr int kParts = 8;  // each a test of its own: they run side by side

// The norm and the vocabulary are computed here: in each run one bit of the norm's header, all in
// turn, and a random one of the vocabulary's data, 1,000 in all and more.
TEST_P(EdgeFlips, AreDetectedAndRepaired) {
  GatedCloud cloud("rand-a");
  const TemporaryFolder cache;
  const auto run = [&] {
    return run_edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                     "--device=cpu", "--threads=1", "--prompt-ids=1,2,3", "--cut=3", "--seed=1",
                     "--json", "--max-tokens=1"});
  };
  const Outcome first = run();
  ASSERT_EQ(first.code, 0) << first.err;
  fs::path norm, vocabulary;
  for (const auto& entry : fs::recursive_directory_iterator(cache.path)) {
    if (!entry.is_regular_file() || entry.path().filename().string().size() != 64) continue;
    (entry.file_size() < 4096 ? norm : vocabulary) = entry.path();
  }
  const uint64_t both = fs::file_size(norm) + fs::file_size(vocabulary);
  ASSERT_EQ(first.json()["receipt"]["bytes_downloaded"], both);
  const size_t header = 8 * (8 + load_le64(MappedFile(norm).bytes().data()));
  const size_t data = 8 * (8 + load_le64(MappedFile(vocabulary).bytes().data()));
  ASSERT_GT(header, 1000u);
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  for (auto bit = static_cast<size_t>(GetParam()); bit < header; bit += kParts) {
    flip(norm, bit);
    flip(vocabulary, data + random() % (8 * fs::file_size(vocabulary) - data));
    const Outcome got = run();
    ASSERT_EQ(got.code, 0) << got.err;
    ASSERT_EQ(got.json()["receipt"]["bytes_downloaded"], both) << bit;
    ASSERT_EQ(got.json()["tokens"], first.json()["tokens"]) << bit;
    for (const fs::path& file : {norm, vocabulary}) {
      ASSERT_EQ(Sha256::hex_of(MappedFile(file).bytes()), file.filename().string());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Bits, EdgeFlips, testing::Range(0, kParts));

}  // namespace
}  // namespace split::test
