// The protocol between cloud and edge: one struct for each route's request and answer, to JSON
// and back, and the paths. Both programs include this and nothing of each other. Everything parsed
// here comes from outside and is checked: types, ranges, lengths; a wrong field is Error(kInput)
// that names it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "step/range.h"
#include "tensor/shape.h"
#include "wire/chunks.h"

namespace split {
class MemoryShare;  // base/resources/memory_budget.h
}

namespace split::wire {

// --- paths
std::string model_path(std::string_view id);  // GET: ModelInfo
// "?format=q4_0&from=3&to=head": the checkpoint's own format of all stages, and of those in a range
// (from tokens without `from`) this one, or these of each kind of stage (models/formats.h).
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
  std::string format;           // the checkpoint's own of this stage's matrices
  std::vector<BlobInfo> blobs;  // each in every format the server has, or was asked for
};
struct ModelInfo {
  std::string id;
  std::string config_json;            // the checkpoint's config.json
  std::string kind;                   // "decoder", "encoder"
  std::string architecture;           // its model_type
  int max_context = 0;                // positions that it was made for,
  int context = 0;                    // and those that are served; 0: an earlier server
  std::vector<int> stops;             // tokens that end a text
  std::string format;                 // the checkpoint's own of what is no blocks
  std::string profile;                // of the server: "f32", "f16"
  std::string generate_phase;         // names::kNarrow or kWide
  std::vector<std::string> features;  // what its sessions know beyond steps to one point: "to" ...
  std::string bits;                   // what the bits of a row depend on (run/bits.h)
  bool phases_alike = false;          // a row has the same bits in both
  std::vector<FileInfo> files;        // that model_file_path() serves
  // For whoever reads it: numbers of an embedding, how it is made (a JSON object), and the names of
  // the prompts that may stand before a text.
  size_t dimensions = 0;
  std::string pooling_json;
  std::vector<std::string> prompts;
  std::string chat_json = "null";  // how messages become a prompt (a JSON object), where they do
  // http[s]://host[:port][/path]: a blob is at blob_url/sha256 there. Empty: at blob_path() here.
  std::string blob_url;
  std::vector<StageInfo> stages;

  bool knows(std::string_view feature) const {
    return std::ranges::find(features, feature) != features.end();
  }
};
std::string to_json(const ModelInfo& info);
// Each blob has as many chunks as its bytes make, and one sha256 stands for one size and one list
// of chunks wherever it is named.
ModelInfo parse_model_info(std::string_view json);

// The ids of GET /v1/models, in the server's order.
std::vector<std::string> parse_model_list(std::string_view json);

// --- sessions
// Stands among the features of a server that shares rows, and so reads the two fields below.
inline constexpr std::string_view kCacheFeature = "prompt_cache";
struct SessionRequest {
  std::string model;
  StageRange range;             // of blocks; from tokens it is "from":0
  bool cache_prompt = true;     // its rows may be those of other texts, and become theirs,
  std::string cache_salt = {};  // of this salt
  bool cut = false;             // its end was sent as "cut"; only messages care
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
  std::span<const uint32_t> lengths = {};  // of each text's rows: an I32 tensor "lengths" beside it
  DType format = DType::kF32;              // wire/row_format.h
  std::string_view field = "dtype";        // that asked for it; messages name it
};
// A safetensors file with one tensor [rows, columns]; in q8_0 it is stored as weights are
// (io/weight_file.h). Throws Error(kInput) for a value that the format does not hold.
std::string frame(std::string_view name, uint32_t rows, uint32_t columns,
                  std::span<const float> values, const FrameOptions& options = {});
// The same read: a tensor `name` [rows, columns], in BF16 too, all finite, at most `max_rows` rows.
// Throws Error(kInput) that says what was expected.
Matrix parse_frame(Bytes bytes, std::string_view name, uint32_t columns, uint32_t max_rows);
// The rows of each text of a frame, which are all of its rows together; empty where it has no
// lengths. Throws as parse_frame().
std::vector<uint32_t> parse_lengths(Bytes bytes, uint32_t rows, uint32_t most);

// --- numbers
// "[0.1,-2.5e-07]": the shortest text that reads back as the same float (std::to_chars). Values are
// finite.
void append_floats(std::string& out, std::span<const float> values);
// The double whose shortest text is the float's shortest text: what a JSON library that writes
// doubles is given.
double json_number(float value);

}  // namespace split::wire
