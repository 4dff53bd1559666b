// Elements, made and kept up to date. What clients said becomes text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes by name (`class`, `aria-label`, ...), then children: elements or texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same of SVG. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Give a node this text, touching it only if it has another. */
export function say(node, text) {
  const told = String(text);
  if (node.textContent !== told) node.textContent = told;
}

/** Give an attribute this value, likewise; null takes it away. */
export function set(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Set a custom property of CSS, likewise. */
export function style(node, name, value) {
  const told = String(value);
  if (node.style.getPropertyValue(name) !== told) node.style.setProperty(name, told);
}

const children = new WeakMap(); // of a parent: its children by key

/**
 * Have a parent show these items, in order: a child stays the same element as long as its key stays, so that focus,
 * scrolling and transitions are kept. `make(item)` makes one, `update(child, item)` shows what it is now.
 */
export function sync(parent, items, keyOf, make, update) {
  const known = children.get(parent) ?? new Map();
  children.set(parent, known);
  const wanted = new Map(items.map((item) => [keyOf(item), item]));
  for (const [key, child] of known) {
    if (!wanted.has(key)) {
      child.remove();
      known.delete(key);
    }
  }
  let place = parent.firstElementChild;
  for (const [key, item] of wanted) {
    let child = known.get(key);
    if (child === undefined) {
      child = make(item);
      known.set(key, child);
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
}
