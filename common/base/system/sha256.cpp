#include <openssl/evp.h>

#include "base/bytes.h"

namespace split {

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

}  // namespace split
