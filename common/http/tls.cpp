#include "http/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <new>

#include "base/file.h"

namespace split::http {
namespace {

constexpr uint64_t kMaxPemBytes = 1 << 20;
constexpr size_t kWriteBytes = 256 << 10;  // most bytes encrypted in one call
// TLS 1.2; all of TLS 1.3's are good.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

std::string error_words() {
  const unsigned long code = ::ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  return reason == nullptr ? "connection lost" : reason;
}

Error bad_file(const std::string& file, std::string_view what) {
  return Error(ErrorKind::kInput, cat("[tls] ", file, ": ", what));
}

// OpenSSL's own sockets raise SIGPIPE and may be closed with the session; these do neither.
int socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(::BIO_get_data(bio)));
}

int after_io(BIO* bio, ssize_t n, int retry) {
  ::BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    ::BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
  }
  return static_cast<int>(n);
}
int write_socket(BIO* bio, const char* from, int size) {
  const ssize_t n =
      ::send(socket_of(bio), from, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  return after_io(bio, n, BIO_FLAGS_WRITE);
}
int read_socket(BIO* bio, char* to, int size) {
  return after_io(bio, ::recv(socket_of(bio), to, static_cast<size_t>(size), MSG_DONTWAIT),
                  BIO_FLAGS_READ);
}
long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    CHECK(made != nullptr);
    ::BIO_meth_set_write(made, write_socket);
    ::BIO_meth_set_read(made, read_socket);
    ::BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  return method;
}

TlsContext new_context(const SSL_METHOD* method) {
  TlsContext context(::SSL_CTX_new(method));
  CHECK(context != nullptr);
  SSL_CTX* const c = context.get();
  CHECK(::SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1);
  CHECK(::SSL_CTX_set_cipher_list(c, kCiphers) == 1);
  ::SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A parked connection keeps no buffers.
  ::SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  // A call reads one record, so that a record without data (new keys, again and again) ends it too.
  ::SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
  ::SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  return context;
}

TlsSession new_session(const TlsContext& context, int fd) {
  ::ERR_clear_error();
  TlsSession session(::SSL_new(context.get()));
  BIO* const bio = ::BIO_new(socket_method());
  if (session == nullptr || bio == nullptr) {
    ::BIO_free(bio);
    throw std::bad_alloc();
  }
  // OpenSSL keeps an opaque pointer for us. NOLINTNEXTLINE(performance-no-int-to-ptr)
  ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(session.get(), bio, bio);
  return session;
}

Bio open_pem(const std::string& text) {
  Bio bio(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  CHECK(bio != nullptr);
  return bio;
}

// Replaces the prompt on the terminal.
int no_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

void use_chain(SSL_CTX* context, const std::string& file) {
  const std::string text = read_file(file, kMaxPemBytes);
  const Bio bio = open_pem(text);
  ::ERR_clear_error();
  Certificate certificate(::PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate) throw bad_file(file, "expected a PEM certificate, found none");
  if (::SSL_CTX_use_certificate(context, certificate.get()) != 1) {
    throw bad_file(file, cat("the certificate cannot be used: ", error_words()));
  }
  while (X509* const next = ::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    if (::SSL_CTX_add0_chain_cert(context, next) != 1) {
      ::X509_free(next);
      throw bad_file(file, cat("the chain cannot be used: ", error_words()));
    }
  }
  if (ERR_GET_REASON(::ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    throw bad_file(file, cat("the chain cannot be read: ", error_words()));
  }
  ::ERR_clear_error();
}

void use_key(SSL_CTX* context, const std::string& file) {
  const std::string text = read_file(file, kMaxPemBytes);
  const Bio bio = open_pem(text);
  bool asked = false;
  ::ERR_clear_error();
  const Key key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &asked));
  if (!key) {
    throw bad_file(file, asked ? "the private key has a passphrase, expected one without"
                               : "expected a PEM private key, found none");
  }
  if (::SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      ::SSL_CTX_check_private_key(context) != 1) {
    throw bad_file(file, "this private key is not the certificate's");
  }
  warn_if_others_read(file);
}

TlsNext outcome(SSL* session, int result) {
  switch (::SSL_get_error(session, result)) {
    case SSL_ERROR_NONE:
      return TlsNext::kDone;
    case SSL_ERROR_WANT_READ:
      return TlsNext::kRead;
    case SSL_ERROR_WANT_WRITE:
      return TlsNext::kWrite;
    default:
      return TlsNext::kEnd;
  }
}

}  // namespace

void TlsFree::operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
void TlsFree::operator()(SSL* session) const { ::SSL_free(session); }

TlsContext tls_server_context(const std::string& cert_file, const std::string& key_file) {
  TlsContext context = new_context(::TLS_server_method());
  use_chain(context.get(), cert_file);
  use_key(context.get(), key_file);
  ::SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  return context;
}

TlsContext tls_client_context(const std::string& ca_file) {
  TlsContext context = new_context(::TLS_client_method());
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (ca_file.empty()) {
    ::SSL_CTX_set_default_verify_paths(context.get());
    return context;
  }
  const std::string text = read_file(ca_file, kMaxPemBytes);
  const Bio bio = open_pem(text);
  ::ERR_clear_error();
  size_t count = 0;
  for (;; ++count) {
    const Certificate one(::PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr));
    if (!one) break;
    X509_STORE* const store = ::SSL_CTX_get_cert_store(context.get());
    CHECK(::X509_STORE_add_cert(store, one.get()) == 1);
  }
  ::ERR_clear_error();
  if (count == 0) throw bad_file(ca_file, "expected PEM certificates, found none");
  return context;
}

void tls_trust_anybody(const TlsContext& context) {
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
}

TlsSession tls_accept(const TlsContext& context, int fd) {
  TlsSession session = new_session(context, fd);
  ::SSL_set_accept_state(session.get());
  return session;
}

TlsSession tls_connect(const TlsContext& context, int fd, const std::string& host) {
  TlsSession session = new_session(context, fd);
  ::SSL_set_connect_state(session.get());
  X509_VERIFY_PARAM* const expected = ::SSL_get0_param(session.get());
  std::array<unsigned char, sizeof(in6_addr)> address{};
  const bool numeric = ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
                       ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
  if (numeric) {
    CHECK(::X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) == 1);
  } else {
    ::X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    CHECK(::X509_VERIFY_PARAM_set1_host(expected, host.data(), host.size()) == 1);
    CHECK(SSL_set_tlsext_host_name(session.get(), host.c_str()) == 1);
  }
  return session;
}

TlsNext tls_handshake(SSL* session) {
  ::ERR_clear_error();
  return outcome(session, ::SSL_do_handshake(session));
}

std::string tls_failure(SSL* session) {
  const long verdict = ::SSL_get_verify_result(session);
  if (verdict != X509_V_OK)
    return cat("its certificate: ", ::X509_verify_cert_error_string(verdict));
  const bool plain = ERR_GET_REASON(::ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER;
  return cat("TLS: ", error_words(), plain ? "; a server of http:// is there, it seems" : "");
}

bool tls_was_plain_http() { return ERR_GET_REASON(::ERR_peek_last_error()) == SSL_R_HTTP_REQUEST; }

TlsNext tls_read(SSL* session, std::span<char> to, size_t& got) {
  ::ERR_clear_error();
  return outcome(session, ::SSL_read_ex(session, to.data(), to.size(), &got));
}

TlsNext tls_write(SSL* session, std::string_view bytes, size_t& sent) {
  ::ERR_clear_error();
  return outcome(session,
                 ::SSL_write_ex(session, bytes.data(), std::min(bytes.size(), kWriteBytes), &sent));
}

bool tls_pending(const SSL* session) { return ::SSL_pending(session) > 0; }

bool tls_alive(SSL* session) {
  ::ERR_clear_error();
  char byte;
  size_t got = 0;
  return outcome(session, ::SSL_peek_ex(session, &byte, 1, &got)) == TlsNext::kRead;
}

void tls_close(SSL* session) {
  if (SSL_want_write(session)) return;
  ::ERR_clear_error();
  ::SSL_shutdown(session);
  ::ERR_clear_error();
}

}  // namespace split::http
