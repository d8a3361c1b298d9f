// Gives a stream's events as values, until its good end: an edge in this tab has them (tab.js), a server's answer is text.

function went_away(error) {
  throw error.name === 'AbortError' ? error : new Error('The edge went away in the middle of the answer.');
}

export async function* events_of({body, events: values}) {
  const reader = (values ?? body.pipeThrough(new TextDecoderStream())).getReader();
  for (let rest = '';;) {
    const {value, done} = await reader.read().catch(went_away);
    if (done && values) return;
    if (done) throw new Error('The answer broke off before its end.');
    if (values) yield value;
    const events = values ? [] : (rest + value).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      if (!event.startsWith('data: ')) continue;  // a comment that keeps the connection alive
      if (event === 'data: [DONE]') return;
      yield JSON.parse(event.slice('data: '.length));
    }
  }
}
