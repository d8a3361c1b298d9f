// TLS by OpenSSL over sockets that never block, for both ends: contexts with sane defaults, one
// session a connection, and reading and writing that say what they wait for. TLS 1.2 and 1.3,
// forward secrecy and authenticated encryption only, no renegotiation. Knows no HTTP.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace split::http {

struct TlsFree {
  void operator()(SSL_CTX* context) const;
  void operator()(SSL* session) const;
};
using TlsContext = std::unique_ptr<SSL_CTX, TlsFree>;
using TlsSession = std::unique_ptr<SSL, TlsFree>;

// Makes the context of a server with this chain of PEM certificates, its own first, and its private
// key, which has no passphrase. Throws Error(kInput) that says which file is wrong and why,
// Error(kNotFound, kIo).
TlsContext tls_server_context(const std::string& cert_file, const std::string& key_file);
// Makes the context of a client that trusts the PEM certificates of this file; empty: the system's.
// Throws likewise.
TlsContext tls_client_context(const std::string& ca_file);

// Lets a client's context take any certificate.
void tls_trust_anybody(const TlsContext& context);

// A session on a connected, non-blocking socket, which stays the caller's.
TlsSession tls_accept(const TlsContext& context, int fd);
// The other end must prove to be `host`, a name or an address.
TlsSession tls_connect(const TlsContext& context, int fd, const std::string& host);

// kRead, kWrite: again once the socket is readable, writable. kEnd: the other side has closed or
// the session is broken; nothing more can be read or written.
enum class TlsNext { kDone, kRead, kWrite, kEnd };

TlsNext tls_handshake(SSL* session);
// Why it failed, in a few words: kConnectionLost is that alone. Right after it did.
std::string tls_failure(SSL* session);
inline constexpr std::string_view kConnectionLost = "TLS: connection lost";
// The other end spoke plain HTTP. Right after the handshake failed.
bool tls_was_plain_http();

// `got`, `sent`: bytes, when done. A write that was not done must be repeated with the same bytes,
// perhaps from another place.
TlsNext tls_read(SSL* session, std::span<char> to, size_t& got);
TlsNext tls_write(SSL* session, std::string_view bytes, size_t& sent);
// Decrypted bytes that no event will tell of.
bool tls_pending(const SSL* session);
// False when a connection on which nothing is expected has ended.
bool tls_alive(SSL* session);
// Says goodbye, if that can be said without waiting.
void tls_close(SSL* session);

}  // namespace split::http
