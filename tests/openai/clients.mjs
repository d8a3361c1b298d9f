// Clients that people use, against the server at argv[2]: each a plain answer, a stream that is not empty, and a wrong
// model, whose error says which one is there.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embed, generateObject, generateText, streamText } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { z } from 'zod';

const origin = process.argv[2];
const baseURL = `${origin}/v1`;
const apiKey = 'none is needed';
const prompt = 'Once upon a time';
const tokens = 48;
const right = /expected demo/;

const textOf = async (stream, piece) => {
  let text = '';
  for await (const chunk of stream) text += piece(chunk) ?? '';
  assert.ok(text.trim().length > 0, 'the stream is empty');
  return text;
};

const clients = {
  async 'openai responses'() {
    const client = new OpenAI({ apiKey, baseURL, maxRetries: 0 });
    const asked = { model: 'demo', input: prompt, max_output_tokens: tokens, seed: 3 };
    const whole = await client.responses.create(asked);
    assert.ok(whole.output_text.trim().length > 0);
    const stream = await client.responses.create({ ...asked, stream: true });
    const text = await textOf(stream, (event) => (event.type === 'response.output_text.delta' ? event.delta : ''));
    assert.equal(text, whole.output_text);
    const final = await client.responses.stream(asked).finalResponse();
    assert.equal(final.output_text, whole.output_text);
    await assert.rejects(client.responses.create({ ...asked, model: 'gpt-4' }), (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.match(error.message, right);
      return true;
    });
    // What OpenAI's server would run is left out, and not chosen.
    const searches = { ...asked, tools: [{ type: 'web_search' }] };
    const { data, response } = await client.responses.create(searches).withResponse();
    assert.equal(data.output_text, whole.output_text);
    assert.equal(response.headers.get('split-tools-left-out'), 'web_search');
    await assert.rejects(client.responses.create({ ...searches, tool_choice: { type: 'web_search' } }), /'tool_choice'/);
  },

  async 'ai and openai-compatible'() {
    const provider = createOpenAICompatible({ name: 'splitcompute', baseURL });
    const asked = { prompt, maxOutputTokens: tokens, seed: 3, maxRetries: 0 };
    const whole = await generateText({ model: provider('demo'), ...asked });
    assert.ok(whole.text.trim().length > 0);
    assert.ok(whole.usage.outputTokens > 0);
    const streamed = streamText({ model: provider('demo'), ...asked });
    assert.equal(await textOf(streamed.textStream, (piece) => piece), whole.text);
    const { embedding } = await embed({ model: provider.textEmbeddingModel('demo'), value: prompt });
    assert.equal(embedding.length, 320);
    // An object of an everyday schema: what can be held of it is, and what cannot is named.
    let loosened;
    const strict = createOpenAICompatible({
      name: 'splitcompute',
      baseURL,
      supportsStructuredOutputs: true,
      fetch: async (...request) => {
        const response = await fetch(...request);
        loosened = response.headers.get('split-schema-loosened');
        return response;
      },
    });
    const held = z.object({
      age: z.number().int().min(1).max(99),
      id: z.number().int().positive(),
      pair: z.tuple([z.boolean(), z.enum(['a', 'b'])]),
      by: z.record(z.enum(['x', 'y']), z.number().int()),
      shape: z.discriminatedUnion('kind', [
        z.object({ kind: z.literal('ring'), r: z.number().int() }),
        z.object({ kind: z.literal('dot') }),
      ]),
    });
    const model = strict('demo');
    const made = await generateObject({ model, schema: held, prompt, maxOutputTokens: 400, seed: 3, maxRetries: 0 });
    assert.ok(held.safeParse(made.object).success, JSON.stringify(made.object));
    assert.equal(loosened, null);
    const client = new OpenAI({ apiKey, baseURL, maxRetries: 0 });
    const messages = [{ role: 'user', content: prompt }];
    const written = async (schema, max_tokens, loosened) => {
      const json_schema = { name: 'more', strict: true, schema: z.toJSONSchema(schema) };
      const chat = { model: 'demo', messages, max_tokens, seed: 3, response_format: { type: 'json_schema', json_schema } };
      const { data, response } = await client.chat.completions.create(chat).withResponse();
      assert.equal(response.headers.get('split-schema-loosened'), loosened);
      return data.choices[0].message.content;
    };
    // A text is held to one rule, its pattern before the others. zod's pattern of a mail address has no longest text.
    assert.match(await written(z.object({ mail: z.email().max(20) }), 16, 'format, maxLength'), /^\{"mail": "[\w'+.-]/);
    const more = z.object({ day: z.iso.date(), code: z.string().regex(/^[a-z]{3,9}$/).max(9) });
    const object = JSON.parse(await written(more, 100, 'format'));
    assert.ok(more.safeParse(object).success, JSON.stringify(object));
    await assert.rejects(generateText({ model: provider('gpt-4'), ...asked }), (error) => {
      assert.equal(error.statusCode, 404);
      assert.match(error.message, right);
      return true;
    });
  },

  async langchain() {
    const model = (name) =>
      new ChatOpenAI({ model: name, apiKey, maxTokens: tokens, maxRetries: 0, configuration: { baseURL } });
    const whole = await model('demo').invoke(prompt, { seed: 3 });
    assert.ok(whole.content.trim().length > 0);
    await textOf(await model('demo').stream(prompt, { seed: 3 }), (chunk) => chunk.content);
    const embeddings = new OpenAIEmbeddings({ model: 'demo', apiKey, maxRetries: 0, configuration: { baseURL } });
    assert.equal((await embeddings.embedQuery(prompt)).length, 320);
    await assert.rejects(model('gpt-4').invoke(prompt), right);
  },

  async ollama() {
    const client = new Ollama({ host: origin });
    const options = { num_predict: tokens, seed: 3 };
    const whole = await client.generate({ model: 'demo', prompt, options });
    assert.ok(whole.response.trim().length > 0);
    assert.ok(whole.done && whole.eval_count > 0 && whole.total_duration > 0);
    const stream = await client.generate({ model: 'demo', prompt, options, stream: true });
    assert.equal(await textOf(stream, (part) => part.response), whole.response);
    const messages = [{ role: 'user', content: prompt }];
    const chat = await client.chat({ model: 'demo', messages, options });
    assert.ok(chat.message.content.trim().length > 0);
    const parts = await client.chat({ model: 'demo', messages, options, stream: true });
    assert.equal(await textOf(parts, (part) => part.message.content), chat.message.content);
    const { embeddings } = await client.embed({ model: 'demo', input: [prompt, 'The king'] });
    assert.deepEqual(embeddings.map((one) => one.length), [320, 320]);
    assert.deepEqual((await client.list()).models.map((one) => one.name), ['demo:latest']);
    assert.equal((await client.ps()).models[0].name, 'demo:latest');
    assert.ok((await client.version()).version);
    const shown = await client.show({ model: 'demo' });
    assert.deepEqual(shown.capabilities, ['completion']);
    assert.equal(shown.model_info['gpt2.context_length'], 512);
    await assert.rejects(client.copy({ source: 'demo', destination: 'x' }), /there is nothing at this path/);
    await assert.rejects(client.delete({ model: 'demo' }), /a DELETE request takes no body/);
    const format = z.toJSONSchema(z.object({ n: z.number().int().min(3).max(5) }));
    const counted = await client.generate({ model: 'demo', prompt, format, options: { ...options, repeat_penalty: 1.3 } });
    assert.ok([3, 4, 5].includes(JSON.parse(counted.response).n), counted.response);
    for (const stream of [false, true]) {
      await assert.rejects(client.generate({ model: 'llama3', prompt, stream }), (error) => {
        assert.equal(error.status_code, 404);
        assert.match(error.message, right);
        return true;
      });
    }
  },
};

for (const [name, test] of Object.entries(clients)) {
  await test();
  console.log(`${name}: ok`);
}
