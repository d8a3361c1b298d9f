// A request's job for a model's batcher: counted, run, and described in the answer. Shared by the
// routes that compute rows.
#pragma once

#include "cloud_server/state/cloud.h"
#include "run/text/text_loop.h"

namespace split::cloud {

// Charges rows to the caller's key, by the share of the model that they run through. Throws 429
// while the key is overdrawn.
void charge_rows(const Cloud& cloud, const http::Request& request, ServedModel& model,
                 const SequenceRows& rows);
// Charges the job to the caller's key, 429 while that is overdrawn, and runs it.
void run_job(const Cloud& cloud, const http::Request& request, ServedModel& model, Job& job);
// Runs a job of a session. Adds its costs to the session's receipt, and the computed rows to its
// history, also if it fails.
void run_in_session(Session& session, ServedModel& model, Job& job);
// Makes a session's pages writable for these rows: recomputes rows that share a page with other
// readers. Throws as Batcher::run.
void own_rows(Session& session, const SequenceRows& rows, const Requester& requester);
// Gives a session, whose last row is the one before these, the first of them from the prompt cache.
PrefixCache::Taken take_rows(Session& session, const SequenceRows& rows,
                             const Requester& requester);
// The row where a step of a session's prompt from `row` on is to end at the latest, for a snapshot.
uint32_t step_end(const Session& session, const StageRange& range, uint32_t row, uint32_t parts_at);
// Caches a session's rows for others: of all its blocks if these have them, else of this range,
// whose blocks do. `snapshot`: its row, 0 for none; by default where a prompt or an answer ends.
void keep_rows(Session& session, const StageRange& range, std::optional<uint32_t> snapshot = {});
// Does so for a long answer that has come far since, where blocks keep a state.
void keep_far(Session& session, const StageRange& range);
// The load, for the answer to a session's step.
wire::LoadNote tell_load(const Cloud& cloud, ServedModel& model, const Session& session);
[[noreturn]] void unknown_session();
// The client of a request's jobs, while the request is answered.
Requester requester_of(const http::Request& request);
// The scope in which a text shares rows; nullopt if it shares none.
std::optional<PrefixRoot> prefix_root(const Requester& requester, const GenerateOptions& options);
// Sets the headers of a computed answer: its waiting and running time, and no-store.
void describe_run(http::Response& response, const Job& job);
inline constexpr size_t kJsonBytesAFloat = 14;  // "-1.2345678e-05"; less on average
// An answer of rows in JSON, after `fields`, which end with a comma.
http::Response rows_in_json(const std::string& fields, std::string_view name, size_t rows,
                            size_t width, std::span<const float> values);
// A JSON answer with no-store.
http::Response unkept_json(int status, const std::string& json);
// Appends the embedding of each text, pooled from the states of its rows.
void pool_texts(const Sentences& sentences, std::span<const uint32_t> lengths,
                std::span<const float> states, size_t columns, bool normalize,
                std::vector<float>& out);
// Charges the request's memory for the body's hidden states as floats.
void take_hidden(const http::Request& request);
// Throws if an answer of so many rows is too large.
void expect_answer(size_t rows, size_t row_bytes);
// Whether the client wants safetensors rather than JSON.
bool wants_tensors(const http::Request& request);
// Whether the body is safetensors.
bool sends_tensors(const http::Request& request);

bool all_finite(std::span<const float> values);
// Throws for a result that is not finite: 500 `weights_damaged` that names the weight, if there is
// one; else 400 if the client sent the hidden state, 500 `overflow` if rows are in int8,
// `f16_overflow` if f16 is in use, and 500 otherwise.
[[noreturn]] void refuse_overflow(ServedModel& model, bool from_hidden);
// Throws 500 `f16_overflow` for values beyond f16.
void expect_halves(std::span<const float> values);

}  // namespace split::cloud
