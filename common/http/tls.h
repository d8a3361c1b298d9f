// TLS by OpenSSL over non-blocking sockets, for both ends: contexts with sane defaults, one session
// for each connection, and reading and writing that say what they wait for. TLS 1.2 and 1.3,
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

// Makes a server's context with this chain of PEM certificates, its own first, and its private key,
// which has no passphrase. Throws Error(kInput) that says which file is wrong and why,
// Error(kNotFound, kIo).
TlsContext tls_server_context(const std::string& cert_file, const std::string& key_file);
// Makes a client's context that trusts the PEM certificates of this file; empty: the system's.
// Throws the same errors.
TlsContext tls_client_context(const std::string& ca_file);

// Makes a client's context accept any certificate.
void tls_trust_anybody(const TlsContext& context);

// Begins a session on a connected, non-blocking socket, which stays the caller's.
TlsSession tls_accept(const TlsContext& context, int fd);
// Begins a session in which the peer must prove to be `host`, a name or an address.
TlsSession tls_connect(const TlsContext& context, int fd, const std::string& host);

// kRead, kWrite: call again once the socket is readable, writable. kEnd: the peer has closed or the
// session is broken; nothing more can be read or written.
enum class TlsNext { kDone, kRead, kWrite, kEnd };

TlsNext tls_handshake(SSL* session);
// Says why a call failed, in a few words; kConnectionLost alone if the connection was lost. Call
// right after it.
std::string tls_failure(SSL* session);
inline constexpr std::string_view kConnectionLost = "TLS: connection lost";
// Whether the peer spoke plain HTTP. Call right after a failed handshake.
bool tls_was_plain_http();

// `got`, `sent`: bytes, when done. A write that was not done must be repeated with the same bytes,
// perhaps at another address.
TlsNext tls_read(SSL* session, std::span<char> to, size_t& got);
TlsNext tls_write(SSL* session, std::string_view bytes, size_t& sent);
// Whether there are decrypted bytes that no event announces.
bool tls_pending(const SSL* session);
// Whether an idle connection has not ended.
bool tls_alive(SSL* session);
// Sends a goodbye, if that does not block.
void tls_close(SSL* session);

}  // namespace split::http
