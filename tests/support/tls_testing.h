// Certificates made by the test that needs them: an authority and what it signs, as files.
#pragma once

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/file.h"

namespace split::test {

struct OpenSslFree {
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { ::X509_free(certificate); }
  void operator()(BIO* bio) const { ::BIO_free(bio); }
};

// A key and a certificate of it.
class Identity {
 public:
  // `names`: as openssl.cnf writes them, "DNS:localhost,IP:127.0.0.1"; empty: an authority's.
  // Signed by `issuer`, or by itself. Valid from a day ago for `days` days.
  explicit Identity(const std::string& common_name, const std::string& names = {},
                    const Identity* issuer = nullptr, int days = 2)
      : key_(::EVP_EC_gen("P-256")), certificate_(::X509_new()) {
    X509* const c = certificate_.get();
    static long serial = 0;
    ::X509_set_version(c, 2);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(c), ++serial);
    ::X509_gmtime_adj(::X509_getm_notBefore(c), -24 * 3600);
    ::X509_gmtime_adj(::X509_getm_notAfter(c), 24L * 3600 * (days - 1));
    ::X509_set_pubkey(c, key_.get());
    ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(c), "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
                                 -1, 0);
    const Identity& by = issuer == nullptr ? *this : *issuer;
    ::X509_set_issuer_name(c, ::X509_get_subject_name(by.certificate_.get()));
    X509V3_CTX context;
    X509V3_set_ctx(&context, by.certificate_.get(), c, nullptr, nullptr, 0);
    const auto extend = [&](int kind, const std::string& value) {
      X509_EXTENSION* const extension =
          ::X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
      CHECK(extension != nullptr && ::X509_add_ext(c, extension, -1) == 1);
      ::X509_EXTENSION_free(extension);
    };
    extend(NID_basic_constraints, names.empty() ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (!names.empty()) extend(NID_subject_alt_name, names);
    CHECK(::X509_sign(c, by.key_.get(), ::EVP_sha256()) > 0);
  }

  std::string certificate() const {
    return text([this](BIO* bio) { return ::PEM_write_bio_X509(bio, certificate_.get()); });
  }
  std::string key(const char* passphrase = nullptr) const {
    return text([&](BIO* bio) {
      return ::PEM_write_bio_PrivateKey(bio, key_.get(),
                                        passphrase == nullptr ? nullptr : ::EVP_aes_128_cbc(),
                                        nullptr, 0, nullptr, const_cast<char*>(passphrase));
    });
  }

 private:
  template <typename Write>
  static std::string text(const Write& write) {
    const std::unique_ptr<BIO, OpenSslFree> bio(::BIO_new(::BIO_s_mem()));
    CHECK(write(bio.get()) == 1);
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<size_t>(size)};
  }
  std::unique_ptr<EVP_PKEY, OpenSslFree> key_;
  std::unique_ptr<X509, OpenSslFree> certificate_;
};

inline std::string put_file(const std::filesystem::path& path, const std::string& text) {
  write_file(path, as_bytes_of(text));
  return path.string();
}

// An authority and a server that it vouches for, in a folder.
struct TlsFiles {
  explicit TlsFiles(const std::filesystem::path& folder,
                    const std::string& names = "DNS:localhost,IP:127.0.0.1")
      : ca("split test authority"),
        server("server", names, &ca),
        ca_file(put_file(folder / "ca.pem", ca.certificate())),
        cert_file(put_file(folder / "cert.pem", server.certificate())),
        key_file(put_file(folder / "key.pem", server.key())) {}
  Identity ca, server;
  std::string ca_file, cert_file, key_file;
};

}  // namespace split::test
