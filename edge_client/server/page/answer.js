// The answer's tokens: each tinted by its time and by who finished it, each with its candidates on hover and on focus. Of a
// chat they lie in the elements of its Markdown.

import {bytes, millis} from './machines.js';
import {as_it_stands, render} from './markdown.js';

// Against the middle of the times so far: 1 is usual, 3 is slow.
function slowness(ms, times) {
  const middle = [...times].sort((a, b) => a - b)[times.length >> 1] || ms;
  return ms > 2 * middle ? 3 : ms > 1.25 * middle ? 2 : 1;
}

// A word of a table: blanks that would not show are written out.
const visible = (text) => text.replace(/\n/g, '↵').replace(/^ +$/, (blanks) => '␣'.repeat(blanks.length)) || '∅';

export class Answer {
  // `on_look` is called with the index of the token looked at, or none.
  constructor(text, card, on_look) {
    this.text = text;
    this.card = card;
    this.on_look = on_look;
    this.listen();
  }

  // Behind `prompt`; of a chat in its turn's node, as Markdown.
  begin(prompt, turn) {
    this.forget();
    this.markdown = turn !== undefined;
    this.answer = turn ?? document.createElement('span');
    if (turn) return;
    const asked = document.createElement('span');
    asked.className = 'asked';
    asked.textContent = prompt;
    this.answer.className = 'answer';
    this.text.replaceChildren(asked, this.answer);
  }
  forget() {
    this.hide();
    this.answer = undefined;
    this.tokens = [];
    this.times = [];
    this.words = '';
    this.plain = this.slow = false;
  }

  // {text, candidates: [[text, p]], ms, cut, moved, up, down}; without ms only its text is known.
  add(token) {
    const from = this.words.length;
    this.words += token.text;
    if (token.ms !== undefined) {
      if (this.tokens.length > 0) this.times.push(token.ms);  // the first one's stands for the whole prompt
      const tint = `${token.cut === 'cloud' ? 'c' : 'e'}${this.tokens.length === 0 ? 1 : slowness(token.ms, this.times.slice(-64))}`;
      this.tokens.push({...token, from, tint});
    }
    if (this.markdown) this.later();
    else this.answer.append(token.ms === undefined ? token.text : this.span(this.tokens.length - 1, token.text));
  }
  span(index, text, moved = this.tokens[index].moved) {
    const span = document.createElement('span');
    span.className = this.tokens[index].tint;
    if (moved) {
      span.classList.add('moved');
      span.dataset.moved = moved;
    }
    span.textContent = text;
    span.tabIndex = index === 0 ? 0 : -1;
    span.dataset.index = index;
    return span;
  }

  later() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.draw());
  }
  // Draws what is Markdown anew; a block that is as it was stays, with what points at it.
  draw() {
    this.pending = false;
    if (!this.markdown || !this.answer) return;
    const open = this.open?.dataset.index, focused = this.answer.contains(document.activeElement) ? document.activeElement.dataset.index : undefined;
    this.mark(undefined);
    let index = 0, last = -1;
    const paint = (at, text) => {
      if (this.tokens.length === 0) return [text];
      const nodes = [];
      for (let done = 0; done < text.length;) {
        while (this.tokens[index + 1]?.from <= at + done) index++;
        const to = Math.min(text.length, (this.tokens[index + 1]?.from ?? Infinity) - at);
        // A move is told once, and where its own token does not show, on the next one.
        nodes.push(this.span(index, text.slice(done, to), this.tokens.slice(last + 1, index + 1).findLast(({moved}) => moved)?.moved ?? ''));
        last = index;
        done = to;
      }
      return nodes;
    };
    let slow = false;
    const blocks = this.plain ? as_it_stands(this.words, paint) : render(this.words, paint, () => { slow = true; });
    this.plain ||= slow && this.slow;  // one may be the machine's
    this.slow = slow;
    [...this.answer.childNodes].slice(blocks.length).forEach((old) => old.remove());
    blocks.forEach((block, i) => {
      const old = this.answer.childNodes[i];
      if (!old) this.answer.append(block);
      else if (!old.isEqualNode(block)) old.replaceWith(block);
    });
    if (focused !== undefined && !this.answer.contains(document.activeElement)) this.at(focused)?.focus();
    this.mark(open === undefined ? undefined : this.at(open));
  }
  at(index) { return this.answer?.querySelector(`[data-index="${index}"]`) ?? undefined; }

  // Marks the word whose card is open.
  mark(span) {
    this.open?.classList.remove('open');
    this.open?.removeAttribute('aria-describedby');
    this.open = span;
    span?.classList.add('open');
    span?.setAttribute('aria-describedby', this.card.id);
  }
  show(span) {
    const index = Number(span.dataset.index), token = this.tokens[index];
    if (this.open === span) return;
    this.hide();
    this.mark(span);
    const top = Math.max(...token.candidates.map(([, p]) => p), 1e-6);
    const rows = token.candidates.map(([text, p]) => {
      const row = document.createElement('tr'), bar = document.createElement('i');
      row.className = text === token.text ? 'chosen' : '';
      row.insertCell().textContent = visible(text);
      row.insertCell().append(bar);
      bar.style.width = `${Math.max(3, 88 * p / top)}px`;
      row.insertCell().textContent = `${(100 * p).toFixed(p < .0995 ? 1 : 0)} %`;
      return row;
    });
    const table = document.createElement('table'), took = document.createElement('p');
    table.append(...rows);
    const cost = token.ms === 0 ? 'guessed, 0 ms' : millis(token.ms);  // part of the previous token's step
    took.textContent = `${cost} · ${token.cut === 'cloud' ? 'the cloud' : `cut ${token.cut}`} · token ${index + 1} of ${this.tokens.length} · ${bytes(token.up + token.down)}`;
    this.card.replaceChildren(table, took);
    this.card.hidden = false;
    const word = span.getClientRects()[0] ?? span.getBoundingClientRect(), paper = this.card.offsetParent.getBoundingClientRect();
    this.card.style.left = `${Math.max(0, Math.min(word.left - paper.left, paper.width - this.card.offsetWidth))}px`;
    // Over the answer itself where it has room there: what stands below goes on being read.
    const below = word.bottom + 6 + this.card.offsetHeight <= Math.min(innerHeight, paper.bottom) || word.top - paper.top < this.card.offsetHeight;
    this.card.style.top = `${below ? word.bottom - paper.top + 6 : word.top - paper.top - this.card.offsetHeight - 6}px`;
    this.on_look(index);
  }
  hide() {
    this.card.hidden = true;
    if (this.open) this.on_look();
    this.mark(undefined);
  }

  listen() {
    const token_of = (event) => {
      const span = event.target.closest?.('[data-index]');
      return this.answer?.contains(span) ? span : undefined;
    };
    this.text.addEventListener('pointerover', (event) => { const span = token_of(event); if (span) this.show(span); });
    this.text.addEventListener('pointerleave', () => { if (!token_of({target: document.activeElement})) this.hide(); });
    this.text.addEventListener('focusin', (event) => { const span = token_of(event); if (span) this.show(span); });
    this.text.addEventListener('focusout', () => this.hide());
    this.text.addEventListener('keydown', (event) => {
      const span = token_of(event);
      const spans = span ? [...this.answer.querySelectorAll('[data-index]')] : [], at = spans.indexOf(span);
      const next = spans[{ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: spans.length - 1}[event.key]];
      if (!next) return;
      event.preventDefault();
      span.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
}
