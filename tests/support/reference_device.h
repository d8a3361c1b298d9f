// Runs a Program in double precision and with no thought of speed: the model that devices
// are tested against. Rows, output rows and paged caches as in device/device.h, but a cache is a
// map from (sequence, position) to a row.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compile/program.h"
#include "device/device.h"
#include "support/op_references.h"
#include "tensor/tensor.h"

namespace split::test {

class Reference {
  using Matmul = inputs::matmul;
  using Attention = inputs::attention;

 public:
  // Inputs, weights and (after run) outputs by the name of their slot; dense, as the slot's dims.
  std::map<std::string, std::vector<double>> values;

  void run(const Program& program, const RowBatch& batch) {
    temps_.clear();
    for (const Step& step : program.steps) {
      rows_ = step.rows == kOutRows ? batch.out_rows.size() : batch.rows;
      if (step.op == Op::k_attention) {
        attention(program, step, batch);
        continue;
      }
      if (step.op == Op::k_topk) {
        topk(program, step);
        continue;
      }
      if (step.op == Op::k_rotate || step.op == Op::k_norm_rotate) {
        rotate(program, step, batch);
        continue;
      }
      std::vector<double> product;
      if (step.op == Op::k_matmul) {
        product = matmul(program, step, slot(program, step.in(Matmul::x)));
      }
      tape(program, step.tape, step.columns, batch, product);
    }
  }

 private:
  std::vector<double>& slot(const Program& program, int index) {
    const Slot& s = program.slots[static_cast<size_t>(index)];
    return s.kind == SlotKind::kTemp ? temps_[index] : values[s.name];
  }

  std::vector<double> matmul(const Program& program, const Step& step,
                             const std::vector<double>& x) {
    const Slot& w_slot = program.slots[static_cast<size_t>(step.in(Matmul::w))];
    const std::vector<double>& w = slot(program, step.in(Matmul::w));
    const auto inner = static_cast<size_t>(step.inner), columns = static_cast<size_t>(step.columns);
    std::vector<double> y(rows_ * columns, 0.0);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t k = 0; k < inner; ++k) {
        for (size_t m = 0; m < columns; ++m) {
          y[r * columns + m] +=
              x[r * inner + k] * (w_slot.transposed ? w[m * inner + k] : w[k * columns + m]);
        }
      }
    }
    return y;
  }

  // The tape over all rows; stores its outputs.
  void tape(const Program& program, const Tape& tape, int64_t columns, const RowBatch& batch,
            const std::vector<double>& product) {
    const auto c = static_cast<size_t>(columns);
    // A value is [rows, c], or [rows, 1].
    std::vector<std::vector<double>> all;
    for (const auto& made : tape.values) {
      std::vector<double> value(rows_ * c);
      if (made.loads()) {
        for (size_t r = 0; r < rows_; ++r) {
          for (size_t i = 0; i < c; ++i)
            value[r * c + i] = load(program, made.load, r, i, c, batch, product);
        }
        all.push_back(std::move(value));
        continue;
      }
      const std::string_view op = op_info(made.op).name;
      const std::vector<double>& x = all[static_cast<size_t>(made.x)];
      if (made.reduces()) {
        const ReduceReference& reduce = reference(kReduceReferences, op);
        for (size_t r = 0; r < rows_; ++r) {
          const auto first = x.begin() + static_cast<std::ptrdiff_t>(r * c);
          const auto to = value.begin() + static_cast<std::ptrdiff_t>(r * c);
          const auto width = static_cast<std::ptrdiff_t>(c);
          std::fill_n(to, c, std::accumulate(first, first + width, reduce.start, reduce.combine));
        }
      } else if (made.z < 0) {
        std::transform(x.begin(), x.end(), value.begin(), reference(kUnaryReferences, op));
      } else {
        const std::vector<double>& z = all[static_cast<size_t>(made.z)];
        std::transform(x.begin(), x.end(), z.begin(), value.begin(),
                       reference(kBinaryReferences, op));
      }
      all.push_back(std::move(value));
    }
    for (const TapeOutput& output : tape.outputs) {
      const std::vector<double>& value = all[static_cast<size_t>(output.value)];
      std::vector<double>& out = slot(program, output.slot);
      const auto width =
          static_cast<size_t>(program.slots[static_cast<size_t>(output.slot)].dims[1]);
      out.assign(rows_ * width, 0.0);
      for (size_t r = 0; r < rows_; ++r) {
        for (size_t i = 0; i < width; ++i) out[r * width + i] = value[r * c + i];
      }
    }
  }

  double load(const Program& program, const Operand& operand, size_t r, size_t i, size_t c,
              const RowBatch& batch, const std::vector<double>& product) {
    switch (operand.access.kind) {
      case Access::kImmediate:
        return operand.access.value;
      case Access::kResult:
        return product[r * c + i];
      case Access::kRowwise:
        return slot(program, operand.slot)[r * c + i];
      case Access::kVector:
        return slot(program, operand.slot)[i];
      case Access::kPerRow:
        return slot(program, operand.slot)[r];
      case Access::kGather:
      case Access::kWhole:
        break;
    }
    const std::string& index = program.slots[static_cast<size_t>(operand.access.index)].name;
    const auto row = index == "tokens"      ? static_cast<size_t>(batch.tokens[r])
                     : index == "positions" ? static_cast<size_t>(batch.positions[r])
                     : index == "marks"     ? static_cast<size_t>(batch.marks[r])
                                            : static_cast<size_t>(batch.out_rows[r]);
    return slot(program, operand.slot)[row * c + i];
  }

  // A row as pages of the type hold it: Q8_0 has, for each 32 channels, whole numbers of at most
  // 127 times a half.
  static std::vector<double> kept(std::vector<double> row, DType dtype) {
    const auto half = [](double x) {
      return double{f16_to_f32(f32_to_f16(static_cast<float>(x)))};
    };
    if (dtype == DType::kF16) std::ranges::transform(row, row.begin(), half);
    if (dtype != DType::kQ8_0) return row;
    for (size_t first = 0; first < row.size(); first += 32) {
      double largest = 0;
      for (size_t i = first; i < first + 32; ++i) largest = std::max(largest, std::abs(row[i]));
      const double scale = half(largest / 127);
      for (size_t i = first; i < first + 32; ++i) {
        if (scale > 0) row[i] = std::clamp(std::nearbyint(row[i] / scale), -127.0, 127.0);
        row[i] *= scale;
      }
    }
    return row;
  }

  // MPNet's buckets, by their formula.
  static size_t bucket_of(int32_t places) {
    const double n = std::abs(places);
    const double by_log = n < 8 ? n : 8 + std::floor(std::log2(n / 8) * 2 + 1e-9);
    return static_cast<size_t>(std::min(by_log, 15.0)) + (places > 0 ? 16 : 0);
  }

  void attention(const Program& program, const Step& step, const RowBatch& batch) {
    using Cache = std::map<std::pair<uint32_t, int32_t>, std::vector<double>>;
    const Heads heads(step);
    const size_t c = heads.width(), d = heads.dim, kv = heads.kv_width();
    const Slot& k_slot = program.slots[static_cast<size_t>(step.in(Attention::k_cache))];
    const Slot& v_slot = program.slots[static_cast<size_t>(step.in(Attention::v_cache))];
    Cache& keys = caches_[program.name + k_slot.name];
    Cache& values_of = caches_[program.name + v_slot.name];
    // Column i of a row of an input.
    const auto load = [&](size_t input, size_t row, size_t i) {
      const Operand& rows = step.inputs[input];
      const auto width = static_cast<size_t>(program.slots[static_cast<size_t>(rows.slot)].dims[1]);
      return slot(program, rows.slot)[row * width + static_cast<size_t>(rows.access.first) + i];
    };
    for (size_t r = 0; r < batch.rows; ++r) {
      std::vector<double> k, v;
      for (size_t i = 0; i < kv; ++i) {
        k.push_back(load(Attention::k, r, i));
        v.push_back(load(Attention::v, r, i));
      }
      keys[{batch.sequences[r], batch.positions[r]}] = kept(std::move(k), k_slot.dtype);
      values_of[{batch.sequences[r], batch.positions[r]}] = kept(std::move(v), v_slot.dtype);
    }
    std::vector<double> out(batch.rows * c, 0.0);
    for (size_t r = 0; r < batch.rows; ++r) {
      for (size_t h = 0; h < heads.count; ++h) {
        const size_t shared = h / heads.group() * d;  // of a key
        std::vector<double> weights;
        double largest = -1e300, total = 0;
        auto end = static_cast<int32_t>(batch.seen[r].end);
        const int32_t window = heads.window > 0 ? static_cast<int32_t>(heads.window) : end;
        auto first = std::max(static_cast<int32_t>(batch.seen[r].first), end - window);
        const int32_t own = batch.positions[r];
        if (heads.both_ways) {
          first = std::max(static_cast<int32_t>(batch.seen[r].first), own + 1 - window);
          end = std::min(end, own + window);
        }
        for (int32_t p = first; p < end; ++p) {
          const std::vector<double>& k = keys.at({batch.sequences[r], p});
          double score = 0;
          for (size_t i = 0; i < d; ++i) score += load(Attention::q, r, h * d + i) * k[shared + i];
          const auto cap = step.attribute<double>(attributes::attention::cap);
          score *= step.attribute<double>(attributes::attention::scale);
          if (heads.biased) {
            const size_t bucket = bucket_of(p - own);
            score += slot(program, step.in(Attention::bias))[bucket * heads.count + h];
          }
          weights.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
          largest = std::max(largest, weights.back());
        }
        for (double& weight : weights) total += weight = std::exp(weight - largest);
        for (int32_t p = first; p < end; ++p) {
          const std::vector<double>& v = values_of.at({batch.sequences[r], p});
          for (size_t i = 0; i < d; ++i) {
            out[r * c + h * d + i] +=
                weights[static_cast<size_t>(p - first)] / total * v[shared + i];
          }
        }
      }
    }
    slot(program, step.out()) = std::move(out);
  }

  void rotate(const Program& program, const Step& step, const RowBatch& batch) {
    const Turn turn(step);
    const auto width = static_cast<size_t>(step.columns);
    const size_t d = turn.head_dim, half = d / 2;
    const auto x_width =
        static_cast<size_t>(program.slots[static_cast<size_t>(turn.x.slot)].dims[1]);
    const std::vector<double>& from = slot(program, turn.x.slot);
    const std::vector<double>&cos = slot(program, turn.cos), &sin = slot(program, turn.sin);
    std::vector<double> out(rows_ * width);
    for (size_t r = 0; r < rows_; ++r) {
      const size_t table = static_cast<size_t>(batch.positions[r]) * half;
      for (size_t head = 0; head < turn.heads; ++head) {
        const auto first =
            from.begin() + static_cast<std::ptrdiff_t>(
                               r * x_width + static_cast<size_t>(turn.x.access.first) + head * d);
        std::vector<double> x(first, first + static_cast<std::ptrdiff_t>(d));
        if (turn.normed) {
          double sum = 0;
          for (const double value : x) sum += value * value;
          const double scale = 1 / std::sqrt(sum / static_cast<double>(d) + double{turn.eps});
          const std::vector<double>& weight = slot(program, turn.weight);
          for (size_t i = 0; i < d; ++i) x[i] *= scale * (weight[i] + double{turn.plus});
        }
        for (size_t i = 0; i < half; ++i) {
          const double c = cos[table + i], s = sin[table + i];
          out[r * width + head * d + i] = x[i] * c - x[i + half] * s;
          out[r * width + head * d + i + half] = x[i + half] * c + x[i] * s;
        }
      }
    }
    slot(program, step.out()) = std::move(out);
  }

  void topk(const Program& program, const Step& step) {
    const auto width = static_cast<size_t>(step.inner), k = static_cast<size_t>(step.columns) / 2;
    const std::vector<double>& x = slot(program, step.in(inputs::topk::x));
    std::vector<double> out;
    for (size_t r = 0; r < rows_; ++r) {
      std::vector<std::pair<double, double>> all;  // less what it is ordered by, column
      for (size_t c = 0; c < width; ++c) {
        const double value = x[r * width + c];
        all.emplace_back(std::isfinite(value) ? -value : -HUGE_VAL, static_cast<double>(c));
      }
      std::sort(all.begin(), all.end());
      for (size_t i = 0; i < k; ++i) {
        out.push_back(x[r * width + static_cast<size_t>(all[i].second)]);
      }
      for (size_t i = 0; i < k; ++i) out.push_back(all[i].second);
    }
    slot(program, step.out()) = std::move(out);
  }

  size_t rows_ = 0;
  std::map<int, std::vector<double>> temps_;
  std::map<std::string, std::map<std::pair<uint32_t, int32_t>, std::vector<double>>> caches_;
};

}  // namespace split::test
