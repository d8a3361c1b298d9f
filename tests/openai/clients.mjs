// Clients that people use, against the server at argv[2]: each a plain answer, a stream that is not empty, and a wrong
// model, whose error says which one is there.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embed, generateText, streamText } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';

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
    await assert.rejects(client.responses.create({ ...asked, tools: [{ type: 'web_search' }] }), /'tools'/);
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
