// OpenAI's client against the server at argv[2]: what its users call, with what they get.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const origin = process.argv[2];
const client = new OpenAI({ apiKey: 'none is needed', baseURL: `${origin}/v1`, maxRetries: 0 });

for (;;) {
  const reply = await fetch(`${origin}/readyz`);
  if (reply.status === 200) break;
  assert.equal(reply.status, 503);
  await new Promise((resolve) => setTimeout(resolve, 100));
}

const tests = {
  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.deepEqual(ids, ['demo']);
    assert.equal((await client.models.retrieve('demo')).object, 'model');
  },

  async completions() {
    const asked = { model: 'demo', prompt: 'Once upon a time', seed: 7, n: 2, logprobs: 2 };
    const { data, response } = await client.completions.create(asked).withResponse();
    assert.equal(data.object, 'text_completion');
    assert.equal(data.choices.length, 2);
    assert.equal(data.choices[0].logprobs.tokens.length, 16);
    assert.equal(data.choices[0].finish_reason, 'length');
    assert.equal(data.usage.completion_tokens, 32);
    assert.equal(data.usage.splitcompute.cut, 6);
    assert.match(response.headers.get('server-timing'), /cloud;dur=.*wire;dur=.*edge;dur=/);
    const again = await client.completions.create({ ...asked, n: 1, echo: true });
    assert.equal(again.choices[0].text, 'Once upon a time' + data.choices[0].text);
    const stopped = await client.completions.create({ ...asked, n: 1, stop: [' '] });
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    const lists = await client.completions.create({ model: 'demo', prompt: ['The king', 'The queen'] });
    assert.equal(lists.choices.length, 2);
  },

  async streams() {
    const asked = { model: 'demo', prompt: 'The king', seed: 3, max_tokens: 12 };
    const whole = await client.completions.create(asked);
    const stream = await client.completions.create({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    let usage = null;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.text ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].text);
    assert.equal(usage.total_tokens, whole.usage.total_tokens);
    assert.ok(usage.splitcompute.time_to_first_token_ms > 0);
    // Leaving in the middle ends it.
    const left = await client.completions.create({ ...asked, max_tokens: 400, stream: true });
    for await (const chunk of left) {
      assert.equal(chunk.object, 'text_completion');
      break;
    }
  },

  async chats() {
    const asked = {
      model: 'demo',
      messages: [
        { role: 'system', content: 'A story.' },
        { role: 'user', content: 'Once upon a time' },
      ],
      seed: 5,
      max_completion_tokens: 20,
    };
    const whole = await client.chat.completions.create({ ...asked, logprobs: true, top_logprobs: 3 });
    const { message, logprobs } = whole.choices[0];
    assert.equal(message.role, 'assistant');
    if (logprobs !== null) assert.equal(logprobs.content[0].top_logprobs.length, 3);
    let text = '';
    let role = '';
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
      role += chunk.choices[0]?.delta.role ?? '';
      text += chunk.choices[0]?.delta.content ?? '';
    }
    assert.equal(role, 'assistant');
    assert.equal(text, message.content);
    const runner = client.chat.completions.stream(asked);
    assert.equal(await runner.finalContent(), text);
  },

  async embeddings() {
    const input = ['Once upon a time', 'The king'];
    // The client asks for base64 by itself and decodes it.
    const decoded = await client.embeddings.create({ model: 'demo', input });
    const floats = await client.embeddings.create({ model: 'demo', input, encoding_format: 'float' });
    assert.equal(decoded.data.length, 2);
    decoded.data.forEach((item, i) => {
      assert.equal(item.embedding.length, 320);
      item.embedding.forEach((x, c) => assert.equal(x, Math.fround(floats.data[i].embedding[c])));
      assert.ok(Math.abs(Math.hypot(...item.embedding) - 1) < 1e-5);
    });
  },

  async errors() {
    const rejects = (promise, kind, more) =>
      assert.rejects(promise, (error) => {
        assert.ok(error instanceof kind, `${error}`);
        for (const [key, value] of Object.entries(more)) assert.equal(error[key], value);
        return true;
      });
    await rejects(client.completions.create({ model: 'gpt-4', prompt: 'x' }), OpenAI.NotFoundError, {
      code: 'model_not_found',
      param: 'model',
    });
    await rejects(
      client.completions.create({ model: 'demo', prompt: 'x', temperature: -1 }),
      OpenAI.BadRequestError,
      { param: 'temperature', type: 'invalid_request_error' },
    );
    await rejects(
      client.chat.completions.create({ model: 'demo', messages: [] }),
      OpenAI.BadRequestError,
      { param: 'messages' },
    );
    await rejects(client.embeddings.create({ model: 'demo', input: '' }), OpenAI.BadRequestError, {
      param: 'input',
    });
    await rejects(client.models.retrieve('gpt-4'), OpenAI.NotFoundError, { status: 404 });
  },
};

for (const [name, test] of Object.entries(tests)) {
  await test();
  console.log(`${name}: ok`);
}
