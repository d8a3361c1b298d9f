// Markdown as elements: marked's lexer (Debian's libjs-marked, which the build embeds where it is installed) says what is
// what, and the elements are made here, of a fixed few kinds. No HTML of a text is ever parsed, nothing is loaded, and a link
// goes to http, https or mailto alone. Where there is no lexer, or a text is too much for it, it is shown as it stands.

import './marked.js';

const kMostDepth = 16;       // levels of nested lists and quotes; deeper ones are shown as written
const kMostLength = 20_000, kMostMarks = 2000;  // characters that are read as Markdown, and of those the ones that mark something
const kMostMs = 100;  // limit of one parse

const kNames = {amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'"};  // names that marked and models write
const plain = (text) => text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name) => kNames[name]);

function safe_address(href) {
  try {
    const url = new URL(plain(href));
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;  // relative, or none
  }
}

function element(name, children, attributes = {}) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
}

// Makes the nodes of one text. `paint(at, text)` makes those of a piece of it, which begins at `at` of the source.
class Maker {
  constructor(source, paint) {
    Object.assign(this, {source, paint, at: 0});
  }
  // The lexer drops markers and indents: each line of a piece is looked for behind the piece before, and where `names` stand
  // for characters, each of these.
  text(words, names = false) {
    return words.split(names ? /(&(?:amp|lt|gt|quot|#39);)|(?<=\n)/ : /(?<=\n)/).filter(Boolean).flatMap((piece) => {
      const found = this.source.indexOf(piece.trimEnd(), this.at), at = found < 0 ? this.at : found;
      this.at = Math.min(this.source.length, at + piece.length);
      return this.paint(at, names ? plain(piece) : piece);
    });
  }
  list(tokens, depth) { return (tokens ?? []).flatMap((token) => this.node(token, depth + 1)); }
  node(token, depth) {
    if (depth > kMostDepth) return this.text(token.raw);
    const inside = () => token.tokens?.length > 0 ? this.list(token.tokens, depth) : this.text(token.raw, true);
    switch (token.type) {
      case 'space': case 'def': return [];
      case 'paragraph': return [element('p', inside())];
      case 'heading': return [element('p', inside(), {className: 'heading'})];
      case 'hr': return [element('hr', [])];
      case 'br': return [element('br', [])];
      case 'strong': case 'em': case 'del': return [element(token.type, inside())];
      case 'codespan': return [element('code', this.text(plain(token.text)))];
      case 'code': return [element('pre', [element('code', this.text(token.text))], {tabIndex: 0})];
      case 'blockquote': return [element('blockquote', inside())];
      case 'list': return [element(token.ordered ? 'ol' : 'ul', token.items.map((item) => element('li',
        [...(item.task ? [item.checked ? '☑ ' : '☐ '] : []), ...this.list(item.tokens, depth)])), token.ordered ? {start: Number(token.start) || 0} : {})];
      case 'table': {
        const row = (cells, name) => element('tr', cells.map((cell) => element(name, this.list(cell.tokens, depth))));
        return [element('table', [element('thead', [row(token.header, 'th')]), element('tbody', token.rows.map((cells) => row(cells, 'td')))])];
      }
      case 'link': {
        const href = safe_address(token.href ?? '');
        return href ? [element('a', inside(), {href, target: '_blank', rel: 'noopener noreferrer'})] : this.text(token.raw);
      }
      case 'escape': return this.text(plain(token.text));
      case 'text': return inside();
      default: return this.text(token.raw);  // an image and HTML are shown as they stand
    }
  }
}

export const as_it_stands = (source, paint) => [element('p', paint(0, source), {className: 'plain'})];

// The blocks of a text, in order. `slow` is called where reading it took too long.
export function render(source, paint, slow = () => {}) {
  const {marked} = globalThis, begun = performance.now();
  if (!marked || source.length > kMostLength || source.match(/[*_~<>[|]/g)?.length > kMostMarks) return as_it_stands(source, paint);
  try {
    return new Maker(source, paint).list(marked.lexer(source, {...marked.getDefaults(), mangle: false}), 0);
  } catch {
    slow();
    return as_it_stands(source, paint);  // nested deeper than the stack
  } finally {
    if (performance.now() - begun > kMostMs) slow();
  }
}
