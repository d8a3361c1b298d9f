#include "serve/api_keys.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/resources/clock.h"

namespace split::serve {
namespace {

using http::HttpError;

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr size_t kLeastKey = 16, kMostKey = 256, kMostName = 64;
constexpr uint64_t kMostLimit = 1ull << 50;

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMostName && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  });
}

bool is_key(std::string_view text) {
  return text.size() >= kLeastKey && text.size() <= kMostKey &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

// Takes the next word off the line's front; empty at the end or a comment.
std::string_view take_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  line.remove_prefix(begin);
  if (line.starts_with('#')) line = {};
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

bool read_priority(std::string_view text, Priority& priority) {
  if (text == "low") priority = Priority::kLow;
  if (text == "normal") priority = Priority::kNormal;
  if (text == "high") priority = Priority::kHigh;
  return text == "low" || text == "normal" || text == "high";
}

// Reads a limit. Returns false if `word` is none.
bool read_limit(std::string_view word, KeyLimits& limits) {
  const size_t equals = word.find('=');
  if (equals == word.npos) return false;
  const std::string_view name = word.substr(0, equals), text = word.substr(equals + 1);
  if (name == "priority") return read_priority(text, limits.priority);
  const auto value = parse_u64(text, 1, kMostLimit);
  if (!value) return false;
  if (name == "sessions") {
    limits.sessions = *value;
  } else if (name == "rows_per_s") {
    limits.rows_per_s = *value;
  } else if (name == "bytes_per_s") {
    limits.bytes_per_s = *value;
  } else {
    return false;
  }
  return true;
}

Sha256::Digest digest_of(std::string_view text) {
  Sha256 sum;
  sum.update(as_bytes_of(text));
  return sum.finish();
}

[[noreturn]] void refuse(const char* code, const char* message, const char* challenge) {
  throw HttpError(401, code, message, {}, {{"WWW-Authenticate", challenge}});
}

}  // namespace

void RateLimit::refill(Time now) {
  if (last_ != Time{}) {
    level_ += rate_ * std::chrono::duration<double>(now - last_).count();
    level_ = std::min(level_, rate_);
  }
  last_ = now;
}

double RateLimit::wait(Time now) {
  refill(now);
  return level_ > 0 ? 0 : std::max(-level_ / rate_, 1e-3);
}

void RateLimit::take(Time now, double amount) {
  refill(now);
  level_ -= amount;
}

struct ApiKeys::Key {
  std::string name;
  Sha256::Digest digest{};  // equal lengths for every comparison
  KeyLimits limits;
  std::mutex mutex;
  RateLimit rows{0}, bytes{0};  // guarded by `mutex`
};

struct ApiKeys::Now {
  std::mutex mutex;
  std::shared_ptr<const Keys> keys = std::make_shared<const Keys>();  // guarded by `mutex`
};

std::shared_ptr<const ApiKeys::Keys> ApiKeys::now() const {
  const std::lock_guard lock(now_->mutex);
  return now_->keys;
}

bool ApiKeys::empty() const { return now()->empty(); }

bool ApiKeys::has(const std::string& name) const { return find(name) != nullptr; }

void ApiKeys::renew(const ApiKeys& other) const {
  const auto before = now();
  Keys keys = *other.now();
  for (std::shared_ptr<Key>& key : keys) {
    for (const std::shared_ptr<Key>& old : *before) {
      if (old->name == key->name && old->digest == key->digest && old->limits == key->limits) {
        key = old;
      }
    }
  }
  const std::lock_guard lock(now_->mutex);
  now_->keys = std::make_shared<const Keys>(std::move(keys));
}

ApiKeys::ApiKeys() : now_(std::make_unique<Now>()) {}
ApiKeys::~ApiKeys() = default;
ApiKeys::ApiKeys(ApiKeys&&) noexcept = default;
ApiKeys& ApiKeys::operator=(ApiKeys&&) noexcept = default;

ApiKeys ApiKeys::parse(std::string_view text, std::string_view what) {
  Keys keys;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto bad = [&](std::string_view why) {
      return Error(ErrorKind::kInput, cat("[keys] ", what, ", line ", number, ": ", why));
    };
    const std::string_view word = take_word(line);
    if (word.empty()) continue;
    const size_t colon = std::min(word.find(':'), word.size());
    auto key = std::make_shared<Key>();
    key->name = word.substr(0, colon);
    const std::string_view secret = word.substr(std::min(colon + 1, word.size()));
    if (colon == word.size() || !is_name(key->name)) {
      throw bad("expected NAME:KEY, a name of 1..64 letters, digits, '.', '_' and '-'");
    }
    if (!is_key(secret)) {
      throw bad(cat("expected a key of ", kLeastKey, "..", kMostKey, " printable characters"));
    }
    key->digest = digest_of(secret);
    for (const auto& other : keys) {
      if (other->name == key->name) throw bad("a second key of this name");
      if (other->digest == key->digest) throw bad(cat("the same key as ", other->name, "'s"));
    }
    for (std::string_view limit; !(limit = take_word(line)).empty();) {
      if (!read_limit(limit, key->limits)) {
        throw bad(
            "expected sessions=N, rows_per_s=N, bytes_per_s=N (N from 1) or "
            "priority=low|normal|high behind the key");
      }
    }
    key->rows = RateLimit(static_cast<double>(key->limits.rows_per_s));
    key->bytes = RateLimit(static_cast<double>(key->limits.bytes_per_s));
    keys.push_back(std::move(key));
  }
  if (keys.empty())
    throw Error(ErrorKind::kInput, cat("[keys] ", what, ": expected keys, found none"));
  ApiKeys parsed;
  parsed.now_->keys = std::make_shared<const Keys>(std::move(keys));
  return parsed;
}

ApiKeys ApiKeys::read(const std::string& file) {
  ApiKeys keys = parse(read_file(file, kMaxFileBytes), file);
  warn_if_others_read(file);
  return keys;
}

std::shared_ptr<ApiKeys::Key> ApiKeys::find(const std::string& name) const {
  if (name.empty()) return nullptr;
  const auto keys = now();
  for (const auto& key : *keys) {
    if (key->name == name) return key;
  }
  return nullptr;
}

std::string ApiKeys::admit(const http::Headers& headers) const {
  constexpr std::string_view kScheme = "Bearer ";
  const auto given = headers.get("Authorization"), alone = headers.get("x-api-key");
  if (!given && !alone) {
    refuse("api_key_missing", "this server wants an API key: Authorization: Bearer KEY", "Bearer");
  }
  // One digest and every comparison to its end, so that the time reveals nothing.
  const bool bearer = given && http::same_name(given->substr(0, kScheme.size()), kScheme);
  const Sha256::Digest digest = digest_of(bearer  ? given->substr(kScheme.size())
                                          : given ? ""
                                                  : *alone);
  Key* who = nullptr;
  const auto keys = now();
  for (const auto& key : *keys) {
    if (::CRYPTO_memcmp(key->digest.data(), digest.data(), digest.size()) == 0) who = key.get();
  }
  if (who == nullptr) {
    refuse("invalid_api_key", "this API key is not one of the server's",
           "Bearer error=\"invalid_token\"");
  }
  if (who->limits.bytes_per_s > 0) {
    const std::lock_guard lock(who->mutex);
    const double seconds = who->bytes.wait(Clock::now());
    if (seconds > 0) {
      throw HttpError(429, "rate_limited", "this key's bytes a second are spent", {},
                      {{"Retry-After", cat(std::ceil(seconds))}});
    }
  }
  return who->name;
}

void ApiKeys::expect_rows(const std::string& name) const {
  const std::shared_ptr<Key> key = find(name);
  if (key == nullptr || key->limits.rows_per_s == 0) return;
  const std::lock_guard lock(key->mutex);
  const double seconds = key->rows.wait(Clock::now());
  if (seconds == 0) return;
  throw HttpError(429, "rate_limited", "this key's rows a second are spent", {},
                  {{"Retry-After", cat(std::ceil(seconds))}});
}

void ApiKeys::took_rows(const std::string& name, double rows) const {
  const std::shared_ptr<Key> key = find(name);
  if (key == nullptr || key->limits.rows_per_s == 0) return;
  const std::lock_guard lock(key->mutex);
  key->rows.take(Clock::now(), rows);
}

void ApiKeys::took_bytes(const std::string& name, uint64_t bytes) const {
  const std::shared_ptr<Key> key = find(name);
  if (key == nullptr || key->limits.bytes_per_s == 0) return;
  const std::lock_guard lock(key->mutex);
  key->bytes.take(Clock::now(), static_cast<double>(bytes));
}

uint64_t ApiKeys::most_sessions(const std::string& name) const {
  const std::shared_ptr<Key> key = find(name);
  return key == nullptr ? 0 : key->limits.sessions;
}

Priority ApiKeys::priority(const std::string& name) const {
  const std::shared_ptr<Key> key = find(name);
  return key == nullptr ? Priority::kNormal : key->limits.priority;
}

void ApiKeys::guard(http::Server& server) const {
  if (empty()) return;
  server.router().set_guard([this](const http::Headers& headers) { return admit(headers); });
  server.router().add_observer(
      [this](const http::Request& request, const http::Answered& answered) {
        took_bytes(request.principal, answered.bytes_in + answered.bytes_out);
      });
}

}  // namespace split::serve
