#include "device/vulkan/codegen/addresses.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace split::vulkan {
namespace {

// Opcodes of the SPIR-V specification, 1.5.
enum SpirvOp : uint32_t {
  kName = 5,
  kMemoryModel = 14,
  kEntryPoint = 15,
  kCapability = 17,
  kTypeVoid = 19,
  kTypeInt = 21,
  kTypeFloat = 22,
  kTypeVector = 23,
  kTypeArray = 28,
  kTypeStruct = 30,
  kTypePointer = 32,
  kConstant = 43,
  kVariable = 59,
  kLoad = 61,
  kStore = 62,
  kAccessChain = 65,
  kDecorate = 71,
  kMemberDecorate = 72,
  kBitcast = 124,
  kMatrixLoad = 4457,
  kMatrixStore = 4458,
};
constexpr uint32_t kPushConstant = 9, kStorageBuffer = 12, kPhysicalBuffer = 5349;  // classes
constexpr uint32_t kArrayStride = 6, kBinding = 33, kOffset = 35;                   // decorations
constexpr uint32_t kAddressesCapability = 5347, kPhysical64 = 5348, kAligned = 2;
constexpr uint32_t kShortsCapability = 22;  // needed to point to 16-bit integers
constexpr uint32_t kAddressBytes = 8, kWordBytes = 4;
constexpr size_t kHeaderWords = 5, kBound = 3;

struct SpirvInstruction {
  uint32_t op = 0;
  std::span<const uint32_t> a;  // its operands
};

std::vector<SpirvInstruction> instructions(std::span<const uint32_t> words) {
  std::vector<SpirvInstruction> all;
  for (size_t at = kHeaderWords; at < words.size();) {
    const uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
    CHECK(length > 0 && length <= words.size() - at);
    all.push_back({op, words.subspan(at + 1, length - 1)});
    at += length;
  }
  return all;
}

// The declarations of a module.
struct Module {
  explicit Module(std::span<const uint32_t> words) : all(instructions(words)) {
    for (const SpirvInstruction& i : all) learn(i);
    CHECK(push != 0 && uint != 0 && !bindings.empty());
  }

  void learn(const SpirvInstruction& i) {
    const auto& a = i.a;
    if (i.op == kDecorate && a[1] == kBinding) bindings[a[0]] = a[2];
    if (i.op == kTypeInt && a[1] == 32 && a[2] == 0) uint = a[0];
    if (i.op == kTypeInt && a[1] == 16) has_shorts = true;
    if (i.op == kTypeInt || i.op == kTypeFloat) bytes[a[0]] = a[1] / 8;
    if (i.op == kTypeVector && bytes.count(a[1]) != 0) bytes[a[0]] = bytes[a[1]] * a[2];
    if (i.op == kTypeVector && a[1] == uint && a[2] == 2) pair = a[0];
    if (i.op == kTypeStruct) structs[a[0]] = static_cast<uint32_t>(a.size()) - 1;
    if (i.op == kTypePointer) {
      pointees[a[0]] = a[2];
      if (a[1] == kStorageBuffer) buffer_pointers.insert(a[0]);
    }
    if (i.op == kVariable && a[2] == kPushConstant) {
      push = a[1];
      block = pointees.at(a[0]);
      members = structs.at(block);
    }
    if (i.op == kVariable && a[2] == kStorageBuffer) buffers[a[1]] = a[0];
  }

  const std::vector<SpirvInstruction> all;
  bool has_shorts = false;
  uint32_t push = 0, block = 0, members = 0;       // the push constants, their type, its members
  uint32_t uint = 0, pair = 0;                     // types
  std::map<uint32_t, uint32_t> bindings, buffers;  // variables: their binding, pointer type
  std::map<uint32_t, uint32_t> pointees, structs;  // types: what they point to, their members
  std::map<uint32_t, uint32_t> bytes;              // types of numbers
  std::set<uint32_t> buffer_pointers;              // types
};

class Rewriter {
 public:
  explicit Rewriter(std::span<const uint32_t> words)
      : module_(words), out_(words.begin(), words.begin() + kHeaderWords) {}

  std::vector<uint32_t> result() {
    bool typed = false, capable = false;
    for (const SpirvInstruction& i : module_.all) {
      if (i.op != kCapability && !capable) {
        emit(kCapability, {kAddressesCapability});
        if (module_.has_shorts) emit(kCapability, {kShortsCapability});
        capable = true;
      }
      if (i.op == kTypeVoid && !typed) {
        emit(kDecorate, {array_, kArrayStride, kAddressBytes});
        emit(kMemberDecorate,
             {module_.block, module_.members, kOffset, module_.members * kWordBytes});
        typed = true;
      }
      rewrite(i);
    }
    out_[kBound] = bound_;
    return std::move(out_);
  }

 private:
  void emit(uint32_t op, const std::vector<uint32_t>& operands) {
    out_.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
    for (const uint32_t operand : operands) out_.push_back(operand);
  }

  // Declares the types of addresses, before the block that gets them.
  void declare_addresses() {
    if (!has_pair_) emit(kTypeVector, {pair_, module_.uint, 2});
    has_pair_ = true;
    uint32_t count = 0;
    for (const auto& [variable, binding] : module_.bindings) count = std::max(count, binding + 1);
    numbers_ = bound_;
    for (uint32_t n = 0; n <= std::max(count, module_.members); ++n) {
      emit(kConstant, {module_.uint, bound_++, n});
    }
    emit(kTypeArray, {array_, pair_, numbers_ + count});
    emit(kTypePointer, {pair_pointer_, kPushConstant, pair_});
  }

  // A pointer to the whole buffer.
  uint32_t address(uint32_t variable) {
    const uint32_t at = bound_, pair = bound_ + 1, pointer = bound_ + 2;
    bound_ += 3;
    emit(kAccessChain, {pair_pointer_, at, module_.push, numbers_ + module_.members,
                        numbers_ + module_.bindings.at(variable)});
    emit(kLoad, {pair_, pair, at});
    emit(kBitcast, {module_.buffers.at(variable), pointer, pair});
    return pointer;
  }

  // Emits an access with the alignment that an access by address must state: the number's. `memory`
  // is the index of its memory operands, present or not.
  void emit_access(uint32_t op, std::span<const uint32_t> a, uint32_t pointer, size_t memory) {
    std::vector<uint32_t> b(a.begin(), a.end());
    if (const auto known = accessed_.find(pointer); known != accessed_.end()) {
      if (b.size() == memory) b.push_back(0);
      CHECK((b[memory] & kAligned) == 0);
      b[memory] |= kAligned;
      // Operands follow in the order of their bits, and volatile, the bit before, has none.
      b.insert(b.begin() + static_cast<std::ptrdiff_t>(memory) + 1,
               module_.bytes.at(known->second));
    }
    emit(op, b);
  }

  void rewrite(const SpirvInstruction& i) {
    std::vector<uint32_t> a(i.a.begin(), i.a.end());
    const auto is_buffer = [&](uint32_t id) { return module_.buffers.count(id) != 0; };
    switch (i.op) {
      case kMemoryModel:
        a[0] = kPhysical64;
        break;
      case kEntryPoint:
        a.erase(std::remove_if(a.begin() + 3, a.end(), is_buffer), a.end());
        break;
      case kName:
      case kDecorate:
        if (is_buffer(a[0])) return;
        break;
      case kTypeVector:
        if (a[0] == pair_ && has_pair_) return;
        has_pair_ = has_pair_ || a[0] == pair_;
        break;
      case kTypeStruct:
        if (a[0] == module_.block) {
          declare_addresses();
          a.push_back(array_);
        }
        break;
      case kTypePointer:
        if (a[1] == kStorageBuffer) a[1] = kPhysicalBuffer;
        break;
      case kVariable:
        if (is_buffer(a[1])) return;
        break;
      case kAccessChain:
        if (module_.buffer_pointers.count(a[0]) != 0) {
          if (is_buffer(a[2])) a[2] = address(a[2]);
          accessed_[a[1]] = module_.pointees.at(a[0]);
        }
        break;
      case kLoad:
        return emit_access(i.op, a, a[2], 3);
      case kMatrixLoad:
        return emit_access(i.op, a, a[2], 5);
      case kStore:
        return emit_access(i.op, a, a[0], 2);
      case kMatrixStore:
        return emit_access(i.op, a, a[0], 4);
      default:
        break;
    }
    emit(i.op, a);
  }

  const Module module_;
  std::vector<uint32_t> out_;
  uint32_t bound_ = out_[kBound];
  const uint32_t array_ = bound_++, pair_pointer_ = bound_++;
  const uint32_t pair_ = module_.pair != 0 ? module_.pair : bound_++;  // a type
  uint32_t numbers_ = 0;                                               // constants 0, 1, ...
  bool has_pair_ = false;                                              // declared
  std::map<uint32_t, uint32_t> accessed_;  // pointers to numbers in buffers: their type
};

}  // namespace

std::vector<uint32_t> with_addresses(std::span<const uint32_t> words) {
  CHECK(words.size() > kHeaderWords);
  return Rewriter(words).result();
}

}  // namespace split::vulkan
