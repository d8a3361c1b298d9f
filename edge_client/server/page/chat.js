// The chat of a model with a template: its turns, which stay over a reload, and what is done with the last one.

import {keep, kept} from './kept.js';
import {render} from './markdown.js';

const kKept = 'turns';

function node_of({role, content}) {
  const node = document.createElement('div');
  node.className = role === 'user' ? 'turn user' : 'turn answer';
  node.append(...(role === 'user' ? [content] : render(content, (_, words) => [words])));
  return node;
}

export class Chat {
  turns = [];  // {role, content}: user and model alternate

  constructor(text) {
    this.text = text;
    const turns = kept(kKept);
    const whole = Array.isArray(turns) && turns.length % 2 === 0 &&
      turns.every((turn, i) => turn?.role === (i % 2 ? 'assistant' : 'user') && typeof turn.content === 'string');
    if (whole) this.turns = turns;
  }
  get empty() { return this.turns.length === 0; }

  draw() {
    this.text.replaceChildren(...this.turns.map(node_of));
  }
  clear() {
    this.turns = [];
    this.editing = false;
    keep(kKept, this.turns);
    this.draw();
  }

  // A turn begins: its request's messages, and the node for the answer. One that is edited takes the place of the last.
  begin(content) {
    if (this.editing) this.back();
    const asked = {role: 'user', content}, node = node_of({role: 'assistant', content: ''});
    this.asked = [node_of(asked), node];
    this.text.append(...this.asked);
    this.turns.push(asked);
    return {messages: [...this.turns], node};
  }
  // Ends the turn with this text; drops the turn without any.
  end(content) {
    if (content === '') {
      this.turns.pop();
      for (const node of this.asked) node.remove();
    } else {
      this.turns.push({role: 'assistant', content});
    }
    keep(kKept, this.turns);
    return content !== '';
  }
  // Removes the last turn; returns its prompt.
  back() {
    this.edit(false);
    const [asked] = this.turns.splice(-2);
    for (let i = 0; i < 2; i++) this.text.lastElementChild?.remove();
    return asked.content;
  }
  // The last turn is to be asked in other words, or not any more; returns its words.
  edit(editing) {
    this.editing = editing && !this.empty;
    [...this.text.children].slice(-2).forEach((node) => node.classList.toggle('fading', this.editing));
    return this.turns.at(-2)?.content;
  }
}
