// Making and updating elements. Text from clients becomes text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes by name (`class`, `aria-label`, ...), then children: elements or texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Make an element of SVG, likewise. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Set the text of a node; does nothing if it has that text. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Set an attribute, likewise; null removes it. */
export function set(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Set a custom property of CSS, likewise. */
export function style(node, name, value) {
  const wanted = String(value);
  if (node.style.getPropertyValue(name) !== wanted) node.style.setProperty(name, wanted);
}

const children = new WeakMap(); // by parent: its children by key

/**
 * Show these items in a parent, in order. An item with a known key keeps its element, so that focus, scrolling and
 * transitions are kept. `make(item)` makes an element, and `update(child, item)` shows the item's present state.
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
