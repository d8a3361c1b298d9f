// The costs of each token: the difference of consecutive events' receipts.

// The five likeliest tokens with their probabilities, and the one that was drawn, if it is none of them.
function candidates(logprobs) {
  const top = Object.entries(logprobs?.top_logprobs?.[0] ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 5);
  const drawn = logprobs?.tokens?.[0];
  if (drawn !== undefined && !top.some(([text]) => text === drawn)) top.push([drawn, logprobs.token_logprobs[0]]);
  return top.map(([text, logprob]) => [text, Math.exp(logprob)]);
}

// The time of the cloud and the line together, by a receipt.
export const line_ms = (receipt) => receipt.cloud_and_line_ms ?? receipt.cloud_ms + receipt.wire_ms;

export class Tally {
  tokens = 0;
  told_before = 0;  // ms that the page itself measured of what the cloud streams

  // Returns an event's token with {cloud, wire, edge, both} ms and {up, down} bytes, or only its `text` if it has no costs.
  take(chunk) {
    const choice = chunk.choices[0], now = chunk.usage?.splitcompute, before = this.receipt;
    this.usage = chunk.usage ?? this.usage;
    this.receipt = now ?? before;
    if (!choice?.text) return undefined;
    if (!now) return {text: choice.text};
    const spent = (of) => Math.max(0, of(now) - (before ? of(before) : 0));
    const [wire, edge, up, down] = ['wire_ms', 'edge_ms', 'bytes_up', 'bytes_down'].map((name) => spent((one) => one[name]));
    let both = spent(line_ms);
    const move = now.moves.length > (before?.moves.length ?? 0) ? now.moves.at(-1) : undefined;
    const cut = now.moves.at(-1)?.to ?? now.cut, first = this.tokens++ === 0;
    // A stream's costs come at its end: until then a token's time is the interval between two tokens.
    const arrived = performance.now();
    let streamed = cut === 'cloud' && now.cloud_ms === null;
    if (cut === 'cloud' && edge + both === 0) {
      streamed = true;
      both = first ? now.time_to_first_token_ms : arrived - this.last_arrived;
      this.told_before += both;
    } else {
      const known = Math.min(this.told_before, both);
      this.told_before -= known;
      both -= known;
    }
    this.last_arrived = arrived;
    const ms = both + edge;
    // Only a stream cannot tell the cloud from the line.
    const parts = streamed ? {both, cloud: 0, wire: 0} : {both: 0, cloud: Math.max(0, both - wire), wire: Math.min(both, wire)};
    return {text: choice.text, ...parts, edge, ms, up, down, cut, move, first, candidates: candidates(choice.logprobs),
      counted_ms: first ? now.time_to_first_token_ms : ms};
  }
}
