// Elements of the page. Whatever comes from data is inserted as text or as the value of an attribute, never as markup.

const vector = "http://www.w3.org/2000/svg"; // a name, not an address

// h makes an element of HTML. Children are elements or texts.
export function h(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

// v makes an element of SVG.
export function v(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(vector, tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

// byId finds an element of the page.
export function byId(id) {
  return document.getElementById(id);
}

// text sets an element's text, if it is another: what has not changed is not read out again.
export function text(element, value) {
  if (element.textContent !== value) {
    element.textContent = value;
  }
}

// glyphs stand before words, so that a state can be found at a glance also without colours.
const glyphs = {
  hit: "◆", miss: "◇", off: "·",
  quarantine: "⊘", stop: "▽", drain: "◐", reload: "↻", engine: "●", store: "▤", prefix: "◈",
  up: "●", draining: "◐", down: "✕", open: "✕", half_open: "◑", ejected: "▽", paused: "‖", quarantined: "⊘", apart: "▽",
};

// tagged is a word of a closed set with its glyph. kind is the class that colours it, title explains it.
export function tagged(word, kind, shown = word, title = undefined) {
  return h("span", { title }, h("span", { class: `glyph ${kind}`, "aria-hidden": "true" }, glyphs[word] ?? "•"), ` ${shown}`);
}

// bar is a track that is filled to a share, with a mark at another. Its numbers stand beside it as text.
export function bar(share, kind = "", mark = undefined) {
  const width = 64;
  const at = (part) => Math.max(0, Math.min(1, part)) * width;
  return v("svg", { class: "bar", width: width + 2, height: 11, "aria-hidden": "true" },
    v("rect", { class: "track", x: 0.5, y: 0.5, width: width + 1, height: 10, rx: 2 }),
    v("rect", { class: `fill ${kind}`, x: 1, y: 1, width: at(share), height: 9, rx: 1 }),
    mark === undefined ? "" : v("line", { class: "mark", x1: 1 + at(mark), x2: 1 + at(mark), y1: 0, y2: 11 }));
}

// Table is a table whose rows are kept from one show to the next, so that focus, selection and a reader's place stay.
// A column has a head, perhaps a class and a title, which explains it, and either text(item), or make(item) with key(item) that says when it has to be made anew.
export class Table {
  constructor(table, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.heads = columns.map((column) => h("th", { scope: "col", class: column.class, title: column.title }, column.head));
    this.body = h("tbody");
    table.append(h("thead", {}, h("tr", {}, ...this.heads)), this.body);
  }

  // show makes the table's rows those of items, in their order.
  show(items, keyOf) {
    const left = new Map(this.rows);
    let next = this.body.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      let row = this.rows.get(key);
      if (row === undefined) {
        row = this.make();
        this.rows.set(key, row);
      }
      left.delete(key);
      this.fill(row, item);
      if (row === next) {
        next = next.nextElementSibling;
      } else {
        this.body.insertBefore(row, next);
      }
    }
    for (const [key, row] of left) {
      row.remove();
      this.rows.delete(key);
    }
  }

  make() {
    return h("tr", {}, ...this.columns.map((column, i) =>
      i === 0 ? h("th", { scope: "row", class: column.class }) : h("td", { class: column.class })));
  }

  fill(row, item) {
    this.columns.forEach((column, i) => {
      const cell = row.cells[i];
      if (column.text !== undefined) {
        text(cell, column.text(item));
        return;
      }
      const key = String(column.key(item));
      if (cell.made !== key) {
        cell.made = key;
        cell.replaceChildren(column.make(item));
      }
    });
  }
}
