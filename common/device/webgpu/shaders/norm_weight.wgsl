R"wgsl(
// The weights of heads' norms, which are bound as `weights`.
override W_TYPE: u32;  // 0 F32, 1 F16, 2 BF16
fn weight_at(at: u32) -> f32 {
  if (W_TYPE == 0u) { return bitcast<f32>(weights[at]); }
  let word = weights[at >> 1u];
  let odd = (at & 1u) == 1u;
  if (W_TYPE == 1u) {
    let both = unpack2x16float(word);
    return select(both.x, both.y, odd);
  }
  return bitcast<f32>(select(word << 16u, word & 0xffff0000u, odd));
}
)wgsl"
