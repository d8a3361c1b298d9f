#include "base/bytes.h"

#include <openssl/evp.h>

#include <charconv>

namespace split {

std::optional<uint64_t> parse_u64(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < low || value > high) {
    return std::nullopt;
  }
  return value;
}

std::string to_hex(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out += kDigits[static_cast<unsigned>(b) >> 4];
    out += kDigits[static_cast<unsigned>(b) & 15];
  }
  return out;
}

bool is_lower_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() {
    CHECK(md != nullptr);
    CHECK(EVP_DigestInit_ex(md, EVP_sha256(), nullptr) == 1);
  }
  ~Context() { EVP_MD_CTX_free(md); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(Bytes bytes) {
  CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1);
}

Sha256::Digest Sha256::finish() {
  Digest digest{};
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(context_->md, reinterpret_cast<unsigned char*>(digest.data()), &size) ==
        1);
  CHECK(size == digest.size());
  return digest;
}

std::string Sha256::finish_hex() { return to_hex(finish()); }

std::string Sha256::hex_of(Bytes bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.finish_hex();
}

}  // namespace split
