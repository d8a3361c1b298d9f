R"glsl(
// One head of one row over one split: the keys of 128 positions at an absolute multiple of 128, up
// to the row's own. Leaves the weighted sum of values, the largest score and the sum of weights.
// WORKGROUP is 128: lane i scores key i; then lane (part, d) sums element d of every PARTS-th
// value, and the parts are added in order.
layout(constant_id = 10) const uint SPLITS = 1;
layout(constant_id = 11) const float SCALE = 1.0;
layout(set = 0, binding = 1) readonly buffer Qkv { float qkv[]; };
layout(set = 0, binding = 2) writeonly buffer Partial { float partial[]; };
#define CACHE(name, at) layout(set = 0, binding = at) readonly buffer name##Cache { uvec4 name[]; };
CACHE(k0, 3) CACHE(k1, 4) CACHE(k2, 5) CACHE(k3, 6) CACHE(k4, 7) CACHE(k5, 8)
CACHE(v0, 9) CACHE(v1, 10) CACHE(v2, 11) CACHE(v3, 12) CACHE(v4, 13) CACHE(v5, 14)
uvec4 load_k(uint part, uint i) {
  if (part == 0) return k0[i];
  if (part == 1) return k1[i];
  if (part == 2) return k2[i];
  if (part == 3) return k3[i];
  if (part == 4) return k4[i];
  return k5[i];
}
uint load_v(uint part, uint i) {
  if (part == 0) return v0[i >> 2][i & 3u];
  if (part == 1) return v1[i >> 2][i & 3u];
  if (part == 2) return v2[i >> 2][i & 3u];
  if (part == 3) return v3[i >> 2][i & 3u];
  if (part == 4) return v4[i >> 2][i & 3u];
  return v5[i >> 2][i & 3u];
}
float value_at(uint part, uint e) {
  if (KV_TYPE == 0) return uintBitsToFloat(load_v(part, e));
  return unpackHalf2x16(load_v(part, e >> 1))[e & 1u];
}
float key_at(uint part, uint e) {
  if (KV_TYPE == 0) return uintBitsToFloat(load_k(part, e >> 2)[e & 3u]);
  return unpackHalf2x16(load_k(part, e >> 3)[(e >> 1) & 3u])[e & 1u];
}

const uint KEYS = 128;
const uint PARTS = D < KEYS ? KEYS / D : 1;
shared float q[D];
shared float weight[KEYS];
shared float exchange[KEYS];
shared uint page_part[KEYS / PAGE_TOKENS];
shared uint page_base[KEYS / PAGE_TOKENS];

float tree_max(float value, uint lane) {
  for (uint offset = 1; offset < KEYS; offset <<= 1) {
    float other;
    if (offset < SUBGROUP) {
      other = lane_xor(value, offset);
    } else {
      barrier();
      exchange[lane] = value;
      barrier();
      other = exchange[lane ^ offset];
    }
    value = max(value, other);
  }
  return value;
}
float tree_sum(float value, uint lane) {
  for (uint offset = 1; offset < KEYS; offset <<= 1) {
    float other;
    if (offset < SUBGROUP) {
      other = lane_xor(value, offset);
    } else {
      barrier();
      exchange[lane] = value;
      barrier();
      other = exchange[lane ^ offset];
    }
    value = value + other;
  }
  return value;
}

void main() {
  const uint head = gl_WorkGroupID.x, split = gl_WorkGroupID.y, r = gl_WorkGroupID.z;
  if (r >= row_count()) return;
  const uint row = piece.row_base + r;
  const uint position = symbol(POSITIONS, row);
  if (split * KEYS > position) return;
  const uint keys = min(position + 1 - split * KEYS, KEYS);
  const uint lane = lane_index();
  for (uint d = lane; d < D; d += KEYS) q[d] = qkv[r * 3 * C + head * D + d];
  if (lane < (keys + PAGE_TOKENS - 1) / PAGE_TOKENS) {
    const uint page = page_of(symbol(SEQUENCES, row), split * KEYS + lane * PAGE_TOKENS);
    page_part[lane] = page / PIECE_PAGES;
    page_base[lane] = page % PIECE_PAGES * PAGE_TOKENS;
  }
  barrier();

  float score = -3.4e38;
  if (lane < keys) {
    const uint part = page_part[lane / PAGE_TOKENS];
    const uint base = (page_base[lane / PAGE_TOKENS] + lane % PAGE_TOKENS) * C + head * D;
    float sum = 0.0;
    if (KV_TYPE == 0 && D % 4 == 0) {
      for (uint d = 0; d < D; d += 4) {
        const vec4 k = uintBitsToFloat(load_k(part, (base + d) / 4));
        sum = fma(k.x, q[d], sum);
        sum = fma(k.y, q[d + 1], sum);
        sum = fma(k.z, q[d + 2], sum);
        sum = fma(k.w, q[d + 3], sum);
      }
    } else if (KV_TYPE == 1 && D % 8 == 0) {
      for (uint d = 0; d < D; d += 8) {
        const uvec4 bits = load_k(part, (base + d) / 8);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          const vec2 k = unpackHalf2x16(bits[i]);
          sum = fma(k.x, q[d + 2 * i], sum);
          sum = fma(k.y, q[d + 2 * i + 1], sum);
        }
      }
    } else {
      for (uint d = 0; d < D; ++d) sum = fma(key_at(part, base + d), q[d], sum);
    }
    score = sum * SCALE;
  }
  const float largest = tree_max(score, lane);
  float e = lane < keys ? exp_f(score - largest) : 0.0;
  const float total = tree_sum(e, lane);
  weight[lane] = e;
  barrier();

  const uint out_base = ((r * HEADS + head) * SPLITS + split) * (D + 2);
  if (lane == 0) {
    partial[out_base + D] = largest;
    partial[out_base + D + 1] = total;
  }
  const uint part = PARTS > 1 ? lane / D : 0;
  for (uint d = PARTS > 1 ? lane % D : lane; d < D; d += KEYS) {
    float sum = 0.0;
    if (part < PARTS) {
      for (uint key = part; key < keys; key += PARTS) {
        const uint at = (page_base[key / PAGE_TOKENS] + key % PAGE_TOKENS) * C + head * D + d;
        sum = fma(weight[key], value_at(page_part[key / PAGE_TOKENS], at), sum);
      }
    }
    if (PARTS == 1) partial[out_base + d] = sum;
    else exchange[lane] = sum;
  }
  if (PARTS > 1) {
    barrier();
    if (lane < D) {
      float sum = exchange[lane];
      for (uint p = 1; p < PARTS; ++p) sum = sum + exchange[p * D + lane];
      partial[out_base + lane] = sum;
    }
  }
}
)glsl"
