// A request's job for a model's batcher: counted, run, and described in the answer. The routes that
// compute rows share it.
#pragma once

#include "cloud_server/state/cloud.h"
#include "run/text/text_loop.h"

namespace split::cloud {

// Charges rows to the caller's key, by the share of the model that they run through; it gets 429
// while it is overdrawn.
void charge_rows(const Cloud& cloud, const http::Request& request, ServedModel& model,
                 const SequenceRows& rows);
// Charges the job to the caller's key, which gets 429 while it is overdrawn, and runs it.
void run_job(const Cloud& cloud, const http::Request& request, ServedModel& model, Job& job);
// Runs a job of a session: its receipt has what that cost, and its history the tokens of the rows
// that came about, however many; also where it fails.
void run_in_session(Session& session, ServedModel& model, Job& job);
// Before a session's rows are written: one that lets go of a page that others read computes again
// what that takes along. Throws as Batcher::run.
void own_rows(Session& session, const SequenceRows& rows, const Requester& requester);
// Gives a session, whose last row is that before these, the first of them that others computed.
PrefixCache::Taken take_rows(Session& session, const SequenceRows& rows,
                             const Requester& requester);
// Keeps a session's rows for others: of all its blocks where these have them, else of this range,
// whose blocks do.
void keep_rows(const Session& session, const StageRange& range);
// The load, as the answer to a session's step tells it.
wire::LoadNote tell_load(const Cloud& cloud, ServedModel& model, const Session& session);
[[noreturn]] void unknown_session();
// The client that a request's jobs run for, while the request is answered.
Requester requester_of(const http::Request& request);
// Those whose rows a text shares: none where it is not to.
std::optional<PrefixRoot> prefix_root(const Requester& requester, const GenerateOptions& options);
// The headers of a computed answer: how long it waited and ran; not to be stored.
void describe_run(http::Response& response, const Job& job);
inline constexpr size_t kJsonBytesAFloat = 14;  // "-1.2345678e-05", on average less
// An answer of rows in JSON, behind `fields` that end with a comma.
http::Response rows_in_json(const std::string& fields, std::string_view name, size_t rows,
                            size_t width, std::span<const float> values);
// An answer that is good for this moment alone.
http::Response unkept_json(int status, const std::string& json);
// Appends the embedding of each text, by the states of its rows.
void pool_texts(const Sentences& sentences, std::span<const uint32_t> lengths,
                std::span<const float> states, size_t columns, bool normalize,
                std::vector<float>& out);
// Takes what hidden states of the body will need, as floats, from the request's memory.
void take_hidden(const http::Request& request);
// Refuses an answer of so many rows that is too large.
void expect_answer(size_t rows, size_t row_bytes);
// True when the client wants safetensors rather than JSON.
bool wants_tensors(const http::Request& request);
// True when the body is safetensors.
bool sends_tensors(const http::Request& request);

bool all_finite(std::span<const float> values);
// Throws for a result that is not finite: 500 `weights_damaged` that names the weight, where there
// is one; else 400 when the client sent the hidden state, 500 `f16_overflow` where f16 is in use,
// and 500 otherwise.
[[noreturn]] void refuse_overflow(ServedModel& model, bool from_hidden);
// Refuses to answer values that f16 does not have: 500 `f16_overflow`.
void expect_halves(std::span<const float> values);

}  // namespace split::cloud
