// Loops of tools as clients run them, against the edge at argv[2] and the cloud at argv[3], whose model calls a tool and
// speaks once it has the result (saying.mjs): each loop whole and streamed, in the words of three families.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatAnthropic } from '@langchain/anthropic';
import { ToolMessage } from '@langchain/core/messages';
import { tool as chainTool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { z } from 'zod';

const model = 'saying';
const apiKey = 'none is needed';
const question = 'How is the weather in Paris?';
const words = 'It is sunny in Paris.';
const city = z.object({ city: z.string() });
const parameters = z.toJSONSchema(city);
const described = { name: 'get_weather', description: 'Tells the weather of a city' };
// What a tool is asked, each time.
let asked = [];
const weather = ({ city }) => {
  asked.push(city);
  return `sunny in ${city}`;
};
const heard = (text) => {
  assert.equal(text, words);
  assert.deepEqual(asked, ['Paris']);
  asked = [];
};

const loops = {
  async 'openai chat'(origin) {
    const client = new OpenAI({ apiKey, baseURL: `${origin}/v1`, maxRetries: 0 });
    const tools = [{ type: 'function', function: { ...described, parameters } }];
    for (const stream of [false, true]) {
      const messages = [{ role: 'user', content: question }];
      const turn = async () => {
        if (!stream) return client.chat.completions.create({ model, messages, tools });
        return client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
      };
      const { choices } = await turn();
      assert.equal(choices[0].finish_reason, 'tool_calls');
      const { message } = choices[0];
      assert.equal(message.content || '', '');
      const [call] = message.tool_calls;
      messages.push(message);
      messages.push({ role: 'tool', tool_call_id: call.id, content: weather(JSON.parse(call.function.arguments)) });
      const last = await turn();
      assert.equal(last.choices[0].finish_reason, 'stop');
      heard(last.choices[0].message.content);
      const run = { ...tools[0].function, function: weather, parse: JSON.parse };
      const runner = client.chat.completions.runTools({
        model,
        stream,
        messages: [{ role: 'user', content: question }],
        tools: [{ type: 'function', function: run }],
      });
      heard(await runner.finalContent());
    }
    const nobody = { type: 'function', function: { name: 'get_time' } };
    const wrong = { model, messages: [{ role: 'user', content: question }], tools, tool_choice: nobody };
    await assert.rejects(client.chat.completions.create(wrong), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.match(error.message, /tool_choice/);
      assert.match(error.message, /get_time/);
      return true;
    });
  },

  async 'openai responses'(origin) {
    const client = new OpenAI({ apiKey, baseURL: `${origin}/v1`, maxRetries: 0 });
    const tools = [{ type: 'function', ...described, parameters, strict: true }];
    for (const stream of [false, true]) {
      const turn = async (input) => {
        if (!stream) return client.responses.create({ model, input, tools });
        return client.responses.stream({ model, input, tools }).finalResponse();
      };
      const input = [{ role: 'user', content: question }];
      const { output } = await turn(input);
      const call = output.find((item) => item.type === 'function_call');
      const result = weather(JSON.parse(call.arguments));
      input.push(...output, { type: 'function_call_output', call_id: call.call_id, output: result });
      heard((await turn(input)).output_text);
    }
  },

  async anthropic(origin) {
    const client = new Anthropic({ apiKey, baseURL: origin, maxRetries: 0 });
    const tools = [{ ...described, input_schema: parameters }];
    for (const stream of [false, true]) {
      const messages = [{ role: 'user', content: question }];
      const turn = async () => {
        const body = { model, max_tokens: 64, system: 'Be short.', messages, tools };
        const answer = await (stream ? client.messages.stream(body).finalMessage() : client.messages.create(body));
        const { input_tokens } = await client.messages.countTokens({ model, system: 'Be short.', messages, tools });
        assert.equal(answer.usage.input_tokens + answer.usage.cache_read_input_tokens, input_tokens);
        return answer;
      };
      const first = await turn();
      assert.equal(first.stop_reason, 'tool_use');
      const [use] = first.content;
      messages.push({ role: 'assistant', content: first.content });
      const result = { type: 'tool_result', tool_use_id: use.id, content: weather(use.input) };
      messages.push({ role: 'user', content: [result] });
      const last = await turn();
      assert.equal(last.stop_reason, 'end_turn');
      heard(last.content[0].text);
      const runner = client.beta.messages.toolRunner({
        model,
        stream,
        max_tokens: 64,
        messages: [{ role: 'user', content: question }],
        tools: [{ type: 'custom', ...described, input_schema: parameters, run: weather, parse: (input) => input }],
      });
      heard((await runner.runUntilDone()).content[0].text);
    }
  },

  async 'ai by both providers'(origin) {
    const compatible = createOpenAICompatible({ name: 'splitcompute', baseURL: `${origin}/v1`, includeUsage: true });
    const anthropic = createAnthropic({ apiKey, baseURL: `${origin}/v1` });
    for (const provider of [compatible, anthropic]) {
      const body = {
        model: provider(model),
        prompt: question,
        maxRetries: 0,
        maxOutputTokens: 64,
        tools: { get_weather: tool({ ...described, inputSchema: city, execute: weather }) },
        stopWhen: stepCountIs(3),
      };
      const whole = await generateText(body);
      assert.deepEqual(whole.steps.map((step) => step.finishReason), ['tool-calls', 'stop']);
      heard(whole.text);
      const streamed = streamText(body);
      let text = '';
      for await (const piece of streamed.textStream) text += piece;
      heard(text);
      assert.equal((await streamed.totalUsage).outputTokens, whole.totalUsage.outputTokens);
    }
  },

  async 'langchain by both'(origin) {
    const openai = new ChatOpenAI({ model, apiKey, maxRetries: 0, configuration: { baseURL: `${origin}/v1` } });
    const anthropic = new ChatAnthropic({ model, apiKey, maxRetries: 0, maxTokens: 64, anthropicApiUrl: origin });
    const tools = [chainTool(weather, { ...described, schema: city })];
    for (const chat of [openai, anthropic]) {
      const bound = chat.bindTools(tools);
      for (const stream of [false, true]) {
        const turn = async (messages) => {
          if (!stream) return bound.invoke(messages);
          let all;
          for await (const chunk of await bound.stream(messages)) all = all === undefined ? chunk : all.concat(chunk);
          return all;
        };
        const messages = [{ role: 'user', content: question }];
        const called = await turn(messages);
        const [call] = called.tool_calls;
        assert.equal(call.name, 'get_weather');
        messages.push(called, new ToolMessage({ content: weather(call.args), tool_call_id: call.id }));
        heard((await turn(messages)).text);
      }
    }
  },

  async ollama(origin) {
    const client = new Ollama({ host: origin });
    const tools = [{ type: 'function', function: { ...described, parameters } }];
    for (const stream of [false, true]) {
      const messages = [{ role: 'user', content: question }];
      const turn = async () => {
        const answer = await client.chat({ model, messages, tools, stream });
        if (!stream) return answer.message;
        const all = { role: 'assistant', content: '', tool_calls: [] };
        for await (const { message } of answer) {
          all.content += message.content;
          all.tool_calls.push(...(message.tool_calls ?? []));
        }
        return all;
      };
      const called = await turn();
      messages.push(called);
      const { name, arguments: args } = called.tool_calls[0].function;
      messages.push({ role: 'tool', tool_name: name, content: weather(args) });
      heard((await turn()).content);
    }
  },
};

const edgeAlone = ['openai responses', 'ollama'];
for (const [at, origin] of process.argv.slice(2).entries()) {
  while ((await fetch(`${origin}/readyz`)).status !== 200) await new Promise((resolve) => setTimeout(resolve, 100));
  for (const [name, loop] of Object.entries(loops)) {
    if (at > 0 && edgeAlone.includes(name)) continue;
    await loop(origin);
    console.log(`tools by ${name} of the ${at > 0 ? 'cloud' : 'edge'}: ok`);
  }
}
