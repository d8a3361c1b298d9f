// SHA-256 (FIPS 180-4), in place of OpenSSL.
#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/resources/fibres.h"

namespace split {
namespace {

constexpr size_t kBlock = 64;

constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* from) {
  uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return __builtin_bswap32(word);
}

}  // namespace

struct Sha256::Context {
  uint32_t sum[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::byte kept[kBlock];  // an incomplete block
  size_t keeps = 0;
  uint64_t bytes = 0;

  void add(const std::byte* block);
  void update(Bytes more);
};

void Sha256::Context::add(const std::byte* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::copy_n(sum, 8, s);
  for (int i = 0; i < 64; ++i) {
    const uint32_t e = s[4], a = s[0];
    const uint32_t one = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                         ((e & s[5]) ^ (~e & s[6])) + kRounds[i] + w[i];
    const uint32_t two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                         ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    std::copy_backward(s, s + 7, s + 8);
    s[4] += one;
    s[0] = one + two;
  }
  for (int i = 0; i < 8; ++i) sum[i] += s[i];
}

void Sha256::Context::update(Bytes more) {
  bytes += more.size();
  if (keeps > 0) {
    const size_t taken = std::min(more.size(), kBlock - keeps);
    std::copy_n(more.data(), taken, kept + keeps);
    keeps += taken;
    more = more.subspan(taken);
    if (keeps < kBlock) return;
    add(kept);
    keeps = 0;
  }
  for (; more.size() >= kBlock; more = more.subspan(kBlock)) add(more.data());
  keeps = more.size();
  std::copy_n(more.data(), keeps, kept);
}

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(Bytes bytes) {
  constexpr size_t kPiece = 64 << 10;  // half a millisecond
  for (; bytes.size() > kPiece; bytes = bytes.subspan(kPiece)) {
    context_->update(bytes.first(kPiece));
    fibres::yield();
  }
  context_->update(bytes);
}

Sha256::Digest Sha256::finish() {
  Context& my = *context_;
  const uint64_t bits = my.bytes * 8;
  // A one bit, zeros up to the last eight bytes of a block, and there the length in bits.
  std::byte end[2 * kBlock] = {std::byte{0x80}};
  const size_t zeros = (2 * kBlock - 9 - my.keeps) % kBlock;
  for (size_t i = 0; i < 8; ++i) end[1 + zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  my.update(std::span(end).first(1 + zeros + 8));
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::byte>(my.sum[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

}  // namespace split
