// POST /v1/rerank, in Jina's and Cohere's shape: how well each document answers a query, by a model
// with a classifier of pairs (run/sentences.h).
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

http::Response rerank(const http::Request& request, const FindModel& find);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> rerank_fields();

// The pairs of a query and documents, and their scores.
struct RankedPairs {
  RankedPairs(const Sentences& sentences, const Tokenizer& tokenizer, std::string_view query,
              MemoryShare* memory = nullptr);
  // Throws InputTooLong, and the errors of Sentences::pair().
  void add(std::string_view document, bool truncate);

  // Starts of the second texts; empty if they have no type of their own.
  std::span<const uint32_t> seconds() const;

  std::vector<std::vector<int32_t>> ids;
  size_t tokens = 0, truncated = 0;

 private:
  std::vector<uint32_t> seconds_;
  const Sentences& sentences_;
  const Tokenizer& tokenizer_;
  MemoryShare* const memory_;
  const std::vector<int32_t> query_;
};
// The documents' indices, best score first; among equals the first.
std::vector<size_t> by_score(std::span<const float> scores);

}  // namespace split::serve
