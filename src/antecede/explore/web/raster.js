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
    for (let line = top; line < bottom; line++) {
      const begin = line * this.width;
      if (alpha >= 1) this.pixels.fill(solid, begin + left, begin + right);
      else for (let at = begin + left; at < begin + right; at++) this.pixels[at] = mix(this.pixels[at], colour, alpha);
    }
  }

  /** A filled circle, or a ring of `line` pixels. @param {number} x @param {number} y @param {number} radius
   * @param {Colour} colour @param {number} [line] */
  dot(x, y, radius, colour, line) {
    const inner = line === undefined ? -1 : radius - line;
    for (let py = Math.max(0, Math.floor(y - radius)); py <= Math.min(this.height - 1, Math.ceil(y + radius)); py++) {
      for (let px = Math.max(0, Math.floor(x - radius)); px <= Math.min(this.width - 1, Math.ceil(x + radius)); px++) {
        const distance = Math.hypot(px - x, py - y);
        const cover = Math.min(clamp(radius + 0.5 - distance), inner < 0 ? 1 : clamp(distance - inner + 0.5));
        if (cover > 0) this.pixels[py * this.width + px] = mix(this.pixels[py * this.width + px], colour, cover);
      }
    }
  }

  /** A line with soft edges (Xiaolin Wu's algorithm). @param {number} x0 @param {number} y0 @param {number} x1
   * @param {number} y1 @param {Colour} colour @param {number} alpha */
  line(x0, y0, x1, y1, colour, alpha) {
    const steep = Math.abs(y1 - y0) > Math.abs(x1 - x0);
    if (steep) [x0, y0, x1, y1] = [y0, x0, y1, x1];
    if (x0 > x1) [x0, x1, y0, y1] = [x1, x0, y1, y0];
    const slope = x1 === x0 ? 0 : (y1 - y0) / (x1 - x0);
    const limit = steep ? this.height : this.width;
    const across = steep ? this.width : this.height;
    const begin = Math.max(0, Math.round(x0));
    const end = Math.min(limit - 1, Math.round(x1));
    const pixels = this.pixels;
    const step = steep ? 1 : this.width;
    let y = y0 + slope * (begin - x0);
    for (let x = begin; x <= end; x++, y += slope) {
      const whole = Math.floor(y);
      if (whole < -1 || whole >= across) continue;
      const part = y - whole;
      const at = steep ? x * this.width + whole : whole * this.width + x;
      if (whole >= 0) pixels[at] = mix(pixels[at], colour, alpha * (1 - part));
      if (whole + 1 < across) pixels[at + step] = mix(pixels[at + step], colour, alpha * part);
    }
  }
}

/** @param {Colour} colour */
export function pack(colour) {
  return (0xff000000 | (colour[2] << 16) | (colour[1] << 8) | colour[0]) >>> 0;
}

/** @param {number} below @param {Colour} colour @param {number} alpha */
export function mix(below, colour, alpha) {
  const red = below & 255;
  const green = (below >>> 8) & 255;
  const blue = (below >>> 16) & 255;
  return (
    (0xff000000 |
      ((blue + (colour[2] - blue) * alpha) << 16) |
      ((green + (colour[1] - green) * alpha) << 8) |
      (red + (colour[0] - red) * alpha)) >>>
    0
  );
}

/** @param {number} value */
function clamp(value) {
  return value < 0 ? 0 : value > 1 ? 1 : value;
}
