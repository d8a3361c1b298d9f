// saying.mjs FOLDER [NAME ARGUMENT VALUE WORDS]: writes a model that calls the tool NAME once and says WORDS once it has the
// result, or has no tools. A Llama of one block that adds nothing: the last token alone says which one comes next, so that
// the text is the same for whatever was asked before it. The chat template tells by the prompt's last token whether a result
// is there. Its tokenizer is the demo model's, with a token more for each piece that it says.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [folder, name = 'get_weather', argument = 'city', value = 'Paris', words = 'It is sunny in Paris.'] =
  process.argv.slice(2);
const width = 64;
// Each token of a text comes once in all of them, is none of the demo model's, and begins as no name of a message's member
// ends: role and content are read as names, not as the beginning of a token.
const after = {
  ' ': [
    `<tool_call>\n{"name": "${name}`,
    `", "arguments": {"${argument}": "${value.slice(0, 3)}`,
    `${value.slice(3)}"}}`,
    '\n</tool_call>',
  ],
  '\n': [words.slice(0, 5), words.slice(5)],
};
const template = `{%- if tools %}<|im_start|>system
# Tools
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{%- if message.content %}
{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant{{ '\\n' if messages[-1].role == 'tool' or not tools else ' ' }}{% endif %}`;

// A byte as byte-level tokenizers write it.
let high = 256;
const letters = [...Array(256).keys()].map((byte) => {
  const plain = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return String.fromCodePoint(plain ? byte : high++);
});
const tokenizer = JSON.parse(readFileSync(new URL('../../weights/demo/tokenizer.json', import.meta.url)));
const { vocab } = tokenizer.model;
const known = Object.keys(vocab).length;
const end = '<|im_end|>';
const added = ['<|im_start|>', end, ...Object.values(after).flat()];
const id = new Map(added.map((text, at) => [text, known + at]));
const size = known + added.length;
const idOf = (text) => id.get(text) ?? vocab[letters[text.charCodeAt(0)]];
const next = new Array(size).fill(idOf(end));
for (const [first, pieces] of Object.entries(after)) {
  [first, ...pieces].forEach((piece, at, all) => (next[idOf(piece)] = idOf(all[at + 1] ?? end)));
}

// The same numbers everywhere, from -1 to 1.
let state = 7;
const random = () => {  // mulberry32: rows of a plain congruence are alike
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 31 - 1;
};
const embedding = next.map(() => {
  const row = Array.from({ length: width }, random);
  const length = Math.hypot(...row);
  return row.map((value) => value / length);
});
// Each token's row is the sum of those that it comes behind.
const head = next.map((_, to) => {
  const row = new Array(width).fill(0);
  next.forEach((there, from) => there === to && from >= known && embedding[from].forEach((value, i) => (row[i] += value)));
  for (const first of Object.keys(after)) {
    if (next[idOf(first)] === to) embedding[idOf(first)].forEach((value, i) => (row[i] += value));
  }
  return row;
});

const tensors = {
  'model.embed_tokens.weight': embedding,
  'lm_head.weight': head,
  'model.norm.weight': [new Array(width).fill(10)],
};
const zeros = (rows, columns) => Array.from({ length: rows }, () => new Array(columns).fill(0));
const block = 'model.layers.0.';
for (const name of ['q', 'k', 'v', 'o']) tensors[`${block}self_attn.${name}_proj.weight`] = zeros(width, width);
for (const name of ['gate', 'up', 'down']) tensors[`${block}mlp.${name}_proj.weight`] = zeros(width, width);
for (const name of ['input', 'post_attention']) tensors[`${block}${name}_layernorm.weight`] = zeros(1, width);

const header = {};
const values = [];
for (const [name, rows] of Object.entries(tensors)) {
  const from = values.length;
  for (const row of rows) for (const value of row) values.push(value);
  header[name] = {
    dtype: 'F32',
    shape: rows.length === 1 ? [width] : [rows.length, width],
    data_offsets: [4 * from, 4 * values.length],
  };
}
let json = JSON.stringify(header);
json += ' '.repeat((8 - (json.length % 8)) % 8);
const length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(json.length));

mkdirSync(folder, { recursive: true });
const write = (name, data) => writeFileSync(join(folder, name), data);
write('model.safetensors', Buffer.concat([length, Buffer.from(json), Buffer.from(Float32Array.from(values).buffer)]));
write('config.json', JSON.stringify({
  model_type: 'llama',
  architectures: ['LlamaForCausalLM'],
  hidden_size: width,
  intermediate_size: width,
  num_hidden_layers: 1,
  num_attention_heads: 1,
  num_key_value_heads: 1,
  vocab_size: size,
  max_position_embeddings: 40960,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  hidden_act: 'silu',
  tie_word_embeddings: false,
  bos_token_id: idOf(end),
  eos_token_id: idOf(end),
}));
write('generation_config.json', JSON.stringify({ eos_token_id: idOf(end) }));
write('chat_template.jinja', template);
write('tokenizer_config.json', JSON.stringify({ eos_token: end }));
tokenizer.added_tokens.push(...added.map((content, at) => ({
  id: known + at,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: at < 2,
})));
write('tokenizer.json', JSON.stringify(tokenizer));
