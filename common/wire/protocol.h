// The protocol between cloud and edge: one struct for each route's request and answer, to JSON and
// back, and the paths. Both programs include this and nothing of each other. Input from outside is
// checked: types, ranges, lengths; a wrong field is Error(kInput) that names it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "step/range.h"
#include "tensor/shape.h"
#include "wire/chunks.h"

namespace split {
class MemoryShare;  // base/resources/memory_budget.h
}

namespace split::wire {

// --- paths
std::string model_path(std::string_view id);  // GET: ModelInfo
// Returns "?format=q4_0&from=3&to=head": beside the checkpoint's own format of all stages, this one
// for stages in a range (without `from`: from tokens), or one for each kind of stage
// (models/formats.h).
std::string model_query(std::string_view format, const StageRange& range);
std::string model_file_path(std::string_view id,
                            std::string_view file);     // GET: config.json, vocab.json, merges.txt
std::string blob_path(std::string_view sha256);         // GET: a safetensors file
std::string model_forward_path(std::string_view id);    // POST: stateless partial state
std::string session_path(std::string_view id);          // PUT, GET, DELETE
std::string session_forward_path(std::string_view id);  // POST: one step

inline constexpr std::string_view kTensorType = "application/octet-stream";
inline constexpr std::string_view kJsonType = "application/json";

// --- models
struct BlobInfo : BlobSums {
  std::string name;    // "wte", "h.3" ...
  std::string format;  // "f32", "f16", "bf16", "q8_0", "q4_0"
};
struct FileInfo {
  std::string name;  // "config.json", "1_Pooling/config.json" ...
  uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const FileInfo&) const = default;
};
struct StageInfo {
  std::string name;             // "embed", "block.3", "norm", "head"
  std::string format;           // the checkpoint's own format of the stage's matrices
  std::vector<BlobInfo> blobs;  // each in every format that the server has, or was asked for
};
struct ModelInfo {
  std::string id;
  std::string config_json;            // the checkpoint's config.json
  std::string kind;                   // "decoder", "encoder"
  std::string architecture;           // its model_type
  int max_context = 0;                // positions of its training
  int context = 0;                    // positions served; 0: an earlier server
  std::vector<int> stops;             // tokens that end a text
  std::string format;                 // the checkpoint's own, of floats
  std::string profile;                // the server's: "f32", "f16"
  std::string generate_phase;         // names::kNarrow or kWide
  std::vector<std::string> features;  // its sessions' abilities beyond steps to one point: "to" ...
  std::string bits;                   // inputs of a row's bits (run/bits.h)
  std::vector<RowPart> row_parts;     // what rows have behind their hidden states, in this order
  bool phases_alike = false;          // a row has the same bits in both phases
  std::vector<FileInfo> files;        // served by model_file_path()
  // For embeddings: their size, how they are made (a JSON object), and the names of the prompts
  // that may precede a text.
  size_t dimensions = 0;
  std::string pooling_json;
  std::vector<std::string> prompts;
  std::string chat_json = "null";  // the chat template (a JSON object), if any
  // http[s]://host[:port][/path]: blobs are at blob_url/sha256. Empty: at blob_path() here.
  std::string blob_url;
  std::vector<StageInfo> stages;

  bool knows(std::string_view feature) const {
    return std::ranges::find(features, feature) != features.end();
  }
};
std::string to_json(const ModelInfo& info);
// Checks that each blob has as many chunks as its bytes make, and that a sha256 has the same size
// and chunks wherever it is named.
ModelInfo parse_model_info(std::string_view json);

// Parses GET /v1/models, in the server's order. The profile is empty if it says none.
struct ListedModel {
  std::string id, profile;
  bool operator==(const ListedModel&) const = default;
};
std::vector<ListedModel> parse_model_list(std::string_view json);

// --- sessions
// A feature of servers that share rows, and so read the two fields below.
inline constexpr std::string_view kCacheFeature = "prompt_cache";
struct SessionRequest {
  std::string model;
  StageRange range;             // blocks; from tokens it is "from":0
  bool cache_prompt = true;     // its rows may be shared with other texts
  std::string cache_salt = {};  // scope of the sharing
  bool cut = false;             // its end was sent as "cut"; matters for messages only
  bool operator==(const SessionRequest&) const = default;
};
std::string to_json(const SessionRequest& request);
SessionRequest parse_session_request(std::string_view json, MemoryShare* memory = nullptr);
// Its steps: wire/step.h.

// --- tensors
// Rows of floats: [rows, columns].
struct Matrix {
  uint32_t rows = 0, columns = 0;
  std::vector<float> values;
};

struct FrameOptions {
  std::span<const uint32_t> lengths = {};  // rows of each text: an I32 tensor "lengths" beside it
  DType format = DType::kF32;              // wire/row_format.h
  std::string_view field = "dtype";        // field that requested the format, for messages
};
// Writes a safetensors file with one tensor [rows, columns]; q8_0 is stored like weights
// (io/weight_file.h). Throws Error(kInput) for a value that the format cannot hold.
std::string frame(std::string_view name, uint32_t rows, uint32_t columns,
                  std::span<const float> values, const FrameOptions& options = {});
// Reads such a file: a tensor `name` [rows, columns], in BF16 too, all finite, at most `max_rows`
// rows. Throws Error(kInput) that says what was expected.
Matrix parse_frame(Bytes bytes, std::string_view name, uint32_t columns, uint32_t max_rows);
// Returns the rows of each text in a frame, which add up to all of its rows; empty if it has no
// lengths. Throws as parse_frame().
std::vector<uint32_t> parse_lengths(Bytes bytes, uint32_t rows, uint32_t most);

// --- numbers
// Appends "[0.1,-2.5e-07]": the shortest texts that read back as the same floats (std::to_chars).
// Values are finite.
void append_floats(std::string& out, std::span<const float> values);
// Returns the double whose shortest text is the float's, for a JSON library that writes doubles.
double json_number(float value);

}  // namespace split::wire
