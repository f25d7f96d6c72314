// What our pages share: elements whose text is text, whatever is in it, and words for numbers.

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** @param {string} tag @param {string} [text] @param {string} [name] */
export function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = one + "s") {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** An element of a drawing. @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
export function drawn(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The token has opened the page, and a cookie counts from now on: it is not left in the address. */
export function forgetToken() {
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
}
