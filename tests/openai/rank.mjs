// Clients of Cohere's, and a request as Jina's are, rank a list against the servers at argv[2], ... by the same model.
import assert from 'node:assert/strict';
import { createCohere } from '@ai-sdk/cohere';
import { rerank } from 'ai';
import { CohereClient } from 'cohere-ai';

const query = 'Who lived in the wood?';
const documents = ['The king sat on his throne.', 'A little girl lived in a wood.', 'The queen wore her crown.', 'king'];
const model = process.argv[2];
let first;
for (const origin of process.argv.slice(3)) {
  const plain = await (await fetch(`${origin}/v1/rerank`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer none' },
    body: JSON.stringify({ model, query, documents: documents.map((text) => ({ text })), top_n: 3, return_documents: true }),
  })).json();
  assert.equal(plain.results.length, 3);
  assert.equal(plain.results[0].document.text, documents[plain.results[0].index]);
  assert.ok(plain.usage.total_tokens > 0);
  const order = plain.results.map(({ index, relevance_score }) => [index, relevance_score]);
  first ??= order;
  assert.deepEqual(order, first, 'both programs say the same');

  const cohere = new CohereClient({ token: 'none', environment: origin });
  const answered = await cohere.rerank({ model, query, documents, topN: 3, returnDocuments: true });
  assert.deepEqual(answered.results.map(({ index, relevanceScore }) => [index, relevanceScore]), order);
  assert.equal(answered.results[0].document.text, documents[order[0][0]]);

  const { ranking } = await rerank({
    model: createCohere({ apiKey: 'none', baseURL: `${origin}/v1` }).reranking(model), query, documents, topN: 3,
  });
  assert.deepEqual(ranking.map(({ originalIndex, score }) => [originalIndex, score]), order);
  console.log(`${origin}: ranked by three clients`);
}
