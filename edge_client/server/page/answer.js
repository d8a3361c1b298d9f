// The answer's tokens: each tinted by its time and by who finished it, each with its candidates on hover and on focus.

import {bytes, millis} from './machines.js';

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

  begin(prompt) {
    this.tokens = [];
    this.times = [];
    const asked = document.createElement('span');
    this.answer = document.createElement('span');
    asked.className = 'asked';
    asked.textContent = prompt;
    this.answer.className = 'answer';
    this.text.replaceChildren(asked, this.answer);
    this.hide();
  }
  get words() { return this.answer.textContent; }

  // {text, candidates: [[text, p]], ms, parts, cut, moved, up, down}
  add(token) {
    const span = document.createElement('span');
    if (this.tokens.length > 0) this.times.push(token.ms);  // the first one's stands for the whole prompt
    span.className = `${token.cut === 'cloud' ? 'c' : 'e'}${this.tokens.length === 0 ? 1 : slowness(token.ms, this.times.slice(-64))}`;
    if (token.moved) {
      span.classList.add('moved');
      span.dataset.moved = token.moved;
    }
    span.textContent = token.text;
    span.tabIndex = this.tokens.length === 0 ? 0 : -1;
    span.dataset.index = this.tokens.length;
    this.tokens.push(token);
    this.answer.append(span);
  }

  show(span) {
    const index = Number(span.dataset.index), token = this.tokens[index];
    if (this.open === span) return;
    this.hide();
    this.open = span;
    span.classList.add('open');
    span.setAttribute('aria-describedby', this.card.id);
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
    const cost = token.ms === 0 ? 'guessed, 0 ms' : millis(token.ms);  // it came in the step of the token before
    took.textContent = `${cost} · ${token.cut === 'cloud' ? 'the cloud' : `cut ${token.cut}`} · token ${index + 1} of ${this.tokens.length} · ${bytes(token.up + token.down)}`;
    this.card.replaceChildren(table, took);
    this.card.hidden = false;
    const word = span.getClientRects()[0] ?? span.getBoundingClientRect(), paper = this.card.offsetParent.getBoundingClientRect();
    this.card.style.left = `${Math.max(0, Math.min(word.left - paper.left, paper.width - this.card.offsetWidth))}px`;
    const below = word.bottom + 6 + this.card.offsetHeight <= innerHeight || word.top < this.card.offsetHeight;
    this.card.style.top = `${below ? word.bottom - paper.top + 6 : word.top - paper.top - this.card.offsetHeight - 6}px`;
    this.on_look(index);
  }
  hide() {
    this.card.hidden = true;
    this.open?.classList.remove('open');
    this.open?.removeAttribute('aria-describedby');
    if (this.open) this.on_look();
    this.open = undefined;
  }

  listen() {
    const token_of = (event) => event.target.closest?.('[data-index]');
    this.text.addEventListener('pointerover', (event) => { const span = token_of(event); if (span) this.show(span); });
    this.text.addEventListener('pointerleave', () => { if (!token_of({target: document.activeElement})) this.hide(); });
    this.text.addEventListener('focusin', (event) => { const span = token_of(event); if (span) this.show(span); });
    this.text.addEventListener('focusout', () => this.hide());
    this.text.addEventListener('keydown', (event) => {
      const span = token_of(event);
      const next = {ArrowRight: span?.nextElementSibling, ArrowLeft: span?.previousElementSibling,
        Home: this.answer?.firstElementChild, End: this.answer?.lastElementChild}[event.key];
      if (!span || !next) return;
      event.preventDefault();
      span.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
}
