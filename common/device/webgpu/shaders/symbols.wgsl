R"wgsl(
// The numbers of a step: of its rows and of its output rows, CAPACITY of each of these arrays, then a
// page table of PAGES numbers for each sequence.
override CAPACITY: u32;
override PAGES: u32 = 0u;
const POSITIONS = 1u;  // 0 tokens, 2 marks, 3 out_rows, as StepInput has them
const SEQUENCES = 4u;
const SEEN_FIRST = 5u;
const SEEN_END = 6u;
const ARRAYS = 7u;
const HEAD = 2u;
@group(0) @binding(0) var<storage, read> symbols: array<u32>;
fn symbol(which: u32, row: u32) -> u32 { return symbols[HEAD + which * CAPACITY + row]; }
// The page of a row's sequence that has this position.
fn page_of(row: u32, position: u32) -> u32 {
  return symbols[HEAD + ARRAYS * CAPACITY + symbol(SEQUENCES, row) * PAGES + position / 16u];
}
)wgsl"
