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
