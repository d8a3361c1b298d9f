// saying.mjs FOLDER: writes a model that calls a tool once and speaks once it has the result. A
// Llama of one block that adds nothing: the last token alone says which one comes next, so that the
// text is the same for whatever was asked before it. The chat template tells by the prompt's last
// token whether a result is there.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = process.argv[2];
const width = 64;
// Each token of a text comes once in all of them.
const after = {
  ' ': ['<tool_call>\n{"name": "', 'get_weather', '", "arguments": {"city": "', 'Pa', 'ris', '"}}', '\n</tool_call>'],
  '\n': ['It is', ' sunny', ' in', ' Paris.'],
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
{%- if add_generation_prompt %}<|im_start|>assistant{{ '\\n' if messages[-1].role == 'tool' else ' ' }}{% endif %}`;

// A byte as byte-level tokenizers write it.
let high = 256;
const letters = [...Array(256).keys()].map((byte) => {
  const plain = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return String.fromCodePoint(plain ? byte : high++);
});
const end = '<|im_end|>';
const added = ['<|im_start|>', end, ...Object.values(after).flat()];
const id = new Map([...letters, ...added].map((text, at) => [text, at]));
const idOf = (text) => id.get(text) ?? id.get(letters[text.charCodeAt(0)]);
const next = new Array(id.size).fill(idOf(end));
for (const [first, pieces] of Object.entries(after)) {
  [first, ...pieces].forEach((piece, at, all) => (next[idOf(piece)] = idOf(all[at + 1] ?? end)));
}

// The same numbers everywhere, from -1 to 1.
let state = 7;
const random = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 31 - 1);
const embedding = [...id.keys()].map(() => {
  const row = Array.from({ length: width }, random);
  const length = Math.hypot(...row);
  return row.map((value) => value / length);
});
// Each token's row is the sum of those that it comes behind.
const head = [...id.keys()].map((_, to) => {
  const row = new Array(width).fill(0);
  next.forEach((there, from) => there === to && from > 255 && embedding[from].forEach((value, i) => (row[i] += value)));
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
const size = Buffer.alloc(8);
size.writeBigUInt64LE(BigInt(json.length));

mkdirSync(folder, { recursive: true });
const write = (name, data) => writeFileSync(join(folder, name), data);
write('model.safetensors', Buffer.concat([size, Buffer.from(json), Buffer.from(Float32Array.from(values).buffer)]));
write('config.json', JSON.stringify({
  model_type: 'llama',
  architectures: ['LlamaForCausalLM'],
  hidden_size: width,
  intermediate_size: width,
  num_hidden_layers: 1,
  num_attention_heads: 1,
  num_key_value_heads: 1,
  vocab_size: id.size,
  max_position_embeddings: 4096,
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
write('tokenizer.json', JSON.stringify({
  version: '1.0',
  added_tokens: added.map((content, at) => ({
    id: 256 + at,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: at < 2,
  })),
  normalizer: null,
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
  post_processor: null,
  decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: {
    type: 'BPE',
    dropout: null,
    unk_token: null,
    fuse_unk: false,
    vocab: Object.fromEntries(letters.map((text, at) => [text, at])),
    merges: [],
  },
}));
