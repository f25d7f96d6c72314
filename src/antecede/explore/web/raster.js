// A picture as an array of pixels. Drawing many short lines and small marks into it is several times faster than a
// canvas's own paths where there is no graphics processor, and as fast where there is one.

/** @typedef {[number, number, number]} Colour */

export class Raster {
  /** @param {number} width @param {number} height */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.row = new Uint32Array(width);
  }

  /** @param {Colour} colour */
  clear(colour) {
    this.pixels.fill(pack(colour));
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {Colour} colour
   * @param {number} alpha */
  rect(x, y, width, height, colour, alpha) {
    const left = Math.max(0, Math.round(x));
    const right = Math.min(this.width, Math.round(x + width));
    const top = Math.max(0, Math.round(y));
    const bottom = Math.min(this.height, Math.round(y + height));
    if (right <= left) return;
    const solid = pack(colour);
    const share = Math.round(alpha * 256);
    for (let line = top; line < bottom; line++) {
      const begin = line * this.width;
      if (share >= 256) this.pixels.fill(solid, begin + left, begin + right);
      else for (let at = begin + left; at < begin + right; at++) this.pixels[at] = blend(this.pixels[at], solid, share);
    }
  }

  /** A filled circle, or a ring of `line` pixels. @param {number} x @param {number} y @param {number} radius
   * @param {Colour} colour @param {number} [line] */
  dot(x, y, radius, colour, line) {
    const inner = line === undefined ? -1 : radius - line;
    const solid = pack(colour);
    const { width, pixels } = this;
    const right = Math.min(width - 1, Math.ceil(x + radius));
    const bottom = Math.min(this.height - 1, Math.ceil(y + radius));
    for (let py = Math.max(0, Math.floor(y - radius)); py <= bottom; py++) {
      for (let px = Math.max(0, Math.floor(x - radius)); px <= right; px++) {
        const distance = Math.sqrt((px - x) * (px - x) + (py - y) * (py - y));
        const outer = radius + 0.5 - distance;
        if (outer <= 0) continue;
        const cover = Math.min(1, outer, inner < 0 ? 1 : distance - inner + 0.5);
        if (cover > 0) pixels[py * width + px] = blend(pixels[py * width + px], solid, (cover * 256) | 0);
      }
    }
  }

  /** A line with soft edges (Xiaolin Wu's algorithm). @param {number} x0 @param {number} y0 @param {number} x1
   * @param {number} y1 @param {Colour} colour @param {number} alpha */
  line(x0, y0, x1, y1, colour, alpha) {
    const { pixels, width } = this;
    const isSteep = Math.abs(y1 - y0) > Math.abs(x1 - x0);
    const [a0, b0, a1, b1] = isSteep ? [y0, x0, y1, x1] : [x0, y0, x1, y1];
    const slope = a1 === a0 ? 0 : (b1 - b0) / (a1 - a0);
    const across = isSteep ? width : this.height;
    const begin = Math.max(0, Math.round(Math.min(a0, a1)));
    const end = Math.min((isSteep ? this.height : width) - 1, Math.round(Math.max(a0, a1)));
    const along = isSteep ? width : 1;
    const beside = isSteep ? 1 : width;
    const solid = pack(colour);
    const share = alpha * 256;
    let b = b0 + slope * (begin - a0);
    for (let a = begin, row = begin * along; a <= end; a++, b += slope, row += along) {
      if (b < 0 || b >= across - 1) continue;
      const whole = b | 0;
      const part = (b - whole) * share;
      const at = row + whole * beside;
      pixels[at] = blend(pixels[at], solid, (share - part) | 0);
      pixels[at + beside] = blend(pixels[at + beside], solid, part | 0);
    }
  }
}

/** @param {Colour} colour */
export function pack(colour) {
  return (0xff000000 | (colour[2] << 16) | (colour[1] << 8) | colour[0]) >>> 0;
}

/** A pixel with `share` of 256 parts of another: red and blue at once, each in its own 16 bits. @param {number} below
 * @param {number} above @param {number} share */
export function blend(below, above, share) {
  const rest = 256 - share;
  const redBlue = (Math.imul(below & 0xff00ff, rest) + Math.imul(above & 0xff00ff, share)) >>> 8;
  const green = (Math.imul((below >>> 8) & 0xff, rest) + Math.imul((above >>> 8) & 0xff, share)) & 0xff00;
  return 0xff000000 | (redBlue & 0xff00ff) | green;
}
